"""One replay file, served three ways: by a gateway (asked directly), by the provider over HTTP, and in process."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # before litellm is imported: it would ask the network

from clover_agent.cli.local import local_gateway
from clover_agent.litellm_provider import register
from clover_agent.litellm_provider.host import HOST
from clover_agent.settings import EngineSettings, ModelSettings, Settings

ONE_SLOT = EngineSettings(max_num_seqs=1, max_queue=0)
BAD_CALL = "<tool_call>\n<function=nothing_like_it>\n</function>\n</tool_call>"


@pytest.fixture(scope="session")
def replay_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    call = {"name": "get_weather", "arguments": {"city": "Lisbon", "days": 2}}
    rules = [
        {"when": {"contains": "forever"}, "reply": {"content": "again and " * 4000}},
        {"when": {"contains": "then breaks"}, "raw": f"This goes well. {BAD_CALL}"},
        {"when": {"contains": "both"}, "reply": {"tool_calls": [call, {**call, "arguments": {"city": 'Oslo "1"'}}]}},
        {
            "when": {"contains": "ponder"},
            "reply": {"reasoning": "Hm, 22°?", "content": "I look.", "tool_calls": [call]},
        },
        {"when": {"contains": "city as one object"}, "reply": {"content": '{"city": "Lisbon"}'}},
        {"when": {"has_tools": True}, "reply": {"tool_calls": [call]}},
        {"when": {}, "reply": {"content": "Bom dia, 世界! " * 12}},
    ]
    path = tmp_path_factory.mktemp("litellm") / "answers.jsonl"
    path.write_text("".join(json.dumps(rule) + "\n" for rule in rules))
    return path


@pytest.fixture(scope="session")
def gateway(replay_file: Path) -> Iterator[str]:
    with local_gateway(f"replay:{replay_file}") as url:
        yield url


@pytest.fixture(scope="session")
def loose_gateway(replay_file: Path) -> Iterator[str]:
    """Without a grammar a bad call can be written, and is found when text has left already. One slot, no queue."""
    with local_gateway(f"replay:{replay_file}", grammar=False, engine=ONE_SLOT) as url:
        yield url


@pytest.fixture(scope="session", autouse=True)
def provider(replay_file: Path) -> Iterator[None]:
    model = f"replay:{replay_file}"
    loose = ModelSettings(model=model, served_model_name=("loose",), grammar=False)
    register(model, "sprout", Settings(model=loose, engine=ONE_SLOT))
    yield
    HOST.close()
