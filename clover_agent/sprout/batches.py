"""From shards to batches: sequences of about one length, laid out for the training pass, resumable at any batch.

One row of a batch is one example: its clean stream (prompt padded on the left to whole blocks | response blocks), then
`copies` noisy versions of the response blocks. Everything random is drawn from (seed, place in the data), so a place is
all that has to be stored. Knows nothing of torch modules and of losses but their weights.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from .masks import draw_masks
from .shards import Shards

WINDOW = 1024  # examples that are sorted by length together
PAD_WEIGHT = 0.1  # of the end tokens that fill the last block
NEAR, FAR = 0.85, 0.1  # weight of a masked token: NEAR per masked position of its block before it, at least FAR
PROMPT_SHARE, PROMPT_WEIGHT = 0.35, 0.3
DIFFUSION, RESPONSE, PROMPT = range(3)  # the three losses, see `Targets.kind`


@dataclass(frozen=True, slots=True)
class Layout:
    """Sizes of a batch's rows: [prompt_blocks + response_blocks clean | copies * response_blocks noisy] blocks."""

    batch: int
    block_size: int
    prompt_blocks: int
    response_blocks: int
    copies: int

    @property
    def clean(self) -> int:
        """Positions of the clean stream."""
        return (self.prompt_blocks + self.response_blocks) * self.block_size

    @property
    def noisy(self) -> int:
        return self.copies * self.response_blocks * self.block_size

    @property
    def length(self) -> int:
        return self.clean + self.noisy


@dataclass(frozen=True, slots=True)
class Targets:
    """What the head is asked: row indices into the flat batch [m], the right tokens [m], weights [m] (they sum to one
    per kind, times the loss's weight), kinds [m]: DIFFUSION, RESPONSE or PROMPT."""

    rows: Tensor
    tokens: Tensor
    weights: Tensor
    kinds: Tensor


@dataclass(frozen=True, slots=True)
class Batch:
    """ids: int64 [batch, length]; start: int64 [batch], the first position that is not padding; tokens: how many of the
    clean tokens are real."""

    layout: Layout
    ids: Tensor
    start: Tensor
    targets: Targets
    tokens: int

    def to(self, device: torch.device) -> "Batch":
        t = self.targets
        moved = Targets(*(x.to(device) for x in (t.rows, t.tokens, t.weights, t.kinds)))
        return replace(self, ids=self.ids.to(device), start=self.start.to(device), targets=moved)


@dataclass(frozen=True, slots=True)
class Place:
    """Where training stands in the data: window of the endless shuffled order, next batch in it, level admitted."""

    window: int = 0
    batch: int = 0
    level: int = 0


