"""What may stand at the frontier of one request: the `Constraint` that the engine holds.

An answer runs through phases: free text (a thought, visible text), fixed tokens (what separates a thought from the
rest), and text that a grammar holds. Free phases never ask the grammar's engine anything, so they cost nothing and
allow exactly what an unconstrained request would, control tokens aside. Knows no schemas and no tool formats.
"""

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from typing import Protocol, Self

import numpy as np
import numpy.typing as npt
from llguidance import LLMatcher

from clover_agent.errors import GrammarError
from clover_agent.grammar.numbers import TAIL, NumberGuard
from clover_agent.grammar.vocabulary import TEXT, UNUSED, Vocabulary

MASK_EVERY = 512  # tokens; see `Lexer`


@dataclass(frozen=True, slots=True)
class Free:
    """Any ordinary token, until the first token of the next phase.

    ends    the answer may end here
    limit   after so many tokens the phase must end: `landing` (skipped after a line break), then the next phase
    """

    ends: bool
    limit: int | None = None
    landing: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Fixed:
    """Exactly these tokens."""

    ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Held:
    """What the grammar allows; always the last phase. `first` is the token that leads here from a free phase."""

    first: int | None = None


Phase = Free | Fixed | Held


@dataclass(frozen=True, slots=True)
class Frame:
    """What all constraints of one vocabulary share.

    kinds      what each id is, see `vocabulary.kinds`; length: the vocabulary's size
    ordinary   the tokens that stand for text, as packed bits, [ceil(vocab_size / 32)]
    end_ids    legal exactly where the answer may end; never consumed
    numbers    refuses what would make a number infinite
    """

    vocabulary: Vocabulary
    kinds: bytes
    ordinary: npt.NDArray[np.uint32]
    end_ids: frozenset[int]
    numbers: NumberGuard

    def kind(self, id_: int) -> int:
        return self.kinds[id_] if 0 <= id_ < len(self.kinds) else UNUSED


@dataclass(frozen=True, slots=True)
class _Place:
    """Where the answer stands outside the grammar: which phase, and how many of its tokens are out."""

    phase: int = 0
    count: int = 0


@dataclass(slots=True)
class Lexer:
    """What the matchers of one grammar share behind the scenes: llguidance's lexer, which has a budget of work that
    only computing a mask refills, and which stays broken for all of them once that budget is spent."""

    tokens: int = 0  # consumed since the last mask
    broken: bool = False


