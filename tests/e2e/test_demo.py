"""`clover-agent demo`: the call is right on values never seen, the view shows the block, JSON is one line."""

import io
import json

import pytest
from rich.console import Console
from typer.testing import CliRunner

from clover_agent.cli import app
from clover_agent.cli.demo import calculate, get_weather, set_timer
from clover_agent.cli.live import MASK, BlockView


def demo(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["demo", *arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_json_is_one_line_with_the_call_and_the_answer() -> None:
    lines = demo("--json").splitlines()
    outcome = json.loads(lines[0])
    assert len(lines) == 1
    assert outcome["tool_calls"] == [{"name": "get_weather", "arguments": {"city": "Lisbon"}}]
    assert "22" in outcome["answer"]
    assert outcome["tokens_per_forward"] > 1


@pytest.mark.parametrize(
    ("request_", "name", "arguments"),
    [
        ("What's the weather in Quito?", "get_weather", {"city": "Quito"}),
        ("Set a timer for 25 minutes", "set_timer", {"minutes": 25}),
    ],
)
def test_the_call_is_right_on_values_it_never_saw(request_: str, name: str, arguments: dict[str, object]) -> None:
    outcome = json.loads(demo("--json", request_))
    assert outcome["tool_calls"] == [{"name": name, "arguments": arguments}]


def test_the_live_view_ends_with_the_answer() -> None:
    shown = demo("--delay", "0")
    assert "get_weather" in shown
    assert "tokens per forward pass" in shown


def test_the_block_is_drawn_with_its_masks() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=80)
    view = BlockView(delay_s=0, console=console)
    with view.answering():
        view.draft(["get", None, None, " weather"])
        view.answer("Hello", [])
    output = console.file.getvalue()  # type: ignore[attr-defined]
    assert output.count(MASK) >= 2
    assert "Hello" in output


def test_the_tools_of_the_demo_work() -> None:
    assert json.loads(get_weather("Oslo"))["temperature_c"] == 4
    assert json.loads(set_timer(5))["minutes"] == 5
    assert json.loads(calculate("3 * (2 + -5) / 2"))["result"] == -4.5
    with pytest.raises(ValueError, match="only numbers"):
        calculate("__import__('os')")
