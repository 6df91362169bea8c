"""The judge of the constrained benchmark reads integers and `\\s` as JSON Schema 2020-12 and ECMA-262 do."""

import re
import sys

import pytest

from benchmarks.instances import Judge, ecma_spaces

ECMA_SPACES = frozenset("\t\n\x0b\x0c\r \xa0\u1680\u2028\u2029\u202f\u205f\u3000\ufeff") | {
    chr(code) for code in range(0x2000, 0x200B)
}


@pytest.mark.parametrize(
    "draft", ["http://json-schema.org/draft-04/schema#", "http://json-schema.org/draft-07/schema#"]
)
@pytest.mark.parametrize(
    ("text", "valid"), [("-0.000", True), ("3", True), ("1e2", True), ("1.5", False), ("true", False)]
)
def test_an_integer_is_a_number_without_a_fraction_in_every_draft(draft: str, text: str, valid: bool) -> None:
    assert Judge({"$schema": draft, "type": "integer"}).satisfied(text) is valid


def test_white_space_is_that_of_ecma() -> None:
    everything = "".join(map(chr, range(sys.maxunicode + 1)))
    for pattern in (r"\s", r"[\s]", r"[^\S]"):
        assert set(re.findall(ecma_spaces(pattern), everything)) == ECMA_SPACES
    for pattern in (r"\S", r"[\S]", r"[^\s]"):
        assert len(re.findall(ecma_spaces(pattern), everything)) == len(everything) - len(ECMA_SPACES)


def test_escaped_backslashes_and_brackets_are_left_alone() -> None:
    assert ecma_spaces(r"\\s\[a\]") == r"\\s\[a\]"


def test_patterns_of_values_and_of_keys_are_read_so() -> None:
    assert Judge({"pattern": r"^[^\s]$"}).satisfied('"\\u001c"') is True
    assert Judge({"pattern": r"^[^\s]$"}).satisfied('" "') is False
    keyed = Judge({"patternProperties": {r"^\S$": {"type": "integer"}}})
    assert keyed.satisfied('{"\\u001c": "a"}') is False
    assert keyed.satisfied('{" ": "a"}') is True
