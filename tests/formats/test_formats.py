"""Every format: what is encoded is decoded to the same call; what is malformed is refused, never guessed."""

import json
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from clover_agent.errors import InvalidToolCall, LoadFailed
from clover_agent.formats import FORMATS, ToolFormat, get_format, infer_format
from clover_agent.formats.schema_types import type_of
from clover_agent.templates import template_source
from clover_agent.types import Tool

HERMES, QWEN = FORMATS["hermes_json"], FORMATS["qwen_xml"]
TAGS = ("\n", "</parameter>", "<parameter=x>", "</function>", "<function=f>", "</tool_call>", '"', "{", "\\", "True")
texts = st.lists(st.one_of(st.text(max_size=8), st.sampled_from(TAGS)), max_size=5).map("".join)
values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), texts),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(texts, inner, max_size=3)),
    max_leaves=8,
)
keys = st.text(min_size=1, max_size=8).filter(lambda key: not set(key) & {">", "\n"})


def body_of(format_: ToolFormat, call: str) -> str:
    assert call.startswith(format_.call_begin)
    assert call.endswith(format_.call_end)
    return call[len(format_.call_begin) : -len(format_.call_end)]


def tool_for(name: str, arguments: dict[str, Any]) -> Tool:
    kinds = {key: type_of(value) for key, value in arguments.items()}
    return Tool(name, "", {"type": "object", "properties": {key: {"type": kind} for key, kind in kinds.items()}})


def xml(*parameters: tuple[str, str], name: str = "f") -> str:
    inner = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in parameters)
    return f"\n<function={name}>\n{inner}</function>\n"


def decode_one(schema: Any, written: str, **more: Any) -> Any:
    """The value that qwen_xml reads from `written` for a parameter of that schema."""
    tool = Tool("f", "", {"type": "object", "properties": {"x": schema}, **more})
    return json.loads(QWEN.decode(xml(("x", written)), [tool])[1])["x"]


@pytest.mark.parametrize("format_", FORMATS.values(), ids=FORMATS)
@settings(deadline=None, max_examples=200)
@given(name=keys, arguments=st.dictionaries(keys, values, max_size=4))
def test_a_call_survives_the_round_trip(format_: ToolFormat, name: str, arguments: dict[str, Any]) -> None:
    try:
        call = format_.encode(name, arguments)
    except InvalidToolCall:
        assume(False)
    decoded, text = format_.decode(body_of(format_, call), [Tool("other"), tool_for(name, arguments)])
    assert decoded == name
    assert json.loads(text) == arguments
    assert list(json.loads(text)) == list(arguments)


def test_qwen_xml_refuses_to_write_what_it_could_not_read_back() -> None:
    for value in ("a\n</parameter>\n<parameter=b>\nc", "</parameter><parameter=b>"):
        with pytest.raises(InvalidToolCall, match="'a'"):
            QWEN.encode("f", {"a": value})
    for harmless in ("</parameter>", "x\n</parameter>\n</function>", "<parameter=b>", "\n", " \n\n ", "<tool_call>"):
        call = QWEN.encode("f", {"a": harmless, "b": harmless})
        tool = tool_for("f", {"a": "", "b": ""})
        assert json.loads(QWEN.decode(body_of(QWEN, call), [tool])[1]) == {"a": harmless, "b": harmless}
    with pytest.raises(InvalidToolCall):
        QWEN.encode("a>b", {})
    with pytest.raises(InvalidToolCall):
        QWEN.encode("f", {"": 1})


@pytest.mark.parametrize(
    ("format_", "written"),
    [
        (HERMES, '<tool_call>\n{"name": "f", "arguments": {"x": 1, "s": "é"}}\n</tool_call>'),
        (
            QWEN,
            "<tool_call>\n<function=f>\n<parameter=x>\n1\n</parameter>\n<parameter=s>\né\n</parameter>\n"
            "</function>\n</tool_call>",
        ),
    ],
)
def test_calls_are_written_as_models_are_trained_to(format_: ToolFormat, written: str) -> None:
    assert format_.encode("f", {"x": 1, "s": "é"}) == written


