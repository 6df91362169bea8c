"""Closing an output whose budget runs low: in time, never through an open value, and always "length"."""

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clover_agent.engine import EngineOptions
from clover_agent.types import SamplingParams
from tests.engine.fakes import Automaton, AutomatonConstraint, FakeModel, spec
from tests.engine.harness import drive, request
from tests.engine.strategies import VOCAB, bounded

GO_ON, STOP, ALSO = 4, 5, 6


def stubborn(tokens: tuple[int, ...], block: tuple[int, ...], position: int) -> npt.NDArray[np.float64]:
    """A model that never comes to an end by itself."""
    logits = np.zeros(VOCAB)
    logits[GO_ON] = 20.0
    return logits


def loop_then_tail(tail: int, *, open_: bool = False) -> Automaton:
    """`GO_ON` for ever, or `STOP` and a tail of choices that must be completed."""
    transitions = {0: {GO_ON: 0, STOP: 1}, **{i: {GO_ON: i + 1, ALSO: i + 1} for i in range(1, tail)}}
    return Automaton(transitions, frozenset({tail}), VOCAB, open=frozenset({0} if open_ else ()))


class Counting(AutomatonConstraint):
    looks = 0

    def close(self, budget: int) -> list[int] | None:
        type(self).looks += 1
        return super().close(budget)


@bounded()
@given(st.integers(1, 12), st.integers(0, 60), st.integers(1, 9), st.integers(0, 6))
def test_what_can_be_closed_is_closed_within_the_budget(tail: int, spare: int, block: int, margin: int) -> None:
    most = tail + spare
    model = FakeModel(spec(VOCAB, block), stubborn)
    constraint = AutomatonConstraint(loop_then_tail(tail))
    options = EngineOptions(close_margin=margin)
    seq, _ = drive(model, request(SamplingParams(max_tokens=most), constraint=constraint), options)
    assert constraint.accepting()
    assert seq.finish_reason == "length"
    assert most - margin <= len(seq.output) <= most


def test_closing_is_looked_at_seldom() -> None:
    Counting.looks = 0
    constraint = Counting(loop_then_tail(6))
    model = FakeModel(spec(VOCAB, 8), stubborn)
    drive(model, request(SamplingParams(max_tokens=400), constraint=constraint))
    assert Counting.looks <= 8


def test_an_open_value_is_never_closed() -> None:
    constraint = AutomatonConstraint(loop_then_tail(3, open_=True))
    model = FakeModel(spec(VOCAB, 8), stubborn)
    seq, _ = drive(model, request(SamplingParams(max_tokens=50), constraint=constraint))
    assert (seq.output, seq.finish_reason) == ([GO_ON] * 50, "length")
    assert not constraint.accepting()


@pytest.mark.parametrize("reserve", [0, 160])
def test_output_that_may_end_anywhere_is_left_alone(reserve: int) -> None:
    """Where the grammar accepts, the budget cuts exactly where it would without a grammar."""
    automaton = Automaton({0: {GO_ON: 0, STOP: 0}}, frozenset({0}), VOCAB)
    model = FakeModel(spec(VOCAB, 8), stubborn)
    wish = request(SamplingParams(max_tokens=21), constraint=AutomatonConstraint(automaton))
    seq, _ = drive(model, wish, EngineOptions(close_reserve=reserve))
    assert (seq.output, seq.finish_reason) == ([GO_ON] * 21, "length")


def test_closing_tokens_count_as_forced() -> None:
    constraint = AutomatonConstraint(loop_then_tail(10))
    seq, steps = drive(
        FakeModel(spec(VOCAB, 8), stubborn), request(SamplingParams(max_tokens=12), constraint=constraint)
    )
    assert seq.stats.forced_tokens == 10
    assert steps[-1].tokens[-10:] == (STOP, *[GO_ON] * 9)
