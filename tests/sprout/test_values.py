"""Values: typed as the schema says, said in full, and never from the other side of the held-out split."""

import random
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clover_agent.sprout.values import ValueMaker, is_held_out, language, snake

SCHEMAS: list[dict[str, Any]] = [
    {"type": "string"},
    {"type": "integer"},
    {"type": "number"},
    {"type": "boolean"},
    {"type": "array", "items": {"type": "integer"}},
    {"type": "object", "properties": {"depth": {"type": "number"}}},
    {"type": "string", "enum": ["low", "very_high"]},
]
PYTHON_TYPES: dict[str, type | tuple[type, ...]] = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "array": list,
    "object": dict,
}


@settings(deadline=None, max_examples=80)
@given(seed=st.integers(0, 10_000), schema=st.sampled_from(SCHEMAS), name=st.sampled_from(["city", "year", "zzz"]))
def test_a_value_has_the_type_of_its_schema(seed: int, schema: dict[str, Any], name: str) -> None:
    value = ValueMaker(random.Random(seed)).make(name, schema)
    assert isinstance(value.json, PYTHON_TYPES[schema["type"]])
    assert value.text
    if "enum" in schema:
        assert value.json in schema["enum"]


@pytest.mark.parametrize(
    ("name", "pattern"),
    [
        ("email", r"[^ ]+@[^ ]+\.\w+"),
        ("file_path", r"\S*\w+\.\w+"),
        ("websiteUrl", r"\S+\.\S+"),
        ("departure_time", r"\d{1,2}(:\d\d)?( ?[ap]m)?"),
        ("phone_number", r"\+?[\d -]+"),
    ],
)
def test_the_name_of_a_string_parameter_suggests_its_form(name: str, pattern: str) -> None:
    maker = ValueMaker(random.Random(0))
    texts = [str(maker.make(name, {"type": "string"}).json) for _ in range(60)]
    assert sum(re.fullmatch(pattern, text) is not None for text in texts) > 45


def test_held_out_words_and_training_words_are_disjoint() -> None:
    training, held_out = (ValueMaker(random.Random(1), held_out=flag) for flag in (False, True))
    for pool in ("city", "first", "noun"):
        seen = {training.word(pool) for _ in range(400)}
        kept = {held_out.word(pool) for _ in range(400)}
        assert not seen & kept
        assert not any(is_held_out(word) for word in seen)


def test_every_kind_that_a_name_can_suggest_has_words() -> None:
    maker = ValueMaker(random.Random(2))
    fallback = {maker.text("no such kind") for _ in range(3)}
    assert fallback
    lexicon = set(language("lexicon"))
    composed = set(maker.kinds)
    assert {kind for _, kind in language("kinds")} <= lexicon | composed


@pytest.mark.parametrize(
    ("name", "expected"), [("checkInDate", "check_in_date"), ("GetHTTPPage", "get_http_page"), ("a-b c", "a_b_c")]
)
def test_snake(name: str, expected: str) -> None:
    assert snake(name) == expected
