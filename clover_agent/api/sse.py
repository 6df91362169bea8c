"""Events as a stream of server-sent events, and the ways such a stream ends.

The rules, for every API face: an error before the first event is a real HTTP status; after it, an error frame and
nothing more; silence is broken by comments, and by an event before clients lose patience; a client that goes away
cancels its request, whether it streams or waits.
"""

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, Coroutine, Mapping
from typing import Any, TypeVar

import anyio
from fastapi import Request
from sse_starlette import EventSourceResponse, ServerSentEvent
from sse_starlette.sse import SendTimeoutError
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from clover_agent.settings import ServerSettings
from clover_agent.types import Event, Started

logger = logging.getLogger("clover_agent.api")

T = TypeVar("T")

KEEP_ALIVE = ServerSentEvent(comment="keep-alive", sep="\n")
DONE = b"data: [DONE]\n\n"
# JSON may hold these as they are, but some readers take them for the end of a line.
LINE_BREAKS = str.maketrans({"\x85": "\\u0085", "\u2028": "\\u2028", "\u2029": "\\u2029"})


def frame(data: Mapping[str, Any], name: str | None = None) -> bytes:
    """One event: a single line of JSON, with a name where the face names its events."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":")).translate(LINE_BREAKS)
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {text}\n\n".encode()


def grammar_header(started: Started | None) -> dict[str, str]:
    """`x-clover-grammar`: how the answer is held, "exact", "loosened" (checked before it leaves), or "none"."""
    return {"x-clover-grammar": (started.grammar if started else None) or "none"}


class Relay:
    """Reads events with patience: a wait that takes too long returns None and loses nothing.

    Owns the events; `aclose` ends them wherever they are.
    """

    def __init__(self, events: AsyncGenerator[Event, None]) -> None:
        self._events = events
        self._next: asyncio.Task[Event] | None = None
        self.started: Started | None = None

    async def next(self, patience_s: float) -> Event | None:
        """The next event; None after `patience_s` of silence. Raises what events raise. Not to be called after
        `Finished`."""
        if self._next is None:
            self._next = asyncio.create_task(self._read())
        done, _ = await asyncio.wait({self._next}, timeout=patience_s)
        if not done:
            return None
        read, self._next = self._next, None
        return read.result()

    async def first(self, patience_s: float) -> Event | None:
        """The first event that is more than `Started`: until then a request may still fail with a status."""
        event = await self.next(patience_s)
        if not isinstance(event, Started):
            return event
        self.started = event
        return await self.next(patience_s)

    async def aclose(self) -> None:
        if self._next is not None:
            self._next.cancel()
            await asyncio.gather(self._next, return_exceptions=True)
            self._next = None
        await self._events.aclose()

    async def _read(self) -> Event:
        return await anext(self._events)


class EventStream(EventSourceResponse):
    """The response that sends `frames`. The relay behind them is closed in any case, also if nothing was ever sent."""

    def __init__(
        self,
        frames: AsyncGenerator[bytes, None],
        relay: Relay,
        settings: ServerSettings,
        headers: Mapping[str, str] | None = None,
        ping: ServerSentEvent = KEEP_ALIVE,
    ) -> None:
        super().__init__(
            frames,
            headers=headers,
            ping=settings.keep_alive_s,
            ping_message_factory=lambda: ping,
            sep="\n",
            send_timeout=settings.send_timeout_s,
            # The gateway drains before the server is told to exit; this is for servers that are not ours.
            shutdown_grace_period=settings.drain_s,
        )
        self._frames = frames
        self._relay = relay

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        except SendTimeoutError:  # the server closes the connection: the stream is not complete
            logger.warning("a client does not read its stream; the request is cancelled")
        finally:
            with anyio.CancelScope(shield=True):
                await self._frames.aclose()
                await self._relay.aclose()


async def opened(
    request: Request, events: AsyncGenerator[Event, None], patience_s: float
) -> tuple[Relay, Event | None]:
    """A relay of `events` and its first event. What goes wrong until then is raised, and nothing is left running."""
    relay = Relay(events)
    try:
        return relay, await unless_gone(request, relay.first(patience_s))
    except BaseException:
        await relay.aclose()
        raise


async def unless_gone(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`. It is cancelled, and `ClientDisconnect` raised, if the client goes away first.

    The body must have been read: from then on `receive` only tells of the disconnect.
    """
    task = asyncio.create_task(work)
    gone = asyncio.create_task(_disconnected(request))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise ClientDisconnect
    finally:
        task.cancel()
        gone.cancel()
        await asyncio.gather(task, gone, return_exceptions=True)


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
