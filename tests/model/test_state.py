"""States and snapshots that share a prefix never see each other's tokens."""

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


def test_a_snapshot_counts_what_it_holds() -> None:
    state = advanced(MODEL, PROMPT)
    short, longer = state.snapshot(), advanced(MODEL, PROMPT * 2).snapshot()
    per_token = 2 * 2 * 2 * 8 * 8  # attention layers, keys and values, heads, head_dim, bytes
    assert (short.length, longer.length) == (13, 26)
    assert longer.nbytes - short.nbytes == 13 * per_token
    fixed = 2 * (4 * 8 * 4 + 3 * 48) * 8
    assert short.nbytes == 13 * per_token + fixed


def test_the_next_turn_goes_on_in_the_same_buffer() -> None:
    state = advanced(MODEL, PROMPT)
    snapshot = state.snapshot()
    state.free()
    again = MODEL.new_state()
    again.restore(snapshot)
    MODEL.forward([Work(again, [20, 21])])
    assert again.keys is snapshot.keys
    same_states(again, advanced(MODEL, [*PROMPT, 20, 21]))


def test_buffers_grow() -> None:
    state = MODEL.new_state()
    for _ in range(5):
        MODEL.forward([Work(state, [7] * 100, BLOCK)])
    assert state.keys.capacity == 2 * SMALLEST
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
