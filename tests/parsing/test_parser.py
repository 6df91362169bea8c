"""Only control pieces mean anything; any split gives the same answer; calls are whole or not at all."""

import json
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clover_agent.errors import InvalidToolCall
from clover_agent.formats import FORMATS, ToolFormat
from clover_agent.parsing import Completion, Parser, collect
from clover_agent.types import Event, Piece, Segment, Tool, ToolCall
from tests.vocabulary import MERELY_ADDED, SPECIAL, small_tokenizer

CONTROL = MERELY_ADDED + SPECIAL
TOOLS = (Tool("f", "", {"type": "object", "properties": {"x": {"type": "integer"}, "s": {"type": "string"}}}),)
tokenizer = small_tokenizer()
each_format = pytest.mark.parametrize("format_", FORMATS.values(), ids=FORMATS)


def parse(ids: list[int], parser: Parser, cuts: list[int]) -> list[Event]:
    """Events of the ids, detokenised and parsed in the parts that `cuts` makes."""
    detokenizer = tokenizer.detokenizer()
    places = [0, *sorted(min(cut, len(ids)) for cut in cuts), len(ids)]
    events = [event for a, b in pairwise(places) for event in parser.feed(detokenizer.feed(ids[a:b]))]
    return [*events, *parser.feed(detokenizer.flush()), *parser.flush()]


def answer(text: str, format_: ToolFormat, tools: tuple[Tool, ...] = TOOLS, *, thinking: bool = False) -> Completion:
    """What comes of a text whose control strings are control tokens, ids of calls left out."""
    parser = Parser(format_, tools, thinking=thinking)
    return without_ids(collect(parse(tokenizer.encode([Segment(text, trusted=True)]), parser, [])))


def without_ids(completion: Completion) -> Completion:
    return replace(completion, tool_calls=tuple(replace(call, id="") for call in completion.tool_calls))


def call(format_: ToolFormat, **arguments: object) -> str:
    return format_.encode("f", arguments)


@each_format
@settings(deadline=None, max_examples=150)
@given(
    parts=st.lists(
        st.one_of(st.text(max_size=6), st.sampled_from((*CONTROL, "CALL", "\n", "\n\n", " ", "<tool_call", "🙂"))),
        max_size=10,
    ),
    cuts=st.lists(st.integers(0, 200), max_size=30),
    tools=st.sampled_from((TOOLS, ())),
    thinking=st.booleans(),
)
def test_any_split_gives_the_same_answer(
    format_: ToolFormat, parts: list[str], cuts: list[int], tools: tuple[Tool, ...], thinking: bool
) -> None:
    text = "".join(call(format_, x=1, s="a\nb") if part == "CALL" else part for part in parts)
    ids = tokenizer.encode([Segment(text, trusted=True)])

    def outcome(cuts: list[int]) -> Completion | str:
        parser = Parser(format_, tools, thinking=thinking)
        try:
            return without_ids(collect(parse(ids, parser, cuts)))
        except InvalidToolCall as error:
            return str(error)

    assert outcome(cuts) == outcome([])
    assert outcome(list(range(len(ids)))) == outcome([])


@each_format
@settings(deadline=None, max_examples=100)
@given(text=st.lists(st.one_of(st.text(max_size=6), st.sampled_from(CONTROL)), max_size=8).map("".join))
def test_text_that_looks_like_markers_is_text(format_: ToolFormat, text: str) -> None:
    ids = tokenizer.encode_text(text)
    assert collect(parse(ids, Parser(format_, TOOLS, thinking=False), [])) == Completion(content=text)


@each_format
@settings(deadline=None, max_examples=100)
@given(st.lists(st.dictionaries(st.sampled_from(("x", "s")), st.integers()), max_size=4), st.data())
def test_calls_round_trip_through_tokens_one_by_one(
    format_: ToolFormat, arguments: list[dict[str, object]], data: st.DataObject
) -> None:
    for each in arguments:
        if "s" in each:
            each["s"] = data.draw(st.text(max_size=10))
    text = "\n".join(format_.encode("f", each) for each in arguments)
    completion = answer(text, format_)
    assert [json.loads(c.arguments) for c in completion.tool_calls] == arguments
    assert completion.content == ""


