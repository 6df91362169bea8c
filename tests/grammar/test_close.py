"""Closing out: a response format wherever it stands, a call only where nothing but closing structure is missing."""

import json

import pytest

from clover_agent.types import ResponseFormat, Tool, ToolChoice
from tests.grammar.harness import calls, constraint, decode, encode
from tests.grammar.tools import EXAMPLES, TOOLS

REQUIRED = ToolChoice("required")
WRITE = Tool(
    "write",
    parameters={
        "type": "object",
        "properties": {
            "path": {"type": "string"},
            "lines": {"type": "array", "items": {"type": "integer"}},
            "n": {"type": "number"},
            "force": {"type": "boolean"},
        },
        "required": ["path", "lines", "n"],
    },
)
HERMES = '<tool_call>\n{"name": "write", "arguments": '
XML = "<tool_call>\n<function=write>\n"


@pytest.mark.parametrize(
    ("format_name", "written"),
    [
        ("hermes_json", HERMES + '{"path": "/etc'),
        ("hermes_json", HERMES + '{"path": "a", "lines": [1'),
        ("hermes_json", HERMES + '{"path": "a", "lines": [1, 2], "n": 1'),
        ("hermes_json", HERMES + '{"path": "a", "lines": [1, '),
        ("hermes_json", HERMES + '{"path": "a\\"'),
        ("hermes_json", HERMES + '{"path": "a", "lines": [1, 2]'),  # a required value is missing: it is not made up
        ("hermes_json", HERMES + '{"path": "'),
        ("hermes_json", HERMES + '{"path": "a", "lines": ['),
        ("hermes_json", HERMES),
        ("hermes_json", '<tool_call>\n{"name": "w'),
        ("hermes_json", '<tool_call>\n{"name": "'),
        ("hermes_json", "<tool_call>"),
        ("qwen_xml", XML + "<parameter=path>\n/etc"),
        ("qwen_xml", XML + "<parameter=path>\n/etc\n</param"),
        ("qwen_xml", XML + "<parameter=path>\na\n</parameter>\n<parameter=lines>\n[1"),
        ("qwen_xml", XML + "<parameter=path>\na\n</parameter>\n"),
        ("qwen_xml", XML),
        ("qwen_xml", "<tool_call>\n<function=w"),
        ("qwen_xml", "<tool_call>\n<function="),
    ],
)
def test_what_the_model_left_open_stays_open(format_name: str, written: str) -> None:
    held = constraint(format_name, tools=[WRITE, Tool("wipe")], tool_choice=REQUIRED)
    held.consume(encode(written))
    assert held.close(1000) is None


@pytest.mark.parametrize(
    ("format_name", "written", "closed"),
    [
        ("hermes_json", HERMES + '{"path": "a", "lines": [1, 2], "n": 1}', "}\n</tool_call>"),
        (
            "qwen_xml",
            XML
            + "".join(f"<parameter={k}>\n{v}\n</parameter>\n" for k, v in (("path", "a"), ("lines", "[]"), ("n", 1))),
            "</function>\n</tool_call>",
        ),
    ],
)
def test_closing_structure_is_written(format_name: str, written: str, closed: str) -> None:
    held = constraint(format_name, tools=[WRITE, Tool("wipe")], tool_choice=REQUIRED)
    held.consume(encode(written))
    ids = held.close(1000)
    assert ids is not None
    assert decode(ids) == closed
    assert held.close(len(ids)) == ids
    assert held.close(len(ids) - 1) is None


def test_a_second_call_is_not_made_up() -> None:
    held = constraint(tools=TOOLS, tool_choice=REQUIRED)
    one = '<tool_call>\n{"name": "stop", "arguments": {}}\n</tool_call>'
    held.consume(encode(one))
    assert held.close(100) == []
    held.consume(encode("\n"))
    assert held.close(100) is None


def test_free_text_ends_anywhere_and_a_thought_is_closed() -> None:
    held = constraint(tools=TOOLS, thinking=True)
    held.consume(encode("let me"))
    ids = held.close(100)
    assert ids is not None
    assert decode(ids) == "</think>\n\n"
    assert held.close(1) is None
    held.consume(ids)
    held.consume(encode("some words"))
    assert held.close(0) == []


@pytest.mark.parametrize(
    "written", ["", "{", '{"path": "/etc', '{"path": "a", "lines": [1', '{"path": "a", "lines": [1], "n": 1']
)
def test_a_response_format_is_closed_wherever_it_stands(written: str) -> None:
    held = constraint(response_format=ResponseFormat("json_schema", WRITE.parameters), thinking=not written)
    held.consume(encode(written))
    ids = held.close(200)
    assert ids is not None
    held.consume(ids)
    assert held.accepting()


@pytest.mark.parametrize("format_name", ["hermes_json", "qwen_xml"])
def test_no_argument_of_a_call_is_ever_made_up(format_name: str) -> None:
    begun = {"hermes_json": '<tool_call>\n{{"name": "{}", "arguments": ', "qwen_xml": "<tool_call>\n<function={}>\n"}
    for tool, _ in EXAMPLES:
        held = constraint(format_name, tools=[tool, Tool("other")], tool_choice=REQUIRED)
        written = begun[format_name].format(tool.name)
        held.consume(encode(written))
        ids = held.close(300)
        if ids is not None:
            assert [json.loads(arguments) for _, arguments in calls(written + decode(ids), format_name, [tool])] == [{}]
