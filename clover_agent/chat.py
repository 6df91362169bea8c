"""ChatService: the one composition of the parts. Render, encode, constrain, submit, detokenize, parse, check.

Knows no HTTP and no tensors. Every API face uses `stream`; a plain answer is the same stream, folded.
"""

import asyncio
import logging
import uuid
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Literal

from clover_agent.engine import Engine, GenerateEngine, GenerationRequest
from clover_agent.errors import ContextLengthExceeded, InvalidOutput, InvalidRequest, InvalidToolCall
from clover_agent.formats import ToolFormat
from clover_agent.grammar import Compiled, GrammarCompiler
from clover_agent.templates import ChatTemplate
from clover_agent.tokenizer import Tokenizer
from clover_agent.turn import Turn
from clover_agent.types import Conversation, Event, Finished, Prompt, SamplingParams, Segment, Started, Usage

logger = logging.getLogger("clover_agent.chat")

Path = Literal["native", "scripted", "cached", "uncached", "generate"]
RETRY_TEMPERATURE = 0.7  # a greedy retry would repeat the mistake that it is to mend


@dataclass(frozen=True, slots=True)
class ServedModel:
    """What is served: the parts that belong to one checkpoint, and the names that clients may call it by."""

    names: tuple[str, ...]
    tokenizer: Tokenizer
    template: ChatTemplate
    format: ToolFormat
    grammar: GrammarCompiler | None  # None: calls and response_format are only checked once they are whole
    sampling: SamplingParams
    max_context: int
    template_kwargs: Mapping[str, Any] = field(default_factory=dict)
    path: Path = "native"  # how the model is run


@dataclass(frozen=True, slots=True)
class _Job:
    """A conversation made ready for the engine."""

    conversation: Conversation
    prompt: Prompt
    prompt_ids: tuple[int, ...]
    keep_at: tuple[int, ...]  # lengths of heads of the prompt that the next turns are likely to share
    sampling: SamplingParams


