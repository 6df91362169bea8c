"""ECMA regular expressions in the shared syntax mean what they meant, for RE2 and for the grammar's engine alike."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from llguidance import LLMatcher

from clover_agent.grammar.dialect import Schema
from clover_agent.grammar.parts import json_schema
from clover_agent.grammar.patterns import UnsupportedPatternError, checker, compiled, translate, whole, without
from tests.grammar.harness import compiler, encode

# pattern, strings that match, strings that do not
MEANINGS = [
    (r"^\d{3}$", ["123"], ["12", "1234", "１２３"]),
    (r"^\w+\s\w+$", ["a b", "a\u00a0b"], ["a", "é b"]),
    (r"^[\w.-]+@[a-z\d-]+\.\w{2,}$", ["a.b-c@d-1.org"], ["a b@c.org", "@c.org"]),
    (r"^\/[^\/]*\/$", ["/a/", "//"], ["/a", "/a/b/"]),
    (r"^a.c$", ["abc", "a\tc"], ["a\nc", "a\u2028c"]),
    (r"b+?", ["abc"], ["ac"]),
    (r"^(?<year>\d{4})-\u00e9$", ["2024-é"], ["2024-e"]),
    (r"^[^]$", ["\n", "x"], ["", "xy"]),
    (r"^[\]\-^]+$", ["]-^"], ["a"]),
    (r"^[a&&b~]+$", ["a&b~"], ["c"]),
    (r"^[\S\n]+$", ["a\nb"], ["a b"]),
    (r"^x{,2}$", ["x{,2}"], ["xx"]),
    (r"^\p{Lu}\cA?$", ["É", "E\x01"], ["é"]),
    (r"^(?:a|b)*$", ["", "abba"], ["abc"]),
]


@pytest.mark.parametrize(("pattern", "good", "bad"), MEANINGS)
def test_meaning_is_kept(pattern: str, good: list[str], bad: list[str]) -> None:
    for once_or_twice in (pattern, translate(pattern)):
        for text in good:
            assert compiled(once_or_twice).search(text), text
        for text in bad:
            assert not compiled(once_or_twice).search(text), text


@pytest.mark.parametrize(("pattern", "good", "bad"), MEANINGS)
def test_the_grammar_agrees(pattern: str, good: list[str], bad: list[str]) -> None:
    schema: Schema = {"type": "string", "pattern": translate(pattern)}
    held = LLMatcher(compiler()._tokenizer, LLMatcher.grammar_from_json_schema(json_schema(schema)), log_level=0)
    assert not held.get_error()
    for text in [*good, *bad]:
        if "\x01" in text or "\n" in text or "\t" in text:
            continue  # JSON writes these as escapes, which is another test
        matcher = held.deep_copy()
        ids = encode(f'"{text}"')
        legal = matcher.validate_tokens(ids) == len(ids)
        assert legal == (text in good), text


@pytest.mark.parametrize("pattern", [r"(?=a)b", r"(?!a)b", r"(?<=a)b", r"(a)\1", r"\k<a>", r"[a", r"(?i)a", "x" * 5000])
def test_what_cannot_be_held_is_refused(pattern: str) -> None:
    with pytest.raises(UnsupportedPatternError):
        compiled(pattern)


def test_a_hostile_pattern_is_checked_in_linear_time() -> None:
    """A backtracking engine would not come back from this."""
    assert not compiled(r"^(a+)+$").search("a" * 50_000 + "b")


@pytest.mark.parametrize(
    ("pattern", "good", "bad"),
    [("^a|b$", ["ax", "xb"], ["xa", "bx"]), ("b", ["abc"], ["ac"]), ("^(?:a|b)$", ["a"], ["ab"]), ("", ["", "x"], [])],
)
def test_whole_strings(pattern: str, good: list[str], bad: list[str]) -> None:
    expression = re.compile(whole(pattern))
    assert all(expression.fullmatch(text) for text in good)
    assert not any(expression.fullmatch(text) for text in bad)


def test_inner_anchors_are_refused_for_whole_strings() -> None:
    with pytest.raises(UnsupportedPatternError):
        whole("(^a)b")


@pytest.mark.parametrize(
    ("pattern", "good", "bad"),
    [
        (r"^(?!(no|never)$)[a-z]+$", ["yes", "nobody"], ["no", "never", "", "A"]),
        (r"^(?=.*\d)(?=.*[a-z\)]).{3,}$", ["ab1", "1)x"], ["abc", "12", "123"]),
        (r"^abc", ["abcd"], ["xabc"]),
    ],
)
def test_leading_look_ahead_is_checked(pattern: str, good: list[str], bad: list[str]) -> None:
    assert all(map(checker(pattern), good))
    assert not any(map(checker(pattern), bad))


@pytest.mark.parametrize("pattern", [r"a(?=b)", r"^(?!a)b|c", r"^(?!a", r"^(?=(x)\1)x"])
def test_other_look_around_is_not(pattern: str) -> None:
    with pytest.raises(UnsupportedPatternError):
        checker(pattern)


@settings(max_examples=300, deadline=None)
@given(text=st.text(st.sampled_from("</ab>x\n"), max_size=14))
def test_without(text: str) -> None:
    assert bool(re.fullmatch(without("</ab>"), text)) == ("</ab>" not in text)
