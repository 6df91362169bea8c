"""The layout of a cached forward pass: works of any lengths as one flat list of rows.

Rows of what advances states come first, then the rows of blocks, each in groups of equal length: a group is a
contiguous run of rows, so the gated delta rule runs over it as one batch without moving anything. Attention goes work
by work over the work's own buffer: no padding, no mask but in a causal commit, no copies of cached keys.
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
        self.masks = {span.work: self._mask(span, device) for group in self.advances for span in group.spans}
        kinds = [kind == "full_attention" for kind in config.layer_types]
        self.place_of_layer = [kinds[:i].count(kind) for i, kind in enumerate(kinds)]
        # Per work, the recurrent parts that its advance leads to, layer by layer.
        self.recurrent: dict[int, list[Recurrent]] = {span.work: [] for span in advances}

    def _mask(self, span: Span, device: torch.device) -> Tensor | None:
        """Bool [n, base + n] for a span that advances, None where no mask is needed."""
        count = len(span.ids)
        own = torch.arange(count, device=device)
        if self.config.commit_attention == "block":
            first = span.base if self.config.block_alignment == "absolute" else 0
            own = (own + first % self.config.block_size) // self.config.block_size
            if int(own[-1]) == 0:
                return None
        elif count == 1 or span.base == 0:
            return None
        past = own.new_full((span.base,), -1)
        return torch.cat((past, own)) <= own[:, None]

    def attend(self, layer: int, rows: AttentionRows) -> Tensor:
        out = torch.empty_like(rows.q)
        causal = self.config.commit_attention == "causal"
        for group in self.advances:
            for span in group.spans:
                mask = self.masks[span.work]
                self._attend(layer, rows, out, span, mask, causal=causal and mask is None and len(span.ids) > 1)
        for group in self.blocks:
            for span in group.spans:
                self._attend(layer, rows, out, span, None, causal=False)
        return out.flatten(1)

    def _attend(
        self, layer: int, rows: AttentionRows, out: Tensor, span: Span, mask: Tensor | None, *, causal: bool
    ) -> None:
        own = slice(span.row, span.row + len(span.ids))
        end = span.base + len(span.ids)
        cache = span.state.keys.data[self.place_of_layer[layer]]
        cache[0, :, span.base : end] = rows.k[own].transpose(0, 1)
        cache[1, :, span.base : end] = rows.v[own].transpose(0, 1)
        queries = rows.q[own].transpose(0, 1)[None]
        mixed = attend(queries, cache[None, 0, :, :end], cache[None, 1, :, :end], mask, causal=causal)
        out[own] = mixed[0].transpose(0, 1)

    def mix(self, layer: int, mixer: GatedDeltaNet, rows: DeltaRows) -> Tensor:
        place = self.place_of_layer[layer]
        out = []
        for group in self.advances:
            before = [span.state.recurrent[place] for span in group.spans]
            mixed, state, tail = _mix(mixer, rows, group, before, both_ways=False)
            for i, span in enumerate(group.spans):
                # A copy: the slice would keep the states at all chunk boundaries of the whole group alive.
                self.recurrent[span.work].append(Recurrent(state[i].clone(), tail[i].clone()))
            out.append(mixed)
        for group in self.blocks:
            before = [(self.recurrent.get(span.work) or span.state.recurrent)[place] for span in group.spans]
            both_ways = self.config.gdn_in_block == "bidirectional"
            out.append(_mix(mixer, rows, group, before, both_ways=both_ways)[0])
        return torch.cat(out) if len(out) > 1 else out[0]


def _mix(
    mixer: GatedDeltaNet, rows: DeltaRows, group: Group, before: Sequence[Recurrent], *, both_ways: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Outputs [rows of the group, width]; states and convolution inputs after it, [spans, ...]."""
    tail = torch.stack([part.tail for part in before])
    shape = (len(group.spans), group.length)
    sequences = DeltaRows(*(x[group.rows].view(*shape, -1) for x in (rows.qkv, rows.beta, rows.log_decay)))
    start = torch.stack([part.state for part in before])
    out, states = mixer.mix(sequences, tail, start, both_ways=both_ways, chunk=min(CHUNK, group.length))
    return out.flatten(0, 1), states[-1], torch.cat((tail, sequences.qkv), dim=1)[:, group.length :]


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
