"""The same requests, sent to a running gateway over HTTP. Knows nothing of LiteLLM and of engines."""

from collections.abc import AsyncGenerator, Mapping
from functools import lru_cache
from typing import Any

from openai import AsyncOpenAI, Timeout

CONNECT_S = 5.0  # a machine that is switched off does not answer at all; the router shall soon ask another one


async def complete(client: AsyncOpenAI, body: Mapping[str, Any], timeout_s: float | None) -> dict[str, Any]:
    """A whole answer. Raises the OpenAI SDK's errors."""
    answer = await client.chat.completions.create(**_arguments(body, timeout_s))
    return answer.to_dict()  # type: ignore[no-any-return]


async def stream(
    client: AsyncOpenAI, body: Mapping[str, Any], timeout_s: float | None
) -> AsyncGenerator[dict[str, Any], None]:
    """The chunks of a streamed answer. Raises the OpenAI SDK's errors. Closing it closes the connection, which
    cancels the request at the gateway."""
    chunks = await client.chat.completions.create(**_arguments(body, timeout_s))
    async with chunks:
        async for chunk in chunks:
            yield chunk.to_dict()


@lru_cache(maxsize=32)
def client_for(api_base: str, api_key: str | None) -> AsyncOpenAI:
    """A client of the gateway at `api_base`, with or without `/v1`. It is kept for its connections; retries are
    LiteLLM's business."""
    base = api_base.rstrip("/")
    return AsyncOpenAI(
        base_url=base if base.endswith("/v1") else f"{base}/v1", api_key=api_key or "none", max_retries=0
    )


def _arguments(body: Mapping[str, Any], timeout_s: float | None) -> dict[str, Any]:
    """The SDK looks at three fields; the rest goes as it is, so that none of ours is unknown to it."""
    named = ("model", "messages", "stream")
    return {
        **{name: body[name] for name in named if name in body},
        "extra_body": {name: value for name, value in body.items() if name not in named},
        "timeout": Timeout(timeout_s, connect=CONNECT_S),
    }
