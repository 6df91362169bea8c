"""Path a: blocks are denoised on top of the checkpoint's own cache, which commits advance.

How the cache is kept from a denoising step that writes to it is the `Reading`'s business. A state that a forward has
failed on is marked: its cache may have been written half.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from torch import Tensor

from ..protocol import ModelSpec, Snapshot, Work
from .calling import Caller, Way, copied, tensor_bytes
from .uncached import RemoteHidden, RemoteModel

PREFILL_CHUNK = 1024  # tokens that advance in one call: bounds the code's activations


class Guard(Enum):
    """How a denoising step leaves the cache as it was, the cheapest first.

    TRUST   the code does not write when it is told not to
    CROP    it writes, and the cache's `crop(length)` takes that back
    COPY    the step gets a copy of the cache
    """

    TRUST = "told not to write"
    CROP = "cropped afterwards"
    COPY = "a copy"


@dataclass(frozen=True, slots=True)
class Reading:
    """How a block is read on top of a cache. store: the step is told to write to it (use_cache=True and its kin); some
    code does not look at a cache otherwise."""

    guard: Guard
    store: bool = False


READINGS = (
    *(Reading(guard) for guard in Guard),
    Reading(Guard.CROP, store=True),
    Reading(Guard.COPY, store=True),
)


@dataclass(slots=True)
class CacheSnapshot:
    """A whole copy; `cache` is None before the first token, or once it was shed."""

    length: int
    nbytes: int
    cache: Any
    last: Tensor | None
    is_shed: bool = False

    def shed(self) -> None:
        self.cache = self.last = None
        self.nbytes, self.is_shed = 0, True


class CacheState:
    """Implements `protocol.State` around a cache that is only ever handed to the checkpoint's code and copied.

    last   the logits row [vocab] of the last committed token: what shifted logits predict the next block's start by
    """

    def __init__(self) -> None:
        self.cache: Any = None
        self.last: Tensor | None = None
        self.broken = False
        self._length = 0

    @property
    def length(self) -> int:
        return self._length

    def advanced(self, count: int, cache: Any, last: Tensor) -> None:
        self._length += count
        self.cache, self.last = cache, last

    def snapshot(self, base: Snapshot | None = None) -> CacheSnapshot:
        cache = copied(self.cache)
        return CacheSnapshot(self._length, tensor_bytes(cache), cache, self.last)

    def restore(self, snapshot: Snapshot) -> None:
        if not isinstance(snapshot, CacheSnapshot):
            raise TypeError(f"a snapshot of a cache is needed, not {type(snapshot).__name__}")
        if snapshot.is_shed:
            raise ValueError("the snapshot has been shed: it cannot be restored")
        self.cache, self.last, self._length = copied(snapshot.cache), snapshot.last, snapshot.length
        self.broken = False

    def free(self) -> None:
        self.cache = self.last = None


class CachedModel(RemoteModel):
    """Implements `protocol.BlockModel`. Works of one forward run one after another."""

    def __init__(self, caller: Caller, way: Way, spec: ModelSpec, logits_shift: int, reading: Reading) -> None:
        super().__init__(caller, way, spec, logits_shift)
        self.reading = reading

    def new_state(self) -> CacheState:
        return CacheState()

    def forward(self, work: Sequence[Work]) -> RemoteHidden:
        """See `BlockModel.forward`. Raises TypeError for a state of another model, ValueError for one that an earlier
        failure has spoilt, or for a block at the very start where logits are shifted, and what the code raises."""
        states = [_usable(item.state) for item in work]
        parts = []
        for state, item in zip(states, work, strict=True):
            try:
                for start in range(0, len(item.advance), PREFILL_CHUNK):
                    self._advance(state, item.advance[start : start + PREFILL_CHUNK])
                if item.block:
                    parts.append(self._read(state, item.block))
            except Exception:
                state.broken = True
                raise
        return self._hidden(parts)

    def _advance(self, state: CacheState, ids: Sequence[int]) -> None:
        last, cache = self.caller.advance(state.cache, state.length, ids)
        state.advanced(len(ids), cache, last.clone())

    def _read(self, state: CacheState, block: Sequence[int]) -> Tensor:
        if self.logits_shift and state.last is None:
            raise ValueError("shifted logits need at least one token before a block")
        guard = self.reading.guard
        cache = copied(state.cache) if guard is Guard.COPY else state.cache
        rows = self.caller.read(cache, state.length, block, self.way, store=self.reading.store)[-len(block) :]
        if guard is Guard.CROP and cache is not None:
            cache.crop(state.length)
        if not self.logits_shift or state.last is None:
            return rows
        return _shifted(state.last, rows)


def _shifted(last: Tensor, rows: Tensor) -> Tensor:
    """The row before the block, then all of the block's but its last: row r tells the token at position r."""
    shifted = rows.roll(1, 0)
    shifted[0] = last
    return shifted


def _usable(state: object) -> CacheState:
    if not isinstance(state, CacheState):
        raise TypeError(f"a state with a cache is needed, not {type(state).__name__}")
    if state.broken:
        raise ValueError("a failed forward has left this state unusable")
    return state
