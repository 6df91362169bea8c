"""Chat completions without HTTP, for whoever hosts the engine in a process of their own: bodies in, chunks out.

The same functions as behind `POST /v1/chat/completions`, so an answer is the same either way. Errors are raised as
those of `errors.py`. Knows no sockets.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any

from clover_agent.api.body import parse_model
from clover_agent.api.gateway import Gateway
from clover_agent.api.openai_chat import complete, prepare
from clover_agent.api.openai_schema import ChatCompletionRequest
from clover_agent.types import Started


async def chat_completion(gateway: Gateway, body: Mapping[str, Any], deadline_s: float | None = None) -> dict[str, Any]:
    """A whole answer, as the gateway sends it to a request that does not stream."""
    parsed = await _parse(body)
    answer, conversation = await prepare(gateway, parsed, deadline_s)
    _, completion = await complete(gateway, conversation, parsed.model)
    return answer.whole(completion)


async def chat_chunks(
    gateway: Gateway, body: Mapping[str, Any], deadline_s: float | None = None
) -> AsyncGenerator[dict[str, Any], None]:
    """The chunks of a streamed answer, in the gateway's order. What fails before the answer begins is raised before
    the first chunk. Closing the iterator cancels the request."""
    parsed = await _parse(body)
    answer, conversation = await prepare(gateway, parsed, deadline_s)
    opened = False
    async with aclosing(gateway.stream(conversation, parsed.model)) as events:
        async for event in events:
            if isinstance(event, Started):
                continue
            if not opened:
                opened = True
                yield answer.opening()
            for chunk in answer.chunks(event):
                yield chunk


async def _parse(body: Mapping[str, Any]) -> ChatCompletionRequest:
    return await asyncio.to_thread(lambda: parse_model(json.dumps(body).encode(), ChatCompletionRequest))
