"""Schemas of every draft become one clean dialect; nothing is fetched, nothing raises but size."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from clover_agent.errors import InvalidSchema
from clover_agent.grammar.dialect import MAX_BYTES, clean


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ({"minimum": 1, "exclusiveMinimum": True}, {"exclusiveMinimum": 1}),
        ({"maximum": 9, "exclusiveMaximum": False}, {"maximum": 9}),
        (
            {"items": [{"type": "string"}], "additionalItems": False},
            {"prefixItems": [{"type": "string"}], "items": False},
        ),
        ({"dependencies": {"a": ["b"]}}, {"dependentRequired": {"a": ["b"]}}),
        ({"dependencies": {"a": {"required": ["b"]}}}, {"dependentSchemas": {"a": {"required": ["b"]}}}),
        ({"type": "string", "title": "T", "x-order": 3, "default": 1}, {"type": "string"}),
        ({"minLength": 3.0}, {"minLength": 3}),
        ({"const": None}, {"const": None}),
        ({"$schema": "http://json-schema.org/draft-07/schema#", "$ref": "#", "minLength": 1}, {"$ref": "#/$defs/0"}),
    ],
)
def test_old_idioms_become_new_ones(raw: dict[str, Any], expected: dict[str, Any]) -> None:
    cleaned = clean(raw)
    assert not cleaned.problems
    assert isinstance(cleaned.schema, dict)
    assert {k: v for k, v in cleaned.schema.items() if k != "$defs"} == expected


@pytest.mark.parametrize(
    ("raw", "keyword"),
    [
        ({"type": "str"}, "type"),
        ({"required": True}, "required"),
        ({"properties": []}, "properties"),
        ({"enum": []}, "enum"),
        ({"anyOf": {}}, "anyOf"),
        ({"minLength": -1}, "minLength"),
        ({"multipleOf": 0}, "multipleOf"),
        ({"pattern": 3}, "pattern"),
        ({"items": "string"}, "schema"),
        ({"$ref": "https://example.org/other.json"}, "$ref"),
        ({"$ref": "#/nowhere"}, "$ref"),
        ({"$ref": 1}, "$ref"),
        ({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}, "$ref"),
    ],
)
def test_what_is_broken_is_dropped_and_named(raw: dict[str, Any], keyword: str) -> None:
    cleaned = clean(raw)
    assert [problem.keyword for problem in cleaned.problems] == [keyword]
    assert keyword in str(cleaned.problems[0])


@pytest.mark.parametrize(
    ("reference", "expected"),
    [("#/definitions/a~1b", "string"), ("#here", "integer"), ("https://x.org/s", "boolean"), ("#/anyOf/0", "null")],
)
def test_references_inside_the_schema_are_found(reference: str, expected: str) -> None:
    raw = {
        "definitions": {
            "a/b": {"type": "string"},
            "anchored": {"$anchor": "here", "type": "integer"},
            "named": {"$id": "https://x.org/s", "type": "boolean"},
        },
        "anyOf": [{"type": "null"}],
        "$ref": reference,
    }
    cleaned = clean(raw)
    assert isinstance(cleaned.schema, dict)
    assert cleaned.schema["$defs"] == {"0": {"type": expected}}


def test_recursion_stays_a_reference() -> None:
    cleaned = clean({"type": "object", "properties": {"child": {"$ref": "#"}}})
    assert isinstance(cleaned.schema, dict)
    assert cleaned.schema["properties"] == {"child": {"$ref": "#/$defs/0"}}
    assert cleaned.schema["$defs"]["0"]["properties"] == {"child": {"$ref": "#/$defs/0"}}


def test_depth_is_cut_and_size_refused() -> None:
    deep: dict[str, Any] = {}
    for _ in range(200):
        deep = {"items": deep}
    assert "nested" in str(clean(deep).problems[0])
    with pytest.raises(InvalidSchema):
        clean({"description": "x" * MAX_BYTES})
    with pytest.raises(InvalidSchema):
        clean({"allOf": [{"type": "object"}] * 30_000})


KEYWORDS = (
    *("type", "properties", "items", "anyOf", "allOf", "$ref", "enum", "required", "minimum", "exclusiveMinimum"),
    *("pattern", "format", "not", "if", "then", "dependencies", "maxItems", "additionalProperties", "$defs", "a"),
)
JUNK = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats(allow_nan=False) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYWORDS), inner, max_size=4),
    max_leaves=25,
)


@settings(max_examples=150, deadline=None)
@given(raw=JUNK)
def test_anything_becomes_a_schema_that_a_validator_takes(raw: Any) -> None:
    schema = clean(raw).schema
    Draft202012Validator.check_schema(schema)
    list(Draft202012Validator(schema).iter_errors({"a": [1, "x", None]}))
