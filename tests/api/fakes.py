"""A service that plays a script, and a real server on the loopback interface around it."""

import asyncio
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import httpx
import uvicorn
from fastapi.testclient import TestClient

from clover_agent.api import Gateway, Service, create_app
from clover_agent.errors import Unavailable
from clover_agent.settings import ModelSettings, ServerSettings, Settings
from clover_agent.types import (
    Conversation,
    DiffusionStats,
    Event,
    Finished,
    FinishReason,
    ReasoningDelta,
    Started,
    TextDelta,
    ToolCall,
    ToolCallDone,
    Usage,
)

USAGE = Usage(11, 7, 2, DiffusionStats(denoising_steps=4, forwards=6, forced_tokens=3, new_tokens=7, cached_tokens=5))
STARTED = Started(prompt_tokens=11)


def finished(reason: FinishReason = "stop", stop: str | None = None) -> Finished:
    return Finished(reason, USAGE, stop)


def call(index: int, arguments: str = '{"city": "Lisbon"}', name: str = "get_weather") -> ToolCallDone:
    return ToolCallDone(index, ToolCall(f"call_{index}", name, arguments))


HELLO: tuple[Event, ...] = (STARTED, TextDelta("Hel"), TextDelta("lo"), finished())
THOUGHT_AND_CALLS: tuple[Event, ...] = (
    STARTED,
    ReasoningDelta("hm, "),
    ReasoningDelta("two"),
    TextDelta("Looking."),
    call(0),
    call(1, '{"city": "Oslo"}'),
    finished("tool_calls"),
)


class Pause:
    """A place in a script where requests wait until the test says `go`. `reached` is set once `parties` are there."""

    def __init__(self, parties: int = 1) -> None:
        self.missing = parties
        self.reached = asyncio.Event()
        self.go = asyncio.Event()

    def arrive(self) -> None:
        self.missing -= 1
        if self.missing <= 0:
            self.reached.set()


Item = Event | Exception | Pause


class ScriptedService:
    """Plays the same script for every request. A pause ends with `Unavailable` when the service is closed."""

    def __init__(self, script: Sequence[Item] = HELLO, *, healthy: bool = True, max_context: int = 4096) -> None:
        self.script = script
        self.healthy = healthy
        self.capabilities: dict[str, Any] = {"path": "scripted", "constrained_unmasking": True}
        self.max_context = max_context
        self.model_ids = ("sprout", "other/name")
        self.seen: list[Conversation] = []
        self.active = 0
        self.started = False
        self.closed = asyncio.Event()
        self.cancelled = asyncio.Event()

    def start(self) -> None:
        self.started = True

    async def stream(self, conversation: Conversation) -> AsyncGenerator[Event, None]:
        self.seen.append(conversation)
        self.active += 1
        ended = False
        try:
            for item in self.script:
                if isinstance(item, Pause):
                    await self._wait(item)
                elif isinstance(item, Exception):
                    ended = True
                    raise item
                else:
                    ended = isinstance(item, Finished)
                    yield item
            ended = True
        finally:
            self.active -= 1
            if not ended:
                self.cancelled.set()

    async def tokens(self, conversation: Conversation) -> Sequence[int]:
        self.seen.append(conversation)
        return range(USAGE.prompt_tokens)

    async def decode(self, ids: Sequence[int]) -> str:
        return " ".join(map(str, ids))

    async def close(self, drain_s: float = 0.0) -> None:
        self.closed.set()

    async def _wait(self, pause: Pause) -> None:
        pause.arrive()
        go, closed = asyncio.create_task(pause.go.wait()), asyncio.create_task(self.closed.wait())
        try:
            await asyncio.wait({go, closed}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            go.cancel()
            closed.cancel()
        if self.closed.is_set() and not pause.go.is_set():
            raise Unavailable("The server has shut down before the answer was finished.")


def settings(**server: Any) -> Settings:
    return Settings(model=ModelSettings(), server=ServerSettings(**{"drain_s": 0, **server}))


def body(**fields: Any) -> dict[str, Any]:
    """A good request, with `fields` on top."""
    return {"model": "sprout", "messages": [{"role": "user", "content": "Hi"}], **fields}


def tool(name: str = "get_weather", **function: Any) -> dict[str, Any]:
    parameters = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    return {"type": "function", "function": {"name": name, "description": "", "parameters": parameters, **function}}


class GatewayClient(TestClient):
    """A client of an application around `service`, in the same process; its event loop is on a thread of its own."""

    def __init__(self, service: Any, settings: Settings) -> None:
        application = create_app(service, settings)
        super().__init__(application, base_url="http://localhost:8000")
        self.service: ScriptedService = service
        self.gateway: Gateway = application.state.gateway

    def on_loop(self, function: Callable[[], Awaitable[None]]) -> None:
        """Run a coroutine function on the application's event loop."""
        assert self.portal is not None
        self.portal.call(function)

    def wait_until_loaded(self) -> None:
        async def loaded() -> None:
            assert self.gateway._loading is not None
            await self.gateway._loading

        self.on_loop(loaded)


class _Announcing(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.up = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.up.set()


@asynccontextmanager
async def live(service: Service, chosen: Settings | None = None, **server: Any) -> AsyncIterator[str]:
    """A real server on a free port; yields its URL. It runs on the test's own event loop."""
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(
        create_app(service, chosen or settings(**server)), log_config=None, timeout_graceful_shutdown=5
    )
    running = _Announcing(config)
    task = asyncio.create_task(running.serve(sockets=[listener]))
    try:
        await running.up.wait()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        running.should_exit = True
        await task
        listener.close()


async def lines_of(response: httpx.Response) -> list[str]:
    """The lines of an event stream that are not empty."""
    return [line async for line in response.aiter_lines() if line]
