"""A streamed chat completion, read by the rules of the strictest clients. What breaks one of them is `Trouble`.

Knows nothing of HTTP and of how the events came.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from clover_agent.doctor.report import Trouble, require
from clover_agent.doctor.wire import DONE, SentEvent

REASONS = ("stop", "length", "tool_calls", "content_filter")


@dataclass(slots=True)
class Folded:
    """What a stream adds up to. `calls` are in the shape of an answer that is not streamed."""

    content: str = ""
    reasoning: str = ""
    calls: list[dict[str, Any]] = field(default_factory=list)
    finish: str | None = None
    usage: dict[str, Any] | None = None


def fold(events: Sequence[SentEvent], *, include_usage: bool) -> Folded:
    """The stream as one answer. Raises `Trouble` at the first rule that it breaks."""
    chunks = _chunks(events)
    folded = Folded()
    for number, chunk in enumerate(chunks):
        choices = chunk.get("choices")
        require(isinstance(choices, list), f"Chunk {number} has no list `choices`.", "Every chunk has one.")
        if not choices:
            _usage(folded, chunk, include_usage)
            continue
        require(folded.usage is None, "A chunk comes after the usage chunk.", "Usage comes last.")
        _choice(folded, choices[0], first=number == 0)
    require(
        folded.finish is not None,
        "The stream ends without a finish_reason.",
        "Clients ask again, or for ever: send a last chunk with an empty delta and the finish_reason.",
    )
    if include_usage:
        require(folded.usage, "include_usage was asked for and no usage came.", "Send it on a chunk with choices [].")
    return folded


def _chunks(events: Sequence[SentEvent]) -> list[dict[str, Any]]:
    require(events, "The stream holds no event.", "Each chunk is a line `data: {…}` followed by an empty line.")
    for event in events:
        if isinstance(event.data, dict) and event.data.get("error"):
            raise Trouble(f"The stream holds an error: {str(event.data['error'])[:160]}", "Look at the server's log.")
    require(
        events[-1].data == DONE, "The stream does not end with `data: [DONE]`.", "Send it: some clients wait for it."
    )
    chunks = [event.data for event in events[:-1]]
    for number, chunk in enumerate(chunks):
        require(isinstance(chunk, dict), f"Event {number} is not a JSON object: {str(chunk)[:80]!r}.")
    require(
        len({chunk.get("id") for chunk in chunks}) == 1 and chunks[0].get("id"),
        "The chunks do not all have the same `id`.",
        "One id for all chunks of an answer.",
    )
    return chunks


def _usage(folded: Folded, chunk: dict[str, Any], wanted: bool) -> None:
    usage = chunk.get("usage")
    if usage is None:
        return
    require(wanted, "A usage chunk with choices [] comes unasked.", "Only for include_usage: some clients break on it.")
    folded.usage = check_usage(usage)


def check_usage(usage: Any) -> dict[str, Any]:
    """The usage, if its three counts are integers."""
    names = ("prompt_tokens", "completion_tokens", "total_tokens")
    good = isinstance(usage, dict) and all(type(usage.get(name)) is int for name in names)
    require(good, f"usage is {str(usage)[:80]}.", f"It needs the integers {', '.join(names)}.")
    found: dict[str, Any] = usage
    return found


def _choice(folded: Folded, choice: Any, *, first: bool) -> None:
    require(isinstance(choice, dict) and isinstance(choice.get("delta"), dict), "A choice has no object `delta`.")
    delta, reason = choice["delta"], choice.get("finish_reason")
    if first:
        require(
            delta.get("role") == "assistant", "The first delta does not tell the role.", 'Send {"role": "assistant"}.'
        )
    require(folded.finish is None or not any(delta.values()), "Something is said after the finish_reason.")
    folded.content += _text(delta, "content")
    folded.reasoning += _text(delta, "reasoning_content") or _text(delta, "reasoning")
    for call in delta.get("tool_calls") or ():
        _call(folded, call)
    if reason is not None:
        require(
            reason in REASONS,
            f"finish_reason is {reason!r}.",
            f"It is null until the end, then one of {', '.join(REASONS)}.",
        )
        require(folded.finish is None, "There are two finish_reasons.")
        folded.finish = reason


def _text(delta: dict[str, Any], name: str) -> str:
    value = delta.get(name)
    require(value is None or isinstance(value, str), f"`{name}` is {type(value).__name__}, not text.")
    return value or ""


def _call(folded: Folded, call: Any) -> None:
    require(
        isinstance(call, dict) and type(call.get("index")) is int,
        "A delta of tool_calls has no integer `index`.",
        "Number the calls from 0 and tell it in each delta: clients join the pieces by it.",
    )
    index, function = call["index"], call.get("function") or {}
    require(
        index in (len(folded.calls) - 1, len(folded.calls)),
        f"Pieces of call {index} come after {len(folded.calls)} calls.",
        "Calls are numbered from 0 and do not mix.",
    )
    if index == len(folded.calls):
        require(call.get("type") == "function", "The first delta of a call has no `type`.", 'Send "function".')
        folded.calls.append({"id": call.get("id"), "type": "function", "function": {"name": None, "arguments": ""}})
    else:
        require(
            not call.get("id") and not function.get("name"),
            "A call's `id` or `name` is sent twice.",
            "Only in its first delta: some clients join them.",
        )
    known = folded.calls[index]["function"]
    known["name"] = known["name"] or function.get("name")
    arguments = function.get("arguments")
    require(
        arguments is None or isinstance(arguments, str),
        f"`arguments` is sent as {type(arguments).__name__}.",
        "It is a string of JSON text, in pieces.",
    )
    known["arguments"] += arguments or ""
