"""The handler that LiteLLM calls: completion and streaming, each for synchronous and asynchronous callers.

All four run the same coroutines on the host's loop; what differs is how the caller waits. Knows nothing of engines.

LiteLLM calls `astreaming` as a plain function, on a worker thread (its `acompletion` runs everything before the first
chunk there), and turns errors raised by it into their proper classes, while an error of the iterator becomes one of the
stream. So the first chunk is waited for, a moment: what is wrong with a request shows at once.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from concurrent.futures import TimeoutError as NotYet
from typing import Any

import litellm
from litellm.llms.custom_llm import CustomLLM
from litellm.types.utils import ModelResponseStream

from clover_agent.errors import CloverError
from clover_agent.litellm_provider.host import Host
from clover_agent.litellm_provider.remote import Place
from clover_agent.litellm_provider.wire import ChunkOrder, litellm_error, request_body, seconds, whole_answer
from clover_agent.proxy_config import PROVIDER

PATIENCE_S = 1.0  # bounded: LiteLLM has few worker threads, and each stream that begins holds one as long

logger = logging.getLogger("clover_agent.litellm")

Chunks = AsyncGenerator[dict[str, Any], None]


class CloverLLM(CustomLLM):  # type: ignore[misc]  # litellm is not typed
    """`clover/<model>`. With `api_base` a request goes to the gateway there, without it to the engine in here.

    The signatures are LiteLLM's, which passes everything by name; what is not named here is of no use to us.
    """

    def __init__(self, host: Host) -> None:
        super().__init__()
        self._host = host

    def completion(self, model: str, messages: list[Any], **given: Any) -> litellm.ModelResponse:
        future = self._host.submit(self._complete(model, messages, given))
        try:
            return whole_answer(future.result())
        except BaseException:
            future.cancel()
            raise

    async def acompletion(self, model: str, messages: list[Any], **given: Any) -> litellm.ModelResponse:
        return whole_answer(await asyncio.wrap_future(self._host.submit(self._complete(model, messages, given))))

    def streaming(self, model: str, messages: list[Any], **given: Any) -> Iterator[ModelResponseStream]:
        stream = self._open(model, messages, given)
        stream.begin(None)
        return stream.read()

    def astreaming(self, model: str, messages: list[Any], **given: Any) -> AsyncIterator[ModelResponseStream]:
        stream = self._open(model, messages, given)
        stream.begin(PATIENCE_S)
        return stream.aread()

    async def _complete(self, model: str, messages: list[Any], given: Mapping[str, Any]) -> dict[str, Any]:
        body = request_body(model, messages, given["optional_params"])
        try:
            return await self._host.complete(body, seconds(given.get("timeout")), _place(given))
        except Exception as error:
            raise _told(error, model) from error

    def _open(self, model: str, messages: list[Any], given: Mapping[str, Any]) -> "_Stream":
        body = request_body(model, messages, given["optional_params"], stream=True)
        chunks = self._host.stream(body, seconds(given.get("timeout")), _place(given))
        return _Stream(self._host, chunks, model)


class _Stream:
    """The chunks of one answer, made on the host's loop and read from anywhere.

    However reading ends (the last chunk, an error, a reader who goes away), the chunks are closed on their own loop,
    and with them the request.
    """

    def __init__(self, host: Host, chunks: Chunks, model: str) -> None:
        self._host, self._chunks, self._model = host, chunks, model
        self._order = ChunkOrder()
        self._next = host.submit(self._advance())

    def begin(self, patience_s: float | None) -> None:
        """Wait for the first chunk, so long. Raises what the request fails with until then."""
        try:
            self._next.result(patience_s)
        except NotYet:
            return
        except BaseException:
            self._end()
            raise

    def read(self) -> Iterator[ModelResponseStream]:
        try:
            while (chunk := self._next.result()) is not None:
                self._next = self._host.submit(self._advance())
                yield from self._order.feed(chunk)
        finally:
            self._end()

    async def aread(self) -> AsyncIterator[ModelResponseStream]:
        try:
            while (chunk := await asyncio.wrap_future(self._next)) is not None:
                self._next = self._host.submit(self._advance())
                for made in self._order.feed(chunk):
                    yield made
        finally:
            self._end()

    async def _advance(self) -> dict[str, Any] | None:
        """The next chunk; None at the end."""
        try:
            return await anext(self._chunks, None)
        except Exception as error:
            raise _told(error, self._model) from error

    def _end(self) -> None:
        """Close the chunks, not waiting for it: a reader that is cancelled must not wait."""
        self._next.cancel()
        self._host.submit(self._close())

    async def _close(self) -> None:
        try:
            await self._chunks.aclose()
        except RuntimeError:  # still running: the cancelled `_advance` is ahead of us and closes it
            logger.debug("a stream closes by its cancellation")


def _place(given: Mapping[str, Any]) -> Place | None:
    """The gateway that LiteLLM's arguments name, if they name one."""
    base = given.get("api_base")
    return Place(base, given.get("api_key")) if base else None


def _told(error: Exception, model: str) -> Exception:
    told = litellm_error(error, model, PROVIDER)
    if isinstance(told, litellm.InternalServerError) and not isinstance(error, CloverError):
        logger.error("a request through LiteLLM failed", exc_info=error)
    return told
