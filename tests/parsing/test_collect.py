"""The fold of a stream is the plain answer."""

from clover_agent.parsing import Completion, collect
from clover_agent.types import (
    DiffusionStats,
    Draft,
    Finished,
    ReasoningDelta,
    Started,
    TextDelta,
    ToolCall,
    ToolCallDone,
    Usage,
)


def test_deltas_are_joined_and_calls_kept_in_order() -> None:
    usage = Usage(3, 4, 1, DiffusionStats(new_tokens=4))
    first, second = ToolCall("1", "f", "{}"), ToolCall("2", "g", "{}")
    completion = collect(
        [
            Started(3),
            ReasoningDelta("hm "),
            ReasoningDelta("so"),
            TextDelta("a"),
            Draft(("b", None)),
            TextDelta("b"),
            ToolCallDone(0, first),
            ToolCallDone(1, second),
            Finished("tool_calls", usage),
        ]
    )
    assert completion == Completion("ab", "hm so", (first, second), "tool_calls", usage)


def test_an_answer_that_did_not_end_has_no_finish() -> None:
    assert collect([TextDelta("a")]) == Completion("a")
    assert collect([]) == Completion()
