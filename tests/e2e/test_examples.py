"""The examples run as they lie there."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent.parent / "examples"


@pytest.mark.parametrize(("example", "base"), [("openai-sdk", "/v1"), ("anthropic-sdk", "")])
def test_the_agent_with_an_sdk(sprout_url: str, example: str, base: str) -> None:
    agent = EXAMPLES / example / "agent.py"
    run = subprocess.run(
        [sys.executable, str(agent), f"{sprout_url}{base}", "What's the weather in Lisbon?"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines()[0] == 'calling get_weather({"city": "Lisbon"})'
    assert "21" in run.stdout.splitlines()[1]
