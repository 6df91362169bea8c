"""The layout of a cached forward pass: works of any lengths as one flat list of rows.

Rows of what advances states come first, then the rows of blocks, each in groups of equal length: a group is a
contiguous run of rows, so the gated delta rule runs over it as one batch without moving anything. Attention goes work
by work over the work's own buffer: no padding, no copies of cached keys, a mask only where a commit needs one.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from .attention import AttentionRows, attend
from .config import ModelConfig
from .delta_rule import CHUNK
from .gated_delta import DeltaRows, GatedDeltaNet
from .state import NativeState, Recurrent

SLICE = 256  # rows that one mask covers: a prefill far into a long context must not need a mask of its square


@dataclass(frozen=True, slots=True)
class Span:
    """A run of tokens of one work. base: positions before it (committed, or just advanced by the same pass)."""

    work: int
    state: NativeState
    ids: Sequence[int]
    base: int
    row: int = 0


@dataclass(frozen=True, slots=True)
class Group:
    """Spans of equal length in consecutive rows from `row` on."""

    spans: tuple[Span, ...]
    length: int
    row: int

    @property
    def rows(self) -> slice:
        return slice(self.row, self.row + len(self.spans) * self.length)


@dataclass(frozen=True, slots=True)
class View:
    """Rows start to stop of a span see its first `keys` rows and everything before the span, less what `mask` hides
    (bool [stop - start, base + keys], true where visible)."""

    start: int
    stop: int
    keys: int
    mask: Tensor | None
    causal: bool = False


class RaggedPass:
    """Implements `transformer.Pass`. Writes keys into the states' buffers; collects what else a commit changes."""

    def __init__(
        self, config: ModelConfig, advances: Sequence[Span], blocks: Sequence[Span], device: torch.device
    ) -> None:
        self.config = config
        self.advances, row = _grouped(advances, 0)
        self.blocks, self.count = _grouped(blocks, row)
        spans = [span for group in (*self.advances, *self.blocks) for span in group.spans]
        self.ids = torch.tensor([token for span in spans for token in span.ids], dtype=torch.int64, device=device)
        places = [place for span in spans for place in range(span.base, span.base + len(span.ids))]
        self.positions = torch.tensor(places, dtype=torch.int64, device=device)
        self.views = {span.work: self._views(span, device) for span in advances}
        kinds = [kind == "full_attention" for kind in config.layer_types]
        self.place_of_layer = [kinds[:i].count(kind) for i, kind in enumerate(kinds)]
        # Per work, the recurrent parts that its advance leads to, layer by layer.
        self.recurrent: dict[int, list[Recurrent]] = {span.work: [] for span in advances}

    def _views(self, span: Span, device: torch.device) -> list[View]:
        """What the rows of a span that advances may see, a slice of at most `SLICE` rows at a time."""
        count = len(span.ids)
        if self.config.commit_attention == "causal" and span.base == 0:
            return [View(0, count, count, None, causal=count > 1)]
        horizon = torch.arange(count, device=device)
        if self.config.commit_attention == "block":
            size = self.config.block_size
            first = span.base % size if self.config.block_alignment == "absolute" else 0
            horizon = ((horizon + first) // size * size + size - 1 - first).clamp(max=count - 1)
        views = []
        for start in range(0, count, SLICE):
            stop = min(start + SLICE, count)
            furthest, nearest = int(horizon[stop - 1]) + 1, int(horizon[start]) + 1
            keys = torch.arange(-span.base, furthest, device=device)
            mask = keys <= horizon[start:stop, None] if nearest < furthest else None
            views.append(View(start, stop, furthest, mask))
        return views

    def attend(self, layer: int, rows: AttentionRows) -> Tensor:
        out = torch.empty_like(rows.q)
        for group in self.advances:
            for span in group.spans:
                self._attend(layer, rows, out, span, self.views[span.work])
        for group in self.blocks:
            whole = [View(0, group.length, group.length, None)]
            for span in group.spans:
                self._attend(layer, rows, out, span, whole)
        return out.flatten(1)

    def _attend(self, layer: int, rows: AttentionRows, out: Tensor, span: Span, views: Sequence[View]) -> None:
        own, end = slice(span.row, span.row + len(span.ids)), span.base + len(span.ids)
        cache = span.state.keys[self.place_of_layer[layer]]
        cache[0, :, span.base : end] = rows.k[own].transpose(0, 1)
        cache[1, :, span.base : end] = rows.v[own].transpose(0, 1)
        for view in views:
            part = slice(span.row + view.start, span.row + view.stop)
            keys, values = cache[None, 0, :, : span.base + view.keys], cache[None, 1, :, : span.base + view.keys]
            mixed = attend(rows.q[part].transpose(0, 1)[None], keys, values, view.mask, causal=view.causal)
            out[part] = mixed[0].transpose(0, 1)

    def mix(self, layer: int, mixer: GatedDeltaNet, rows: DeltaRows) -> Tensor:
        place = self.place_of_layer[layer]
        out = []
        for group in self.advances:
            gathered = _gathered(rows, group)
            tail, start = _stacked([span.state.recurrent[place] for span in group.spans])
            mixed, states = mixer.scan(gathered, tail, start, chunk=min(CHUNK, group.length))
            last = torch.cat((tail, gathered.qkv), dim=1)[:, group.length :]
            for i, span in enumerate(group.spans):
                # Copies: slices would keep the states at all chunk boundaries of the whole group alive.
                self.recurrent[span.work].append(Recurrent(states[-1, i].clone(), last[i].clone()))
            out.append(mixed.flatten(0, 1))
        both_ways = self.config.gdn_in_block == "bidirectional"
        for group in self.blocks:
            before = [(self.recurrent.get(span.work) or span.state.recurrent)[place] for span in group.spans]
            out.append(mixer.read(_gathered(rows, group), *_stacked(before), both_ways=both_ways).flatten(0, 1))
        return torch.cat(out) if len(out) > 1 else out[0]


def _gathered(rows: DeltaRows, group: Group) -> DeltaRows:
    """The rows of a group as sequences [spans, length, ...]."""
    shape = (len(group.spans), group.length)
    return DeltaRows(*(x[group.rows].view(*shape, -1) for x in (rows.qkv, rows.beta, rows.log_decay)))


def _stacked(parts: Sequence[Recurrent]) -> tuple[Tensor, Tensor]:
    """Convolution inputs and recurrent states, [spans, ...]."""
    return torch.stack([part.tail for part in parts]), torch.stack([part.state for part in parts])


def _grouped(spans: Sequence[Span], row: int) -> tuple[list[Group], int]:
    """Spans of equal length together, rows given from `row` on; and the first row after them."""
    by_length: dict[int, list[Span]] = {}
    for span in spans:
        by_length.setdefault(len(span.ids), []).append(span)
    groups = []
    for length, members in by_length.items():
        placed = tuple(replace(span, row=row + i * length) for i, span in enumerate(members))
        groups.append(Group(placed, length, row))
        row += length * len(members)
    return groups, row
