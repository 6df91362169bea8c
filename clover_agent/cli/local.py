"""A gateway on a free port of the loopback interface, for as long as a `with` block lasts.

For commands that talk to a model through HTTP, as a user's program would, and for the tests of examples and agents.
"""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn

from clover_agent.api import create_app
from clover_agent.errors import LoadFailed
from clover_agent.loading import load_service
from clover_agent.settings import EngineSettings, ModelSettings, ServerSettings, Settings


@contextmanager
def local_gateway(model: str, *, grammar: bool = True, engine: EngineSettings | None = None) -> Iterator[str]:
    """Serve `model` and yield the base URL, without `/v1`. Raises `LoadFailed` if the model cannot be loaded."""
    settings = Settings(
        model=ModelSettings(model=model, grammar=grammar),
        engine=engine or EngineSettings(),
        server=ServerSettings(port=0, drain_s=0),
    )
    with serving(create_app(load_service(settings), settings)) as url:
        yield url


@contextmanager
def serving(app: Callable[..., Any]) -> Iterator[str]:
    """Serve an ASGI application and yield its base URL. Raises `LoadFailed` if it does not start."""
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(app, log_config=None, lifespan="on", timeout_graceful_shutdown=5)
    server = _Announcing(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, name="clover-gateway")
    thread.start()
    try:
        server.up.wait()
        if not server.started:
            raise LoadFailed("The gateway did not start.")
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
        listener.close()


class _Announcing(uvicorn.Server):
    """Says when it is up, or when it has failed to come up, instead of being polled."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.up = threading.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        try:
            await super().startup(sockets)
        finally:
            self.up.set()
