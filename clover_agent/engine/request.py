"""A request, and everything the engine knows about it while it runs. No decisions and no model calls here."""

import random
from collections import deque
from collections.abc import Sequence as Ids
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from typing import Literal

from clover_agent.engine.block import Block
from clover_agent.engine.prefix_cache import Entry
from clover_agent.engine.processors import History, Query, samples
from clover_agent.errors import ContextLengthExceeded, InvalidRequest
from clover_agent.model.protocol import ModelSpec, Snapshot, State, Work
from clover_agent.types import Constraint, DiffusionStats, SamplingParams, Step

MAX_BLOCK_SIZE = 256


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """What the engine is asked for. It owns `constraint` from submission to the end of the request.

    drafts       steps also tell the unfinished rest of the current block
    deadline_s   seconds from submission after which the request ends with `DeadlineExceeded`
    keep_at      lengths of heads of the prompt that later prompts are likely to share: their states are worth keeping
    """

    id: str
    prompt_ids: tuple[int, ...]
    sampling: SamplingParams
    constraint: Constraint | None = None
    drafts: bool = False
    deadline_s: float | None = None
    keep_at: tuple[int, ...] = ()


def check(request: GenerationRequest, spec: ModelSpec) -> None:
    """Refuse what the engine cannot run. Raises `InvalidRequest` or `ContextLengthExceeded`."""
    ids, params = request.prompt_ids, request.sampling
    if not ids:
        raise InvalidRequest("The prompt is empty; send at least one token.", param="messages")
    if len(ids) >= spec.max_context:
        raise ContextLengthExceeded(
            f"The prompt has {len(ids)} tokens, this model's context is {spec.max_context}. Shorten it.",
            param="messages",
        )
    biased = [token for token, _ in params.logit_bias]
    for name, tokens in (("messages", ids), ("logit_bias", biased), ("stop_token_ids", params.stop_token_ids)):
        if any(not 0 <= token < spec.vocab_size for token in tokens):
            raise InvalidRequest(f"{name} holds a token id outside 0..{spec.vocab_size - 1}.", param=name)
    if params.block_size is not None and not 1 <= params.block_size <= MAX_BLOCK_SIZE:
        raise InvalidRequest(f"block_size must be between 1 and {MAX_BLOCK_SIZE}.", param="block_size")


class Status(Enum):
    WAITING = "waiting"  # in the queue, no state
    PREFILL = "prefill"  # part of the prompt is not in the state yet
    DENOISING = "denoising"
    FINISHED = "finished"


