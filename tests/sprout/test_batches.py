import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from clover_agent.sprout.batches import DIFFUSION, PROMPT, PROMPT_WEIGHT, RESPONSE, WINDOW, Batch, BatchMaker, Place
from clover_agent.sprout.masks import draw_masks

from .examples import BLOCK, END, MASK, random_shards

SHARDS = random_shards(300, levels=3)


def maker(**changes: int) -> BatchMaker:
    return BatchMaker(SHARDS, MASK, END, **{"block_size": BLOCK, "rows": 512, **changes})


def one_batch(seed: int) -> tuple[Batch, "np.ndarray[tuple[int], np.dtype[np.int64]]"]:
    made = maker(seed=seed)
    examples = made.window(Place(level=2))[0]
    return made.batch(examples, Place(0, 0, 2)), examples


def test_a_window_holds_every_admitted_example_once() -> None:
    for level, expected in ((0, SHARDS.difficulty == 0), (2, SHARDS.difficulty <= 2)):
        batches = maker().window(Place(level=level))
        assert sorted(np.concatenate(batches).tolist()) == np.flatnonzero(expected).tolist()


def test_long_examples_are_left_out() -> None:
    blocks = -(-SHARDS.prompt_lengths // BLOCK) - (-SHARDS.response_lengths // BLOCK)
    kept = np.concatenate(maker(max_length=32).window(Place(level=2)))
    assert sorted(kept.tolist()) == np.flatnonzero(blocks <= 4).tolist()
    assert len(kept) < 300


def test_batches_keep_to_their_size_and_are_dense() -> None:
    made = maker()
    filled = []
    for i, examples in enumerate(made.window(Place(level=2))):
        layout = made.batch(examples, Place(0, i, 2)).layout
        rows = layout.batch * layout.length
        assert rows <= 512 or layout.batch == 1
        real = SHARDS.prompt_lengths[examples] + 3 * SHARDS.response_lengths[examples]
        filled.append((real.sum(), rows))
    real, rows = np.array(filled).sum(axis=0)
    assert real / rows > 0.6


def test_an_epoch_is_a_new_order_and_a_place_is_a_batch() -> None:
    made = maker()
    first, again, next_epoch = (made.window(Place(window=w, level=2)) for w in (0, 0, 1))
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert [x.tolist() for x in first] != [x.tolist() for x in next_epoch]
    assert len(SHARDS) < WINDOW  # one window is an epoch here
    place = Place(0, 1, 2)
    a, b = (made.batch(first[1], place) for _ in range(2))
    assert torch.equal(a.ids, b.ids)
    assert torch.equal(a.targets.rows, b.targets.rows)
    assert not torch.equal(a.ids, made.batch(first[1], Place(1, 1, 2)).ids)


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 1000))
def test_rows_are_asked_for_the_right_tokens(seed: int) -> None:
    batch, examples = one_batch(seed)
    layout = batch.layout
    border = layout.prompt_blocks * BLOCK
    ids = batch.ids.view(layout.batch, layout.length)
    for b, example in enumerate(examples.tolist()):
        prompt, response = SHARDS.prompt(example).tolist(), SHARDS.response(example).tolist()
        clean = ids[b, : layout.clean].tolist()
        assert clean[border - len(prompt) :] == prompt + response + [END] * (layout.clean - border - len(response))
        assert batch.start[b] == border - len(prompt)
    asked = set()
    targets = batch.targets
    for row, token, kind in zip(targets.rows.tolist(), targets.tokens.tolist(), targets.kinds.tolist(), strict=True):
        b, at = divmod(row, layout.length)
        if kind == DIFFUSION:
            assert at >= layout.clean
            assert ids[b, at] == MASK
            assert token == ids[b, border + (at - layout.clean) % (layout.clean - border)]
            asked.add(row)
        else:
            assert token == ids[b, at + 1]
            assert batch.start[b] <= at < border + SHARDS.response_lengths[examples[b]] - 1
            assert (at >= border - 1) is (kind == RESPONSE)
    blocks = -(-SHARDS.response_lengths[examples] // BLOCK) * BLOCK
    place = (torch.arange(layout.noisy) % (layout.clean - border)).expand(layout.batch, -1)
    due = (ids[:, layout.clean :] == MASK) & (place < torch.from_numpy(blocks)[:, None])
    assert len(asked) == due.sum()


def test_weights_sum_to_the_weight_of_each_loss() -> None:
    targets = one_batch(0)[0].targets
    sums = [targets.weights[targets.kinds == kind].sum().item() for kind in (DIFFUSION, RESPONSE, PROMPT)]
    assert sums == pytest.approx([1, 1, PROMPT_WEIGHT], abs=1e-5)


def test_masks_are_a_mixture() -> None:
    masked = draw_masks(np.random.default_rng(0), 20_000, 32)
    share = masked.mean(axis=1)
    assert masked.any(axis=1).all()
    assert 0.18 < (share == 1).mean() < 0.21  # 60 % x 30 %, and decoding-like blocks with an empty prefix
    first = masked.argmax(axis=1)
    assert (first >= 16).mean() > 0.15  # revealed prefixes
    assert 0.5 < share.mean() < 0.65
