"""A model that knows its answers: replies of token ids, as peaked logits over the real vocabulary.

Everything around it (engine, grammar, parser, gateway) is real, so agents can be tested without weights and tests can
say exactly what a model wants to write. Knows no text: replies come from a function of the prompt's ids.

A reply is followed as far as it goes. Where the output deviates from it (a grammar forced or forbade something) the
model finds the place in the reply that fits what was written last, and goes on from there. An output that grows far
beyond the reply has lost it (a grammar will not let it end, say), and is ended with an error.
"""

import math
import time
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch

from clover_agent.errors import GenerationFailed

from .protocol import Hidden, ModelSpec, Snapshot, SparseLogits, Work

PATIENCE = 256  # tokens that an output may be longer than twice its reply
WINDOW = 64  # tokens around the expected place in which a deviating output is looked for


@dataclass(frozen=True, slots=True)
class ScriptedReply:
    """What to write, without an end token.

    delay_s         spent once, before the first token; it holds up the engine as a long prefill does
    prompt_length   where the prompt ends; None = at the first denoising step. They differ where a grammar has already
                    forced whole blocks by then.
    """

    ids: tuple[int, ...]
    delay_s: float = 0.0
    prompt_length: int | None = None


@dataclass(frozen=True, slots=True)
class Peaks:
    """How sure the model is.

    reach        positions ahead of the last known token that are predicted with probability `sure`; those beyond get
                 `unsure`, so that a block takes several steps
    error_rate   share of positions at which a wrong token has the peak, chosen by a checksum of seed, place and id: the
                 same in every batch, and gone once the position before it is known
    """

    reach: int = 8
    sure: float = 0.99
    unsure: float = 0.5
    error_rate: float = 0.0
    seed: int = 0


@dataclass(slots=True)
class ScriptedState:
    """The committed ids; `reply` and the prompt's length are known from the first denoising step on."""

    ids: list[int] = field(default_factory=list)
    reply: ScriptedReply | None = None
    prompt_length: int = 0

    @property
    def length(self) -> int:
        return len(self.ids)

    def snapshot(self, base: Snapshot | None = None) -> "ScriptedSnapshot":
        """Always whole: `base` would save next to nothing."""
        return ScriptedSnapshot(tuple(self.ids))

    def restore(self, snapshot: Snapshot) -> None:
        """The ids become the head of a prompt: the reply is found anew, by all of it."""
        if not isinstance(snapshot, ScriptedSnapshot):
            raise TypeError(f"a scripted state cannot be restored from {type(snapshot).__name__}")
        self.ids, self.reply = list(snapshot.ids), None

    def free(self) -> None:
        self.ids = []


@dataclass(frozen=True, slots=True)
class ScriptedSnapshot:
    ids: tuple[int, ...]

    @property
    def length(self) -> int:
        return len(self.ids)

    @property
    def nbytes(self) -> int:
        return 8 * len(self.ids)

    def shed(self) -> None:
        """There is nothing to gain."""


@dataclass(frozen=True, slots=True)
class _Row:
    """What one block position predicts."""

    token: int
    probability: float


@dataclass(frozen=True, slots=True)
class _Rows:
    predictions: tuple[_Row, ...]

    @property
    def rows(self) -> int:
        return len(self.predictions)