class GrammarConstraint:
    """Implements `types.Constraint`. A matcher that fell into its error state raises `GrammarError` from then on."""

    def __init__(
        self, frame: Frame, phases: tuple[Phase, ...], matcher: LLMatcher, lexer: Lexer, closer: "Closer"
    ) -> None:
        self.frame = frame
        self._phases = phases
        self._place = _Place()
        self._matcher = matcher  # still pristine and shared by forks until the held phase begins
        self._lexer = lexer
        self._closer = closer
        self._held_ids: list[int] = []  # what the matcher has consumed
        self._tail = b""  # its last bytes

    @property
    def free(self) -> bool:
        return self._free_at(self._place)

    @property
    def complete(self) -> bool:
        return self.held and self._matcher.is_stopped() and self._matcher.is_accepting()

    @property
    def held(self) -> bool:
        """The grammar owns the frontier."""
        return isinstance(self._phases[self._place.phase], Held)

    def accepting(self) -> bool:
        phase = self._phases[self._place.phase]
        return bool(self._matcher.is_accepting()) if isinstance(phase, Held) else isinstance(phase, Free) and phase.ends

    def forced(self) -> list[int]:
        ids, place = self._fixed_from(self._place)
        if isinstance(self._phases[place.phase], Held):
            ids += self._matcher.compute_ff_tokens()
            self._raise_if_broken()
        return ids

    def valid_prefix(self, ids: Sequence[int]) -> int:
        legal, place, stuck = self._walk(ids)
        if stuck or not isinstance(self._phases[place.phase], Held):
            return legal
        return legal + self._held_prefix(ids[legal:])

    def consume(self, ids: Sequence[int]) -> None:
        outside, place, stuck = self._walk(ids)
        if stuck:
            raise GrammarError(f"Token {ids[outside]} is not legal here.")
        self._place = place
        if outside < len(ids):
            self._consume_held(list(ids[outside:]))

    def fork(self) -> Self:
        twin = copy(self)
        if self._held_ids:
            twin._matcher = self._matcher.deep_copy()
            twin._held_ids = self._held_ids.copy()
        return twin

    def mask(self) -> npt.NDArray[np.uint32]:
        if self.held:
            return self._held_mask()
        if self.free:
            mask = self.frame.ordinary.copy()
            _set(mask, self._exit(self._place.phase))
            if self.accepting():
                _set(mask, *self.frame.end_ids)
            return mask
        mask = np.zeros_like(self.frame.ordinary)
        _set(mask, self.forced()[0])
        return mask

    def close(self, budget: int) -> list[int] | None:
        """See `types.Constraint.close`. Outside the grammar the way to the end is known; inside it is searched."""
        if self.accepting():
            return []
        ids, place = self._fixed_from(self._place)
        if self.free:
            ids, place = self._fixed_from(_Place(self._place.phase + 1))
        phase = self._phases[place.phase]
        if isinstance(phase, Held):
            rest = self._closer(self._matcher, self._held_ids, budget - len(ids))
            return None if rest is None else ids + rest
        return ids if len(ids) <= budget else None

    # ---- outside the grammar

    def _free_at(self, place: _Place) -> bool:
        phase = self._phases[place.phase]
        return isinstance(phase, Free) and (phase.limit is None or place.count < phase.limit)

    def _exit(self, phase: int) -> int | None:
        """The token that ends a free phase: the first of the next one."""
        if phase + 1 == len(self._phases):
            return None
        following = self._phases[phase + 1]
        if isinstance(following, Fixed):
            return following.ids[0]
        return following.first if isinstance(following, Held) else None

    def _walk(self, ids: Sequence[int]) -> tuple[int, _Place, bool]:
        """Go along `ids` outside the grammar: how many were taken, where that leads, and whether the next is illegal.
        Stops where the grammar takes over."""
        taken, place = 0, self._place
        while taken < len(ids) and not isinstance(self._phases[place.phase], Held):
            step = self._step(place, ids[taken])
            if step is None:
                return taken, place, True
            place, used = step
            taken += used
        return taken, place, False

    def _step(self, place: _Place, id_: int) -> tuple[_Place, int] | None:
        """One token: the new place and how many tokens it used (0: the next phase is to take it); None if illegal."""
        phase = self._phases[place.phase]
        if isinstance(phase, Free) and self._free_at(place):
            if self.frame.kind(id_) == TEXT:
                return self._counted(phase, place, id_), 1
            return (_Place(place.phase + 1), 0) if id_ == self._exit(place.phase) else None
        ids, _ = self._fixed_from(place, only=True)
        if id_ != ids[0]:
            return None
        return (_Place(place.phase, place.count + 1) if len(ids) > 1 else _Place(place.phase + 1)), 1

    def _counted(self, phase: Free, place: _Place, id_: int) -> _Place:
        count = place.count + 1
        if count == phase.limit and self.frame.vocabulary.token_bytes(id_).endswith(b"\n"):
            count += len(phase.landing)
        if phase.limit is not None and count >= phase.limit + len(phase.landing):
            return _Place(place.phase + 1)
        return _Place(place.phase, count)

    def _fixed_from(self, place: _Place, *, only: bool = False) -> tuple[list[int], _Place]:
        """The tokens that must come from a place on, and where they lead; `only` those of its own phase."""
        ids: list[int] = []
        while not self._free_at(place):
            phase = self._phases[place.phase]
            if isinstance(phase, Held):
                break
            fixed = (
                phase.ids[place.count :]
                if isinstance(phase, Fixed)
                else phase.landing[place.count - (phase.limit or 0) :]
            )
            ids += fixed
            place = _Place(place.phase + 1)
            if only:
                break
        return ids, place

    # ---- inside the grammar

    def _held_prefix(self, ids: Sequence[int]) -> int:
        for n, id_ in enumerate(ids):
            if id_ in self.frame.end_ids or self.frame.kind(id_) == UNUSED:
                ids = ids[:n]
                break
        legal = int(self._matcher.validate_tokens(list(ids))) if ids else 0
        if not legal:
            self._raise_if_broken()
        return self.frame.numbers.finite_prefix(self._matcher, self._tail, ids[:legal])

    def _consume_held(self, ids: list[int]) -> None:
        if not self._held_ids:
            self._matcher = self._matcher.deep_copy()
            self._held_ids = []
        if not self._matcher.consume_tokens(ids):
            self._raise_if_broken()
        self._held_ids += ids
        self._tail = b"".join([self._tail, *map(self.frame.vocabulary.token_bytes, ids[-TAIL:])])[-TAIL:]
        self._lexer.tokens += len(ids)
        if self._lexer.tokens >= MASK_EVERY:
            self._held_mask()

    def _held_mask(self) -> npt.NDArray[np.uint32]:
        self._lexer.tokens = 0
        bits = np.frombuffer(self._matcher.compute_bitmask(), dtype=np.uint32)
        self._raise_if_broken()
        mask = np.zeros_like(self.frame.ordinary)
        shared = min(len(mask), len(bits))  # llguidance's has room for one more id than the vocabulary holds
        mask[:shared] = bits[:shared]
        if self.frame.numbers.full(self._matcher, self._tail):
            mask &= ~self.frame.numbers.digits
        for id_ in self.frame.end_ids:
            mask[id_ // 32] &= ~np.uint32(1 << id_ % 32)
        if self.accepting():
            _set(mask, *self.frame.end_ids)
        return mask

    def _raise_if_broken(self) -> None:
        if self._matcher.is_error():
            self._lexer.broken |= "lexer" in self._matcher.get_error()
            raise GrammarError(f"The grammar's matcher failed: {self._matcher.get_error().strip()}")


class Closer(Protocol):
    """Searches the shortest way to the end of a held phase; see `close`."""

    def __call__(self, matcher: LLMatcher, held_ids: Sequence[int], budget: int) -> list[int] | None: ...


def _set(mask: npt.NDArray[np.uint32], *ids: int | None) -> None:
    for id_ in ids:
        if id_ is not None:
            mask[id_ // 32] |= np.uint32(1 << id_ % 32)
