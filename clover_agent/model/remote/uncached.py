"""Path b: every denoising step runs over the whole sequence. Slow, and right whatever the cache of the code does.

A state is the list of its tokens. Knows nothing of how the call is told of its block.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..protocol import DenseLogits, Hidden, ModelSpec, Snapshot, Work
from .calling import Caller, Way

ID_BYTES = 32  # of a token id in a list, roughly


@dataclass(frozen=True, slots=True)
class RemoteHidden:
    """Logits [rows, vocab] of the blocks: the code's head has run already. Row r belongs to block position r."""

    values: Tensor

    @property
    def rows(self) -> int:
        return len(self.values)


@dataclass(frozen=True, slots=True)
class TokenSnapshot:
    """The tokens themselves: cheap enough to hold all of them and need no base."""

    ids: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        return ID_BYTES * len(self.ids)

    @property
    def length(self) -> int:
        return len(self.ids)

    def shed(self) -> None:
        """Nothing rests on a snapshot of tokens, and there is nothing to give up."""


class TokenState:
    """Implements `protocol.State` by remembering the tokens."""

    def __init__(self) -> None:
        self.ids: list[int] = []

    @property
    def length(self) -> int:
        return len(self.ids)

    def snapshot(self, base: Snapshot | None = None) -> TokenSnapshot:
        return TokenSnapshot(tuple(self.ids))

    def restore(self, snapshot: Snapshot) -> None:
        if not isinstance(snapshot, TokenSnapshot):
            raise TypeError(f"a snapshot of tokens is needed, not {type(snapshot).__name__}")
        self.ids = list(snapshot.ids)

    def free(self) -> None:
        self.ids = []


class RemoteModel:
    """What both block-model paths share: the module, the spec, and logits that are there already."""

    def __init__(self, caller: Caller, way: Way, spec: ModelSpec, logits_shift: int) -> None:
        self.caller = caller
        self.way = way
        self.logits_shift = logits_shift
        self._spec = spec

    @property
    def spec(self) -> ModelSpec:
        return self._spec

    @property
    def device(self) -> torch.device:
        return self.caller.device

    @property
    def weight_bytes(self) -> int:
        return self.caller.weight_bytes

    def logits(self, hidden: Hidden, rows: Sequence[int]) -> DenseLogits:
        if not isinstance(hidden, RemoteHidden):
            raise TypeError(f"hidden rows of a checkpoint's own code are needed, not {type(hidden).__name__}")
        return DenseLogits(hidden.values[torch.tensor(list(rows), dtype=torch.int64, device=hidden.values.device)])

    def _hidden(self, parts: Sequence[Tensor]) -> RemoteHidden:
        if parts:
            return RemoteHidden(torch.cat(list(parts)))
        return RemoteHidden(torch.empty((0, self.spec.vocab_size), dtype=self.caller.dtype, device=self.device))


class UncachedModel(RemoteModel):
    """Implements `protocol.BlockModel`. Works of one forward run one after another."""

    def new_state(self) -> TokenState:
        return TokenState()

    def forward(self, work: Sequence[Work]) -> RemoteHidden:
        """See `BlockModel.forward`. Raises TypeError for a state of another model, ValueError for a block at the very
        start where logits are shifted, and whatever the checkpoint's code raises; no state has moved then."""
        states = [_tokens(item.state) for item in work]
        parts = [
            self._read([*state.ids, *item.advance], item.block)
            for state, item in zip(states, work, strict=True)
            if item.block
        ]
        for state, item in zip(states, work, strict=True):
            state.ids += item.advance
        return self._hidden(parts)

    def _read(self, prefix: Sequence[int], block: Sequence[int]) -> Tensor:
        shift = self.logits_shift
        if shift and not prefix:
            raise ValueError("shifted logits need at least one token before a block")
        rows = self.caller.whole([*prefix, *block], [len(prefix)], self.way, keep=len(block) + shift)
        return rows[: len(block)]


def _tokens(state: object) -> TokenState:
    if not isinstance(state, TokenState):
        raise TypeError(f"a state of tokens is needed, not {type(state).__name__}")
    return state
