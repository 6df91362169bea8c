"""POST /v1/messages and /v1/messages/count_tokens: Anthropic's messages, streamed and plain.

The plain answer is the streamed one, folded, so the two cannot differ.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response
from sse_starlette import ServerSentEvent

from clover_agent.api.anthropic_answer import PING, MessageStream, whole
from clover_agent.api.anthropic_request import to_conversation
from clover_agent.api.anthropic_schema import CountTokensRequest, MessagesRequest
from clover_agent.api.body import read_body
from clover_agent.api.errors import anthropic_body, public_error
from clover_agent.api.gateway import Gateway
from clover_agent.api.sse import EventStream, Relay, frame, grammar_header, opened, unless_gone
from clover_agent.types import Conversation, Event, Finished, Started

router = APIRouter()

KEEP_ALIVE = ServerSentEvent(event="ping", data='{"type":"ping"}', sep="\n")


@router.post("/v1/messages", name="messages", summary="Create a message")
async def create_message(request: Request) -> Response:
    """Messages and tools in; text, thoughts and whole, valid tool calls out, as one message or as events."""
    gateway: Gateway = request.app.state.gateway
    server = gateway.settings.server
    gateway.service  # noqa: B018 - raises where there is none: the body need not be read then
    body = await read_body(request, MessagesRequest, server.max_body_bytes)
    conversation = await _prepare(gateway, body, server.request_timeout)
    show_thoughts = not (body.thinking and body.thinking.display == "omitted")
    if not body.stream:
        work = _complete(gateway, conversation, body.model, show_thoughts)
        started, text = await unless_gone(request, work)
        return Response(text, media_type="application/json", headers=grammar_header(started))
    relay, first = await opened(request, gateway.stream(conversation, body.model), server.keep_alive_s)
    stream = _stream(body.model, relay.started, show_thoughts)
    frames = _frames(stream, relay, first, server.silence_event_s)
    return EventStream(frames, relay, server, grammar_header(relay.started), KEEP_ALIVE)


@router.post("/v1/messages/count_tokens", name="count_tokens", summary="Count the tokens of a message")
async def count_tokens(request: Request) -> JSONResponse:
    """The prompt tokens that the same request to /v1/messages would report, cached ones included."""
    gateway: Gateway = request.app.state.gateway
    service = gateway.service
    body = await read_body(request, CountTokensRequest, gateway.settings.server.max_body_bytes)
    conversation = await _prepare(gateway, body, None)
    return JSONResponse({"input_tokens": len(await service.tokens(conversation))})


async def _prepare(gateway: Gateway, body: CountTokensRequest, deadline_s: float | None) -> Conversation:
    gateway.check_model(body.model)
    # On a thread: a schema of 200 KB takes a second to check.
    return await asyncio.to_thread(
        to_conversation, body, gateway.schemas, max_context=gateway.service.max_context, deadline_s=deadline_s
    )


def _stream(model: str, started: Started | None, show_thoughts: bool) -> MessageStream:
    return MessageStream(model, started.prompt_tokens if started else 0, show_thoughts=show_thoughts)


async def _complete(
    gateway: Gateway, conversation: Conversation, model: str, show_thoughts: bool
) -> tuple[Started | None, str]:
    """The whole message as JSON, and how it was held."""
    async with aclosing(gateway.stream(conversation, model)) as events:
        answer = [event async for event in events]
    started = next((event for event in answer if isinstance(event, Started)), None)
    stream = _stream(model, started, show_thoughts)
    return started, whole([stream.opening(), *(part for event in answer for part in stream.frames(event))])


async def _frames(
    stream: MessageStream, relay: Relay, first: Event | None, silence_s: float
) -> AsyncGenerator[bytes, None]:
    opening = stream.opening()
    yield frame(opening, opening["type"])
    event = first
    try:
        while not isinstance(event, Finished):
            for part in [PING] if event is None else stream.frames(event):
                yield frame(part, part["type"])
            event = await relay.next(silence_s)
    except Exception as error:
        yield frame(anthropic_body(public_error(error)), "error")
        return
    for part in stream.frames(event):
        yield frame(part, part["type"])
