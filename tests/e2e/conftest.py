"""A real gateway on the loopback interface, once per model for the whole run."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from openai import OpenAI

from clover_agent.cli.local import local_gateway

WEATHER: Any = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Get the current weather in a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "description": "The name of the city"}},
            "required": ["city"],
        },
    },
}


@pytest.fixture(scope="session")
def sprout_url() -> Iterator[str]:
    with local_gateway("sprout") as url:
        yield url


@pytest.fixture
def sprout(sprout_url: str) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{sprout_url}/v1", api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture(scope="session")
def replay_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Answers for every turn of the tests: a thought and a call, two calls, a final answer, a very long text."""
    call = {"name": "get_weather", "arguments": {"city": "Lisbon"}}
    rules = [
        {"when": {"contains": "forever"}, "reply": {"content": "again and " * 4000}},
        {
            "when": {"contains": "both", "turn": 1},
            "reply": {"tool_calls": [call, {"name": "get_weather", "arguments": {"city": "Oslo"}}]},
        },
        {"when": {"has_tools": True, "turn": 1}, "reply": {"content": "I will look.", "tool_calls": [call]}},
        {"when": {"turn": 2}, "reply": {"content": "It is 22 degrees in Lisbon."}},
        {"when": {}, "reply": {"content": "Hello! How can I help?"}},
    ]
    path = tmp_path_factory.mktemp("replay") / "answers.jsonl"
    path.write_text("".join(json.dumps(rule) + "\n" for rule in rules))
    return path


@pytest.fixture(scope="session")
def replay_url(replay_file: Path) -> Iterator[str]:
    with local_gateway(f"replay:{replay_file}") as url:
        yield url


@pytest.fixture
def replay(replay_url: str) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{replay_url}/v1", api_key="none", max_retries=0) as client:
        yield client