@each_format
def test_white_space_around_thoughts_and_calls_is_not_content(format_: ToolFormat) -> None:
    text = f"\nI wonder.\n\nYes.\n</think>\n\nI look.\n\n{call(format_, x=1)}\n{call(format_, x=2)}\n"
    completion = answer(text, format_, thinking=True)
    assert completion.reasoning == "I wonder.\n\nYes."
    assert completion.content == "I look."
    assert [c.arguments for c in completion.tool_calls] == ['{"x": 1}', '{"x": 2}']


@each_format
def test_white_space_of_the_text_itself_is_content(format_: ToolFormat) -> None:
    assert answer("  a\n\nb\n", format_).content == "  a\n\nb\n"
    assert answer(f"a {call(format_)}\nb", format_).content == "a\nb"
    assert answer(f"\n\n{call(format_)}", format_).content == ""


@each_format
def test_a_thought_may_be_opened_by_the_model_or_be_closed_by_the_prompt(format_: ToolFormat) -> None:
    assert answer("<think>\nhm\n</think>\n\nyes", format_) == Completion("yes", "hm")
    assert answer("yes", format_, thinking=False) == Completion("yes")
    assert answer("never closed", format_, thinking=True) == Completion("", "never closed")


@each_format
def test_a_call_inside_a_thought_is_a_call_and_ends_the_thought(format_: ToolFormat) -> None:
    completion = answer(f"I think.\n{call(format_, x=1)}\n</think>\n\nDone.", format_, thinking=True)
    assert completion.reasoning == "I think."
    assert [c.arguments for c in completion.tool_calls] == ['{"x": 1}']
    assert completion.content == "Done."


@each_format
def test_stray_closers_are_dropped(format_: ToolFormat) -> None:
    assert answer("a</think>b</tool_call>c</tool_call>", format_).content == "abc"


@each_format
def test_without_tools_markers_of_calls_are_text(format_: ToolFormat) -> None:
    text = call(format_, x=1)
    assert answer(text, format_, ()) == Completion(content=text)
    assert answer(f"<think>a{text}</think>b", format_, ()) == Completion("b", "a" + text)


@each_format
def test_an_unfinished_call_is_dropped_and_reported(format_: ToolFormat) -> None:
    parser = Parser(format_, TOOLS, thinking=False)
    text = call(format_, x=1).removesuffix("</tool_call>")
    events = parse(tokenizer.encode([Segment("Look.\n" + text, trusted=True)]), parser, [])
    assert collect(events) == Completion(content="Look.")
    assert parser.open_call


@each_format
def test_control_tokens_inside_a_call_belong_to_it(format_: ToolFormat) -> None:
    completion = answer(call(format_, s="<think>a</think><tool_call><tool_response>"), format_)
    assert json.loads(completion.tool_calls[0].arguments) == {"s": "<think>a</think><tool_call><tool_response>"}


@each_format
def test_a_malformed_call_is_an_error_and_the_parser_goes_on(format_: ToolFormat) -> None:
    parser = Parser(format_, TOOLS, thinking=False)
    begin, end = (Piece(marker, marker) for marker in (format_.call_begin, format_.call_end))
    with pytest.raises(InvalidToolCall):
        parser.feed([begin, Piece("nonsense"), end])
    assert not parser.open_call
    assert collect(parser.feed([Piece("fine")])) == Completion(content="fine")


@each_format
def test_calls_are_numbered_and_their_ids_are_unique(format_: ToolFormat) -> None:
    parser = Parser(format_, TOOLS, thinking=False)
    ids = tokenizer.encode([Segment(call(format_) * 3, trusted=True)])
    calls = parse(ids, parser, [])
    assert [getattr(event, "index", None) for event in calls] == [0, 1, 2]
    made: list[ToolCall] = list(collect(calls).tool_calls)
    assert len({c.id for c in made}) == 3
    assert all(c.id.startswith("call_") for c in made)


def test_text_leaves_at_once_but_for_trailing_space() -> None:
    parser = Parser(FORMATS["hermes_json"], TOOLS, thinking=False)
    assert collect(parser.feed([Piece("a b \n")])).content == "a b"
    assert collect(parser.feed([Piece("c")])).content == " \nc"
    assert parser.flush() == []


def test_thinking_and_open_call_tell_where_the_parser_is() -> None:
    parser = Parser(FORMATS["hermes_json"], TOOLS, thinking=True)
    places = [(parser.thinking, parser.open_call)]
    for marker in ("</think>", "<tool_call>"):
        parser.feed([Piece(marker, marker)])
        places.append((parser.thinking, parser.open_call))
    assert places == [(True, False), (False, False), (False, True)]