@dataclass(frozen=True, slots=True)
class BatchMaker:
    """Cuts shards into batches of about `rows` rows (clean and noisy positions together).

    mask_id     fills masked positions; end_id fills the last block after the response
    max_length  examples with more clean tokens than this are left out
    """

    shards: Shards
    mask_id: int
    end_id: int
    block_size: int = 32
    copies: int = 2
    rows: int = 4096
    max_length: int = 1024
    seed: int = 0

    def window(self, place: Place) -> list[npt.NDArray[np.int64]]:
        """The batches of a window, as indices of examples: examples of like length together, in shuffled order."""
        total = len(self.shards)
        per_epoch = -(-total // WINDOW)
        epoch, part = divmod(place.window, per_epoch)
        order = np.random.default_rng((self.seed, 1, epoch)).permutation(total)[part * WINDOW : (part + 1) * WINDOW]
        prompt, response = (self._blocks(x[order]) for x in (self.shards.prompt_lengths, self.shards.response_lengths))
        fits = (prompt + response) * self.block_size <= self.max_length
        keep = fits & (self.shards.difficulty[order] <= place.level)
        order, prompt, response = order[keep], prompt[keep], response[keep]
        # Snake order: where the number of response blocks changes, prompts keep their length.
        snake = np.lexsort((np.where(response % 2, prompt, -prompt), response))
        batches = list(self._cut(order[snake], prompt[snake], response[snake]))
        np.random.default_rng((self.seed, 2, place.window)).shuffle(batches)
        return batches

    def _blocks(self, lengths: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        return -(-lengths // self.block_size)

    def _cut(
        self, order: npt.NDArray[np.int64], prompt: npt.NDArray[np.int64], response: npt.NDArray[np.int64]
    ) -> Iterator[npt.NDArray[np.int64]]:
        first = widest = deepest = 0
        for i in range(len(order)):
            wide, deep = max(widest, prompt[i]), max(deepest, response[i])
            blocks = wide + deep * (1 + self.copies)
            if i > first and (i + 1 - first) * blocks * self.block_size > self.rows:
                yield order[first:i]
                first, wide, deep = i, prompt[i], response[i]
            widest, deepest = wide, deep
        if first < len(order):
            yield order[first:]

    def batch(self, examples: npt.NDArray[np.int64], place: Place) -> Batch:
        """The batch of `examples`; masks and prompt rows are drawn from the seed and `place`."""
        rng = np.random.default_rng((self.seed, 3, place.window, place.batch))
        prompts = [self.shards.prompt(i) for i in examples]
        responses = [self.shards.response(i) for i in examples]
        lengths = np.array([[len(p), len(r)] for p, r in zip(prompts, responses, strict=True)])
        widest, deepest = self._blocks(lengths.max(axis=0)).tolist()
        layout = Layout(len(examples), self.block_size, widest, deepest, self.copies)
        border = widest * self.block_size
        clean = np.full((len(examples), layout.clean), self.end_id, np.int64)
        for row, (prompt, response) in enumerate(zip(prompts, responses, strict=True)):
            clean[row, border - len(prompt) : border] = prompt
            clean[row, border : border + len(response)] = response
        truth = np.broadcast_to(clean[:, None, border:], (len(examples), self.copies, layout.clean - border))
        masked = draw_masks(rng, truth.size // self.block_size, self.block_size).reshape(truth.shape)
        noisy = np.where(masked, self.mask_id, truth)
        ids = np.concatenate((clean, noisy.reshape(len(examples), -1)), axis=1)
        targets = _targets(rng, layout, clean, masked, lengths)
        start = torch.from_numpy(border - lengths[:, 0])
        return Batch(layout, torch.from_numpy(ids), start, targets, int(lengths.sum()))


def _targets(
    rng: np.random.Generator,
    layout: Layout,
    clean: npt.NDArray[np.int64],
    masked: npt.NDArray[np.bool_],
    lengths: npt.NDArray[np.int64],
) -> Targets:
    """masked: bool [batch, copies, response positions]; lengths: [batch, 2], tokens of prompt and response."""
    border = layout.prompt_blocks * layout.block_size
    prompt, response = lengths[:, :1], lengths[:, 1:]
    at = np.arange(layout.clean - border)
    blocks = -(-response // layout.block_size) * layout.block_size
    worth = np.where(at < response, 1.0, PAD_WEIGHT) * (at < blocks)
    sequence, copy, offset = np.nonzero(masked & (worth[:, None] > 0))
    diffusion = sequence * layout.length + layout.clean + copy * len(at) + offset
    close = _closeness(masked, layout.block_size)[sequence, copy, offset]
    parts = [(diffusion, clean[sequence, border + offset], worth[sequence, offset] * close, 1.0)]
    even = np.ones(clean.size)

    sequence, offset = np.nonzero(at < response)
    parts.append(
        (sequence * layout.length + border + offset - 1, clean[sequence, border + offset], even[: len(offset)], 1.0)
    )

    at = np.arange(1, border)
    drawn = (at > border - prompt) & (rng.random((layout.batch, len(at))) < PROMPT_SHARE)
    sequence, offset = np.nonzero(drawn)
    parts.append((sequence * layout.length + offset, clean[sequence, offset + 1], even[: len(offset)], PROMPT_WEIGHT))

    scaled = [worth * (weight / max(worth.sum(), 1e-9)) for _, _, worth, weight in parts]
    return Targets(
        rows=torch.from_numpy(np.concatenate([part[0] for part in parts])),
        tokens=torch.from_numpy(np.concatenate([part[1] for part in parts])),
        weights=torch.from_numpy(np.concatenate(scaled).astype(np.float32)),
        kinds=torch.from_numpy(np.repeat([DIFFUSION, RESPONSE, PROMPT], [len(w) for w in scaled])),
    )


def _closeness(masked: npt.NDArray[np.bool_], block_size: int) -> npt.NDArray[np.float64]:
    """Weights by how many masked positions of the block stand before each: what is decoded next is learnt first, and
    what far positions hold is mostly not determined yet. Same shape as `masked`."""
    before = np.cumsum(masked.reshape(*masked.shape[:2], -1, block_size), axis=-1) - 1
    weights: npt.NDArray[np.float64] = np.maximum(FAR, NEAR ** before.reshape(masked.shape))
    return weights
