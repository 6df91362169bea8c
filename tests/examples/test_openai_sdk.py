"""examples/openai-sdk and examples/curl, run as their READMEs say, on replayed answers and on sprout."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from clover_agent.cli.local import local_gateway

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
QUESTION = "What's the weather in Lisbon?"


@pytest.fixture(
    scope="module", params=["sprout", f"replay:{EXAMPLES / 'openai-sdk/replay.jsonl'}"], ids=["sprout", "replay"]
)
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    with local_gateway(request.param, names=("clover",)) as url:
        yield f"{url}/v1"


def run(*command: str, **environment: str) -> str:
    done = subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_agent_calls_its_tool_and_says_the_result(url: str) -> None:
    said = run(sys.executable, str(EXAMPLES / "openai-sdk/agent.py"), QUESTION, BASE_URL=url)
    calls = [line for line in said.splitlines() if line.startswith("[get_weather ")]
    assert [json.loads(call.removeprefix("[get_weather ")[:-1]) for call in calls] == [{"city": "Lisbon"}]
    assert "22" in said.partition(calls[0])[2]


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl")
def test_curl_sees_one_whole_call(url: str) -> None:
    lines = run(str(EXAMPLES / "curl/ask.sh"), url).splitlines()
    events: list[dict[str, Any]] = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
    deltas = [choice["delta"] for event in events for choice in event["choices"]]
    calls = [call["function"] for delta in deltas for call in delta.get("tool_calls") or ()]
    assert [call["name"] for call in calls if call.get("name")] == ["get_weather"]
    assert json.loads("".join(call["arguments"] for call in calls)) == {"city": "Lisbon"}
    assert events[-1]["usage"]["diffusion"]["tokens_per_forward"] > 1
    assert lines[-2:] == ["data: [DONE]", ""]