def test_calls_without_arguments() -> None:
    assert QWEN.encode("f", {}) == "<tool_call>\n<function=f>\n</function>\n</tool_call>"
    for body in (xml(), "<function=f></function>", "<function=f>\n\n</function>"):
        assert QWEN.decode(body, [Tool("f")]) == ("f", "{}")
    for body in ('{"name": "f", "arguments": {}}', '{"name": "f"}', ' {"arguments": {}, "name": "f"} '):
        assert HERMES.decode(body, [Tool("f")]) == ("f", "{}")


@pytest.mark.parametrize(
    "arguments", ['{"x": 1.10, "y":1e5}', '{ "a" : [1,  2] }', '{"n": 12345678901234567890123}', '{"s": "\\u00e9"}']
)
def test_hermes_forwards_the_models_own_text(arguments: str) -> None:
    assert HERMES.decode(f'\n{{"name":"f","arguments":{arguments}}}\n', [Tool("f")]) == ("f", arguments)
    assert HERMES.decode(f'{{"arguments": {arguments}, "id": 7, "name": "f"}}', [Tool("f")]) == ("f", arguments)


def test_hermes_takes_arguments_out_of_a_string() -> None:
    body = json.dumps({"name": "f", "arguments": '{"x": 1.0}'})
    assert HERMES.decode(body, [Tool("f")]) == ("f", '{"x": 1.0}')


def test_qwen_xml_forwards_numbers_as_written() -> None:
    tool = Tool("f", "", {"type": "object", "properties": {"x": {"type": "number"}, "y": {"type": "array"}}})
    assert QWEN.decode(xml(("x", "1.10"), ("y", "[1,  2e5]")), [tool])[1] == '{"x": 1.10, "y": [1,  2e5]}'


@pytest.mark.parametrize(
    "body",
    [
        "",
        "null",
        "[]",
        '"f"',
        "{",
        '{"name": "f", "arguments": {"x": 1}',
        '{"name": "f", "arguments": {"x": 1}}}',
        '{"name": "f", "arguments": {"x": 1}} and so on',
        '{"name": "f", "arguments": [1]}',
        '{"name": "f", "arguments": null}',
        '{"name": "f", "arguments": "text"}',
        '{"name": "f", "arguments": {"x": NaN}}',
        '{"name": "f", "arguments": {"x": -Infinity}}',
        '{"name": "f", "arguments": {"x": 1e999}}',
        '{"name": "f", "arguments": {"x": [{"y": -1e999}]}}',
        '{"name": "f", "arguments": {"x": 1, "x": 2}}',
        '{"name": "f", "arguments": {"x": {"y": 1, "y": 2}}}',
        '{"name": "f", "name": "f", "arguments": {}}',
        '{"name": "f", "arguments": {}, "arguments": {}}',
        '{"name": "f", "arguments": {"x": "line\nbreak"}}',
        '{"name": "f" "arguments": {}}',
        '{"name": "f",}',
        '{name: "f"}',
        '{1: "f"}',
        "{'name': 'f'}",
        '{"name": 1, "arguments": {}}',
        '{"arguments": {}}',
        '{"name": "unknown", "arguments": {}}',
        '{"name": "f", "arguments": {"x": ' + "[" * 5000 + "}}",
        '{"name": "f", "arguments": {"x": ' + "9" * 5000 + "}}",
    ],
)
def test_hermes_refuses_what_is_not_a_call(body: str) -> None:
    with pytest.raises(InvalidToolCall):
        HERMES.decode(body, [Tool("f")])


@pytest.mark.parametrize(
    "body",
    [
        "",
        "f",
        "<function=f>",
        "</function>",
        '{"name": "f", "arguments": {}}',
        "<function=>\n</function>",
        "<function=unknown>\n</function>",
        "<function=f>\ntext\n</function>",
        "<function=f>\n<parameter=x>\n1\n</function>",
        "<function=f>\n<parameter=x>\n1\n</parameter>\ntext\n</function>",
        "<function=f>\n<parameter=>\n1\n</parameter>\n</function>",
        "<parameter=x>\n1\n</parameter>\n</function>",
        "<function=f>\n</function>\n<function=f>",
        xml(("x", "1"), ("x", "1")),
        xml(("x", "one")),
        xml(("x", "")),
        xml(("x", "NaN")),
        xml(("x", "1e999")),
        xml(("o", '{"a": 1, "a": 2}')),
        xml(("o", "{'a': 1}")),
    ],
)
def test_qwen_xml_refuses_what_is_not_a_call(body: str) -> None:
    tool = Tool("f", "", {"type": "object", "properties": {"x": {"type": "integer"}, "o": {"type": "object"}}})
    with pytest.raises(InvalidToolCall):
        QWEN.decode(body, [tool])


