"""States and snapshots that come from one another never see each other's tokens."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from clover_agent.model.native import NativeModel
from clover_agent.model.protocol import Work
from clover_agent.model.state import SMALLEST, NativeSnapshot, NativeState

from .builders import MASK, advanced, block_logits, tiny_model
from .test_native import PROMPT, same_states

MODEL = tiny_model()
BLOCK = [MASK] * 4

actions = st.lists(
    st.tuples(
        st.sampled_from(["advance", "denoise", "snapshot", "restore", "free"]), st.integers(0, 2), st.integers(0, 9)
    ),
    min_size=1,
    max_size=14,
)


def replay(model: NativeModel, ids: list[int]) -> NativeState:
    return advanced(model, ids) if ids else model.new_state()


@settings(max_examples=40, deadline=None)
@given(actions=actions)
def test_any_history_of_sharing_equals_a_fresh_state(actions: list[tuple[str, int, int]]) -> None:
    """Three states advance, denoise, take and restore each other's snapshots in any order; each must always equal a
    state that was advanced by the same tokens alone."""
    states = [MODEL.new_state() for _ in range(3)]
    tokens: list[list[int]] = [[], [], []]
    taken: list[tuple[NativeSnapshot, list[int]]] = []
    for action, which, value in actions:
        if action == "advance":
            ids = [4 + value] * (1 + value)
            MODEL.forward([Work(states[which], ids)])
            tokens[which] = tokens[which] + ids
        elif action == "denoise":
            works = [Work(state, block=[4 + value, *BLOCK]) for state in states]
            together = block_logits(MODEL, *works)
            alone = [block_logits(MODEL, Work(replay(MODEL, ids), block=[4 + value, *BLOCK])) for ids in tokens]
            torch.testing.assert_close(together, torch.cat(alone), rtol=1e-9, atol=1e-9)
        elif action == "snapshot":
            taken.append((states[which].snapshot(), tokens[which]))
        elif action == "restore" and taken:
            snapshot, tokens[which] = taken[value % len(taken)]
            states[which].restore(snapshot)
        elif action == "free":
            states[which].free()
            states[which], tokens[which] = MODEL.new_state(), []
    for state, ids in zip(states, tokens, strict=True):
        same_states(state, replay(MODEL, ids))


def test_a_snapshot_counts_what_it_holds_and_not_what_its_base_holds() -> None:
    state = advanced(MODEL, PROMPT)
    short, longer = state.snapshot(), advanced(MODEL, PROMPT * 2).snapshot()
    per_token = 2 * 2 * 2 * 8 * 8  # attention layers, keys and values, heads, head_dim, bytes
    assert (short.length, longer.length) == (13, 26)
    assert longer.nbytes - short.nbytes == 13 * per_token
    fixed = 2 * (4 * 8 * 4 + 3 * 48) * 8
    assert short.nbytes == 13 * per_token + fixed
    MODEL.forward([Work(state, [20, 21])])
    assert state.snapshot(base=short).nbytes == 2 * per_token + fixed


def test_a_chain_of_snapshots_restores_what_its_links_hold_together() -> None:
    state, ids = MODEL.new_state(), list[int]()
    base = state.snapshot()
    for link in ([7, 8, 9], [10] * 300, [], [11, 12]):
        if link:
            MODEL.forward([Work(state, link)])
        base = state.snapshot(base=base)
        ids += link
    state.free()
    again = advanced(MODEL, [50] * 20)
    again.restore(base)
    MODEL.forward([Work(again, [20, 21])])
    same_states(again, advanced(MODEL, [*ids, 20, 21]))


def test_a_shed_snapshot_serves_as_a_base_only() -> None:
    state = advanced(MODEL, PROMPT)
    base = state.snapshot()
    MODEL.forward([Work(state, [20, 21])])
    tip, whole = state.snapshot(base=base), base.nbytes
    base.shed()
    assert base.nbytes == whole - 2 * (4 * 8 * 4 + 3 * 48) * 8
    with pytest.raises(ValueError, match="shed"):
        MODEL.new_state().restore(base)
    again = MODEL.new_state()
    again.restore(tip)
    same_states(again, state)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_figures_of_the_spec_bound_what_a_state_takes(dtype: torch.dtype) -> None:
    model = tiny_model(dtype=dtype)
    for length in (1, 255, 257, 400, 700):
        state = advanced(model, [7] * length)
        taken = state.keys.nbytes + sum(part.state.nbytes + part.tail.nbytes for part in state.recurrent)
        assert taken <= model.spec.state_bytes + model.spec.token_bytes * length <= 3 * taken


def test_buffers_grow() -> None:
    state = MODEL.new_state()
    for _ in range(5):
        MODEL.forward([Work(state, [7] * 100, BLOCK)])
    assert 500 <= state.capacity <= 2 * SMALLEST + 256
    same_states(state, advanced(MODEL, [7] * 500))


def test_a_failed_forward_leaves_the_state_usable() -> None:
    state, other = advanced(MODEL, PROMPT), advanced(MODEL, PROMPT)
    with pytest.raises(IndexError):
        MODEL.forward([Work(state, [20, 99999]), Work(other, [30])])
    assert (state.length, other.length) == (13, 13)
    MODEL.forward([Work(state, [20, 21])])
    same_states(state, advanced(MODEL, [*PROMPT, 20, 21]))


def test_free_twice_and_foreign_snapshots() -> None:
    state = advanced(MODEL, PROMPT)
    state.free()
    state.free()
    with pytest.raises(TypeError, match="snapshot"):
        MODEL.new_state().restore(object())  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="base"):
        MODEL.new_state().snapshot(base=advanced(MODEL, PROMPT).snapshot())
