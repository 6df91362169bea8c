"""Events -> one message: the plain answer is the streamed one, folded, so the two cannot differ."""

from collections.abc import Iterable
from dataclasses import dataclass

from clover_agent.types import (
    Event,
    Finished,
    FinishReason,
    ReasoningDelta,
    TextDelta,
    ToolCall,
    ToolCallDone,
    Usage,
)


@dataclass(frozen=True, slots=True)
class Completion:
    """A whole answer. `finish` and `usage` are None if the events did not get that far."""

    content: str = ""
    reasoning: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    finish: FinishReason | None = None
    usage: Usage | None = None


def collect(events: Iterable[Event]) -> Completion:
    """Fold the events of one answer. Drafts and `Started` leave no trace."""
    content: list[str] = []
    reasoning: list[str] = []
    calls: list[ToolCall] = []
    end: Finished | None = None
    for event in events:
        match event:
            case TextDelta(text):
                content.append(text)
            case ReasoningDelta(text):
                reasoning.append(text)
            case ToolCallDone(_, call):
                calls.append(call)
            case Finished():
                end = event
            case _:
                pass
    return Completion(
        content="".join(content),
        reasoning="".join(reasoning),
        tool_calls=tuple(calls),
        finish=end.reason if end else None,
        usage=end.usage if end else None,
    )
