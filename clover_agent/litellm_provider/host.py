"""The engines of this process, loaded once each, and the event loop that all requests of the provider run on, those
to gateways elsewhere too.

LiteLLM calls from any thread and any event loop, and its proxy may load the handler's module twice; what must exist
once lives here. Knows nothing of LiteLLM.
"""

import asyncio
import os
import threading
from collections.abc import AsyncGenerator, Coroutine, Mapping
from concurrent.futures import Future
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, TypeVar

from clover_agent.api import Gateway
from clover_agent.api.in_process import chat_chunks, chat_completion
from clover_agent.errors import ModelNotFound
from clover_agent.litellm_provider.remote import Gateways, Place
from clover_agent.settings import Settings

T = TypeVar("T")


@dataclass(slots=True)
class _Model:
    """A model that may be used. `gateway` is None until its first request."""

    settings: Settings
    gateway: Gateway | None = None
    loading: asyncio.Lock = field(default_factory=asyncio.Lock)


class Host:
    """Runs coroutines on a loop of its own (a daemon thread), and answers requests for the models it was allowed."""

    def __init__(self) -> None:
        self._models: dict[str, _Model] = {}
        self._gate = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._gateways = Gateways()  # of the loop, and made anew with it
        self._pid = os.getpid()

    def allow(self, settings: Settings) -> Mapping[str, int]:
        """Let requests name the model of `settings`; its names and context lengths. Raises `LoadFailed`."""
        from clover_agent.loading import announced  # noqa: PLC0415 - torch is not needed by those who only use HTTP

        names, context = announced(settings)
        model = _Model(settings)
        with self._gate:
            for name in names:
                self._models.setdefault(name, model)
        return dict.fromkeys(names, context)

    def submit(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        """Run `work` on the host's loop. Cancelling the future cancels the work."""
        return asyncio.run_coroutine_threadsafe(work, self._running_loop())

    async def complete(
        self, body: Mapping[str, Any], deadline_s: float | None, place: Place | None = None
    ) -> dict[str, Any]:
        """A whole answer, of the gateway at `place`, without one of a model in this process.

        Raises the errors of `errors.py`, or those of `Gateways`.
        """
        if place is not None:
            return await self._gateways.complete(place, body, deadline_s)
        return await chat_completion(await self._gateway(body["model"]), body, deadline_s)

    async def stream(
        self, body: Mapping[str, Any], deadline_s: float | None, place: Place | None = None
    ) -> AsyncGenerator[dict[str, Any], None]:
        """The chunks of an answer; as for `complete`. Closing it cancels the request."""
        if place is not None:
            chunks = self._gateways.stream(place, body, deadline_s)
        else:
            chunks = chat_chunks(await self._gateway(body["model"]), body, deadline_s)
        async with aclosing(chunks):
            async for chunk in chunks:
                yield chunk

    def close(self) -> None:
        """End what runs; the models stay allowed and are loaded again when they are asked for."""
        with self._gate:
            loop, self._loop = self._loop, None
            engines = {id(m.gateway): m.gateway for m in self._models.values() if m.gateway is not None}
            self._models = {name: _Model(model.settings) for name, model in self._models.items()}
        if loop is None or self._pid != os.getpid():
            return
        for work in (*(engine.drain() for engine in engines.values()), self._gateways.aclose()):
            asyncio.run_coroutine_threadsafe(work, loop).result()
        loop.call_soon_threadsafe(loop.stop)

    async def _gateway(self, name: str) -> Gateway:
        if not self._models:
            self.allow(Settings.load())  # as in the proxy, which names the handler and calls nothing
        model = self._models.get(name)
        if model is None:
            known = ", ".join(repr(known) for known in self._models)
            raise ModelNotFound(
                f"The model {name!r} is not allowed in this process, which has {known}. Name it in register(), "
                "or give api_base to use a gateway.",
                param="model",
            )
        async with model.loading:
            if model.gateway is None:
                model.gateway = await _start(model.settings)
        return model.gateway

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        with self._gate:
            if self._pid != os.getpid():  # the parent's thread is not in this process
                self._pid, self._loop = os.getpid(), None
                self._models = {name: _Model(model.settings) for name, model in self._models.items()}
            if self._loop is None:
                self._loop, self._gateways = asyncio.new_event_loop(), Gateways()
                threading.Thread(target=_run, args=(self._loop,), name="clover-litellm", daemon=True).start()
            return self._loop


def _run(loop: asyncio.AbstractEventLoop) -> None:
    try:
        loop.run_forever()
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


async def _start(settings: Settings) -> Gateway:
    from clover_agent.loading import load_service  # noqa: PLC0415 - as above

    gateway = Gateway(await asyncio.to_thread(load_service, settings), settings)
    await gateway.start()
    return gateway


# The one of this process: LiteLLM has no place to hand it through, and a second engine would double the memory. Its
# threads are daemons: at the exit of the process there is nothing to save.
HOST = Host()