@pytest.mark.parametrize("written", ["1", "true", "null", '"quoted"', "{}", " padded ", "", "True", "\nline\n", "NaN"])
def test_a_string_stays_the_string_that_was_written(written: str) -> None:
    assert decode_one({"type": "string"}, written) == written


@pytest.mark.parametrize(
    ("schema", "written", "value"),
    [
        ({"type": "boolean"}, "True", True),
        ({"type": "boolean"}, "false", False),
        ({"type": ["boolean", "null"]}, "None", None),
        ({"type": ["string", "null"]}, "null", None),
        ({"type": ["string", "null"]}, "None", "None"),
        ({"type": ["string", "null"]}, "12", "12"),
        ({"type": "string", "nullable": True}, "null", None),
        ({"type": ["string", "integer"]}, "12", 12),
        ({"type": ["string", "integer"]}, "12.5", "12.5"),
        ({"type": "number"}, " 1.5 ", 1.5),
        ({"type": "integer"}, "5.0", 5.0),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "true", "true"),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "null", None),
        ({"oneOf": [{"type": "object"}, {"type": "array"}]}, "[1]", [1]),
        ({"allOf": [{"type": ["string", "integer"]}, {"type": "string"}]}, "1", "1"),
        ({"enum": ["1", "2"]}, "1", "1"),
        ({"enum": [1, 2]}, "1", 1),
        ({"enum": ["on", None]}, "null", None),
        ({"const": "1"}, "1", "1"),
        ({"$ref": "#/$defs/text"}, "1", "1"),
        ({"$ref": "#/$defs/list/anyOf/1"}, "7", "7"),
        ({"$ref": "#/$defs/loop"}, "1", 1),
        ({"$ref": "#/$defs/missing"}, "1", 1),
        ({"$ref": "https://example.com/s"}, "x", "x"),
        ({}, '{"a": 1}', {"a": 1}),
        ({}, "plain", "plain"),
        (True, "3", 3),
        ({"type": "strange"}, "plain", "plain"),
    ],
)
def test_values_are_read_by_the_types_that_the_schema_admits(schema: Any, written: str, value: Any) -> None:
    definitions = {
        "text": {"type": "string"},
        "list": {"anyOf": [{"type": "integer"}, {"type": "string"}]},
        "loop": {"$ref": "#/$defs/loop"},
    }
    decoded = decode_one(schema, written, **{"$defs": definitions})
    assert decoded == value
    assert type(decoded) is type(value)


@pytest.mark.parametrize(
    "parameters",
    [
        {"allOf": [{"properties": {"x": {"type": "string"}}}]},
        {"anyOf": [{"properties": {"x": {"type": "string"}}}, {"properties": {"x": {"type": "null"}}}]},
        {"$ref": "#/$defs/f", "$defs": {"f": {"properties": {"x": {"type": "string"}}}}},
        {"type": "object", "additionalProperties": {"type": "string"}},
    ],
)
def test_properties_are_found_wherever_the_schema_puts_them(parameters: dict[str, Any]) -> None:
    assert json.loads(QWEN.decode(xml(("x", "12")), [Tool("f", "", parameters)])[1]) == {"x": "12"}


def test_qwen_xml_reads_calls_on_one_line() -> None:
    body = "<function=f><parameter=a>x y</parameter><parameter=b></parameter></function>"
    assert json.loads(QWEN.decode(body, [tool_for("f", {"a": "", "b": ""})])[1]) == {"a": "x y", "b": ""}


def test_formats_are_found_by_name_and_alias() -> None:
    for name in ("qwen_xml", "qwen3_coder", "qwen3_xml"):
        assert get_format(name) is QWEN
    for name in ("hermes_json", "hermes"):
        assert get_format(name) is HERMES
    with pytest.raises(LoadFailed, match="qwen3_coder"):
        get_format("pythonic")


def test_formats_are_inferred_from_the_template_that_teaches_them() -> None:
    for name, format_ in FORMATS.items():
        assert infer_format(template_source(name)) is format_
        assert format_.template == name
    assert infer_format("{{ messages }}") is None
