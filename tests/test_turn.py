"""A turn: any split of the ids gives the same events, and nothing leaves unchecked."""

import json
from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clover_agent.errors import CloverError, InvalidOutput, InvalidToolCall
from clover_agent.formats import FORMATS
from clover_agent.loading import EMBEDDED
from clover_agent.tokenizer import Tokenizer
from clover_agent.turn import Turn
from clover_agent.types import (
    Conversation,
    DiffusionStats,
    Draft,
    Event,
    Message,
    ReasoningDelta,
    ResponseFormat,
    Segment,
    Step,
    TextDelta,
    Tool,
    ToolCallDone,
    ToolChoice,
)

TOKENIZER = Tokenizer.from_file(EMBEDDED / "tokenizer.json")
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS = (Tool("get_weather", "", SCHEMA),)
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "São Paulo"}}\n</tool_call>'
BAD_CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"town": 3}}\n</tool_call>'
STATS = DiffusionStats(denoising_steps=3, forwards=4, forced_tokens=2, new_tokens=9)


def asked(**changes: object) -> Conversation:
    return Conversation((Message("user", "weather?"),), **{"tools": TOOLS, **changes})  # type: ignore[arg-type]


def new_turn(conversation: Conversation, *, thinking: bool = False, hold_text: bool = False) -> Turn:
    return Turn(conversation, TOKENIZER, FORMATS["hermes_json"], thinking=thinking, hold_text=hold_text)


def encode(text: str) -> list[int]:
    return TOKENIZER.encode([Segment(text, trusted=True)])


def run(
    turn: Turn, ids: Sequence[int], cuts: Sequence[int] = (), finish: Literal["stop", "length"] = "stop"
) -> list[Event]:
    """Feed the ids in steps that end at `cuts`, then end."""
    edges = [0, *sorted(cuts), len(ids)]
    events: list[Event] = []
    for start, end in pairwise(edges):
        last = end == len(ids)
        events += turn.feed(Step(tuple(ids[start:end]), STATS, finish=finish if last else None))
        if turn.failure is not None:
            raise turn.failure
        if turn.finish is not None:
            break
    return events + turn.end()


def told(events: Sequence[Event]) -> tuple[str, str, list[tuple[int, str, object]]]:
    """Thought, visible text and calls."""
    thought = "".join(e.text for e in events if isinstance(e, ReasoningDelta))
    text = "".join(e.text for e in events if isinstance(e, TextDelta))
    calls = [(e.index, e.call.name, json.loads(e.call.arguments)) for e in events if isinstance(e, ToolCallDone)]
    return thought, text, calls


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_any_split_tells_the_same(data: st.DataObject) -> None:
    ids = encode(f"So, São Paulo 🌍.\n</think>\n\nI will look: it is warm.\n\n{CALL}\n{CALL}")
    cuts = data.draw(st.lists(st.integers(0, len(ids)), max_size=8))
    conversation = asked(stop=("cold",))
    turn = new_turn(conversation, thinking=True)
    call = ("get_weather", {"city": "São Paulo"})
    assert told(run(turn, ids, cuts)) == ("So, São Paulo 🌍.", "I will look: it is warm.", [(0, *call), (1, *call)])
    assert turn.reason == "tool_calls"


def test_reasoning_tokens_are_counted() -> None:
    thought, rest = encode("Let me see.\n</think>"), encode("\n\nHello there")
    turn = new_turn(asked(), thinking=True)
    run(turn, [*thought, *rest])
    assert turn.reasoning_tokens == len(thought)
    assert turn.stats.new_tokens == len(thought) + len(rest)


def test_a_stop_string_ends_the_answer_and_is_not_part_of_it() -> None:
    turn = new_turn(asked(stop=("END",)))
    assert told(run(turn, encode("one two EN three END four"), cuts=(2, 5))) == ("", "one two EN three ", [])
    assert turn.reason == "stop"


def test_a_stop_string_inside_a_call_does_not_cut_it() -> None:
    turn = new_turn(asked(stop=("city",)))
    assert len(told(run(turn, encode(CALL)))[2]) == 1


def test_a_call_cut_by_the_budget_is_no_call() -> None:
    ids = encode(f"Looking.\n\n{CALL}")
    turn = new_turn(asked())
    assert told(run(turn, ids[:-1], finish="length")) == ("", "Looking.", [])
    assert turn.reason == "length"


def test_a_bad_call_leaves_what_was_said_before_it() -> None:
    turn = new_turn(asked())
    events = turn.feed(Step(tuple(encode(f"Looking.\n\n{BAD_CALL}")), STATS, finish="stop"))
    assert told(events) == ("", "Looking.", [])
    assert isinstance(turn.failure, InvalidToolCall)
    assert TOKENIZER.decode(turn.kept_ids()).startswith("Looking.")


def test_a_second_turn_goes_on_where_the_first_was_right() -> None:
    ids = encode(f"Looking.\n\n{BAD_CALL}")
    first = new_turn(asked())
    said = told(first.feed(Step(tuple(ids), STATS, finish="stop")))[1]
    second = new_turn(asked())
    second.replay(first.kept_ids(), first.stats)
    rest = TOKENIZER.decode(first.kept_ids())
    whole = encode(f"Looking.\n\n{CALL}")
    assert TOKENIZER.decode(whole).startswith(rest)
    _, text, calls = told(run(second, whole[len(first.kept_ids()) :]))
    assert (said + text, len(calls)) == ("Looking.", 1)
    assert second.stats.denoising_steps == 2 * STATS.denoising_steps


@pytest.mark.parametrize(
    ("text", "changes", "error"),
    [
        (CALL[:-12], {}, InvalidToolCall),
        ("no call", {"tool_choice": ToolChoice("required")}, InvalidToolCall),
        ("no json", {"tools": (), "response_format": ResponseFormat("json_object")}, InvalidOutput),
        ('{"city": 3}', {"tools": (), "response_format": ResponseFormat("json_schema", SCHEMA)}, InvalidOutput),
    ],
    ids=["open call", "required", "not json", "not the schema"],
)
def test_an_answer_that_was_not_asked_for_is_an_error(
    text: str, changes: dict[str, object], error: type[CloverError]
) -> None:
    with pytest.raises(error):
        run(new_turn(asked(**changes)), encode(text))


def test_held_text_leaves_at_the_end_and_only_if_it_is_right() -> None:
    conversation = asked(tools=(), response_format=ResponseFormat("json_schema", SCHEMA))
    turn = new_turn(conversation, hold_text=True)
    ids = encode('{"city": "Lima"}')
    assert turn.feed(Step(tuple(ids), STATS, finish="stop")) == []
    assert turn.end() == [TextDelta('{"city": "Lima"}')]


def test_a_draft_shows_the_text_of_each_position() -> None:
    a, b = encode("hello")[0], encode(" there")[0]
    events = new_turn(asked()).feed(Step((), STATS, draft=(a, None, b)))
    assert events == [Draft((TOKENIZER.decode([a]), None, TOKENIZER.decode([b])))]
