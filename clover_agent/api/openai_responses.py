"""POST /v1/responses: OpenAI's responses, streamed and plain.

The plain answer is the one that ends the streamed events, so the two cannot differ.
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
from clover_agent.api.openai_responses_answer import ResponseStream
from clover_agent.api.openai_responses_request import Tools, read_tools, to_conversation
from clover_agent.api.openai_responses_schema import ResponsesRequest
from clover_agent.api.sse import EventStream, Relay, frame, grammar_header, opened, unless_gone
from clover_agent.types import Conversation, Event, Finished, Started

router = APIRouter()

ECHOED = {"tools", "tool_choice", "text", "reasoning"}


@router.post("/v1/responses", name="responses", summary="Create a response")
async def create_response(request: Request) -> Response:
    """Items and tools in; text, thoughts and whole, valid tool calls out, as one response or as events. Nothing is
    stored."""
    gateway: Gateway = request.app.state.gateway
    server = gateway.settings.server
    gateway.service  # noqa: B018 - raises where there is none: the body need not be read then
    body = await read_body(request, ResponsesRequest, server.max_body_bytes)
    conversation, tools = await _prepare(gateway, body, server.request_timeout)
    stream = _stream(body, tools)
    dropped = {"x-clover-dropped-tools": ",".join(tools.dropped)} if tools.dropped else {}
    if not body.stream:
        started, response = await unless_gone(request, _complete(gateway, conversation, body.model, stream))
        return JSONResponse(response, headers=grammar_header(started) | dropped)
    relay, first = await opened(request, gateway.stream(conversation, body.model), server.keep_alive_s)
    frames = _frames(stream, relay, first, server.silence_event_s)
    return EventStream(frames, relay, server, grammar_header(relay.started) | dropped)


async def _prepare(gateway: Gateway, body: ResponsesRequest, deadline_s: float | None) -> tuple[Conversation, Tools]:
    gateway.check_model(body.model)
    max_context = gateway.service.max_context

    def prepare() -> tuple[Conversation, Tools]:
        tools = read_tools(body, gateway.schemas)
        conversation = to_conversation(body, tools, gateway.schemas, max_context=max_context, deadline_s=deadline_s)
        return conversation, tools

    return await asyncio.to_thread(prepare)  # a schema of 200 KB takes a second to check


def _stream(body: ResponsesRequest, tools: Tools) -> ResponseStream:
    reasoning = body.reasoning
    summary = (reasoning.summary or reasoning.generate_summary) if reasoning else None
    return ResponseStream(
        _echo(body),
        tools.origins,
        summarised=summary not in (None, "none"),
        encrypted="reasoning.encrypted_content" in (body.include or ()),
    )


def _echo(body: ResponsesRequest) -> dict[str, Any]:
    """The request's fields that a response repeats, with what holds where it says nothing."""
    given = body.model_dump(include=ECHOED, mode="json", by_alias=True, exclude_none=True)
    reasoning = {"effort": None, "summary": None, **given.get("reasoning", {})}
    extra = body.model_extra or {}
    return {
        "model": body.model,
        "instructions": body.instructions,
        "tools": given.get("tools", []),
        "tool_choice": given.get("tool_choice", "auto"),
        "parallel_tool_calls": body.parallel_tool_calls is not False,
        "text": {"format": {"type": "text"}, **given.get("text", {})},
        "reasoning": reasoning,
        "max_output_tokens": body.max_output_tokens,
        "temperature": body.temperature,
        "top_p": body.top_p,
        "metadata": extra.get("metadata") or {},
        "previous_response_id": None,
        "truncation": "disabled",
        "store": False,
        "service_tier": "default",
    }


async def _complete(
    gateway: Gateway, conversation: Conversation, model: str, stream: ResponseStream
) -> tuple[Started | None, dict[str, Any]]:
    """The whole response, and how it was held."""
    started: Started | None = None
    last: dict[str, Any] = {}
    async with aclosing(gateway.stream(conversation, model)) as events:
        async for event in events:
            started = event if isinstance(event, Started) else started
            for part in stream.frames(event):
                last = part
    response: dict[str, Any] = last["response"]
    return started, response


async def _frames(
    stream: ResponseStream, relay: Relay, first: Event | None, silence_s: float
) -> AsyncGenerator[bytes, None]:
    for part in stream.opening():
        yield frame(part, part["type"])
    event = first
    try:
        while not isinstance(event, Finished):
            for part in [stream.silence()] if event is None else stream.frames(event):
                yield frame(part, part["type"])
            event = await relay.next(silence_s)
    except Exception as error:
        part = stream.failed(public_error(error))
        yield frame(part, part["type"])
        return
    for part in stream.frames(event):
        yield frame(part, part["type"])
