"""Stop strings cut at the same place in any split, and hold back no more than they must."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clover_agent.parsing import StopFilter

small = st.text("ab\n", max_size=20)


def run(parts: list[str], stops: list[str]) -> tuple[str, str | None]:
    stop = StopFilter(stops)
    text = "".join(stop.feed(part) for part in parts) + stop.flush()
    return text, stop.matched


@settings(deadline=None, max_examples=300)
@given(small, st.lists(st.text("ab\n", max_size=4), max_size=3), st.lists(st.integers(0, 20), max_size=10))
def test_any_split_stops_at_the_same_place(text: str, stops: list[str], cuts: list[int]) -> None:
    places = [0, *sorted(cuts), max([len(text), *cuts])]
    parts = [text[a:b] for a, b in pairwise(places)]
    assert run(parts, stops) == run([text], stops) == run(list(text), stops)


@settings(deadline=None, max_examples=300)
@given(small, st.lists(st.text("ab\n", min_size=1, max_size=4), max_size=3))
def test_the_first_complete_stop_string_ends_the_text(text: str, stops: list[str]) -> None:
    ends = [text.find(stop) + len(stop) for stop in stops if stop in text]
    kept, hit = run([text], stops)
    assert (hit is not None) == bool(ends)
    assert not any(stop in kept for stop in stops)
    assert text.startswith(kept)
    if hit:
        assert text[: min(ends)] == kept + hit
    else:
        assert kept == text


@settings(deadline=None, max_examples=200)
@given(small, st.lists(st.text("ab\n", min_size=1, max_size=4), max_size=3))
def test_only_a_possible_beginning_of_a_stop_string_is_held_back(text: str, stops: list[str]) -> None:
    stop = StopFilter(stops)
    sent = stop.feed(text)
    held = text[len(sent) :]
    assert stop.hit or held == "" or any(s.startswith(held) for s in stops)


@pytest.mark.parametrize("stops", [[], [""]])
def test_without_stop_strings_everything_passes(stops: list[str]) -> None:
    assert run(["a", "", "b"], stops) == ("ab", None)


def test_nothing_comes_after_a_hit() -> None:
    stop = StopFilter(["X"])
    assert stop.feed("aXb") == "a"
    assert stop.hit
    assert stop.feed("c") == ""
    assert stop.flush() == ""
