"""Writes down what a gateway is asked and what it answers, and stops a client that asks without end."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

MOST_REQUESTS = 60
CHAT = "/v1/chat/completions"
RESPONSES = "/v1/responses"


@dataclass
class Exchange:
    """One request and its answer."""

    method: str
    path: str
    sent: bytes = b""
    status: int | None = None
    headers: dict[str, str] = field(default_factory=dict)
    answered: bytes = b""
    complete: bool = False

    @property
    def body(self) -> dict[str, Any]:
        body: dict[str, Any] = json.loads(self.sent)
        return body

    @property
    def history(self) -> list[dict[str, Any]]:
        """The messages, or the items, that the request brings along."""
        history: list[dict[str, Any]] = self.body["input" if self.path == RESPONSES else "messages"]
        return history

    @property
    def calls(self) -> list[str]:
        """The ids of the calls in the history."""
        if self.path == RESPONSES:
            return [item["call_id"] for item in self.history if item.get("type") == "function_call"]
        return [call["id"] for message in self.history for call in message.get("tool_calls") or ()]

    @property
    def results(self) -> dict[str, str]:
        """The results in the history, by the ids of their calls."""
        if self.path == RESPONSES:
            outputs = [item for item in self.history if item.get("type") == "function_call_output"]
            return {item["call_id"]: json.dumps(item["output"], ensure_ascii=False) for item in outputs}
        said = [message for message in self.history if message["role"] == "tool"]
        return {message["tool_call_id"]: json.dumps(message["content"], ensure_ascii=False) for message in said}


class Recorder:
    """An ASGI application around another one."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self.exchanges: list[Exchange] = []
        self.on_answer: Callable[[Exchange], None] = lambda _: None  # called after each piece of an answer

    @property
    def chats(self) -> list[Exchange]:
        return [exchange for exchange in self.exchanges if exchange.path in (CHAT, RESPONSES)]

    @property
    def turns(self) -> list[Exchange]:
        """The requests of the agent's own loop: side requests (titles, summaries) have no tools."""
        return [exchange for exchange in self.chats if exchange.body.get("tools")]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        exchange = Exchange(scope["method"], scope["path"])
        self.exchanges.append(exchange)
        if len(self.exchanges) > MOST_REQUESTS:
            await send({"type": "http.response.start", "status": 400, "headers": []})
            await send({"type": "http.response.body", "body": b"too many requests for one test"})
            return

        async def listen() -> Message:
            message = await receive()
            exchange.sent += message.get("body", b"")
            return message

        async def speak(message: Message) -> None:
            if message["type"] == "http.response.start":
                exchange.status = message["status"]
                exchange.headers = {name.decode(): value.decode() for name, value in message["headers"]}
            else:
                exchange.answered += message.get("body", b"")
                exchange.complete = not message.get("more_body", False)
            await send(message)
            self.on_answer(exchange)

        await self._app(scope, listen, speak)