class Sequence:
    """The state of one request. The scheduler decides when it runs, the runner feeds the model from it, `denoise`
    unmasks its block.

    Invariants: `output` is what the constraint has consumed, in order; the model's state holds a prefix of
    prompt + output; `pending` holds what lies between the state and the start of the current block, one commit a piece.
    """

    def __init__(self, request: GenerationRequest, spec: ModelSpec, deadline: float | None = None) -> None:
        params = request.sampling
        self.request = request
        self.params = params
        self.constraint = request.constraint
        self.deadline = deadline
        self.spec = spec
        ends = () if params.ignore_eos else spec.end_token_ids
        self.end_ids = tuple(sorted({*ends, *params.stop_token_ids}))
        self.banned_ids = tuple(sorted({*spec.end_token_ids} - {*self.end_ids}))
        self.budget = min(params.max_tokens, spec.max_context - len(request.prompt_ids))
        self.block = Block(0, 0)
        self.output: list[int] = []
        self.state: State | None = None
        self.history: History | None = None
        self.pending: deque[Ids[int]] = deque()
        self.marks: dict[int, bytes] = {}  # lengths of the prompt at which the prefix cache wants its state, their keys
        self.held: Entry | None = None  # the longest entry of the prefix cache that this request runs on
        self.finish_reason: Literal["stop", "length"] | None = None
        self.check_at = 0  # output length at which the close-out watch looks again
        self._random = random.Random(params.seed)  # noqa: S311 - reproducible draws, not secrets
        self._block_start = 0
        self._sent = 0  # tokens of the output that have left
        self._shown: tuple[int | None, ...] | None = None  # the draft that left last
        self._denoising_steps = self._forwards = self._forced_tokens = self._cached_tokens = 0

    @property
    def id(self) -> str:
        return self.request.id

    @property
    def status(self) -> Status:
        if self.finish_reason is not None:
            return Status.FINISHED
        if self.state is None:
            return Status.WAITING
        return Status.PREFILL if self.state.length < len(self.request.prompt_ids) else Status.DENOISING

    @property
    def prompt_left(self) -> int:
        """Prompt tokens that are not in the state yet."""
        return len(self.request.prompt_ids) - (self.state.length if self.state else 0)

    @property
    def finished(self) -> bool:
        return self.finish_reason is not None

    @property
    def remaining(self) -> int:
        """Tokens of budget that are left."""
        return self.budget - len(self.output)

    @property
    def state_bytes(self) -> int:
        """Memory that the state may grow to: prompt, all new tokens, and the block being denoised."""
        tokens = len(self.request.prompt_ids) + self.budget + (self.params.block_size or self.spec.block_size)
        return self.spec.state_bytes + self.spec.token_bytes * tokens

    @property
    def stats(self) -> DiffusionStats:
        return DiffusionStats(
            self._denoising_steps, self._forwards, self._forced_tokens, len(self.output), self._cached_tokens
        )

    def start(self, state: State, history: History | None) -> None:
        """Take the slot. `state` may already hold the head of the prompt."""
        self.state = state
        self.history = history
        self._cached_tokens = state.length
        self.pending.extend(self._prompt_pieces())

    def restore(self, snapshot: Snapshot) -> None:
        """Skip a part of the prompt: take over the state of a head of it that is longer than what is there."""
        if self.state is None:
            raise RuntimeError("a sequence without a slot has no state to restore")
        left = self.prompt_left
        while left > 0:
            left -= len(self.pending.popleft())
        self._cached_tokens += snapshot.length - self.state.length
        self.state.restore(snapshot)
        self.pending.extendleft(reversed(self._prompt_pieces()))

    def _prompt_pieces(self) -> list[Ids[int]]:
        """What is left of the prompt, cut at the marks: a piece ends where its state is to be kept."""
        ids = self.request.prompt_ids
        start = len(ids) - self.prompt_left
        bounds = [start, *(mark for mark in self.marks if start < mark < len(ids)), len(ids)]
        return [ids[a:b] for a, b in pairwise(bounds) if a < b]

    @property
    def marks_ahead(self) -> list[bytes]:
        """Keys of the marks that the state has not reached."""
        done = len(self.request.prompt_ids) - self.prompt_left
        return [key for length, key in self.marks.items() if length > done]

    def open_block(self) -> None:
        """Hand the finished block over to be committed and start the next one. A block is never committed before
        the next one is known to be needed: the last block of an answer stays uncommitted."""
        if self.block.size:
            tokens = self.block.unmasked()
            self.pending.append(tokens)
            if self.history is not None:
                self.history.extend(tokens)
        begin = len(self.request.prompt_ids) + len(self.output)
        size = self.params.block_size or self.spec.block_size
        if self.spec.block_alignment == "absolute":
            size -= begin % size
        self._block_start = len(self.output)
        self.block = Block(min(size, self.spec.max_context - begin), self.remaining)

    def ordinal(self, position: int) -> int:
        """New tokens before a position of the block."""
        return self._block_start + position

    def may_end(self, position: int) -> bool:
        """Whether `min_tokens` lets the turn end at a position of the block."""
        return self.ordinal(position) >= self.params.min_tokens

    def finalise(self, token: int, *, forced: bool = False) -> None:
        """Make `token` the final one at the frontier."""
        self.block.finalise(token)
        self.output.append(token)
        self._forced_tokens += forced

    def finish(self, reason: Literal["stop", "length"]) -> None:
        self.finish_reason = reason

    def close(self, ids: Ids[int]) -> None:
        """End within the budget: `ids`, which the constraint has consumed, are the last ones."""
        self.output += ids
        self._forced_tokens += len(ids)
        self.finish("length")

    def work(self, advance: int) -> Work:
        """The next forward pass: up to `advance` tokens of what is pending, and the block once nothing else is."""
        if self.state is None:
            raise RuntimeError("a sequence without a slot has no work")
        piece = self.pending[0][:advance] if self.pending else ()
        last = not self.pending or (len(self.pending) == 1 and len(piece) == len(self.pending[0]))
        return Work(self.state, piece, self.block.ids(self.spec.mask_token_id) if last else ())

    def forwarded(self, work: Work) -> None:
        """Account for a forward pass that went well."""
        self._forwards += 1
        self._denoising_steps += bool(work.block)
        if work.advance:
            rest = self.pending.popleft()[len(work.advance) :]
            if rest:
                self.pending.appendleft(rest)

    def query(self) -> Query:
        """What the sampler must know of the live rows. Draws from the request's own generator."""
        live = self.block.masked()
        return Query(
            params=self.params,
            ordinals=[self.ordinal(position) for position in live],
            uniforms=[self._random.random() for _ in live] if samples(self.params) else (),
            history=self.history,
            open_ids=self.block.unmasked() if self.history is not None else (),
            end_ids=self.end_ids,
            banned_ids=self.banned_ids,
            candidates=self.constraint is not None,
        )

    def take(self) -> Step | None:
        """What is new since the last call; None if there is nothing to tell."""
        tokens = tuple(self.output[self._sent :])
        self._sent = len(self.output)
        draft = self._draft() if self.request.drafts else None
        if not tokens and draft == self._shown and not self.finished:
            return None
        self._shown = draft
        return Step(tokens, self.stats, draft, self.finish_reason)

    def _draft(self) -> tuple[int | None, ...]:
        block = self.block
        return () if self.finished else tuple(block.tokens[block.frontier : block.limit])

    def free(self) -> None:
        """Give the slot's memory back."""
        if self.state is not None:
            self.state.free()
        self.history = None
