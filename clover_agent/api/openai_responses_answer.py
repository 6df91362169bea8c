"""Events -> a response in OpenAI's newer form, as stream events or as the one answer that ends them.

The order is what clients insist on: response.created and in_progress; of each item its start, its parts and its
`output_item.done` before the next item begins (agents take their history from the latter); one terminal event.
"""

import json
import time
import uuid
from collections.abc import Iterator, Mapping
from typing import Any

from clover_agent.api.openai_answer import ARGUMENT_CHARS, usage_body
from clover_agent.api.openai_responses_request import Origin, encode_thought
from clover_agent.errors import CloverError, Overloaded
from clover_agent.types import Event, Finished, ReasoningDelta, TextDelta, ToolCall, ToolCallDone, Usage

Frame = dict[str, Any]


class ResponseStream:
    """One answer as it is written. Belongs to one request.

    echo         the request's fields that a response repeats
    origins      how the request named each tool
    summarised   thoughts are told as summaries, for clients that asked for one
    encrypted    thoughts are told in `encrypted_content` too
    """

    def __init__(
        self,
        echo: Mapping[str, Any],
        origins: Mapping[str, Origin],
        *,
        summarised: bool = False,
        encrypted: bool = False,
    ) -> None:
        self._head: Frame = {"id": _id("resp"), "object": "response", "created_at": int(time.time()), **echo}
        self._origins = origins
        self._summarised = summarised
        self._encrypted = encrypted
        self._sequence = -1
        self._done: list[Frame] = []
        self._open: Frame | None = None  # the item that has started and not ended
        self._text: list[str] = []  # of the open item

    def opening(self) -> Iterator[Frame]:
        yield self._frame("response.created", response=self._response("in_progress"))
        yield self.silence()

    def silence(self) -> Frame:
        """An event that says nothing: it resets the timers of clients that do not count comments."""
        return self._frame("response.in_progress", response=self._response("in_progress"))

    def frames(self, event: Event) -> Iterator[Frame]:
        """The stream events of one event, in order."""
        if isinstance(event, TextDelta):
            yield from self._enter("message")
            self._text.append(event.text)
            yield self._frame(
                "response.output_text.delta", **self._place(content_index=0), delta=event.text, logprobs=[]
            )
        elif isinstance(event, ReasoningDelta):
            yield from self._enter("reasoning")
            self._text.append(event.text)
            kind, index = self._thought_part()
            yield self._frame(f"response.{kind}.delta", **self._place(**{index: 0}), delta=event.text)
        elif isinstance(event, ToolCallDone):
            yield from self._leave()
            yield from self._call(event.call)
        elif isinstance(event, Finished):
            yield from self._finish(event)

    def failed(self, error: CloverError) -> Frame:
        """The last event of an answer that broke."""
        code = "rate_limit_exceeded" if isinstance(error, Overloaded) else error.code or "server_error"
        return self._frame(
            "response.failed", response=self._response("failed", error={"code": code, "message": str(error)})
        )

    def _finish(self, event: Finished) -> Iterator[Frame]:
        cut = event.reason == "length"
        items = [*self._done, *([self._open] if self._open else [])]
        if not cut and all(item["type"] == "reasoning" for item in items):
            yield from self._enter("message")  # an answer has a message, if only an empty one
        yield from self._leave("incomplete" if cut else "completed")
        usage = _usage(event.usage)
        if cut:
            details = {"reason": "max_output_tokens"}
            response = self._response("incomplete", incomplete_details=details, usage=usage)
            yield self._frame("response.incomplete", response=response)
        else:
            response = self._response("completed", usage=usage, completed_at=int(time.time()))
            yield self._frame("response.completed", response=response)

    def _enter(self, kind: str) -> Iterator[Frame]:
        if self._open is not None and self._open["type"] == kind:
            return
        yield from self._leave()
        if kind == "message":
            item = {"id": _id("msg"), "type": kind, "role": "assistant", "status": "in_progress", "content": []}
        else:
            item = {"id": _id("rs"), "type": kind, "status": "in_progress", "summary": []}
        yield self._start(item)
        if kind == "message":
            yield self._frame("response.content_part.added", **self._place(content_index=0), part=_text_part(""))
        elif self._summarised:
            part = {"type": "summary_text", "text": ""}
            yield self._frame("response.reasoning_summary_part.added", **self._place(summary_index=0), part=part)

    def _leave(self, status: str = "completed") -> Iterator[Frame]:
        """End the open item, if there is one."""
        if self._open is None:
            return
        text = "".join(self._text)
        if self._open["type"] == "message":
            place = self._place(content_index=0)
            yield self._frame("response.output_text.done", **place, text=text, logprobs=[])
            yield self._frame("response.content_part.done", **place, part=_text_part(text))
            item = {**self._open, "content": [_text_part(text)]}
        else:
            kind, index = self._thought_part()
            place = self._place(**{index: 0})
            yield self._frame(f"response.{kind}.done", **place, text=text)
            item = dict(self._open)
            if self._summarised:
                part = {"type": "summary_text", "text": text}
                yield self._frame("response.reasoning_summary_part.done", **place, part=part)
                item["summary"] = [part]
            else:
                item["content"] = [{"type": "reasoning_text", "text": text}]
            if self._encrypted:
                item["encrypted_content"] = encode_thought(text)
        yield self._end({**item, "status": status})

    def _call(self, call: ToolCall) -> Iterator[Frame]:
        origin = self._origins.get(call.name) or Origin(call.name, None, custom=False)
        named = {"call_id": call.id, "name": origin.name}
        if origin.namespace is not None:
            named["namespace"] = origin.namespace
        if origin.custom:
            kind, field, text = "custom_tool_call", "input", json.loads(call.arguments)["input"]
            item: Frame = {"id": _id("ctc"), "type": kind, "status": "in_progress", **named, "input": ""}
            event = "response.custom_tool_call_input"
        else:
            kind, field, text = "function_call", "arguments", call.arguments
            item = {"id": _id("fc"), "type": kind, "status": "in_progress", **named, "arguments": ""}
            event = "response.function_call_arguments"
        yield self._start(item)
        for start in range(0, len(text), ARGUMENT_CHARS):
            yield self._frame(f"{event}.delta", **self._place(), delta=text[start : start + ARGUMENT_CHARS])
        yield self._frame(f"{event}.done", **self._place(), **{field: text})
        yield self._end({**item, field: text, "status": "completed"})

    def _start(self, item: Frame) -> Frame:
        self._open, self._text = item, []
        return self._frame("response.output_item.added", output_index=len(self._done), item=item)

    def _end(self, item: Frame) -> Frame:
        frame = self._frame("response.output_item.done", output_index=len(self._done), item=item)
        self._done.append(item)
        self._open = None
        return frame

    def _thought_part(self) -> tuple[str, str]:
        """How the events of a thought are called, and their index."""
        return ("reasoning_summary_text", "summary_index") if self._summarised else ("reasoning_text", "content_index")

    def _place(self, **index: int) -> Frame:
        item_id = self._open["id"] if self._open else ""
        return {"item_id": item_id, "output_index": len(self._done), **index}

    def _response(self, status: str, **fields: Any) -> Frame:
        blank = {"error": None, "incomplete_details": None, "usage": None}
        return {**self._head, **blank, "status": status, "output": list(self._done), **fields}

    def _frame(self, kind: str, **fields: Any) -> Frame:
        self._sequence += 1
        return {"type": kind, "sequence_number": self._sequence, **fields}


def _id(prefix: str) -> str:
    return f"{prefix}_{uuid.uuid4().hex}"


def _text_part(text: str) -> Frame:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _usage(usage: Usage) -> Frame:
    """The newer names of the same figures, the details always integers."""
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {"cached_tokens": usage.diffusion.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "diffusion": usage_body(usage)["diffusion"],
    }
