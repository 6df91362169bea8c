"""Test doubles of the engine's two seams: a model that hashes, and a constraint that is a small automaton."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

import numpy as np
import numpy.typing as npt
import torch

from clover_agent.errors import GrammarError
from clover_agent.model.protocol import DenseLogits, Hidden, Logits, ModelSpec, SparseLogits, State, Work

MASK, END = 1, 2


class FakeSnapshot:
    """Eight bytes a token beyond the base, and a fixed part that can be shed."""

    def __init__(self, tokens: Sequence[int], base: "FakeSnapshot | None" = None) -> None:
        self.tokens = tuple(tokens)
        self.base = base
        self.is_shed = False

    def shed(self) -> None:
        self.is_shed = True

    @property
    def nbytes(self) -> int:
        own = len(self.tokens) - (self.base.length if self.base else 0)
        return 8 * own + (0 if self.is_shed else 100)

    @property
    def length(self) -> int:
        return len(self.tokens)


class FakeState:
    """Remembers every token and every advance, and refuses to be used once freed."""

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self.advances: list[tuple[int, ...]] = []
        self.freed = False

    @property
    def length(self) -> int:
        return len(self.tokens)

    def snapshot(self, base: object = None) -> FakeSnapshot:
        if base is not None:
            assert isinstance(base, FakeSnapshot)
            assert self.tokens[: base.length] == list(base.tokens)
        return FakeSnapshot(self.tokens, base)

    def restore(self, snapshot: object) -> None:
        assert isinstance(snapshot, FakeSnapshot)
        assert not snapshot.is_shed
        self.tokens = list(snapshot.tokens)

    def free(self) -> None:
        self.freed = True


@dataclass
class FakeHidden:
    contexts: list[tuple[tuple[int, ...], tuple[int, ...], int]]

    @property
    def rows(self) -> int:
        return len(self.contexts)


Rule = Callable[[tuple[int, ...], tuple[int, ...], int], npt.NDArray[np.float64]]


def hashed(vocab_size: int, scale: float = 4.0, seed: int = 0) -> Rule:
    """Logits that depend on every committed token, every position of the block, and the row, like a real model's."""

    def rule(tokens: tuple[int, ...], block: tuple[int, ...], position: int) -> npt.NDArray[np.float64]:
        digest = hashlib.blake2b(repr((seed, tokens, block, position)).encode(), digest_size=8).digest()
        rng = np.random.default_rng(int.from_bytes(digest, "little"))
        peak = np.arange(vocab_size) == rng.integers(vocab_size)
        return np.asarray(scale * rng.standard_normal(vocab_size) + 3 * scale * peak, dtype=np.float64)

    return rule


def peaked(vocab_size: int, script: Sequence[int], prompt_length: int, peak: float = 20.0) -> Rule:
    """All mass on a fixed output: position n of the answer is `script[n]`, and the end token after it."""

    def rule(tokens: tuple[int, ...], block: tuple[int, ...], position: int) -> npt.NDArray[np.float64]:
        n = len(tokens) - prompt_length + position
        logits = np.zeros(vocab_size)
        logits[script[n] if n < len(script) else END] = peak
        return logits

    return rule


@dataclass
class FakeModel:
    """A BlockModel over a rule. `fail` may raise for a batch of works before anything happens."""

    spec: ModelSpec
    rule: Rule
    sparse: bool = False
    fail: Callable[[Sequence[Work]], None] | None = None
    forwards: list[list[tuple[int, int]]] = field(default_factory=list)
    states: list[FakeState] = field(default_factory=list)

    def new_state(self) -> FakeState:
        self.states.append(FakeState())
        return self.states[-1]

    def forward(self, work: Sequence[Work]) -> Hidden:
        if self.fail is not None:
            self.fail(work)
        self.forwards.append([(len(w.advance), len(w.block)) for w in work])
        contexts = []
        for w in work:
            state = fake(w.state)
            assert not state.freed
            state.tokens += w.advance
            if w.advance:
                state.advances.append(tuple(w.advance))
            contexts += [(tuple(state.tokens), tuple(w.block), i) for i in range(len(w.block))]
        return FakeHidden(contexts)

    def logits(self, hidden: Hidden, rows: Sequence[int]) -> Logits:
        assert isinstance(hidden, FakeHidden)
        values = torch.tensor(np.stack([self.rule(*hidden.contexts[row]) for row in rows]))
        if not self.sparse:
            return DenseLogits(values)
        kept, ids = values.topk(6, dim=1)
        return SparseLogits(ids, kept, kept[:, -1] - 2.0, self.spec.vocab_size)


