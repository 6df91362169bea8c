"""The same requests, sent to running gateways over HTTP. Knows nothing of LiteLLM and of engines."""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from typing import Any

from openai import AsyncOpenAI, Timeout

CONNECT_S = 5.0  # a machine that is switched off does not answer at all; the router shall soon ask another one
MOST_CLIENTS = 32


@dataclass(frozen=True, slots=True)
class Place:
    """Where a gateway is: its base URL, with or without `/v1`, and the key that it wants."""

    api_base: str
    api_key: str | None = None


class Gateways:
    """Clients of gateways, kept for their connections; these belong to one event loop, and so does this.

    `timeout_s` is for a whole answer, however it drips: keep-alives do not extend it. Raises `TimeoutError` and the
    OpenAI SDK's errors.
    """

    def __init__(self) -> None:
        self._clients: OrderedDict[Place, AsyncOpenAI] = OrderedDict()

    async def complete(self, place: Place, body: Mapping[str, Any], timeout_s: float | None) -> dict[str, Any]:
        """A whole answer."""
        async with asyncio.timeout(timeout_s):
            answer = await self._client(place).chat.completions.create(**_arguments(body, timeout_s))
        return answer.to_dict()  # type: ignore[no-any-return]

    async def stream(
        self, place: Place, body: Mapping[str, Any], timeout_s: float | None
    ) -> AsyncGenerator[dict[str, Any], None]:
        """The chunks of a streamed answer. Closing it closes the connection, which cancels the request there."""
        end = None if timeout_s is None else asyncio.get_running_loop().time() + timeout_s
        async with asyncio.timeout_at(end):
            chunks = await self._client(place).chat.completions.create(**_arguments(body, timeout_s))
        async with chunks:
            while True:
                # One limit a step: a generator may be resumed by another task each time.
                async with asyncio.timeout_at(end):
                    chunk = await anext(chunks, None)
                if chunk is None:
                    return
                yield chunk.to_dict()

    async def aclose(self) -> None:
        """Close the connections."""
        while self._clients:
            await self._clients.popitem()[1].close()

    def _client(self, place: Place) -> AsyncOpenAI:
        if place not in self._clients:
            base = place.api_base.rstrip("/")
            # Retries are LiteLLM's business.
            self._clients[place] = AsyncOpenAI(
                base_url=base if base.endswith("/v1") else f"{base}/v1", api_key=place.api_key or "none", max_retries=0
            )
        self._clients.move_to_end(place)
        if len(self._clients) > MOST_CLIENTS:
            self._clients.popitem(last=False)  # its streams go on; it is collected with the last of them
        return self._clients[place]


def _arguments(body: Mapping[str, Any], timeout_s: float | None) -> dict[str, Any]:
    """The SDK looks at three fields; the rest goes as it is, so that none of ours is unknown to it."""
    named = ("model", "messages", "stream")
    return {
        **{name: body[name] for name in named if name in body},
        "extra_body": {name: value for name, value in body.items() if name not in named},
        "timeout": Timeout(timeout_s, connect=CONNECT_S),
    }
