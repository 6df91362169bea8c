"""A reader that goes away frees its slot: the only one of the `loose` model, which has no queue either."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import litellm
import pytest

FOREVER: Any = {"messages": [{"role": "user", "content": "forever"}], "stream": True}
HELLO: Any = {"messages": [{"role": "user", "content": "Say hello."}]}


def answered_after(place: dict[str, Any]) -> None:
    """The next request is answered once the slot is free; a slot that is never freed fails here in the end."""
    for _ in range(200):
        try:
            answer = litellm.completion(**place, **HELLO)
        except litellm.RateLimitError:
            continue
        assert answer.choices[0].message.content.startswith("Bom dia")
        return
    pytest.fail("the slot was not freed")


async def closed(place: dict[str, Any]) -> None:
    stream = await litellm.acompletion(**place, **FOREVER)
    async for chunk in stream:
        assert chunk.choices[0].delta.content is not None
        break
    await stream.aclose()


async def cancelled_task(place: dict[str, Any]) -> None:
    begun = asyncio.Event()

    async def read() -> None:
        async for _ in await litellm.acompletion(**place, **FOREVER):
            begun.set()

    task = asyncio.create_task(read())
    await begun.wait()
    task.cancel()
    assert isinstance((await asyncio.gather(task, return_exceptions=True))[0], asyncio.CancelledError)


@pytest.mark.parametrize("over_http", [False, True], ids=["in process", "over HTTP"])
@pytest.mark.parametrize("leave", [closed, cancelled_task])
def test_an_asynchronous_reader_who_leaves(
    leave: Callable[[dict[str, Any]], Coroutine[Any, Any, None]], over_http: bool, loose_gateway: str
) -> None:
    place = {"model": "clover/replay", "api_base": loose_gateway} if over_http else {"model": "clover/loose"}
    asyncio.run(leave(place))
    answered_after(place)


@pytest.mark.parametrize("over_http", [False, True], ids=["in process", "over HTTP"])
def test_a_synchronous_reader_who_leaves(over_http: bool, loose_gateway: str) -> None:
    place = {"model": "clover/replay", "api_base": loose_gateway} if over_http else {"model": "clover/loose"}
    stream = litellm.completion(**place, **FOREVER)
    assert next(stream).choices[0].delta.content is not None
    stream.completion_stream.close()
    answered_after(place)


def test_a_full_engine_is_a_rate_limit() -> None:
    place = {"model": "clover/loose"}
    stream = litellm.completion(**place, **FOREVER)
    for streams in (False, True):
        with pytest.raises(litellm.RateLimitError, match="queue is full"):
            litellm.completion(**place, **HELLO, stream=streams)
        with pytest.raises(litellm.RateLimitError, match="queue is full"):
            asyncio.run(litellm.acompletion(**place, **HELLO, stream=streams))
    stream.completion_stream.close()
    answered_after(place)


@pytest.mark.parametrize("over_http", [False, True], ids=["in process", "over HTTP"])
@pytest.mark.parametrize("streams", [False, True], ids=["plain", "streamed"])
def test_a_timeout_is_for_the_whole_answer_and_frees_the_slot(
    streams: bool, over_http: bool, loose_gateway: str
) -> None:
    """A stream that goes on and on meets it too, after it has begun."""
    place = {"model": "clover/replay", "api_base": loose_gateway} if over_http else {"model": "clover/loose"}
    request = {**FOREVER, "stream": streams}
    expected = (litellm.Timeout, litellm.exceptions.MidStreamFallbackError)
    with pytest.raises(expected) as caught:
        list(litellm.completion(**place, timeout=0.05, **request))
    error = getattr(caught.value, "original_exception", None) or caught.value
    assert isinstance(error, litellm.Timeout), error
    answered_after(place)