def fake(state: State) -> FakeState:
    assert isinstance(state, FakeState)
    return state


def spec(vocab_size: int = 24, block_size: int = 8, **changes: object) -> ModelSpec:
    facts: dict[str, object] = {"end_token_ids": (END,), "max_context": 512} | changes
    return ModelSpec(vocab_size=vocab_size, mask_token_id=MASK, block_size=block_size, **facts)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Automaton:
    """transitions[state][token] = next state; state 0 is the start. In a `free` state every token that is no end or
    mask token and has no transition of its own leads back to it. No `close` from an `open` state."""

    transitions: Mapping[int, Mapping[int, int]]
    accepting: frozenset[int]
    vocab_size: int
    free: frozenset[int] = frozenset()
    open: frozenset[int] = frozenset()

    def next(self, state: int, token: int) -> int | None:
        if token in (MASK, END):
            return None
        return self.transitions.get(state, {}).get(token, state if state in self.free else None)


class AutomatonConstraint:
    """The `Constraint` protocol over an automaton. `consumed` is what the engine made final."""

    def __init__(self, automaton: Automaton, state: int = 0, consumed: Sequence[int] = ()) -> None:
        self.automaton = automaton
        self.state = state
        self.consumed = list(consumed)
        self.masks_made = 0

    @property
    def free(self) -> bool:
        return self.state in self.automaton.free

    @property
    def complete(self) -> bool:
        return self.accepting() and not self.free and not self.automaton.transitions.get(self.state)

    def forced(self) -> list[int]:
        ids: list[int] = []
        state = self.state
        while state not in self.automaton.free and state not in self.automaton.accepting:
            options = self.automaton.transitions.get(state, {})
            if len(options) != 1:
                break
            ((token, state),) = options.items()
            ids.append(token)
            if len(ids) > 64:
                break
        return ids

    def valid_prefix(self, ids: Sequence[int]) -> int:
        state = self.state
        for n, token in enumerate(ids):
            after = self.automaton.next(state, token)
            if after is None:
                return n
            state = after
        return len(ids)

    def consume(self, ids: Sequence[int]) -> None:
        for token in ids:
            after = self.automaton.next(self.state, token)
            if after is None:
                raise GrammarError(f"token {token} is illegal in state {self.state}")
            self.state = after
            self.consumed.append(token)

    def fork(self) -> Self:
        return type(self)(self.automaton, self.state, self.consumed)

    def mask(self) -> npt.NDArray[np.uint32]:
        self.masks_made += 1
        size = self.automaton.vocab_size
        legal = np.array([self.valid_prefix([token]) == 1 for token in range(size)])
        legal[END] = self.accepting()
        padded = np.zeros((size + 31) // 32 * 32, dtype=np.bool_)
        padded[:size] = legal
        return np.packbits(padded, bitorder="little").view(np.uint32)

    def accepting(self) -> bool:
        return self.state in self.automaton.accepting

    def close(self, budget: int) -> list[int] | None:
        if self.state in self.automaton.open:
            return None
        paths = {self.state: list[int]()}
        frontier = [self.state]
        while frontier:
            state = frontier.pop(0)
            if state in self.automaton.accepting:
                return paths[state] if len(paths[state]) <= budget else None
            for token, after in self.automaton.transitions.get(state, {}).items():
                if after not in paths:
                    paths[after] = [*paths[state], token]
                    frontier.append(after)
        return None
