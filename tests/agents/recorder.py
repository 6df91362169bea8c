"""Writes down what a gateway is asked and what it answers, and stops a client that asks without end."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

MOST_REQUESTS = 60
CHAT = "/v1/chat/completions"


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
    def tools(self) -> list[str]:
        return [tool["function"]["name"] for tool in self.body.get("tools") or ()]


class Recorder:
    """An ASGI application around another one."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self.exchanges: list[Exchange] = []
        self.on_answer: Callable[[Exchange], None] = lambda _: None  # called after each piece of an answer

    @property
    def chats(self) -> list[Exchange]:
        return [exchange for exchange in self.exchanges if exchange.path == CHAT]

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
