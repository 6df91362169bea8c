import pytest
from hypothesis import given
from hypothesis import strategies as st

from clover_agent.engine.unmask import select
from clover_agent.types import Fallback
from tests.engine.strategies import bounded

ROWS = st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1, max_size=12)
FALLBACKS = st.sampled_from(["leftmost", "max_confidence"])


@bounded()
@given(ROWS, st.floats(0.1, 1), FALLBACKS)
def test_something_is_always_unmasked_and_only_what_passes_if_anything_does(
    rows: list[tuple[float, bool]], threshold: float, fallback: Fallback
) -> None:
    confidence, ends = [c for c, _ in rows], [e for _, e in rows]
    chosen = select(confidence, ends, threshold=threshold, fallback=fallback)
    assert chosen
    assert chosen == sorted(set(chosen))
    certain = select(confidence, ends, threshold=threshold, fallback=None)
    assert all(confidence[row] >= threshold for row in certain)
    assert chosen == certain or (not certain and len(chosen) == 1)


@bounded()
@given(ROWS, st.floats(0.1, 1), FALLBACKS)
def test_an_end_token_never_leaves_a_hole_to_its_left(
    rows: list[tuple[float, bool]], threshold: float, fallback: Fallback
) -> None:
    confidence, ends = [c for c, _ in rows], [e for _, e in rows]
    chosen = select(confidence, ends, threshold=threshold, fallback=fallback)
    for row in chosen:
        if ends[row]:
            assert chosen == list(range(row + 1))
        assert not any(ends[left] and confidence[left] >= threshold for left in range(row))


@pytest.mark.parametrize(
    ("confidence", "ends", "fallback", "expected"),
    [
        ([0.2, 0.96, 0.5, 0.99], [0, 0, 0, 0], "leftmost", [1, 3]),
        ([0.2, 0.6, 0.5], [0, 0, 0], "leftmost", [0]),
        ([0.2, 0.6, 0.5], [0, 0, 0], "max_confidence", [1]),
        ([0.2, 0.96, 0.99], [0, 1, 0], "leftmost", [0]),  # the end waits, and so does what is right of it
        ([0.2, 0.5, 0.96, 0.99], [0, 0, 1, 0], "max_confidence", [1]),
        ([0.2, 0.5, 0.3], [0, 1, 0], "max_confidence", [2]),
        ([0.97, 0.96, 0.99], [0, 1, 0], "leftmost", [0, 1]),
        ([0.5, 0.6], [1, 1], "max_confidence", [0]),
    ],
)
def test_examples(confidence: list[float], ends: list[int], fallback: Fallback, expected: list[int]) -> None:
    assert select(confidence, [bool(e) for e in ends], threshold=0.95, fallback=fallback) == expected
