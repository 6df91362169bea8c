"""`render` and `parse`: what people debug templates with says exactly what the gateway would do."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from clover_agent.cli import app
from clover_agent.formats import FORMATS
from clover_agent.loading import load_text_parts
from clover_agent.settings import ModelSettings

RUN = CliRunner()
TOOLS = [
    {"type": "function", "function": {"name": "add", "parameters": {"properties": {"n": {"type": "integer"}}}}},
    {"type": "function", "function": {"name": "say", "parameters": {"properties": {"n": {"type": "string"}}}}},
]


@pytest.fixture
def request_file(tmp_path: Path) -> Path:
    path = tmp_path / "req.json"
    body = {"model": "m", "tools": TOOLS, "messages": [{"role": "user", "content": "hi <tool_call> <b>you</b>"}]}
    path.write_text(json.dumps(body))
    return path


def parsed(text: str, *arguments: str) -> dict[str, Any]:
    result = RUN.invoke(app, ["parse", *arguments], input=text)
    assert result.exit_code == 0, result.output
    message: dict[str, Any] = json.loads(result.stdout)
    return message


@pytest.mark.parametrize("parser", ["qwen_xml", "hermes"])
def test_render_marks_control_tokens_and_look_alikes(request_file: Path, parser: str) -> None:
    result = RUN.invoke(app, ["render", "--request", str(request_file), "--tool-call-parser", parser])
    assert result.exit_code == 0
    assert "⟦<|im_start|>⟧user\nhi ‹<tool_call>› <b>you</b>⟦<|im_end|>⟧" in result.stdout


def test_render_plain_and_ids_are_the_prompt(request_file: Path) -> None:
    tokenizer, _, _ = load_text_parts(ModelSettings(model="sprout"))
    plain = RUN.invoke(app, ["render", "--request", str(request_file), "--plain"]).stdout
    ids = [int(id_) for id_ in RUN.invoke(app, ["render", "--request", str(request_file), "--ids"]).stdout.split()]
    assert tokenizer.decode(ids) == plain
    assert ids.count(tokenizer.control["<tool_call>"]) == 0


def test_a_bad_request_gets_the_gateway_s_message(tmp_path: Path) -> None:
    path = tmp_path / "req.json"
    path.write_text(json.dumps({"model": "m", "messages": [{"role": "wizard", "content": "x"}]}))
    result = RUN.invoke(app, ["render", "--request", str(path)])
    assert result.exit_code == 2
    assert "messages.0.role" in result.output


def test_a_missing_request_file_is_named(tmp_path: Path) -> None:
    result = RUN.invoke(app, ["render", "--request", str(tmp_path / "none.json")])
    assert result.exit_code == 2
    assert "none.json" in result.output


@pytest.mark.parametrize("format_", sorted(FORMATS))
def test_parse_reads_thoughts_text_and_calls(format_: str) -> None:
    text = f"Hm.\n</think>\n\nLooking.\n\n{FORMATS[format_].encode('say', {'n': 'five'})}"
    message = parsed(text, "--format", format_, "--thinking")
    assert (message["reasoning_content"], message["content"]) == ("Hm.", "Looking.")
    assert message["tool_calls"][0]["function"] == {"name": "say", "arguments": '{"n": "five"}'}


def test_parse_converts_xml_by_the_schemas_of_the_request(request_file: Path) -> None:
    calls = "\n".join(FORMATS["qwen_xml"].encode(name, {"n": 5 if name == "add" else "5"}) for name in ("add", "say"))
    message = parsed(calls, "--format", "qwen3_coder", "--request", str(request_file))
    assert [json.loads(call["function"]["arguments"]) for call in message["tool_calls"]] == [{"n": 5}, {"n": "5"}]


def test_parse_says_when_a_call_is_malformed_or_open() -> None:
    bad = RUN.invoke(app, ["parse", "--format", "hermes"], input="<tool_call>\nnope\n</tool_call>")
    assert bad.exit_code == 1
    assert "Error" in bad.stderr
    open_ = RUN.invoke(app, ["parse", "--format", "hermes"], input='<tool_call>\n{"name": "a"')
    assert open_.exit_code == 0
    assert "inside a tool call" in open_.stderr


def test_an_unknown_format_is_named() -> None:
    result = RUN.invoke(app, ["parse", "--format", "morse"], input="x")
    assert result.exit_code == 1
    assert "morse" in result.stderr