class ChatService:
    """Answers conversations. Owns the engine from `start` to `close`."""

    def __init__(self, model: ServedModel, engine: Engine | GenerateEngine) -> None:
        self.model = model
        self.engine = engine

    def start(self) -> None:
        self.engine.start()

    async def close(self, drain_s: float = 0.0) -> None:
        """Stop the engine: running requests get `drain_s` seconds to end, then an `Unavailable` error."""
        await asyncio.to_thread(self.engine.close, drain_s)

    @property
    def healthy(self) -> bool:
        """Requests are answered."""
        return self.engine.healthy

    @property
    def model_ids(self) -> tuple[str, ...]:
        """The names that clients may use; the first is the canonical one."""
        return self.model.names

    @property
    def max_context(self) -> int:
        """Prompt + new tokens."""
        return self.model.max_context

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """How the model is run, and whether a grammar holds its output while it is written."""
        return {"path": self.model.path, "constrained_unmasking": self.model.grammar is not None}

    async def stream(self, conversation: Conversation) -> AsyncGenerator[Event, None]:
        """The answer as events: `Started` once the request is accepted, deltas and calls, `Finished` last.

        Raises the errors of `errors.py`; those of the request itself before the first event. Closing the iterator
        cancels the request.
        """
        job = await asyncio.to_thread(self._prepare, conversation)
        compiled = await asyncio.to_thread(self._constrain, job)
        turn = self._turn(job, compiled)
        yield Started(prompt_tokens=len(job.prompt_ids), grammar=compiled.exactness if compiled else None)
        try:
            async with aclosing(self._attempt(job, compiled, turn, job.sampling)) as events:
                async for event in events:
                    yield event
            return
        except (InvalidToolCall, InvalidOutput) as error:
            # With an exact grammar little is left that can be wrong (a key of its own choice, written twice).
            logger.info("an answer is tried again", extra={"fields": {"reason": error.code}})
        second = await asyncio.to_thread(self._resume, job, turn)
        async with aclosing(self._attempt(job, *second)) as events:
            async for event in events:
                yield event

    async def tokens(self, conversation: Conversation) -> tuple[int, ...]:
        """The prompt's ids, also of a conversation that does not fit into the context."""
        return (await asyncio.to_thread(self._encode, conversation))[2]

    async def decode(self, ids: Sequence[int]) -> str:
        """The text of ids, control tokens as their strings. Raises `InvalidRequest` for one that does not exist."""
        self._check_ids(ids, "tokens")
        return await asyncio.to_thread(self.model.tokenizer.decode, ids)

    async def _attempt(
        self, job: _Job, compiled: Compiled | None, turn: Turn, sampling: SamplingParams
    ) -> AsyncGenerator[Event, None]:
        request = GenerationRequest(
            id=uuid.uuid4().hex,
            prompt_ids=(*job.prompt_ids, *turn.ids),
            sampling=sampling,
            constraint=compiled.constraint if compiled else None,
            drafts=job.conversation.include_drafts,
            deadline_s=job.conversation.deadline_s,
            keep_at=job.keep_at,
        )
        async with aclosing(self.engine.submit(request)) as steps:
            async for step in steps:
                for event in turn.feed(step):
                    yield event
                if turn.failure is not None:
                    raise turn.failure
                if turn.finish is not None:
                    break
        for event in turn.end():
            yield event
        yield Finished(turn.reason, self._usage(job, turn), turn.stop)

    def _prepare(self, conversation: Conversation) -> _Job:
        conversation, prompt, ids, keep_at = self._encode(conversation)
        return _Job(conversation, prompt, ids, keep_at, self._sampling(conversation, len(ids)))

    def _encode(self, conversation: Conversation) -> tuple[Conversation, Prompt, tuple[int, ...], tuple[int, ...]]:
        """The conversation with the operator's defaults, its prompt, the ids, and where later prompts may part."""
        if conversation.raw is not None:
            return conversation, Prompt(()), self._raw_ids(conversation.raw), ()
        conversation, prompt = self._render(conversation)
        ids, lengths = list[int](), list[int]()
        heads = self.model.template.shared_heads(conversation, prompt)
        for start, end in pairwise((0, *heads, len(prompt.segments))):
            ids += self.model.tokenizer.encode(prompt.segments[start:end])
            lengths.append(len(ids))
        return conversation, prompt, tuple(ids), tuple(lengths[:-1])

    def _raw_ids(self, raw: str | tuple[int, ...]) -> tuple[int, ...]:
        ids = tuple(self.model.tokenizer.encode((Segment(raw, trusted=True),))) if isinstance(raw, str) else raw
        self._check_ids(ids, "prompt")
        if not ids:
            raise InvalidRequest("prompt: is empty.", param="prompt")
        if self.engine.spec.mask_token_id in ids:
            raise InvalidRequest("prompt: holds the mask token, which only the engine may write.", param="prompt")
        return ids

    def _check_ids(self, ids: Sequence[int], param: str) -> None:
        size = self.model.tokenizer.vocab_size
        unknown = next((id_ for id_ in ids if not 0 <= id_ < size), None)
        if unknown is not None:
            raise InvalidRequest(f"{param}: there is no token {unknown}; the vocabulary has {size}.", param=param)

    def _render(self, conversation: Conversation) -> tuple[Conversation, Prompt]:
        """The conversation with the operator's defaults, and its prompt."""
        defaults = dict(self.model.template_kwargs)
        thinking = defaults.pop("enable_thinking", None)
        if conversation.enable_thinking is not None:
            thinking = conversation.enable_thinking
        conversation = replace(
            conversation, enable_thinking=thinking, template_kwargs={**defaults, **conversation.template_kwargs}
        )
        return conversation, self.model.template.render(conversation)

    def _sampling(self, conversation: Conversation, prompt_tokens: int) -> SamplingParams:
        room = self.model.max_context - prompt_tokens
        if room < 1:
            raise ContextLengthExceeded(
                f"The prompt has {prompt_tokens} tokens, this model's context is {self.model.max_context}. "
                "Shorten the messages or the tools.",
                param="messages" if conversation.raw is None else "prompt",
            )
        limit = min(room, conversation.sampling.get("max_tokens", room))
        sampling = replace(replace(self.model.sampling, **conversation.sampling), max_tokens=limit)
        unknown = [id_ for id_, _ in sampling.logit_bias if not 0 <= id_ < self.model.tokenizer.vocab_size]
        if unknown:
            raise InvalidRequest(f"logit_bias names token {unknown[0]}, which does not exist.", param="logit_bias")
        return sampling

    def _constrain(self, job: _Job) -> Compiled | None:
        conversation = job.conversation
        if self.model.grammar is None:
            return None
        return self.model.grammar.constrain(
            tools=conversation.tools,
            tool_choice=conversation.tool_choice,
            parallel_tool_calls=conversation.parallel_tool_calls,
            response_format=conversation.response_format,
            thinking=job.prompt.thinking,
            thinking_budget=conversation.thinking_budget,
        )

    def _turn(self, job: _Job, compiled: Compiled | None) -> Turn:
        exact = compiled is not None and compiled.exactness == "exact"
        return Turn(
            job.conversation, self.model.tokenizer, self.model.format, thinking=job.prompt.thinking, hold_text=not exact
        )

    def _resume(self, job: _Job, failed: Turn) -> tuple[Compiled | None, Turn, SamplingParams]:
        """A second attempt that keeps what was already said and takes up where the bad call or text began."""
        kept = failed.kept_ids()
        compiled = self._constrain(job)
        if compiled is not None:
            compiled.constraint.consume(kept)
        turn = self._turn(job, compiled)
        turn.replay(kept, failed.stats)
        sampling = replace(
            job.sampling,
            max_tokens=max(1, job.sampling.max_tokens - len(kept)),
            temperature=max(job.sampling.temperature, RETRY_TEMPERATURE),
            seed=None if job.sampling.seed is None else job.sampling.seed + 1,
        )
        return compiled, turn, sampling

    def _usage(self, job: _Job, turn: Turn) -> Usage:
        return Usage(
            prompt_tokens=len(job.prompt_ids),
            completion_tokens=turn.stats.new_tokens,
            reasoning_tokens=turn.reasoning_tokens,
            diffusion=turn.stats,
        )
