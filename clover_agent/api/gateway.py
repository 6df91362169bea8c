"""What every API face shares: the service behind it, whether it may be used now, and the meter of each answer.

Knows nothing of HTTP. A face asks `stream` for events; whoever runs the server calls `start` and `drain`.
"""

import asyncio
import hashlib
import logging
import threading
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from typing import Any, Literal, Protocol

from clover_agent import __version__
from clover_agent.api.json_schema import SchemaChecker
from clover_agent.errors import CloverError, GenerationFailed, LoadFailed, ModelNotFound, Unavailable
from clover_agent.settings import Settings
from clover_agent.telemetry import Metrics
from clover_agent.types import Conversation, Event, Finished

logger = logging.getLogger("clover_agent.api")

CLOSE_MARGIN_S = 10.0  # on top of the drain time, before a service that does not close is left behind


class Service(Protocol):
    """What the gateway needs of `ChatService`. `start` returns at once; requests are answered from then on."""

    @property
    def model_ids(self) -> Sequence[str]:
        """The names that clients may use; the first is the canonical one."""

    @property
    def max_context(self) -> int:
        """Prompt + new tokens."""

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """What clients may want to know of how answers come about; plain JSON values."""

    @property
    def healthy(self) -> bool:
        """False once the engine cannot answer any more."""

    def start(self) -> None: ...

    def stream(self, conversation: Conversation) -> AsyncGenerator[Event, None]:
        """Events of an answer, `Finished` last. Raises the errors of `errors.py`. Closing it cancels the request."""

    async def tokens(self, conversation: Conversation) -> Sequence[int]:
        """The prompt's token ids, also of a conversation that does not fit into the context."""

    async def decode(self, ids: Sequence[int]) -> str:
        """The text of token ids. Raises `InvalidRequest` for one that does not exist."""

    async def close(self, drain_s: float = 0.0) -> None:
        """Give running answers `drain_s` seconds, then end the others with `Unavailable`."""


State = Literal["loading", "ready", "draining", "failed"]
NOT_READY: dict[State, str] = {
    "loading": "The model is being loaded. Try again in a moment.",
    "draining": "The server is shutting down. Try again in a moment.",
    "failed": "The engine has stopped. The server must be restarted; its log says why.",
}


class Gateway:
    """One service, or the function that loads it, and its life: loading, ready, draining, failed."""

    def __init__(self, service: Service | Callable[[], Service], settings: Settings) -> None:
        self.settings = settings
        self.metrics = Metrics()
        self.schemas = SchemaChecker()
        self.created = int(time.time())
        self._load: Callable[[], Service] = service if callable(service) else lambda: service
        self._service: Service | None = None if callable(service) else service
        self._state: State = "loading"
        self.load_error: Exception | None = None
        self._loading: asyncio.Task[None] | None = None
        self._drained: asyncio.Task[None] | None = None
        self._aborting: asyncio.Task[None] | None = None

    @property
    def state(self) -> State:
        if self._state == "ready" and self._service is not None and not self._service.healthy:
            return "failed"
        return self._state

    @property
    def service(self) -> Service:
        """The service, if it may be used now. Raises `Unavailable`."""
        state = self.state
        if state != "ready" or self._service is None:
            raise Unavailable(NOT_READY[state])
        return self._service

    @property
    def fingerprint(self) -> str:
        """Changes with the package's version and the model's name."""
        text = f"{__version__} {self.service.model_ids[0]}"
        return "clover_" + hashlib.sha256(text.encode()).hexdigest()[:12]

    def check_model(self, name: str) -> None:
        """Raises `ModelNotFound` for a name that is not served."""
        names = self.service.model_ids
        if name not in names:
            served = ", ".join(repr(n) for n in names)
            raise ModelNotFound(f"The model {name!r} does not exist. This server has {served}.", param="model")

    async def stream(self, conversation: Conversation, model: str) -> AsyncGenerator[Event, None]:
        """The events of an answer, metered and logged: `Finished` is the last one, or an error of `errors.py` is
        raised. No face has to ask whether an answer is whole."""
        service = self.service
        meter = self.metrics.meter(model)
        event: Event | None = None
        try:
            async with aclosing(service.stream(conversation)) as events:
                async for event in events:
                    meter.event(event)
                    yield event
            if not isinstance(event, Finished):
                raise GenerationFailed("The engine ended the answer without finishing it.")
        except CloverError as error:
            meter.failed(error.code or error.type)
            raise
        except Exception:
            meter.failed("internal_error")
            raise
        finally:
            logger.info("answer", extra={"fields": meter.close()})

    async def start(self) -> None:
        """Load the service without holding up the event loop, and start it."""
        if self._service is not None:
            self._begin(self._service)
        else:
            self._loading = asyncio.create_task(self._load_and_begin())

    async def drain(self) -> None:
        """Refuse new requests, let the running ones end within `drain_s`, then end the rest with an error.
        Calling it again waits for the same end."""
        if self._drained is None:
            self._drained = asyncio.create_task(self._drain())
        await asyncio.shield(self._drained)

    def abort(self) -> None:
        """Cut a drain short: what still runs ends with an error now."""
        if self._service is not None:
            self._aborting = asyncio.create_task(self._service.close(0))

    def _begin(self, service: Service) -> None:
        service.start()
        self._service = service
        self._state = "ready"

    async def _load_and_begin(self) -> None:
        try:
            service = await _on_daemon_thread(self._load)
        except Exception as error:
            self._state = "failed"
            self.load_error = error
            logger.error("the model could not be loaded", exc_info=None if isinstance(error, LoadFailed) else error)
            return
        if self._state == "loading":
            self._begin(service)

    async def _drain(self) -> None:
        self._state = "draining"
        if self._loading is not None:
            self._loading.cancel()
        if self._service is None:
            return
        drain_s = self.settings.server.drain_s
        try:
            await asyncio.wait_for(self._service.close(drain_s), drain_s + CLOSE_MARGIN_S)
        except TimeoutError:
            logger.error("the engine did not close in time")


async def _on_daemon_thread(function: Callable[[], Service]) -> Service:
    """The result of `function`. Unlike a worker of the event loop's pool, its thread does not hold up the exit."""
    loop = asyncio.get_running_loop()
    result: asyncio.Future[Service] = loop.create_future()

    def run() -> None:
        try:
            service = function()
        except Exception as error:  # whatever it is, it is raised where the result is awaited
            tell(result.set_exception, error)
        else:
            tell(result.set_result, service)

    def tell(setter: Callable[[Any], None], value: Any) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(lambda: None if result.done() else setter(value))

    threading.Thread(target=run, name="clover-load", daemon=True).start()
    return await result
