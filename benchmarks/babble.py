"""A model that knows nothing: what it writes is noise, a script, or malice. It shows what the constraint does alone.

Four scripts:
perfect       the given answer, confidently
corrupt       the given answer with a few edits that break it, confidently
gibberish     random logits
adversarial   the same, under a layer of far more likely tokens that are illegal nearly everywhere: end tokens, control
              tokens, brackets that do not fit. In half of the rows the layer is wider than the engine looks.

Random logits are drawn for some tokens of the whole vocabulary, some that are punctuation or digits, and, in half of
the rows, far higher for the next token of one of the `closers`, the texts that end a value in the format at hand:
noise over the whole vocabulary would hardly ever end a string, and a server must not end it for the model.
"""

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import torch

from benchmarks.vocabularies import Setting
from clover_agent.model.protocol import DenseLogits, Hidden, Logits, ModelSpec, Snapshot, SparseLogits, State, Work

REST = -12.0
CONFIDENT = 12.0
CLOSING = 9.0
ILLEGAL = 20.0
CLOSE_ONE_IN = 2
WIDTH = 40


@dataclass(frozen=True, slots=True)
class TokenSnapshot:
    tokens: tuple[int, ...]
    nbytes: int = 0

    @property
    def length(self) -> int:
        return len(self.tokens)

    def shed(self) -> None:
        """There is nothing to gain."""


@dataclass(slots=True)
class BabbleState:
    tokens: list[int] = field(default_factory=list)
    rng: random.Random = field(default_factory=random.Random)

    @property
    def length(self) -> int:
        return len(self.tokens)

    def snapshot(self, base: Snapshot | None = None) -> Snapshot:
        return TokenSnapshot(tuple(self.tokens))

    def restore(self, snapshot: Snapshot) -> None:
        assert isinstance(snapshot, TokenSnapshot)
        self.tokens = list(snapshot.tokens)

    def free(self) -> None:
        self.tokens = []


@dataclass(frozen=True, slots=True)
class Row:
    """A position of a block: what is left of it, and how many masked positions lie between."""

    state: BabbleState
    context: tuple[int, ...]
    gap: int


class BabbleHidden:
    def __init__(self, found: list[Row]) -> None:
        self.found = found

    @property
    def rows(self) -> int:
        return len(self.found)


