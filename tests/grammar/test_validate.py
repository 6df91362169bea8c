"""The final check: schemas, places, numbers, patterns in linear time, and no reference that is ever fetched."""

import socket
from typing import Any

import pytest

from clover_agent.errors import InvalidOutput, InvalidToolCall
from clover_agent.grammar import check_call, check_output
from clover_agent.types import ResponseFormat, Tool
from tests.grammar.harness import dumps
from tests.grammar.tools import EXAMPLES


def tool(**properties: Any) -> Tool:
    return Tool("f", parameters={"type": "object", "properties": properties})


def test_examples_pass() -> None:
    for example, arguments in EXAMPLES:
        check_call(example, dumps(arguments))


@pytest.mark.parametrize(
    ("schema", "value", "place"),
    [
        ({"type": "integer"}, '"1"', "$.a"),
        ({"items": {"type": "string"}}, '["x", 1]', "$.a[1]"),
        ({"properties": {"b": {"enum": [1]}}}, '{"b": 2}', "$.a.b"),
        ({"type": "string", "format": "date"}, '"2023-02-29"', "$.a"),
        ({"type": "string", "pattern": "^\\d+$"}, '"x"', "$.a"),
        ({"patternProperties": {"^x": {"type": "null"}}}, '{"xa": 1}', "$.a.xa"),
        ({"additionalProperties": False, "patternProperties": {"^x": {}}}, '{"y": 1}', "$.a.y"),
        ({"uniqueItems": True}, "[1, 1]", "$.a"),
        ({"not": {"type": "null"}}, "null", "$.a"),
        ({"minimum": 3, "exclusiveMinimum": True}, "3", "$.a"),
        ({"multipleOf": 0.1}, "0.35", "$.a"),
        ({"$ref": "#"}, '{"a": {"a": 1}}', "$.a.a"),
    ],
)
def test_violations_are_told_with_their_place(schema: dict[str, Any], value: str, place: str) -> None:
    checked = tool(a=schema)
    if "$ref" in schema:
        checked = Tool("f", parameters={"type": "object", "properties": {"a": {"$ref": "#"}}})
    with pytest.raises(InvalidToolCall) as caught:
        check_call(checked, f'{{"a": {value}}}')
    assert place in str(caught.value)
    assert "'f'" in str(caught.value)


@pytest.mark.parametrize("number", ["1e999", "-1e999", "NaN", "Infinity", "-Infinity", "01", "1.", "+1"])
def test_numbers_that_are_none(number: str) -> None:
    with pytest.raises(InvalidToolCall, match="not JSON"):
        check_call(tool(a={}), f'{{"a": {number}}}')
    with pytest.raises(InvalidOutput, match="not JSON"):
        check_output(ResponseFormat("json_object"), f'{{"a": {number}}}')


@pytest.mark.parametrize("text", ["", "{", "[1]", "1", '{"a": 1', '{"a": 1} x', "[" * 100_000])
def test_arguments_that_are_no_object(text: str) -> None:
    with pytest.raises(InvalidToolCall):
        check_call(Tool("f", parameters={}), text)


def test_of_a_key_that_comes_twice_the_last_counts() -> None:
    check_call(tool(a={"type": "integer"}), '{"a": "x", "a": 1}')
    with pytest.raises(InvalidToolCall):
        check_call(tool(a={"type": "integer"}), '{"a": 1, "a": "x"}')


def test_decimal_multiples() -> None:
    check_call(tool(a={"multipleOf": 0.1}), '{"a": 0.3}')
    check_call(tool(a={"multipleOf": 0.01}), '{"a": 19.99}')


def test_no_parameters_means_no_arguments() -> None:
    check_call(Tool("f"), "{}")
    with pytest.raises(InvalidToolCall):
        check_call(Tool("f"), '{"a": 1}')


def test_nothing_is_ever_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a connection was attempted")

    monkeypatch.setattr(socket, "create_connection", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    for reference in ("http://127.0.0.1:9/schema.json", "https://example.org/s#/a", "file:///etc/passwd", "other.json"):
        check_call(tool(a={"$ref": reference, "type": "integer"}), '{"a": 1}')
        with pytest.raises(InvalidToolCall):
            check_call(tool(a={"$ref": reference, "type": "integer"}), '{"a": "x"}')


def test_a_pattern_beyond_linear_time_is_not_checked_and_others_are() -> None:
    check_call(tool(a={"pattern": "y(?=x)"}), '{"a": "z"}')
    hostile = tool(a={"pattern": "^(a+)+$"})
    with pytest.raises(InvalidToolCall):
        check_call(hostile, dumps({"a": "a" * 20_000 + "b"}))


def test_a_schema_that_refers_to_itself_without_end_is_an_error_not_a_crash() -> None:
    endless = {"$ref": "#/$defs/a", "$defs": {"a": {"allOf": [{"$ref": "#/$defs/a"}]}}}
    with pytest.raises(InvalidOutput, match="without end"):
        check_output(ResponseFormat("json_schema", endless), "{}")


def test_broken_schemas_check_what_is_left_of_them() -> None:
    broken = tool(a={"type": "strin", "minLength": "3", "maxLength": 2})
    check_call(broken, '{"a": "xy"}')
    with pytest.raises(InvalidToolCall):
        check_call(broken, '{"a": "xyz"}')


def test_outputs() -> None:
    check_output(ResponseFormat("text"), "anything {")
    check_output(ResponseFormat("json_object"), "{}")
    check_output(ResponseFormat("json_schema"), "[1]")
    check_output(ResponseFormat("json_schema", {"type": "array"}), "[1]")
    for asked, text in ((ResponseFormat("json_object"), "[]"), (ResponseFormat("json_schema", {"type": "null"}), "1")):
        with pytest.raises(InvalidOutput):
            check_output(asked, text)
