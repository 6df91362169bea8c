"""Events -> a message in Anthropic's form, as stream events or as one answer folded from those same events.

The order is what clients insist on: message_start; each block's start, deltas and stop before the next block begins;
message_delta with the reason and the usage; message_stop.
"""

import json
import uuid
from collections.abc import Iterable, Iterator
from typing import Any

from clover_agent.api.openai_answer import ARGUMENT_CHARS, usage_body
from clover_agent.types import Event, Finished, FinishReason, ReasoningDelta, TextDelta, ToolCallDone, Usage

# Clients send thoughts back only with a signature. This one proves nothing, and none is looked at.
SIGNATURE = "clover"
REASONS: dict[FinishReason, str] = {"stop": "end_turn", "tool_calls": "tool_use", "length": "max_tokens"}
PING: dict[str, Any] = {"type": "ping"}
DELTAS = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "signature"}  # delta -> its field

Frame = dict[str, Any]


class MessageStream:
    """One answer as it is written. Belongs to one request."""

    def __init__(self, model: str, prompt_tokens: int, *, show_thoughts: bool = True) -> None:
        self._model = model
        self._prompt_tokens = prompt_tokens
        self._show_thoughts = show_thoughts
        self._index = -1
        self._open: str | None = None  # type of the block that has started and not stopped

    def opening(self) -> Frame:
        """The usage here is what is known before the answer; the last word on it comes with the reason."""
        message: Frame = {
            "id": f"msg_{uuid.uuid4().hex}",
            "type": "message",
            "role": "assistant",
            "model": self._model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {
                "input_tokens": self._prompt_tokens,
                "cache_creation_input_tokens": 0,
                "cache_read_input_tokens": 0,
                "output_tokens": 0,
                "service_tier": "standard",
            },
        }
        return {"type": "message_start", "message": message}

    def frames(self, event: Event) -> Iterator[Frame]:
        """The stream events of one event, in order."""
        if isinstance(event, TextDelta):
            yield from self._enter("text", {"text": ""})
            yield self._delta("text_delta", text=event.text)
        elif isinstance(event, ReasoningDelta):
            yield from self._enter("thinking", {"thinking": "", "signature": ""})
            if self._show_thoughts:
                yield self._delta("thinking_delta", thinking=event.text)
        elif isinstance(event, ToolCallDone):
            yield from self._call(event)
        elif isinstance(event, Finished):
            yield from self._leave()
            yield {"type": "message_delta", "delta": _reason(event), "usage": _usage(event.usage)}
            yield {"type": "message_stop"}

    def _call(self, event: ToolCallDone) -> Iterator[Frame]:
        call = event.call
        yield from self._leave()
        yield from self._enter("tool_use", {"id": call.id, "name": call.name, "input": {}})
        for start in range(0, len(call.arguments), ARGUMENT_CHARS):
            yield self._delta("input_json_delta", partial_json=call.arguments[start : start + ARGUMENT_CHARS])
        yield from self._leave()

    def _enter(self, kind: str, fields: Frame) -> Iterator[Frame]:
        if self._open == kind:
            return
        yield from self._leave()
        self._open = kind
        self._index += 1
        yield {"type": "content_block_start", "index": self._index, "content_block": {"type": kind, **fields}}

    def _leave(self) -> Iterator[Frame]:
        if self._open is None:
            return
        if self._open == "thinking":
            yield self._delta("signature_delta", signature=SIGNATURE)
        self._open = None
        yield {"type": "content_block_stop", "index": self._index}

    def _delta(self, kind: str, **fields: Any) -> Frame:
        return {"type": "content_block_delta", "index": self._index, "delta": {"type": kind, **fields}}


def whole(frames: Iterable[Frame]) -> str:
    """The answer that is not streamed, as JSON. The input of a call is the model's own text: a number too large for
    Python's leaves as it was written."""
    head: Frame = {}
    blocks: list[Frame] = []
    inputs: dict[int, str] = {}
    for frame in frames:
        match frame["type"]:
            case "message_start":
                head = frame["message"]
            case "content_block_start":
                blocks.append(dict(frame["content_block"]))
            case "content_block_delta" if frame["delta"]["type"] == "input_json_delta":
                inputs[frame["index"]] = inputs.get(frame["index"], "") + frame["delta"]["partial_json"]
            case "content_block_delta":
                field = DELTAS[frame["delta"]["type"]]
                blocks[frame["index"]][field] += frame["delta"][field]
            case "message_delta":
                head = {**head, **frame["delta"], "usage": {**head["usage"], **frame["usage"]}}
    content = ",".join(_block(block, inputs.get(i)) for i, block in enumerate(blocks))
    head.pop("content")
    return f'{_json(head)[:-1]},"content":[{content}]}}'


def _block(block: Frame, given: str | None) -> str:
    if given is None:
        return _json(block)
    return f'{_json({name: value for name, value in block.items() if name != "input"})[:-1]},"input":{given}}}'


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _reason(event: Finished) -> Frame:
    if event.reason == "stop" and event.stop is not None:
        return {"stop_reason": "stop_sequence", "stop_sequence": event.stop}
    return {"stop_reason": REASONS[event.reason], "stop_sequence": None}


def _usage(usage: Usage) -> Frame:
    """Anthropic counts what came from the cache apart: input_tokens is the rest of the prompt."""
    cached = usage.diffusion.cached_tokens
    return {
        "input_tokens": usage.prompt_tokens - cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": cached,
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"thinking_tokens": usage.reasoning_tokens},
        "diffusion": usage_body(usage)["diffusion"],
    }
