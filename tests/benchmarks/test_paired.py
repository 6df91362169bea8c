"""Paired statistics against known values and by their symmetries."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.paired import mcnemar, ratio


def test_mcnemar_is_the_binomial_test_of_what_differs() -> None:
    found = mcnemar([True] * 6 + [False] * 1 + [True] * 9, [False] * 6 + [True] * 1 + [True] * 9)
    assert (found.n, found.first_only, found.second_only) == (16, 6, 1)
    assert found.p == pytest.approx(2 * (1 + 7) / 2**7)


@given(st.lists(st.tuples(st.booleans(), st.booleans()), max_size=40))
def test_mcnemar_does_not_care_which_is_first(outcomes: list[tuple[bool, bool]]) -> None:
    first, second = [a for a, _ in outcomes], [b for _, b in outcomes]
    there, back = mcnemar(first, second), mcnemar(second, first)
    assert there.p == back.p
    assert 0 < there.p <= 1
    assert (there.first_only, there.second_only) == (back.second_only, back.first_only)
    assert mcnemar(first, first).p == 1


def test_a_constant_ratio_has_no_error() -> None:
    share, error = ratio([1, 2, 3], [2, 4, 6])
    assert (share, error) == (0.5, 0)
    assert all(math.isnan(value) for value in ratio([], []))
