"""The seam between engine and model: what a block-diffusion model must be able to do.

The model knows nothing of requests, sampling, grammars or text. It computes; the engine decides.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import torch

from clover_agent.types import SamplingParams


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """Facts of a checkpoint that the engine needs. What differs between checkpoints is configuration, not code.

    vocab_size        width of the logits (the padded head, if it is padded)
    mask_token_id     the absorbing token of a position that is not decided yet; never proposed
    end_token_ids     tokens that end a turn
    block_size        the block size that the model was trained with
    max_context       prompt + new tokens
    block_alignment   where blocks start: "response" = where the prompt ends, "absolute" = multiples of the block size
    causal_commit     a committed block leaves the state that the same tokens leave in a prompt, and a prompt may be cut
                      anywhere; otherwise commits see whole blocks, counted from the start of the advance
    state_bytes       memory of one sequence state, whatever its length (0: not known, or of no account)
    token_bytes       the same for each token in it
    """

    vocab_size: int
    mask_token_id: int
    end_token_ids: tuple[int, ...]
    block_size: int
    max_context: int
    block_alignment: Literal["response", "absolute"] = "response"
    causal_commit: bool = True
    state_bytes: int = 0
    token_bytes: int = 0


class Snapshot(Protocol):
    """A frozen copy of a sequence state, owned by whoever took it. It may rest on another one, its base."""

    @property
    def nbytes(self) -> int:
        """Memory of its own: what lies in its base is not counted."""

    @property
    def length(self) -> int:
        """Tokens that the state had seen."""

    def shed(self) -> None:
        """Give up what no snapshot that rests on this one needs. It can be a base ever after, but not be restored."""


class State(Protocol):
    """The sequence state of one request: KV of the attention layers, recurrent and convolution state of the others."""

    @property
    def length(self) -> int:
        """Tokens committed so far."""

    def snapshot(self, base: Snapshot | None = None) -> Snapshot:
        """A copy of what lies beyond `base`, a snapshot of a state that had seen the head of this one's tokens."""

    def restore(self, snapshot: Snapshot) -> None:
        """Make this state equal to the one the snapshot was taken of (from this or another state of the model)."""

    def free(self) -> None:
        """Give the memory back. The state must not be used afterwards; freeing twice does nothing."""


@dataclass(frozen=True, slots=True)
class Work:
    """What one sequence asks of a forward pass: first `advance` its state, then denoise `block` on top of it.

    advance only       prefill or commit
    block only         a denoising step: reads the state, never changes it
    both               commit of the last block fused with the first step of the next
    """

    state: State
    advance: Sequence[int] = ()
    block: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class DenseLogits:
    """values: float [n, vocab_size] on the model's device, unmodified."""

    values: torch.Tensor


@dataclass(frozen=True, slots=True)
class SparseLogits:
    """The same information where nearly all tokens share one logit (scripted models, large vocabularies).

    ids: int64 [n, k], distinct per row; values: float [n, k], their logits; rest: float [n], the logit of every other.
    """

    ids: torch.Tensor
    values: torch.Tensor
    rest: torch.Tensor
    vocab_size: int


Logits = DenseLogits | SparseLogits


class Hidden(Protocol):
    """The block rows of one forward pass, in order of work and position; what is inside is the model's own business."""

    @property
    def rows(self) -> int:
        """Total number of block positions: sum of len(work.block)."""


class BlockModel(Protocol):
    """A model that advances states and denoises blocks. Used from one thread only (the engine's)."""

    @property
    def spec(self) -> ModelSpec: ...

    def new_state(self) -> State: ...

    def forward(self, work: Sequence[Work]) -> Hidden:
        """One ragged pass over all of `work`. Row r of the result predicts the token *at* block position r:
        a checkpoint with shifted logits is shifted inside. Raises nothing on non-finite values; the engine looks."""

    def logits(self, hidden: Hidden, rows: Sequence[int]) -> Logits:
        """The head on the given rows of `hidden` only, in the given order."""


class Interrupted(Exception):
    """Ends `Generator.generate` when the interruption that it asks for says so."""


@dataclass(frozen=True, slots=True)
class Generated:
    """tokens: the answer, without end token and what follows it; ended: an end token was met; forwards: passes."""

    tokens: tuple[int, ...]
    ended: bool
    forwards: int


class Generator(Protocol):
    """A model that can only write whole answers from their prompts. Used from one thread only."""

    @property
    def spec(self) -> ModelSpec:
        """Of it, vocab_size, end_token_ids and max_context count."""

    def check(self, sampling: SamplingParams) -> None:
        """Raises `UnsupportedParameter` for what would change the answer and cannot be honoured."""

    def generate(self, ids: Sequence[int], sampling: SamplingParams, interrupted: Callable[[], bool]) -> Generated:
        """Raises `Interrupted` soon after `interrupted()` has become true."""
