"""The nouns of the package: immutable values, and the one protocol that two packages share.

Knows nothing of HTTP, templates, grammars or tensors. Everything here is a value that may be shared between
threads; only a `Constraint` has state, and it belongs to the engine from submission to the end of the request.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, Self, TypedDict

import numpy as np
import numpy.typing as npt

Role = Literal["system", "user", "assistant", "tool"]
FinishReason = Literal["stop", "tool_calls", "length"]
Fallback = Literal["leftmost", "max_confidence"]
JsonSchema = Mapping[str, Any]


# ---- what a client asks ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that the model may call. `parameters` is a JSON Schema; None means a call without arguments."""

    name: str
    description: str = ""
    parameters: JsonSchema | None = None
    strict: bool = False


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call: `arguments` is JSON text, the model's own where the format is JSON (numbers are never re-serialised)."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of the history. Role "tool" has `tool_call_id` and `name`, "assistant" `reasoning` and `tool_calls`."""

    role: Role
    content: str = ""
    reasoning: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    name: str | None = None


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """Which calls may or must come. `allowed` narrows the tools by name (a named choice: required + one name)."""

    mode: Literal["none", "auto", "required"] = "auto"
    allowed: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class ResponseFormat:
    """The form of the visible text. `schema` is set for kind "json_schema" only."""

    kind: Literal["text", "json_object", "json_schema"] = "text"
    schema: JsonSchema | None = None
    strict: bool = False


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How tokens are chosen and when a request ends. The defaults are neutral; a checkpoint brings its own.

    temperature       0 = greedy
    top_k             0 = off
    min_p             relative to the best token's probability; 0 = off
    repetition        divides positive and multiplies negative logits of ids seen in prompt or output (1 = off)
    presence, frequency   subtracted from the logits of ids seen in the output (0 = off)
    max_tokens        exact count of new tokens, end token not counted
    min_tokens        end and stop tokens are illegal before so many new tokens
    threshold         confidence at which a position is unmasked, in (0, 1]
    block_size        positions denoised together; None = the checkpoint's
    length_penalty    bonus in nats on end tokens, growing softly once `length_penalty_start` tokens are out (0 = off)
    """

    max_tokens: int = 1024
    min_tokens: int = 0
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int | None = None
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    threshold: float = 0.95
    block_size: int | None = None
    fallback: Fallback = "leftmost"
    length_penalty: float = 0.0
    length_penalty_start: int = 8192


class SamplingOverrides(TypedDict, total=False):
    """The fields of `SamplingParams` that a request set; the others keep the checkpoint's defaults."""

    max_tokens: int
    min_tokens: int
    temperature: float
    top_p: float
    top_k: int
    min_p: float
    seed: int | None
    repetition_penalty: float
    presence_penalty: float
    frequency_penalty: float
    logit_bias: tuple[tuple[int, float], ...]
    stop_token_ids: tuple[int, ...]
    ignore_eos: bool
    threshold: float
    block_size: int | None
    fallback: Fallback
    length_penalty: float
    length_penalty_start: int


@dataclass(frozen=True, slots=True)
class Conversation:
    """A checked request, the same for every API face.

    raw               the prompt itself, text or token ids, in place of messages: nothing is rendered and nothing but
                      text is read from the answer. Control strings in the text are control tokens
    stop              strings that end the visible text (not thoughts, not tool calls); they are not part of it
    enable_thinking   None = the template's default
    thinking_budget   most tokens of thought before it is closed; None = no limit
    template_kwargs   extra variables for the chat template (`chat_template_kwargs`), plain JSON values
    deadline_s        seconds from submission after which the request fails; None = no limit
    """

    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] = ()
    tool_choice: ToolChoice = ToolChoice()
    parallel_tool_calls: bool = True
    response_format: ResponseFormat = ResponseFormat()
    sampling: SamplingOverrides = field(default_factory=SamplingOverrides)
    stop: tuple[str, ...] = ()
    enable_thinking: bool | None = None
    thinking_budget: int | None = None
    template_kwargs: Mapping[str, Any] = field(default_factory=dict)
    include_drafts: bool = False
    deadline_s: float | None = None
    raw: str | tuple[int, ...] | None = None


# ---- text on its way in and out --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Segment:
    """A run of prompt text. Only trusted text turns control strings (`<|im_end|>`, `<tool_call>`) into their tokens."""

    text: str
    trusted: bool


