from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import pytest
from fastapi.testclient import TestClient

from clover_agent.api import create_app
from tests.api.fakes import HELLO, Item, ScriptedService, settings

Connect = Callable[..., TestClient]


@pytest.fixture
def connect() -> Iterator[Connect]:
    """A client of a gateway around a script: `connect(script, **server settings)`. `client.service` is the service."""
    with ExitStack() as stack:

        def open_client(script: Sequence[Item] = HELLO, *, service: Any = None, **server: Any) -> TestClient:
            service = service or ScriptedService(script)
            client = TestClient(create_app(service, settings(**server)), base_url="http://localhost:8000")
            client.service = service  # type: ignore[attr-defined]
            return stack.enter_context(client)

        yield open_client
