"""Numbers that readers take for infinity are not written; what only looks like them is."""

from typing import Any

import pytest

from clover_agent.types import ResponseFormat, Tool, ToolChoice
from tests.grammar.harness import constraint, decode, encode, legal

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "n": {"type": "number"},
        "s": {"type": "string"},
        "h": {"type": "string", "pattern": "^[0-9a-f]{12}$"},
        "a": {"type": "array", "items": {"type": "number"}},
    },
}
XML = "<tool_call>\n<function=f>\n<parameter={}>\n{}\n</parameter>\n</function>\n</tool_call>"


@pytest.mark.parametrize(
    "text",
    [
        '{"n": 1e99}',
        '{"n": 1.5E+12}',
        '{"n": 1e-999}',
        '{"s": "1e9999"}',
        '{"h": "3e1234567890"}',
        '{"a": [1e12, 345, 2e1]}',
    ],
)
def test_finite_numbers_and_text_are_legal(text: str) -> None:
    held = constraint(response_format=ResponseFormat("json_schema", SCHEMA))
    assert held.valid_prefix(encode(text)) == len(encode(text))
    for id_ in encode(text):
        assert held.valid_prefix([id_]) == 1
        held.consume([id_])


@pytest.mark.parametrize("text", ['{"n": 1e999}', '{"n": 1E+100}', '{"n": 12.5e308}', '{"a": [1e1234]}'])
def test_infinite_numbers_are_not(text: str) -> None:
    held = constraint(response_format=ResponseFormat("json_schema", SCHEMA))
    ids = encode(text)
    n = held.valid_prefix(ids)
    assert decode(ids[:n])[-3:].lower() in {"e99", "e10", "e30", "e12", "+10"}
    held.consume(ids[:n])
    assert held.valid_prefix(ids[n : n + 1]) == 0
    assert not any(decode([id_])[:1].isdigit() for id_ in legal(held))
    assert legal(held)


@pytest.mark.parametrize(
    ("name", "value", "is_legal"), [("n", "1e99", True), ("n", "1e999", False), ("s", "1e999", True)]
)
def test_in_xml_too(name: str, value: str, is_legal: bool) -> None:
    held = constraint("qwen_xml", tools=[Tool("f", parameters=SCHEMA)], tool_choice=ToolChoice("required"))
    ids = encode(XML.format(name, value))
    assert (held.valid_prefix(ids) == len(ids)) == is_legal