@dataclass(frozen=True, slots=True)
class Prompt:
    """A rendered conversation; `thinking` tells that the prompt ends inside an open thought."""

    segments: tuple[Segment, ...]
    thinking: bool = False


@dataclass(frozen=True, slots=True)
class Piece:
    """Detokenised output: either text, or one control token (`control` is its string, `text` the same string)."""

    text: str
    control: str | None = None


# ---- what the engine tells ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DiffusionStats:
    """Counters of one request so far.

    denoising_steps   forward passes over a block of this request
    forwards          the same plus prefill and commit passes (a fused commit + first step counts once)
    forced_tokens     final tokens that the grammar wrote without a forward pass
    new_tokens        final tokens, end token not counted
    cached_tokens     prompt tokens taken from the prefix cache
    """

    denoising_steps: int = 0
    forwards: int = 0
    forced_tokens: int = 0
    new_tokens: int = 0
    cached_tokens: int = 0

    @property
    def tokens_per_forward(self) -> float:
        """New tokens per denoising step, transformers 5.24's definition (commit and prefill passes not counted)."""
        return self.new_tokens / self.denoising_steps if self.denoising_steps else 0.0


@dataclass(frozen=True, slots=True)
class Step:
    """What one turn of the engine adds to a request.

    tokens   ids that became final, in order; never taken back; no end token among them
    draft    with drafts on: the positions of the current block from the frontier on, None where still masked
    finish   set on the last step only
    """

    tokens: tuple[int, ...]
    stats: DiffusionStats
    draft: tuple[int | None, ...] | None = None
    finish: Literal["stop", "length"] | None = None


# ---- what a client is told ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Usage:
    prompt_tokens: int
    completion_tokens: int
    reasoning_tokens: int
    diffusion: DiffusionStats


@dataclass(frozen=True, slots=True)
class Started:
    """The first event: the request is accepted. `grammar` says how the output is held: by an exact grammar, by one
    loosened where the schema goes beyond it (checked afterwards), or not at all."""

    prompt_tokens: int
    grammar: Literal["exact", "loosened"] | None = None


@dataclass(frozen=True, slots=True)
class TextDelta:
    text: str


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    text: str


@dataclass(frozen=True, slots=True)
class ToolCallDone:
    """A whole call. It leaves only when it is complete and satisfies its schema; `index` counts from 0."""

    index: int
    call: ToolCall


@dataclass(frozen=True, slots=True)
class Draft:
    """The current block as it stands: the text of each position from the frontier on, None where masked."""

    positions: tuple[str | None, ...]


@dataclass(frozen=True, slots=True)
class Finished:
    """The last event. `stop` is the stop string that ended the text, if one did."""

    reason: FinishReason
    usage: Usage
    stop: str | None = None


Event = Started | TextDelta | ReasoningDelta | ToolCallDone | Draft | Finished


# ---- the seam between grammar and engine -------------------------------------------------------------------------


class Constraint(Protocol):
    """What may stand at the frontier of one request; implemented by `grammar`, used by `engine`, faked in its tests.

    Always anchored at the frontier: it has consumed exactly the final tokens. End tokens are the engine's: they are
    legal exactly where `accepting()` is true and are never consumed. No method raises on illegal tokens except
    `consume`, which the engine calls only with what `valid_prefix` accepted.
    """

    @property
    def free(self) -> bool:
        """Every ordinary token is legal here and the sampler is untouched (penalties apply as without a grammar)."""

    @property
    def complete(self) -> bool:
        """Accepting, and nothing but an end token can follow."""

    def forced(self) -> list[int]:
        """The tokens that must come next (canonical tokenisation), possibly none. Does not consume them."""

    def valid_prefix(self, ids: Sequence[int]) -> int:
        """How many leading ids are legal from here. Does not consume them. End tokens and mask tokens are illegal."""

    def consume(self, ids: Sequence[int]) -> None:
        """Advance over final tokens. Raises `errors.GrammarError` if one is illegal (a bug of the caller)."""

    def fork(self) -> Self:
        """An independent copy at the same place."""

    def mask(self) -> npt.NDArray[np.uint32]:
        """Legal ids as packed bits, little-endian, shape [ceil(vocab_size / 32)]; end tokens set iff `accepting()`."""

    def accepting(self) -> bool:
        """The output may end here."""

    def close(self, budget: int) -> list[int] | None:
        """At most `budget` tokens that bring the output to an accepting place without inventing a value.

        May write structure, and values the model has not begun; never closes a string, number or array of a tool
        call that the model left open. None where that cannot be done.
        """
