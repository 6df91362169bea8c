"""examples/curl as its README says to run it."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

ASK = Path(__file__).parent.parent.parent / "examples/curl/ask.sh"


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl")
def test_curl_sees_one_whole_call(sprout_url: str) -> None:
    done = subprocess.run([str(ASK), f"{sprout_url}/v1"], capture_output=True, text=True, timeout=60, check=True)
    lines = done.stdout.splitlines()
    events: list[dict[str, Any]] = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
    deltas = [choice["delta"] for event in events for choice in event["choices"]]
    calls = [call["function"] for delta in deltas for call in delta.get("tool_calls") or ()]
    assert [call["name"] for call in calls if call.get("name")] == ["get_weather"]
    assert json.loads("".join(call["arguments"] for call in calls)) == {"city": "Lisbon"}
    assert events[-1]["usage"]["diffusion"]["tokens_per_forward"] > 1
    assert lines[-2:] == ["data: [DONE]", ""]
