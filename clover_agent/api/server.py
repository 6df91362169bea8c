"""The HTTP server: uvicorn, told to drain before it exits."""

import asyncio
import socket
from types import FrameType

import uvicorn
from fastapi import FastAPI

from clover_agent.api.gateway import Gateway
from clover_agent.settings import ServerSettings

FLUSH_S = 10  # after the drain, for answers whose last bytes a client has not read yet
# Longer than clients keep an idle connection (httpx: 5 s, as uvicorn by default): nobody shall ask on one that is just
# being closed.
IDLE_S = 75


class Server(uvicorn.Server):
    """On the first SIGTERM or SIGINT: keep listening but refuse new work (503), let running answers end, then exit.
    A second signal exits at once. Exits too when the model cannot be loaded."""

    def __init__(self, app: FastAPI, settings: ServerSettings) -> None:
        config = uvicorn.Config(
            app,
            host=settings.host,
            port=settings.port,
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=FLUSH_S,
            timeout_keep_alive=IDLE_S,
        )
        super().__init__(config)
        self.gateway: Gateway = app.state.gateway
        self._loop: asyncio.AbstractEventLoop | None = None
        self._signalled = False
        self._draining: asyncio.Task[None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets=sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self._loop is None:
            super().handle_exit(sig, frame)
        elif not self._signalled:
            self._signalled = True
            self._loop.call_soon_threadsafe(self._begin_to_drain)
        else:
            self._loop.call_soon_threadsafe(self.gateway.abort)
            self.force_exit = True
            super().handle_exit(sig, frame)

    async def on_tick(self, counter: int) -> bool:
        if self.gateway.load_error is not None:
            self.should_exit = True
        return await super().on_tick(counter)

    def _begin_to_drain(self) -> None:
        self._draining = asyncio.create_task(self._drain_and_exit())

    async def _drain_and_exit(self) -> None:
        await self.gateway.drain()
        self.should_exit = True
