"""Requests say every value, keep their slots filled, and vary."""

import random
import re

from hypothesis import given, settings
from hypothesis import strategies as st

from clover_agent.sprout.phrasing import Argument, Phraser
from clover_agent.sprout.values import Value

kinds = st.sampled_from(["place", "date", "person", "code", "sentence", "phrase", "number"])
values = st.builds(
    lambda text, kind: Value(text, text, kind), st.from_regex(r"[A-Z][a-z]{2,8}\d", fullmatch=True), kinds
)
arguments = st.lists(
    st.builds(Argument, st.sampled_from(["city", "startDate", "to", "limit", "name"]), st.just("The thing"), values),
    max_size=5,
)


@settings(deadline=None, max_examples=150)
@given(seed=st.integers(0, 10_000), said=arguments)
def test_every_value_is_said(seed: int, said: list[Argument]) -> None:
    request = Phraser(random.Random(seed)).request("getWeather", "Retrieve the weather of a given place", said)
    for argument in said:
        assert argument.value.text.casefold() in request.casefold()
    assert not re.search(r"[{}]", request)
    assert "  " not in request


def test_flags_are_said_by_their_name() -> None:
    flag = Argument("include_metrics", "", Value(False, "no", "boolean"))
    for seed in range(40):
        request = Phraser(random.Random(seed)).request("getReport", "Retrieve the report", [flag])
        assert "metrics" in request


def test_requests_vary() -> None:
    said = [Argument("city", "", Value("Lima", "Lima", "place"))]
    requests = {Phraser(random.Random(seed)).request("getWeather", "Retrieve the weather", said) for seed in range(200)}
    assert len(requests) > 120
