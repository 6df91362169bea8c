"""What the grammar writes for a format, the format checker accepts."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from clover_agent.grammar.string_formats import MAX_LENGTHS, PATTERNS, UNHELD

CHECKER = Draft202012Validator.FORMAT_CHECKER

USUAL = {
    "date-time": ["2024-02-29T10:00:00Z", "2021-12-31t23:59:59.123+01:00"],
    "date": ["2000-02-29", "1999-12-31"],
    "time": ["10:00:00Z", "23:59:59.5-03:30"],
    "duration": ["P1Y2M3DT4H5M6S", "PT5M", "P3W"],
    "email": ["a.b+c@example.org"],
    "idn-email": ["é@ü.de"],
    "hostname": ["a.b-c.d"],
    "ipv4": ["192.168.0.1"],
    "ipv6": ["::1", "fe80::1:2", "1:2:3:4:5:6:7:8", "::"],
    "uuid": ["123e4567-e89b-12d3-a456-426614174000"],
    "uri": ["https://user@example.org:8080/a/b?c=d#e", "mailto:a@b.c", "urn:x:y", "file:///etc/hosts"],
    "uri-reference": ["/a/b", "a/b", "../x", "#f", "", "https://a.b"],
    "json-pointer": ["", "/a~1b/0"],
    "relative-json-pointer": ["0#", "1/a"],
}


@pytest.mark.parametrize("name", PATTERNS)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_the_checker_accepts_what_the_expression_matches(name: str, data: st.DataObject) -> None:
    text = data.draw(st.from_regex(re.compile(PATTERNS[name][1:-1]), fullmatch=True))
    assert len(text) > MAX_LENGTHS.get(name, 10**6) or CHECKER.conforms(text, name), text


@pytest.mark.parametrize("name", PATTERNS)
def test_usual_values_match(name: str) -> None:
    for text in USUAL[name]:
        assert re.search(PATTERNS[name], text), text


def test_no_format_that_is_checked_is_forgotten() -> None:
    assert set(CHECKER.checkers) == set(PATTERNS) | UNHELD
