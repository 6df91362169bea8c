"""What a block model promises, asked of the model itself: small forward passes whose outputs must agree or differ.

Works on any `BlockModel`. A finding says what was seen and what a failure leads to. Knows no files and no text: token
ids of a text that the model should know are given.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from .protocol import BlockModel, DenseLogits, State, Work

# Outputs that should agree may differ by this share of their spread (mean absolute differences).
TOLERANCE = {torch.float64: 1e-6, torch.float32: 1e-3}
NARROW_TOLERANCE = 0.1  # bfloat16, float16
CERTAIN = 2.5  # standard errors between two readings of the rows before one is taken for the right one
SURPRISE = 10.0  # most nats that one token may count: a few absurd ones must not drown the others
FAR = 3  # masked tokens after the clean ones that a model can be expected to know something of
REACHED = 0.9  # share of the positions that must be reached before a block counts as seen as a whole


@dataclass(frozen=True, slots=True)
class Finding:
    """One answer. `holds` is None where the question could not be put or has no clear answer."""

    probe: str
    holds: bool | None
    seen: str
    consequence: str = ""


@dataclass(frozen=True, slots=True)
class Sample:
    """Token ids to probe with: whole blocks, at least six, of a text that the model should know, no mask among them."""

    ids: tuple[int, ...]
    block: int

    @classmethod
    def of(cls, ids: Sequence[int], block: int) -> "Sample":
        """The end of the text, repeated where it is too short for six blocks.

        Raises ValueError for fewer than two different ids.
        """
        if len({*ids}) < 2:
            raise ValueError("a text to probe with needs at least two different tokens")
        repeated = list(ids)
        while len(repeated) < 6 * block:
            repeated += ids
        return cls(tuple(repeated[len(repeated) % block :]), block)

    def blocks(self, start: int, count: int = 1) -> list[int]:
        """The tokens of `count` blocks from block `start` on."""
        return list(self.ids[start * self.block : (start + count) * self.block])

    def others(self, ids: Sequence[int]) -> list[int]:
        """Tokens of the text, each different from the one of `ids` in its place."""
        known = sorted({*self.ids})
        return [known[(known.index(token) + len(known) // 2) % len(known)] for token in ids]


def difference(a: Tensor, b: Tensor) -> float:
    """How far apart two sets of logits are, as a share of their spread."""
    spread = (a - a.mean(-1, keepdim=True)).abs().mean()
    return float((a - b).abs().mean() / spread.clamp_min(1e-12))


def tolerance(dtype: torch.dtype) -> float:
    return TOLERANCE.get(dtype, NARROW_TOLERANCE)


def changed_rows(a: Tensor, b: Tensor, dtype: torch.dtype) -> Tensor:
    """Bool [rows]: where two sets of logits [rows, vocab] of equally shaped passes differ by more than rounding."""
    spread = (a - a.mean(-1, keepdim=True)).abs().mean().clamp_min(1e-12)
    return (a - b).abs().mean(-1) / spread > tolerance(dtype) / 100


def read(model: BlockModel, advances: Sequence[Sequence[int]], block: Sequence[int]) -> Tensor:
    """Logits [len(block), vocab] of a block on a fresh state that was advanced piece by piece."""
    state = model.new_state()
    for piece in advances:
        model.forward([Work(state, piece)])
    return read_on(model, Work(state, (), block))


def read_on(model: BlockModel, work: Work) -> Tensor:
    """Logits of the block of one work, as float32 or wider. Raises TypeError for a model with sparse logits."""
    hidden = model.forward([work])
    logits = model.logits(hidden, range(hidden.rows))
    if not isinstance(logits, DenseLogits):
        raise TypeError("probes need dense logits")
    return logits.values.to(torch.promote_types(logits.values.dtype, torch.float32))


def finite(model: BlockModel, sample: Sample) -> Finding:
    rows = read(model, [sample.blocks(0, 2)], [model.spec.mask_token_id] * sample.block)
    bad = int((~torch.isfinite(rows)).any(-1).sum())
    return Finding(
        "finite logits",
        bad == 0,
        f"{bad} of {len(rows)} rows hold NaN or infinity" if bad else f"{len(rows)} rows",
        "every answer would fail; try --dtype bfloat16 or float32, and check that the download is whole",
    )


def deterministic(model: BlockModel, sample: Sample) -> Finding:
    first, second = (read(model, [sample.blocks(0, 2)], sample.blocks(2)) for _ in range(2))
    same = bool(torch.equal(first, second)) or difference(first, second) < tolerance(first.dtype) / 100
    return Finding(
        "deterministic",
        same,
        "the same pass twice, the same logits" if same else f"apart by {difference(first, second):.1e}",
        "at temperature 0 the same request may be answered differently, and a cache cannot be checked",
    )


def reach(model: BlockModel, sample: Sample, start: int, dtype: torch.dtype) -> float:
    """The share of a block's positions that its last token reaches, for a block that starts at `start`."""
    prefix, block = list(sample.ids[:start]), list(sample.ids[start : start + sample.block])
    changed = [*block[:-1], *sample.others(block[-1:])]
    before, after = (read(model, [prefix], ids) for ids in (block, changed))
    return float(changed_rows(before[:-1], after[:-1], dtype).double().mean())


