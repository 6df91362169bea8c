"""SDKs that are no part of the main suite: each runs a small program of tests/agents/programs."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.agents.clients import INSTALLED, call
from tests.agents.conftest import Serve
from tests.agents.recorder import CHAT, RESPONSES, Recorder

PROGRAMS = Path(__file__).parent / "programs"
CITIES = [{"city": "Lisbon"}, {"city": "Oslo"}]
RULES: list[dict[str, Any]] = [
    {
        "when": {"turn": 1},
        "reply": {
            "reasoning": "Two cities.",
            "content": "I will look.",
            "tool_calls": [call("get_weather", **city) for city in CITIES],
        },
    },
    {"when": {"contains": "Oslo: 22"}, "reply": {"content": "Both have 22 degrees."}},
    {"reply": {"content": "A result was lost."}},
]


def node(name: str, url: str, tmp_path: Path) -> list[dict[str, Any]]:
    """What a program says, a JSON object a line. It finds its packages beside it."""
    packages = INSTALLED / name / "node_modules"
    if not packages.exists():
        pytest.fail(f"{name} is not installed: run scripts/install-agents {name}")
    (tmp_path / "node_modules").symlink_to(packages)
    program = str(shutil.copy(PROGRAMS / f"{name.replace('-', '_')}.mjs", tmp_path))
    return said([shutil.which("node") or "node", program, f"{url}/v1"])


def said(command: list[str]) -> list[dict[str, Any]]:
    run = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)
    assert run.returncode == 0, run.stderr
    return [json.loads(line) for line in run.stdout.splitlines()]


def all_answered(recorder: Recorder) -> bool:
    return all((exchange.path, exchange.status) == (CHAT, 200) for exchange in recorder.exchanges)


def test_openai_for_node(serve: Serve, tmp_path: Path) -> None:
    with serve(RULES) as (place, recorder):
        first, second, last = node("openai-node", place.url, tmp_path)
    assert first == {
        "finish": "tool_calls",
        "calls": [["function", "get_weather", json.dumps(city)] for city in CITIES],
        "same": True,
    }
    assert second == {"finish": "stop", "calls": [], "same": True}
    assert last == {"said": "I will look.Both have 22 degrees."}
    assert all_answered(recorder)


def test_vercel_ai_sdk(serve: Serve, tmp_path: Path) -> None:
    with serve(RULES) as (place, recorder):
        streamed, plain = node("ai-sdk", place.url, tmp_path)
    tokens = streamed.pop("tokens")
    assert tokens == plain.pop("tokens")
    assert all(tokens)
    assert streamed == plain
    assert streamed == {
        "text": "Both have 22 degrees.",
        "finish": ["tool-calls", "stop"],
        "calls": [["get_weather", city] for city in CITIES],
        "results": ["Lisbon: 22", "Oslo: 22"],
        "reasoning": ["Two cities.", ""],
    }
    assert all_answered(recorder)


def python(name: str, program: str, *arguments: str) -> list[dict[str, Any]]:
    """The same for a program in Python, with the environment that was installed for it."""
    interpreter = INSTALLED / name / "bin/python"
    if not interpreter.exists():
        pytest.fail(f"{name} is not installed: run scripts/install-agents {name}")
    return said([str(interpreter), str(PROGRAMS / program), *arguments])


def test_langchain(serve: Serve) -> None:
    with serve(RULES) as (place, recorder):
        first, last = python("langchain", "langchain_agent.py", f"{place.url}/v1")
    assert first.pop("tokens")
    assert first == {"text": "I will look.", "calls": [["get_weather", city] for city in CITIES], "same": True}
    assert (last["text"], last["calls"], last["same"]) == ("Both have 22 degrees.", [], True)
    assert all_answered(recorder)


@pytest.mark.parametrize(("face", "path"), [("chat", CHAT), ("responses", RESPONSES)])
def test_openai_agents(face: str, path: str, serve: Serve) -> None:
    with serve(RULES) as (place, recorder):
        plain, streamed = python("openai-agents", "openai_agents_loop.py", f"{place.url}/v1", face)
    expected = {"said": "Both have 22 degrees.", "calls": [json.dumps(city) for city in CITIES], "streamed": True}
    assert plain == streamed == expected
    assert {(exchange.path, exchange.status) for exchange in recorder.exchanges} == {(path, 200)}
