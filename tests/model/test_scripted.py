"""The scripted model follows its reply, finds its way back when the output deviates, and keeps the block's contract."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clover_agent.errors import GenerationFailed
from clover_agent.model.protocol import ModelSpec, Work
from clover_agent.model.scripted import Peaks, ScriptedModel, ScriptedReply

MASK, END = 98, 99
SPEC = ModelSpec(vocab_size=100, mask_token_id=MASK, end_token_ids=(END,), block_size=4, max_context=1000)
PROMPT = [1, 2, 3]
REPLY = tuple(range(10, 40))


def model(reply: Sequence[int] = REPLY, peaks: Peaks | None = None) -> ScriptedModel:
    return ScriptedModel(SPEC, lambda prompt: ScriptedReply(tuple(reply)), peaks)


def predicted(scripted: ScriptedModel, committed: Sequence[int], block: Sequence[int]) -> list[int]:
    """The best token of every position of `block` on top of prompt and `committed`."""
    state = scripted.new_state()
    scripted.forward([Work(state, advance=PROMPT, block=[MASK])])
    hidden = scripted.forward([Work(state, advance=committed, block=block)])
    ids: list[int] = scripted.logits(hidden, range(len(block))).ids[:, 0].tolist()
    return ids


@given(length=st.integers(0, len(REPLY)), size=st.integers(1, 8))
@settings(max_examples=40, deadline=None)
def test_it_writes_its_reply_then_ends(length: int, size: int) -> None:
    want = [*REPLY, *[END] * 8][length : length + size]
    assert predicted(model(), REPLY[:length], [MASK] * size) == want


@pytest.mark.parametrize(
    ("committed", "block", "want"),
    [
        ([50, *REPLY[:2]], [MASK] * 2, [*REPLY[2:4]]),  # something was forced before the reply
        ([*REPLY[:3], 50], [MASK] * 2, [*REPLY[4:6]]),  # a token was replaced
        ([*REPLY[3:6]], [MASK] * 2, [*REPLY[6:8]]),  # a part was left out
        ([], [*REPLY[:1], 50, 51, REPLY[1], MASK], [*REPLY[:1], 50, 51, REPLY[1], REPLY[2]]),  # the same inside a block
        ([], [MASK, REPLY[1], MASK], [*REPLY[:3]]),
    ],
)
def test_it_goes_on_from_where_the_output_is(committed: list[int], block: list[int], want: list[int]) -> None:
    assert predicted(model(), committed, block) == want


def test_a_denoising_step_advances_nothing_and_a_snapshot_is_exact() -> None:
    scripted = model()
    state = scripted.new_state()
    scripted.forward([Work(state, advance=PROMPT, block=[MASK] * 4)])
    assert state.length == len(PROMPT)
    snapshot = state.snapshot()
    scripted.forward([Work(state, advance=REPLY[:4])])
    other = scripted.new_state()
    other.restore(snapshot)
    assert (other.length, snapshot.length, snapshot.nbytes) == (3, 3, 24)
    ids = [scripted.logits(scripted.forward([Work(s, block=[MASK])]), [0]).ids.item() for s in (state, other)]
    assert ids == [REPLY[4], REPLY[0]]


def test_positions_far_from_what_is_known_are_less_sure() -> None:
    scripted = model(peaks=Peaks(reach=2, sure=0.9, unsure=0.4))
    state = scripted.new_state()
    hidden = scripted.forward([Work(state, advance=PROMPT, block=[MASK] * 4)])
    logits = scripted.logits(hidden, range(4))
    mass = logits.values[:, 0].exp()
    assert (mass / (mass + SPEC.vocab_size - 1)).tolist() == pytest.approx([0.9, 0.9, 0.4, 0.4])


def test_errors_are_the_same_in_every_batch_and_never_at_the_frontier() -> None:
    scripted = model(peaks=Peaks(error_rate=0.5, seed=3))
    state, mate = scripted.new_state(), scripted.new_state()
    work = Work(state, advance=PROMPT, block=[MASK] * 16)
    alone = scripted.logits(scripted.forward([work]), range(16)).ids
    again = Work(state, block=[MASK] * 16)
    mates = scripted.forward([Work(mate, advance=[5], block=[MASK] * 3), again])
    assert scripted.logits(mates, range(3, 19)).ids.tolist() == alone.tolist()
    wrong = [i for i, id_ in enumerate(alone[:, 0].tolist()) if id_ != REPLY[i]]
    assert 0 < len(wrong) < 16
    assert 0 not in wrong


def test_rows_of_a_mixed_batch_are_in_order_of_work() -> None:
    scripted = model()
    prefill, ready = scripted.new_state(), scripted.new_state()
    hidden = scripted.forward([Work(prefill, advance=PROMPT), Work(ready, advance=PROMPT, block=[MASK] * 2)])
    assert hidden.rows == 2
    assert scripted.logits(hidden, [1, 0]).ids[:, 0].tolist() == [REPLY[1], REPLY[0]]


def test_an_output_that_outgrows_its_reply_is_ended_with_an_error() -> None:
    scripted = model(REPLY[:3])
    with pytest.raises(GenerationFailed, match="reply of 3 tokens"):
        predicted(scripted, [50] * 400, [MASK])
