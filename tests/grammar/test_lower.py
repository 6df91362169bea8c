"""The grammar's version of a schema is exact, or looser at a named spot; never stricter on account of that."""

from typing import Any

import pytest

from clover_agent.grammar.dialect import clean
from clover_agent.grammar.loosen import loosen
from clover_agent.grammar.lower import lower
from tests.grammar.tools import TOOLS


def lowered(raw: dict[str, Any]) -> tuple[Any, list[str]]:
    cleaned = clean(raw)
    assert not cleaned.problems
    schema, problems = lower(cleaned.schema)
    return schema, [problem.keyword for problem in problems]


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ({"uniqueItems": True, "maxItems": 1}, {"maxItems": 1}),
        ({"not": {}}, False),
        ({"if": {"type": "string"}}, True),
        ({"if": True, "then": {"minLength": 1}}, {"allOf": [{"minLength": 1}]}),
        ({"contains": {"type": "string"}, "minContains": 0}, True),
        (
            {"unevaluatedProperties": False, "properties": {"a": True}},
            {"properties": {"a": True}, "additionalProperties": False},
        ),
        ({"propertyNames": {"pattern": "^a"}}, {"patternProperties": {"^a": True}, "additionalProperties": False}),
        ({"minProperties": 1, "required": ["a"]}, {"required": ["a"]}),
        ({"format": "int64", "type": "integer"}, {"type": "integer"}),
        ({"pattern": "^\\d$"}, {"pattern": "^[0-9]$"}),
    ],
)
def test_exact(raw: dict[str, Any], expected: Any) -> None:
    assert lowered(raw) == (expected, [])


@pytest.mark.parametrize(
    ("raw", "keyword"),
    [
        ({"not": {"type": "string"}}, "not"),
        ({"uniqueItems": True}, "uniqueItems"),
        ({"contains": {"type": "string"}}, "contains"),
        ({"if": {"required": ["a"]}, "then": {"required": ["b"]}}, "if"),
        ({"dependentRequired": {"a": ["b"]}}, "dependentRequired"),
        ({"pattern": "(?=a)"}, "pattern"),
        ({"format": "idn-hostname"}, "format"),
        ({"propertyNames": {"minLength": 2}}, "propertyNames"),
        ({"minProperties": 2}, "minProperties"),
        ({"maxItems": 10**9}, "maxItems"),
        ({"maxLength": 10**9}, "maxLength"),
        ({"maximum": 1e300}, "maximum"),
        ({"patternProperties": {"(?!a)": {}}, "additionalProperties": False}, "patternProperties"),
        ({"allOf": [{"properties": {"a": True}}], "unevaluatedProperties": False}, "unevaluatedProperties"),
    ],
)
def test_what_cannot_be_held_is_named(raw: dict[str, Any], keyword: str) -> None:
    assert lowered({"type": ["object", "array", "string"], **raw})[1] == [keyword]


def test_a_problem_says_where() -> None:
    _, problems = lower(clean({"properties": {"a": {"items": {"not": {"const": 1}}}}}).schema)
    assert "#/properties/a/items" in str(problems[0])
    assert "`not`" in str(problems[0])


def test_a_format_goes_together_with_a_pattern() -> None:
    schema, problems = lowered({"pattern": "^2", "format": "date"})
    assert not problems
    assert schema["pattern"] == "^2"
    assert "pattern" in schema["allOf"][0]


def test_definitions_that_nothing_refers_to_are_left_out() -> None:
    schema, _ = lowered({"$defs": {"a": {"type": "string"}, "b": {"not": {"type": "null"}}}, "$ref": "#/$defs/a"})
    assert schema == {"$ref": "#/$defs/0", "$defs": {"0": {"type": "string"}}}


def test_exclusive_options_are_written_in_place() -> None:
    raw = {
        "$defs": {"a": {"properties": {"k": {"const": 1}}}, "r": {"oneOf": [{"$ref": "#/$defs/r"}, {"type": "null"}]}},
        "oneOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/r"}],
    }
    schema, problems = lowered(raw)
    assert not problems
    assert schema["oneOf"][0] == {"properties": {"k": {"const": 1}}}


def test_hand_written_tools_are_held_exactly() -> None:
    for tool in TOOLS:
        if tool.parameters is not None:
            assert lowered(dict(tool.parameters))[1] == []


class TestLoosen:
    """With a compiler that refuses what it is told to refuse."""

    @staticmethod
    def refusing(*keywords: str) -> Any:
        def refusal(schema: Any) -> str | None:
            found = _keywords(schema)
            return next((f"no {keyword}" for keyword in keywords if keyword in found), None)

        return refusal

    def test_what_is_not_refused_comes_back(self) -> None:
        schema = {"type": "object", "properties": {"a": {"oneOf": [{"type": "null"}]}}}
        assert loosen(schema, self.refusing("pattern")) == (schema, [])

    def test_only_the_spot_is_loosened(self) -> None:
        schema = {"type": "object", "properties": {"a": {"type": "string", "pattern": "x"}, "b": {"minLength": 1}}}
        loosened, problems = loosen(schema, self.refusing("pattern"))
        assert loosened == {"type": "object", "properties": {"a": {"type": "string"}, "b": {"minLength": 1}}}
        assert [(p.path, p.keyword) for p in problems] == [("#/properties/a", "pattern")]

    def test_exclusive_options_become_options(self) -> None:
        loosened, problems = loosen({"oneOf": [{"type": "string"}, {"minLength": 1}]}, self.refusing("oneOf"))
        assert loosened == {"anyOf": [{"type": "string"}, {"minLength": 1}]}
        assert problems[0].keyword == "oneOf"

    def test_a_definition_is_blamed_not_its_user(self) -> None:
        schema = {"properties": {"a": {"$ref": "#/$defs/0"}}, "$defs": {"0": {"pattern": "x", "type": "string"}}}
        loosened, problems = loosen(schema, self.refusing("pattern"))
        assert loosened == {"properties": {"a": {"$ref": "#/$defs/0"}}, "$defs": {"0": {"type": "string"}}}
        assert [p.path for p in problems] == ["#/$defs/0"]

    def test_when_everything_is_refused_nothing_is_kept(self) -> None:
        loosened, problems = loosen({"type": "object", "properties": {"a": {"type": "string"}}}, lambda _: "no")
        assert loosened is True
        assert problems


def _keywords(schema: Any) -> set[str]:
    if isinstance(schema, dict):
        return set(schema) | {k for value in schema.values() for k in _keywords(value)}
    return {k for value in schema for k in _keywords(value)} if isinstance(schema, list) else set()