class Babble:
    """A `BlockModel`. A prompt is one token, the number of its script in `answers`; its noise depends on `seed` and
    that number alone."""

    def __init__(
        self, setting: Setting, script: str, answers: Sequence[str], closers: Sequence[str], *, seed: int, dense: bool
    ) -> None:
        self.spec = ModelSpec(setting.vocab_size, setting.mask_token_id, setting.end_token_ids, 32, 131_072)
        self._vocabulary = setting.vocabulary
        self._script = script
        self._answers = answers
        self._seed = seed
        self._dense = dense
        self._closers = [setting.vocabulary.encode_text(text) for text in closers]
        ordinary = range(setting.vocabulary.vocab_size)
        control = set(setting.vocabulary.control.values())
        self._ordinary = [i for i in ordinary if i not in control]
        self._marks = [i for i in self._ordinary if (text := setting.vocabulary.token_bytes(i)) and not _lettered(text)]
        self._illegal = [*setting.end_token_ids, *sorted(control - {setting.mask_token_id})]
        self._illegal += [
            id_ for text in ("}}}", "]]", "){", "</", "\n\n\n") for id_ in setting.vocabulary.encode_text(text)
        ]
        self._control = re.compile("(" + "|".join(map(re.escape, setting.vocabulary.control)) + ")")
        self._noise = torch.randn(1 << 22, generator=torch.Generator().manual_seed(seed)) if dense else torch.empty(0)

    def new_state(self) -> State:
        return BabbleState()

    def forward(self, work: Sequence[Work]) -> BabbleHidden:
        rows: list[Row] = []
        for piece in work:
            state = piece.state
            assert isinstance(state, BabbleState)
            if not state.tokens and piece.advance:
                state.rng.seed(f"{self._seed} {piece.advance[0]}")
            state.tokens += piece.advance
            context, gap = tuple(state.tokens), 0
            for token in piece.block:
                rows.append(Row(state, context, gap))
                if token == self.spec.mask_token_id:
                    gap += 1
                else:
                    context, gap = (*context, token), 0
        return BabbleHidden(rows)

    def logits(self, hidden: Hidden, rows: Sequence[int]) -> Logits:
        assert isinstance(hidden, BabbleHidden)
        found = [self._row(hidden.found[row]) for row in rows]
        ids = torch.tensor([list(row) for row in found])
        values = torch.tensor([list(row.values()) for row in found])
        if not self._dense:
            return SparseLogits(ids, values, torch.full((len(found),), REST), self.spec.vocab_size)
        dense = torch.stack([self._noise_row(hidden.found[row].state.rng) for row in rows])
        return DenseLogits(dense.scatter_(1, ids, values))

    def _noise_row(self, rng: random.Random) -> torch.Tensor:
        start = rng.randrange(len(self._noise) - self.spec.vocab_size)
        return self._noise[start : start + self.spec.vocab_size] + REST

    def _row(self, row: Row) -> dict[int, float]:
        """Exactly `WIDTH` tokens with their logits."""
        rng = row.state.rng
        logits: dict[int, float] = {}
        if self._script in ("perfect", "corrupt"):
            logits[self._scripted(row)] = CONFIDENT
        logits |= {rng.choice(self._ordinary): rng.gauss(0, 2) for _ in range(10)}
        logits |= {rng.choice(self._marks): rng.gauss(0, 2) for _ in range(6)}
        logits[rng.choice(self.spec.end_token_ids)] = rng.gauss(0, 2)
        if closer := self._closing(row):
            logits[closer] = CLOSING
        if self._script == "adversarial":
            layer = self._illegal if rng.random() < 0.5 else rng.sample(self._illegal, 6)
            logits |= {id_: ILLEGAL + rng.random() for id_ in layer[:16]}
        while len(logits) < WIDTH:
            logits.setdefault(rng.choice(self._ordinary), REST)
        return dict(list(logits.items())[:WIDTH])

    def _scripted(self, row: Row) -> int:
        """The answer's token here: the answer is taken up where its text fits what is written."""
        number, *written_ids = row.context
        answer = self._answers[number]
        written = b"".join(map(self._vocabulary.token_bytes, written_ids)).decode("utf-8", "replace")
        at = len(written) if answer.startswith(written) else -1
        for length in (24, 12, 6, 3, 1):
            if at < 0 and (found := answer.find(written[-length:])) >= 0:
                at = found + length
        ids = self._encoded(number, max(at, 0))
        return ids[row.gap] if row.gap < len(ids) else self.spec.end_token_ids[0]

    @lru_cache(maxsize=4096)  # noqa: B019 - a benchmark's model lives as long as the process
    def _encoded(self, number: int, start: int) -> list[int]:
        ids: list[int] = []
        for part in self._control.split(self._answers[number][start:]):
            control = self._vocabulary.control.get(part)
            ids += self._vocabulary.encode_text(part) if control is None else [control]
        return ids

    def _closing(self, row: Row) -> int | None:
        """The next token of a closing text: of one that was begun, or, now and then, of any."""
        rng = row.state.rng
        for closer in self._closers:
            for n in range(len(closer) - 1, 0, -1):
                if row.gap == 0 and row.context[-n:] == tuple(closer[:n]):
                    return closer[n]
        return rng.choice(self._closers)[0] if rng.randrange(CLOSE_ONE_IN) == 0 else None


def _lettered(text: bytes) -> bool:
    return any(chr(byte).isalpha() or byte > 127 for byte in text)
