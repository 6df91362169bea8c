"""Events -> Chat Completions, as chunks or as one answer. The order and the fields are what clients insist on:

role first with empty text; a call's index, id, type and name exactly once, then its arguments as strings; the
finish_reason on a chunk of its own; usage after it and only if asked for.
"""

import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from clover_agent.errors import GenerationFailed
from clover_agent.parsing import Completion
from clover_agent.types import Draft, Event, Finished, ReasoningDelta, TextDelta, ToolCall, ToolCallDone, Usage

ARGUMENT_CHARS = 4096  # most characters of arguments in one chunk: some readers limit the length of a line


@dataclass(frozen=True, slots=True)
class Answer:
    """The identity of one answer, the same on each of its chunks."""

    model: str
    fingerprint: str
    include_usage: bool = False
    include_drafts: bool = False
    id: str = field(default_factory=lambda: f"chatcmpl-{uuid.uuid4().hex}")
    created: int = field(default_factory=lambda: int(time.time()))

    def opening(self) -> dict[str, Any]:
        return self._delta({"role": "assistant", "content": ""})

    def silence(self) -> dict[str, Any]:
        """An event that says nothing: it resets the timers of clients that do not count comments."""
        return self._delta({"content": ""})

    def chunks(self, event: Event) -> Iterator[dict[str, Any]]:
        """The chunks of one event, in order."""
        if isinstance(event, TextDelta):
            yield self._delta({"content": event.text})
        elif isinstance(event, ReasoningDelta):
            yield self._delta({"reasoning_content": event.text})
        elif isinstance(event, ToolCallDone):
            yield from self._call(event)
        elif isinstance(event, Draft) and self.include_drafts:
            yield self._chunk([], draft={"positions": list(event.positions)})
        elif isinstance(event, Finished):
            yield self._delta({}, event.reason)
            if self.include_usage:
                yield self._chunk([], usage=usage_body(event.usage))

    def whole(self, completion: Completion) -> dict[str, Any]:
        """The answer that is not streamed. Raises `GenerationFailed` if it is not finished."""
        message: dict[str, Any] = {"role": "assistant", "content": completion.content, "refusal": None}
        if completion.reasoning:
            message["reasoning_content"] = completion.reasoning
        if completion.tool_calls:
            message["tool_calls"] = [_call_body(call) for call in completion.tool_calls]
            message["content"] = completion.content or None
        if completion.usage is None:
            raise GenerationFailed("The engine ended the answer without finishing it.")
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": completion.finish}
        return {**self._head("chat.completion"), "choices": [choice], "usage": usage_body(completion.usage)}

    def _call(self, event: ToolCallDone) -> Iterator[dict[str, Any]]:
        call = event.call
        yield self._delta({"tool_calls": [{"index": event.index, **_call_body(ToolCall(call.id, call.name, ""))}]})
        for start in range(0, len(call.arguments), ARGUMENT_CHARS):
            piece = call.arguments[start : start + ARGUMENT_CHARS]
            yield self._delta({"tool_calls": [{"index": event.index, "function": {"arguments": piece}}]})

    def _delta(self, delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
        return self._chunk([{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}])

    def _chunk(self, choices: list[dict[str, Any]], **extra: Any) -> dict[str, Any]:
        usage = {"usage": None} if self.include_usage else {}
        return {**self._head("chat.completion.chunk"), "choices": choices, **usage, **extra}

    def _head(self, kind: str) -> dict[str, Any]:
        return {
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": self.fingerprint,
        }


def _call_body(call: ToolCall) -> dict[str, Any]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def usage_body(usage: Usage) -> dict[str, Any]:
    """OpenAI's usage, the details always integers, and what diffusion adds."""
    stats = usage.diffusion
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": stats.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "diffusion": {
            "denoising_steps": stats.denoising_steps,
            "forwards": stats.forwards,
            "forced_tokens": stats.forced_tokens,
            "tokens_per_forward": round(stats.tokens_per_forward, 3),
        },
    }
