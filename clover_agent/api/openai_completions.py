"""POST /v1/completions: raw prompts continued, streamed and plain. The plain answer is the streamed one, folded."""

import time
import uuid
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response

from clover_agent.api.body import read_body
from clover_agent.api.errors import public_error
from clover_agent.api.gateway import Gateway
from clover_agent.api.openai_answer import usage_body
from clover_agent.api.openai_completions_schema import CompletionRequest
from clover_agent.api.sse import DONE, EventStream, Relay, frame, opened, unless_gone
from clover_agent.types import Conversation, Draft, Event, Finished, TextDelta

router = APIRouter()


@router.post("/v1/completions", name="completions", summary="Continue a raw prompt")
async def create_completion(request: Request) -> Response:
    """Text or token ids in, text out: no chat template, no tools. Control strings in the prompt are control tokens."""
    gateway: Gateway = request.app.state.gateway
    server = gateway.settings.server
    service = gateway.service
    body = await read_body(request, CompletionRequest, server.max_body_bytes)
    gateway.check_model(body.model)
    conversation = body.conversation(service.max_context, server.request_timeout)
    options = body.stream_options
    answer = _Answer(body.model, gateway.fingerprint, bool(options and options.include_usage))
    if not body.stream:
        return JSONResponse(await unless_gone(request, _complete(gateway, conversation, answer)))
    relay, first = await opened(request, gateway.stream(conversation, body.model), server.keep_alive_s)
    return EventStream(_frames(answer, relay, first, server.silence_event_s), relay, server)


@dataclass(frozen=True, slots=True)
class _Answer:
    """The identity of one answer, the same on each of its chunks."""

    model: str
    fingerprint: str
    include_usage: bool
    id: str = field(default_factory=lambda: f"cmpl-{uuid.uuid4().hex}")
    created: int = field(default_factory=lambda: int(time.time()))

    def silence(self) -> dict[str, Any]:
        return self._chunk("")

    def chunks(self, event: Event) -> Iterator[dict[str, Any]]:
        """The chunks of one event, in order."""
        if isinstance(event, TextDelta):
            yield self._chunk(event.text)
        elif isinstance(event, Draft):
            yield {**self._chunk(""), "choices": [], "draft": {"positions": list(event.positions)}}
        elif isinstance(event, Finished):
            yield self._chunk("", event)
            if self.include_usage:
                yield {**self._chunk(""), "choices": [], "usage": usage_body(event.usage)}

    def whole(self, text: str, end: Finished) -> dict[str, Any]:
        return {**self._chunk(text, end), "usage": usage_body(end.usage)}

    def _chunk(self, text: str, end: Finished | None = None) -> dict[str, Any]:
        choice = {
            "index": 0,
            "text": text,
            "logprobs": None,
            "finish_reason": end.reason if end else None,
            "stop_reason": end.stop if end else None,
        }
        return {
            "id": self.id,
            "object": "text_completion",
            "created": self.created,
            "model": self.model,
            "system_fingerprint": self.fingerprint,
            "choices": [choice],
            **({"usage": None} if self.include_usage else {}),
        }


async def _complete(gateway: Gateway, conversation: Conversation, answer: _Answer) -> dict[str, Any]:
    text: list[str] = []
    event: Event | None = None
    async with aclosing(gateway.stream(conversation, answer.model)) as events:
        async for event in events:
            if isinstance(event, TextDelta):
                text.append(event.text)
    if not isinstance(event, Finished):
        raise TypeError("an answer ends with Finished: the gateway sees to it")
    return answer.whole("".join(text), event)


async def _frames(answer: _Answer, relay: Relay, first: Event | None, silence_s: float) -> AsyncGenerator[bytes, None]:
    event = first
    try:
        while not isinstance(event, Finished):
            for chunk in [answer.silence()] if event is None else answer.chunks(event):
                yield frame(chunk)
            event = await relay.next(silence_s)
    except Exception as error:
        yield frame(public_error(error).body())
        return
    for chunk in answer.chunks(event):
        yield frame(chunk)
    yield DONE
