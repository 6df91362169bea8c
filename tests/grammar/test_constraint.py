"""Phases of an answer: free text, a thought and its budget, what separates it from the rest, held text."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clover_agent.errors import GrammarError
from clover_agent.grammar import constraint as module
from clover_agent.types import ResponseFormat, Tool, ToolChoice
from tests.grammar.harness import FORMAT_NAMES, constraint, decode, encode, legal, vocabulary
from tests.grammar.tools import TOOLS

REQUIRED = ToolChoice("required")
STOP = ToolChoice("required", ("stop",))
CONTROL = vocabulary("small").control


@pytest.mark.parametrize("format_name", FORMAT_NAMES)
def test_a_thought_comes_first_and_is_free(format_name: str) -> None:
    held = constraint(format_name, tools=TOOLS, tool_choice=STOP, thinking=True)
    assert held.free
    assert not held.accepting()
    thought = encode('I think {"name": <function=x> ')
    assert held.valid_prefix(thought) == len(thought)
    assert held.valid_prefix(encode("<tool_call>")) == 0
    held.consume([*thought, CONTROL["</think>"]])
    assert decode(held.forced()).startswith("\n\n<tool_call>\n")


@pytest.mark.parametrize("format_name", FORMAT_NAMES)
@pytest.mark.parametrize("split", range(1, 8))
def test_the_end_of_a_thought_may_fall_anywhere(format_name: str, split: int) -> None:
    """As tokens come in pieces of any size, so does validation."""
    whole = encode("hm\n</think>\n\n<tool_call>\n")
    held = constraint(format_name, tools=TOOLS, tool_choice=STOP, thinking=True)
    held.consume(whole[:split])
    assert held.valid_prefix(whole[split:]) == len(whole) - split
    held.consume(whole[split:])
    assert not held.free


@pytest.mark.parametrize(
    ("asked", "rest"),
    [
        ({"tools": TOOLS}, "Hello"),
        ({"tools": TOOLS, "tool_choice": ToolChoice("none")}, "Hello"),
        ({"response_format": ResponseFormat("json_object")}, '{"a": 1}'),
    ],
)
def test_after_the_thought_comes_what_was_asked(asked: dict[str, Any], rest: str) -> None:
    held = constraint(thinking=True, **asked)
    held.consume(encode("x</think>"))
    assert held.valid_prefix(encode("Hello")) == 0
    assert held.forced()[:1] == encode("\n\n")[:1]
    held.consume(encode("\n\n"))
    assert held.valid_prefix(encode(rest)) == len(encode(rest))
    held.consume(encode(rest))
    assert held.accepting()


class TestBudget:
    @settings(max_examples=60, deadline=None)
    @given(budget=st.integers(1, 12), text=st.text(st.sampled_from("ab \n"), min_size=40, max_size=60))
    def test_the_thought_is_closed_in_time(self, budget: int, text: str) -> None:
        held = constraint(tools=TOOLS, tool_choice=STOP, thinking=True, thinking_budget=budget)
        ids = encode(text)
        assert held.valid_prefix(ids) <= budget + 1  # one more where the line break is what must come
        held.consume(ids[:budget])
        assert not held.free
        forced = decode(held.forced())
        if decode(ids[:budget]).endswith("\n"):
            assert forced.startswith("</think>\n\n<tool_call>")
        else:
            assert forced.startswith("\n</think>\n\n<tool_call>")
        assert legal(held) == held.forced()[:1]

    def test_no_budget_no_thought(self) -> None:
        held = constraint(tools=TOOLS, thinking=True, thinking_budget=0)
        assert decode(held.forced()) == "</think>\n\n"
        held.consume(held.forced())
        assert held.free

    def test_a_shorter_thought_is_left_alone(self) -> None:
        held = constraint(tools=TOOLS, thinking=True, thinking_budget=100)
        held.consume(encode("short</think>\n\nHi"))
        assert held.free
        assert held.accepting()

    def test_a_budget_alone_is_held(self) -> None:
        held = constraint(thinking=True, thinking_budget=2)
        held.consume(encode("ab")[:2])
        held.consume(held.forced())
        assert held.accepting()
        assert decode(legal(held)[:1] and encode("fine")) == "fine"


class TestFree:
    def test_every_ordinary_token_is_legal_broken_utf8_included(self) -> None:
        held = constraint(tools=TOOLS)
        ordinary = {i for i, flag in enumerate(held.frame.kinds) if flag == 1}
        assert ordinary <= set(legal(held))
        assert all(held.valid_prefix([i]) == 1 for i in ordinary)

    def test_ids_outside_the_vocabulary_are_illegal(self) -> None:
        held = constraint(tools=TOOLS)
        for id_ in (-1, len(held.frame.kinds), 10**9, CONTROL["<|mask|>"], CONTROL["<|im_start|>"], CONTROL["<think>"]):
            assert held.valid_prefix([id_]) == 0
        held.consume(encode("<tool_call>"))
        for id_ in (-1, len(held.frame.kinds), 10**9, CONTROL["<|mask|>"]):
            assert held.valid_prefix([id_]) == 0

    def test_end_tokens_are_in_the_mask_and_never_consumed(self) -> None:
        held = constraint(tools=TOOLS)
        end = CONTROL["<|im_end|>"]
        assert end in legal(held)
        assert held.valid_prefix([end]) == 0
        with pytest.raises(GrammarError):
            held.consume([end])
        finished = constraint(tools=TOOLS, tool_choice=STOP, parallel_tool_calls=False)
        finished.consume(finished.forced())
        assert set(legal(finished)) == finished.frame.end_ids
        assert finished.valid_prefix([end]) == 0

    def test_the_mask_is_a_copy(self) -> None:
        held = constraint(tools=TOOLS)
        held.mask()[:] = 0
        assert held.mask().any()
        assert held.frame.ordinary.any()


def test_forks_before_and_after_the_grammar_begins() -> None:
    held = constraint(tools=TOOLS)
    first, second = held.fork(), held.fork()
    first.consume(encode("<tool_call>\n"))
    second.consume(encode("text"))
    assert held.free
    assert second.free
    assert not first.free
    third = first.fork()
    third.consume(third.forced())
    assert not np.array_equal(first.mask(), third.mask())


def test_a_refused_token_leaves_the_constraint_usable_for_validation_only() -> None:
    held = constraint(response_format=ResponseFormat("json_object"))
    before = held.fork()
    with pytest.raises(GrammarError):
        held.consume(encode("nonsense"))
    with pytest.raises(GrammarError):  # the error is sticky: nobody goes on from here by mistake
        held.mask()
    assert before.valid_prefix(encode("{")) == 1


def test_long_output_keeps_the_lexer_going(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MASK_EVERY", 16)
    tool = Tool("f", parameters={"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]})
    held = constraint(tools=[tool], tool_choice=REQUIRED)
    held.consume(encode('<tool_call>\n{"name": "f", "arguments": {"a": "'))
    for _ in range(50):
        held.consume(encode("word "))
        assert held._lexer.tokens < 16
    assert held.valid_prefix(encode('"}}\n</tool_call>')) == len(encode('"}}\n</tool_call>'))
