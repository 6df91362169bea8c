"""POST /v1/chat/completions: OpenAI's chat completions, streamed and plain.

The plain answer is the streamed one, folded, so the two cannot differ.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response

from clover_agent.api.body import read_body
from clover_agent.api.errors import public_error
from clover_agent.api.gateway import Gateway
from clover_agent.api.openai_answer import Answer
from clover_agent.api.openai_request import to_conversation
from clover_agent.api.openai_schema import ChatCompletionRequest
from clover_agent.api.sse import DONE, EventStream, Relay, frame, grammar_header, opened, unless_gone
from clover_agent.parsing import Completion, collect
from clover_agent.types import Conversation, Event, Finished, Started

router = APIRouter()


@router.post("/v1/chat/completions", name="chat_completions", summary="Create a chat completion")
async def create_completion(request: Request) -> Response:
    """Messages and tools in; text, thoughts and whole, valid tool calls out, as one answer or as events."""
    gateway: Gateway = request.app.state.gateway
    server = gateway.settings.server
    gateway.service  # noqa: B018 - raises where there is none: the body need not be read then
    body = await read_body(request, ChatCompletionRequest, server.max_body_bytes)
    answer, conversation = await prepare(gateway, body, server.request_timeout)
    if not body.stream:
        started, completion = await unless_gone(request, complete(gateway, conversation, body.model))
        return JSONResponse(answer.whole(completion), headers=grammar_header(started))
    relay, first = await opened(request, gateway.stream(conversation, body.model), server.keep_alive_s)
    frames = _frames(answer, relay, first, server.silence_event_s)
    return EventStream(frames, relay, server, grammar_header(relay.started))


async def prepare(
    gateway: Gateway, body: ChatCompletionRequest, deadline_s: float | None
) -> tuple[Answer, Conversation]:
    """The identity of the answer and the conversation to be answered. Raises the errors of `errors.py`."""
    gateway.check_model(body.model)
    # On a thread: a schema of 200 KB takes a second to check.
    conversation = await asyncio.to_thread(
        to_conversation, body, gateway.schemas, max_context=gateway.service.max_context, deadline_s=deadline_s
    )
    options = body.stream_options
    answer = Answer(
        model=body.model,
        fingerprint=gateway.fingerprint,
        include_usage=bool(options and options.include_usage),
        include_drafts=bool(options and options.include_drafts),
    )
    return answer, conversation


async def complete(gateway: Gateway, conversation: Conversation, model: str) -> tuple[Started | None, Completion]:
    """The whole answer, and how it was held."""
    async with aclosing(gateway.stream(conversation, model)) as stream:
        events = [event async for event in stream]
    return next((event for event in events if isinstance(event, Started)), None), collect(events)


async def _frames(answer: Answer, relay: Relay, first: Event | None, silence_s: float) -> AsyncGenerator[bytes, None]:
    yield frame(answer.opening())
    event = first
    try:
        while not isinstance(event, Finished):
            for chunk in _chunks(answer, event):
                yield frame(chunk)
            event = await relay.next(silence_s)
    except Exception as error:
        yield frame(public_error(error).body())
        return
    for chunk in answer.chunks(event):
        yield frame(chunk)
    yield DONE


def _chunks(answer: Answer, event: Event | None) -> list[dict[str, Any]]:
    return [answer.silence()] if event is None else list(answer.chunks(event))