def bidirectional(model: BlockModel, sample: Sample, dtype: torch.dtype) -> Finding:
    share = reach(model, sample, 2 * sample.block, dtype)
    return Finding(
        "bidirectional inside the block",
        share >= REACHED,
        f"the last token of a block reaches {share:.0%} of the positions before it",
        "the positions of a block cannot be denoised together",
    )


def reads_prefix(model: BlockModel, sample: Sample, dtype: torch.dtype) -> Finding:
    prefix, block = sample.blocks(0, 2), [model.spec.mask_token_id] * sample.block
    one, other = (read(model, [ids], block) for ids in (prefix, sample.others(prefix)))
    share = float(changed_rows(one, other, dtype).double().mean())
    return Finding(
        "reads the prefix",
        share >= REACHED,
        f"another prefix changes {share:.0%} of a block's positions",
        "blocks would be written without regard to the prompt",
    )


def block_size(model: BlockModel, sample: Sample) -> Finding:
    """A whole block, and one that is cut short by the end of the context."""
    sizes = (sample.block, max(1, sample.block // 2 - 1), 1)
    seen = [len(read(model, [sample.blocks(0, 2)], [model.spec.mask_token_id] * size)) for size in sizes]
    return Finding(
        "block size accepted",
        tuple(seen) == sizes,
        f"blocks of {', '.join(map(str, sizes))} positions gave {', '.join(map(str, seen))} rows",
        "choose another --block-size",
    )


@dataclass(frozen=True, slots=True)
class Alignment:
    """How much better (mean nats a token) a masked token is told by its own row than by the row before it; `certainty`
    is that margin in standard errors, negative where the row before is the better one."""

    margin: float
    certainty: float
    tokens: int


def alignment(model: BlockModel, sample: Sample) -> Alignment:
    """Blocks of known text whose ends are masked, as in decoding. If logits belong to their own position, the row of a
    masked token tells it; if they belong to the next one, the row before it does. Only rows of masks are compared: many
    models were also trained to tell the next token at clean positions."""
    margins: list[Tensor] = []
    for number in range(1, len(sample.ids) // sample.block):
        block = sample.blocks(number)
        for clean in range(0, len(block) - 1, FAR + 1):
            shown = [*block[:clean], *[model.spec.mask_token_id] * (len(block) - clean)]
            scores = read(model, [sample.blocks(0, number)], shown).log_softmax(-1).clamp_min(-SURPRISE)
            places = torch.arange(clean + 1, min(clean + 1 + FAR, len(block)))
            wanted = torch.tensor(block)[places]
            margins.append((scores[places, wanted] - scores[places - 1, wanted]).cpu())
    values = torch.cat(margins).double()
    error = float(values.std() / len(values) ** 0.5)
    margin = float(values.mean())
    return Alignment(margin, margin / max(error, 1e-12), len(values))


def own_position(model: BlockModel, sample: Sample) -> Finding:
    """Of a model that is ready for use, whose rows are shifted inside where the checkpoint's are."""
    found = alignment(model, sample)
    holds = None if abs(found.certainty) < CERTAIN else found.certainty > 0
    return Finding(
        "logits at their position",
        holds,
        f"{found.margin:+.2f} nats a token against the row before, {found.certainty:+.1f} standard errors over "
        f"{found.tokens} tokens",
        "every token would be written one place off; set --logits-shift",
    )


Reference = Callable[[Sequence[int], Sequence[int]], Tensor]  # (prefix, block) -> logits [len(block), vocab]


def step_by_step(model: BlockModel, sample: Sample, reference: Reference) -> float:
    """How far a state that was built as the engine does it, denoising in between, is from the reference."""
    prefix, mask, clean = sample.blocks(0, 3), model.spec.mask_token_id, sample.blocks(3)
    block = [mask if place % 3 else token for place, token in enumerate(clean)]
    state = model.new_state()
    model.forward([Work(state, prefix[: sample.block])])
    model.forward([Work(state, prefix[sample.block : 2 * sample.block])])
    read_on(model, Work(state, (), [mask] * len(block)))
    read_on(model, Work(state, (), sample.others(clean)))
    rows = read_on(model, Work(state, prefix[2 * sample.block :], block))
    again = read_on(model, Work(state, (), block))
    expected = reference(prefix, block)
    return max(difference(expected, rows), difference(expected, again))


def cached(model: BlockModel, sample: Sample, reference: Reference) -> Finding:
    apart = step_by_step(model, sample, reference)
    limit = tolerance(reference(sample.blocks(0), sample.blocks(1)).dtype)
    return Finding(
        "cache = no cache",
        apart <= limit,
        f"apart by {apart:.1e} of the logits' spread (at most {limit:.0e})",
        "the cache would change answers",
    )


def snapshots(model: BlockModel, sample: Sample) -> Finding:
    """Back to an earlier state, on the same and on a fresh one, after the first went on."""
    state, block = model.new_state(), sample.blocks(3)
    model.forward([Work(state, sample.blocks(0, 2))])
    kept = state.snapshot()
    before = read_on(model, Work(state, (), block))
    model.forward([Work(state, sample.others(sample.blocks(2)))])
    states: list[State] = [state, model.new_state()]
    apart = 0.0
    for target in states:
        target.restore(kept)
        apart = max(apart, difference(before, read_on(model, Work(target, (), block))))
        model.forward([Work(target, sample.blocks(2))])  # must not move what the snapshot holds
    exact = apart <= tolerance(before.dtype) / 100
    return Finding(
        "snapshot and restore",
        exact,
        "exact" if exact else f"apart by {apart:.1e} of the logits' spread",
        "a prompt that was read before could not be taken up again",
    )


def untouched_by_blocks(model: BlockModel, sample: Sample) -> Finding:
    """What is denoised beside an advance must not get into the state."""
    alone = read(model, [sample.blocks(0, 2)], sample.blocks(3))
    state = model.new_state()
    model.forward([Work(state, sample.blocks(0, 2), sample.blocks(2))])
    apart = difference(alone, read_on(model, Work(state, (), sample.blocks(3))))
    return Finding(
        "causal prefix",
        apart <= tolerance(alone.dtype),
        f"a block that is denoised moves the state by {apart:.1e}",
        "what was committed would depend on what was only tried",
    )


def examine_model(model: BlockModel, sample: Sample, dtype: torch.dtype) -> list[Finding]:
    """All questions, of a model that is ready for use. Raises what the model raises."""
    mask = model.spec.mask_token_id
    return [
        Finding("mask token", True, f"token {mask}"),
        finite(model, sample),
        deterministic(model, sample),
        block_size(model, sample),
        bidirectional(model, sample, dtype),
        reads_prefix(model, sample, dtype),
        own_position(model, sample),
        untouched_by_blocks(model, sample),
        cached(model, sample, lambda prefix, block: read(model, [prefix], block)),
        snapshots(model, sample),
    ]
