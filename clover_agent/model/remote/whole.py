"""Looks at passes over whole sequences of a checkpoint's own code: who sees whom.

Compared are passes of equal length that differ in a few tokens; the rows of logits that change tell what was reached.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import torch
from torch import Tensor

from clover_agent.model.contract import REACHED, Sample, changed_rows

from .calling import Caller, Way


class Prefix(Enum):
    """What the positions of a prefix see: those before them; their own block too; what follows as well."""

    CAUSAL = "causal"
    BLOCKS = "causal by whole blocks"
    OPEN = "open to what follows"


@dataclass(frozen=True, slots=True)
class WholePass:
    """Shares of positions, 0 to 1.

    reach       of a block, reached by its last token
    aligned     only where the block starts at a multiple of the block size
    back_reach  of the prefix, reached by the block after it
    leak        of prefix and block, reached by what follows the block
    """

    vocab_size: int
    reach: float
    aligned: bool
    back_reach: float
    leak: float
    prefix: Prefix

    @property
    def faults(self) -> int:
        """How badly the contract is broken: a block that does not see itself weighs most."""
        return 4 * (self.reach < REACHED) + 2 * (self.prefix is Prefix.OPEN) + (self.leak > 0)


def look(caller: Caller, way: Way, sample: Sample) -> WholePass:
    """Run the passes. Raises what the code raises."""
    return _Look(caller, way, sample).run()


class _Look:
    def __init__(self, caller: Caller, way: Way, sample: Sample) -> None:
        self.caller, self.way, self.sample = caller, way, sample
        self.size = sample.block

    def run(self) -> WholePass:
        rows = self._rows(self.sample.blocks(0, 3), [2 * self.size])
        reach, anywhere = self._reach(2 * self.size), self._reach(2 * self.size + self.size // 2)
        back = self._changed(range(2 * self.size, 3 * self.size), 3 * self.size, [2 * self.size])[: 2 * self.size]
        after = self._changed(range(3 * self.size, 4 * self.size), 4 * self.size, [2 * self.size, 3 * self.size])
        inside = self._changed([2 * self.size - 1], 3 * self.size, [2 * self.size])[: 2 * self.size - 1]
        back_reach, leak = _share(back), _share(after[: 3 * self.size])
        if back_reach > 0 or bool(inside[: self.size].any()):
            prefix = Prefix.OPEN
        else:
            prefix = Prefix.BLOCKS if bool(inside.any()) else Prefix.CAUSAL
        aligned = reach >= REACHED > anywhere
        return WholePass(rows.shape[-1], max(reach, anywhere), aligned, back_reach, leak, prefix)

    def _reach(self, start: int) -> float:
        end = start + self.size
        return _share(self._changed([end - 1], end, [start])[start : end - 1])

    def _changed(self, places: Sequence[int], length: int, starts: Sequence[int]) -> Tensor:
        """Bool [length]: the rows that change when the tokens at `places` do."""
        ids = list(self.sample.ids[:length])
        other = list(ids)
        for place, token in zip(places, self.sample.others([ids[place] for place in places]), strict=True):
            other[place] = token
        return changed_rows(self._rows(ids, starts), self._rows(other, starts), self.caller.dtype)

    def _rows(self, ids: Sequence[int], starts: Sequence[int]) -> Tensor:
        rows = self.caller.whole(ids, starts, self.way)
        if len(rows) != len(ids):
            raise ValueError(f"{len(ids)} tokens gave {len(rows)} rows of logits")
        return rows.to(torch.promote_types(rows.dtype, torch.float32))


def _share(rows: Tensor) -> float:
    return float(rows.double().mean())
