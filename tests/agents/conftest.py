"""A recorded gateway on replayed answers, and one client at a time in a HOME and a folder of its own.

These tests need the programs that scripts/install-agents installs, so they are run by `make test-agents` only.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from clover_agent.api import create_app
from clover_agent.cli.local import serving
from clover_agent.loading import load_service
from clover_agent.settings import EngineSettings, ModelSettings, ServerSettings, Settings
from tests.agents.clients import CLIENTS, Client, Place
from tests.agents.recorder import Recorder

Rule = dict[str, Any]
Served = tuple[Place, Recorder]
Serve = Callable[..., AbstractContextManager[Served]]


@pytest.fixture(params=CLIENTS, ids=lambda client: client.name)
def client(request: pytest.FixtureRequest) -> Client:
    client: Client = request.param
    if not client.program.exists():
        pytest.fail(f"{client.name} is not installed: run scripts/install-agents {client.name}")
    return client


@pytest.fixture
def serve(tmp_path: Path) -> Serve:
    """`serve(replay)` as a context: where the client runs, and what the gateway saw. `replay` is a file or its rules;
    keywords are settings by name."""

    @contextmanager
    def start(replay: Path | Sequence[Rule], **settings: Any) -> Iterator[Served]:
        path = replay if isinstance(replay, Path) else tmp_path / "replay.jsonl"
        if not isinstance(replay, Path):
            path.write_text("".join(json.dumps(rule) + "\n" for rule in replay))
        place = Place(tmp_path / "home", tmp_path / "work", "")
        for folder in (place.home, place.work):
            folder.mkdir()
        everything = Settings(
            model=_group(ModelSettings, settings, model=f"replay:{path}", served_model_name=("clover",)),
            engine=_group(EngineSettings, settings),
            server=_group(ServerSettings, settings, port=0, drain_s=0),
        )
        recorder = Recorder(create_app(load_service(everything), everything))
        with serving(recorder) as url:
            yield Place(place.home, place.work, url), recorder

    return start


def _group(group: Any, given: dict[str, Any], **own: Any) -> Any:
    return group(**own, **{name: value for name, value in given.items() if name in group.model_fields})
