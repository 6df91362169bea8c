"""qwen_xml writes text as it is: which texts and which other values the grammar lets stand in a parameter."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clover_agent.errors import InvalidToolCall
from clover_agent.formats import FORMATS
from clover_agent.grammar import check_call
from clover_agent.types import Tool, ToolChoice
from tests.grammar.harness import compiler, constraint, encode, vocabulary

XML = FORMATS["qwen_xml"]
REQUIRED = ToolChoice("required")


def tool(schema: Any) -> Tool:
    return Tool(
        "f", parameters={"type": "object", "properties": {"a": schema, "b": {"type": "string"}}, "required": ["a"]}
    )


def holds(asked: Tool, value: str) -> bool:
    """Whether a call with this text in `a`, and another parameter after it, is legal."""
    body = f"\n<function=f>\n<parameter=a>\n{value}\n</parameter>\n<parameter=b>\nx\n</parameter>\n</function>\n"
    ids = encode(f"<tool_call>{body}</tool_call>")
    return constraint("qwen_xml", tools=[asked], tool_choice=REQUIRED).valid_prefix(ids) == len(ids)


@pytest.mark.parametrize(
    ("schema", "legal", "illegal"),
    [
        (
            {"type": "string"},
            ["", "\n", "12", "a\n\nb", "</p>", "x </parameter> y", "<tool_call", "é\n</para"],
            ["</parameter>"],
        ),
        ({"type": "string"}, ["true", " null "], ["a\n</parameter>", "</parameter>\n<parameter=b>", "a </parameter>"]),
        ({"enum": ["on", "off", "on off"]}, ["on", "off", "on off"], ["onoff", "", "on\n"]),
        ({"const": "x"}, ["x"], ["y", '"x"']),
        ({"type": "string", "pattern": "^[a-c]+$"}, ["abc"], ["abd", "", "a\nb"]),
        ({"type": "string", "pattern": "b"}, ["abc", "a\nb"], ["ac"]),
        ({"type": "string", "minLength": 2, "maxLength": 3}, ["ab", "éöü", "\n\n"], ["a", "abcd"]),
        ({"type": "string", "format": "date"}, ["2024-02-29"], ["2023-02-29", "today"]),
        ({"type": "integer", "minimum": 3}, ["3", "12"], ["2", "x", "3.5", '"3"']),
        ({"type": "boolean"}, ["true", "false"], ["True", "yes"]),
        ({"type": "array", "items": {"type": "integer"}}, ["[]", "[1, 2]"], ["[1,2]", '["x"]', "1"]),
        (
            {"type": "object", "properties": {"x": {"type": "null"}}, "additionalProperties": False},
            ['{"x": null}', "{}"],
            ["{x}"],
        ),
        ({"type": ["string", "null"]}, ["abc", "null", "nullify", "12", '"null"'], []),
        ({"type": ["string", "integer"]}, ["abc", "12", "12 apples", "1.5", "-3"], []),
        ({"anyOf": [{"type": "string", "minLength": 2}, {"type": "boolean"}]}, ["ab", "true"], ["a"]),
        ({"type": ["array", "string"], "items": {"type": "integer"}}, ["[1]", "abc"], ["[x]", '["x"]', "[1"]),
        ({"enum": ["a", 1, None, True]}, ["a", "1", "null", "true"], ["b", "2", "false"]),
        ({}, ["abc", "12", "null", '{"a": 1}', "[]", "1.5"], ["{x}", "[1,2"]),
    ],
)
def test_values(schema: Any, legal: list[str], illegal: list[str]) -> None:
    asked = tool(schema)
    compiled = compiler("qwen_xml").constrain(tools=[asked])
    assert compiled is not None
    assert compiled.exactness == "exact"
    assert [value for value in legal if not holds(asked, value)] == []
    assert [value for value in illegal if holds(asked, value)] == []


def test_numbers_beside_text_are_held_loosely() -> None:
    compiled = compiler("qwen_xml").constrain(
        tools=[tool({"anyOf": [{"type": "integer", "maximum": 5}, {"type": "string"}]})]
    )
    assert compiled is not None
    assert compiled.exactness == "loosened"


PIECES = st.sampled_from(["</parameter>", "\n", "<parameter=b>", "</function>", "a", " ", "</", "é"])


@settings(max_examples=200, deadline=None)
@given(value=st.lists(PIECES, max_size=8).map("".join))
def test_text_that_is_legal_reads_back_as_itself(value: str) -> None:
    asked = tool({"type": "string"})
    if not holds(asked, value):
        return
    body = f"\n<function=f>\n<parameter=a>\n{value}\n</parameter>\n<parameter=b>\nx\n</parameter>\n</function>\n"
    _, arguments = XML.decode(body, [asked])
    check_call(asked, arguments)
    assert arguments == XML.decode(XML.encode("f", {"a": value, "b": "x"})[11:-12], [asked])[1]


@settings(max_examples=100, deadline=None)
@given(value=st.text(max_size=30))
def test_ordinary_text_is_legal(value: str) -> None:
    asked = tool({"type": "string"})
    try:
        XML.encode("f", {"a": value})
    except InvalidToolCall:
        return
    # The harness reads control strings as their tokens, which are never legal in a value.
    if not any(marker in value for marker in ("</parameter>", *vocabulary("small").control)):
        assert holds(asked, value)


@pytest.mark.parametrize(
    ("parameters", "legal", "illegal"),
    [
        ({"type": "object", "additionalProperties": {"type": "integer"}}, {"k": 1, "other key": 2}, {"k": "x"}),
        ({"allOf": [{"properties": {"a": {"type": "integer"}}}, {"required": ["a"]}]}, {"a": 1}, {}),
        (
            {
                "$ref": "#/$defs/p",
                "$defs": {"p": {"type": "object", "properties": {"a": {"enum": ["x"]}}, "required": ["a"]}},
            },
            {"a": "x"},
            {"a": "y"},
        ),
        ({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["z"]}, {"a": 1, "z": "q"}, {"a": 1}),
    ],
)
def test_arguments_taken_apart(parameters: dict[str, Any], legal: dict[str, Any], illegal: dict[str, Any]) -> None:
    asked = Tool("f", parameters=parameters)
    for arguments, is_legal in ((legal, True), (illegal, False)):
        ids = encode(XML.encode("f", arguments))
        held = constraint("qwen_xml", tools=[asked], tool_choice=REQUIRED)
        assert (held.valid_prefix(ids) == len(ids)) == is_legal


def test_options_of_the_arguments_are_held_loosely() -> None:
    options = {"anyOf": [{"properties": {"a": {"type": "integer"}}, "required": ["a"]}, {"required": ["b"]}]}
    compiled = compiler("qwen_xml").constrain(tools=[Tool("f", parameters=options)])
    assert compiled is not None
    assert compiled.exactness == "loosened"


def test_a_name_that_xml_cannot_write_is_noted() -> None:
    parameters = {"type": "object", "properties": {"a>b": {"type": "integer"}}, "required": ["a>b"]}
    compiled = compiler("qwen_xml").constrain(tools=[Tool("f", parameters=parameters)])
    assert compiled is not None
    assert "a>b" in str(compiled.problems[0])