class ScriptedModel:
    """A `BlockModel` whose replies come from `reply_for(prompt_ids)`."""

    def __init__(
        self, spec: ModelSpec, reply_for: Callable[[Sequence[int]], ScriptedReply], peaks: Peaks | None = None
    ) -> None:
        self.spec = spec
        self._reply_for = reply_for
        self._peaks = peaks or Peaks()

    def new_state(self) -> ScriptedState:
        return ScriptedState()

    def forward(self, work: Sequence[Work]) -> _Rows:
        rows: list[_Row] = []
        for item in work:
            state = item.state
            if not isinstance(state, ScriptedState):
                raise TypeError(f"a scripted model cannot use a {type(state).__name__}")
            state.ids += item.advance
            if item.block:
                rows += self._denoise(state, item.block)
        return _Rows(tuple(rows))

    def logits(self, hidden: Hidden, rows: Sequence[int]) -> SparseLogits:
        if not isinstance(hidden, _Rows):
            raise TypeError(f"a scripted model cannot read a {type(hidden).__name__}")
        picked = [hidden.predictions[row] for row in rows]
        others = self.spec.vocab_size - 1
        peaks = [math.log(row.probability / (1 - row.probability) * others) for row in picked]
        return SparseLogits(
            ids=torch.tensor([[row.token] for row in picked], dtype=torch.int64).view(-1, 1),
            values=torch.tensor([[peak] for peak in peaks], dtype=torch.float64).view(-1, 1),
            rest=torch.zeros(len(picked), dtype=torch.float64),
            vocab_size=self.spec.vocab_size,
        )

    def _denoise(self, state: ScriptedState, block: Sequence[int]) -> list[_Row]:
        if state.reply is None:
            state.reply = reply = self._reply_for(state.ids)
            state.prompt_length = len(state.ids) if reply.prompt_length is None else reply.prompt_length
            time.sleep(reply.delay_s)
        script = state.reply.ids
        known = state.ids[state.prompt_length :]
        if len(known) > 2 * len(script) + PATIENCE:
            raise GenerationFailed(
                f"The scripted reply of {len(script)} tokens is over, but the request does not let it end: "
                f"{len(known)} tokens are out. Does the reply fit its tools and response_format?"
            )
        place = _follow(script, known)
        rows: list[_Row] = []
        unknown = 0
        for offset, token in enumerate(block):
            if token == self.spec.mask_token_id:
                rows.append(self._predict(script, place, len(state.ids) + offset, unknown))
                place, known, unknown = place + 1, [], unknown + 1
            else:
                rows.append(_Row(token, self._peaks.sure))
                known.append(token)
                place, unknown = _place_after(script, known, place), 0
        return rows

    def _predict(self, script: Sequence[int], place: int, position: int, unknown: int) -> _Row:
        peaks = self._peaks
        token = script[place] if place < len(script) else self.spec.end_token_ids[0]
        probability = peaks.sure if unknown < peaks.reach else peaks.unsure
        if unknown and peaks.error_rate:
            draw = zlib.crc32(f"{peaks.seed} {position} {token}".encode())
            if draw % 10_000 < peaks.error_rate * 10_000:
                token = draw // 10_000 % self.spec.vocab_size
        return _Row(self.spec.end_token_ids[0] if token == self.spec.mask_token_id else token, probability)


def _follow(script: Sequence[int], output: Sequence[int]) -> int:
    """The place in `script` that comes next once `output` is written."""
    if len(output) <= len(script) and all(a == b for a, b in zip(script, output, strict=False)):
        return len(output)
    place = 0
    for end in range(1, len(output) + 1):
        place = _place_after(script, output[max(0, end - 16) : end], place)
    return place


def _place_after(script: Sequence[int], known: Sequence[int], place: int) -> int:
    """The next place once the last id of `known` is written at `place`: the one after the longest run in `script` near
    it that ends as `known` does, the nearest of equals. A token that is nowhere near replaces the expected one."""
    token = known[-1]
    if place < len(script) and script[place] == token:
        return place + 1
    best, best_key = place + 1, (0, 0)
    for at in range(max(0, place - WINDOW), min(len(script), place + WINDOW)):
        if script[at] == token:
            key = (_common_end(script, at, known), -abs(at - place))
            if key > best_key:
                best, best_key = at + 1, key
    return best


def _common_end(script: Sequence[int], at: int, known: Sequence[int]) -> int:
    """Length of the longest end of `known` that `script[: at + 1]` ends with, at most 16."""
    length = 0
    while length < min(16, len(known), at + 1) and script[at - length] == known[-1 - length]:
        length += 1
    return length
