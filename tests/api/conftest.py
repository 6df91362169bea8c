from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import pytest

from tests.api.fakes import HELLO, GatewayClient, Item, ScriptedService, settings

Connect = Callable[..., GatewayClient]


@pytest.fixture
def connect() -> Iterator[Connect]:
    """A client of a gateway around a script: `connect(script, **server settings)`."""
    with ExitStack() as stack:

        def open_client(script: Sequence[Item] = HELLO, *, service: Any = None, **server: Any) -> GatewayClient:
            return stack.enter_context(GatewayClient(service or ScriptedService(script), settings(**server)))

        yield open_client
