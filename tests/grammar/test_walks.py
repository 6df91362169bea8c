"""Whatever way a model takes through a grammar: it ends in calls that decode and satisfy their schemas."""

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clover_agent.errors import GrammarError, InvalidOutput, InvalidToolCall
from clover_agent.formats import FORMATS
from clover_agent.grammar import check_call, check_output
from clover_agent.types import ResponseFormat, Tool, ToolChoice
from tests.grammar.harness import FORMAT_NAMES, calls, compiler, constraint, decode, dumps, encode, legal, walk
from tests.grammar.tools import EXAMPLES, TOOLS

BY_NAME = {tool.name: tool for tool in TOOLS}
REQUIRED = ToolChoice("required")
# What no grammar here can forbid: a key that comes twice in an object that takes any key.
BEYOND_THE_GRAMMAR = ("twice",)

walks = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def _valid_calls(text: str, format_name: str, tools: Sequence[Tool]) -> list[str] | None:
    """The names of the finished calls, each checked; None if one has what is beyond the grammar."""
    try:
        found = calls(text, format_name, tools)
        for name, arguments in found:
            check_call(BY_NAME[name], arguments)
    except InvalidToolCall as error:
        if any(words in f"{error} {error.__cause__}" for words in BEYOND_THE_GRAMMAR):
            return None
        raise
    return [name for name, _ in found]


@pytest.mark.parametrize("format_name", FORMAT_NAMES)
@walks
@given(seed=st.integers(0, 2**32), tool=st.sampled_from(TOOLS), parallel=st.booleans())
def test_every_finished_walk_is_a_valid_call(format_name: str, seed: int, tool: Tool, parallel: bool) -> None:
    held = constraint(format_name, tools=[tool], tool_choice=REQUIRED, parallel_tool_calls=parallel)
    text = decode(walk(held, random.Random(seed), 250))
    if not held.accepting():
        return
    found = _valid_calls(text, format_name, [tool])
    if found is None:
        return
    assert len(found) >= 1
    assert parallel or len(found) == 1


@pytest.mark.parametrize("format_name", FORMAT_NAMES)
@walks
@given(seed=st.integers(0, 2**32), tool=st.sampled_from(TOOLS), most=st.integers(1, 60))
def test_a_cut_walk_has_no_finished_call_that_is_not_valid(format_name: str, seed: int, tool: Tool, most: int) -> None:
    held = constraint(format_name, tools=TOOLS, tool_choice=ToolChoice("required", (tool.name,)))
    text = decode(walk(held, random.Random(seed), most))
    _valid_calls(text, format_name, TOOLS)
    assert held.accepting() == text.endswith("</tool_call>")


@pytest.mark.parametrize("format_name", FORMAT_NAMES)
@walks
@given(seed=st.integers(0, 2**32), tool=st.sampled_from(TOOLS), steps=st.integers(0, 50))
def test_closing_gives_a_valid_call_or_nothing(format_name: str, seed: int, tool: Tool, steps: int) -> None:
    held = constraint(format_name, tools=[tool], tool_choice=REQUIRED)
    ids = walk(held, random.Random(seed), steps)
    rest = held.close(200)
    if rest is None:
        return
    assert len(rest) <= 200
    assert held.valid_prefix(rest) == len(rest)
    held.consume(rest)
    assert held.accepting()
    _valid_calls(decode(ids + rest), format_name, [tool])


@pytest.mark.parametrize("format_name", FORMAT_NAMES)
@walks
@given(seed=st.integers(0, 2**32), tool=st.sampled_from(TOOLS), steps=st.integers(0, 40))
def test_mask_and_prefix_agree_and_forced_is_legal(format_name: str, seed: int, tool: Tool, steps: int) -> None:
    held = constraint(format_name, tools=[*TOOLS], tool_choice=ToolChoice("auto"), thinking=bool(seed % 2))
    rng = random.Random(seed)
    if rng.random() < 0.7:
        held.consume(encode("</think>\n\n" * bool(seed % 2) + "<tool_call>"))
    walk(held, rng, steps)
    allowed = set(legal(held))
    ends = held.frame.end_ids
    assert (ends <= allowed) == held.accepting()
    forced = held.forced()
    assert held.valid_prefix(forced) == len(forced)
    for id_ in rng.sample(range(len(held.frame.kinds)), 60):
        valid = held.valid_prefix([id_]) == 1
        if forced:  # the mask then insists on the canonical token, other spellings of the same bytes stay valid
            assert valid or id_ not in allowed - ends
        else:
            assert valid == (id_ in allowed - ends)
    if forced:
        assert forced[0] in allowed


@pytest.mark.parametrize("format_name", FORMAT_NAMES)
@walks
@given(seed=st.integers(0, 2**32), tool=st.sampled_from(TOOLS), steps=st.integers(0, 40))
def test_a_fork_goes_its_own_way(format_name: str, seed: int, tool: Tool, steps: int) -> None:
    held = constraint(format_name, tools=[tool], tool_choice=REQUIRED)
    rng = random.Random(seed)
    ids = walk(held, rng, steps)
    before, forced, accepting = held.mask(), held.forced(), held.accepting()
    fork = held.fork()
    walk(fork, rng, 20)
    assert np.array_equal(held.mask(), before)
    assert (held.forced(), held.accepting()) == (forced, accepting)
    replayed = constraint(format_name, tools=[tool], tool_choice=REQUIRED)
    assert replayed.valid_prefix(ids) == len(ids)
    replayed.consume(ids)
    assert np.array_equal(replayed.mask(), before)


@pytest.mark.parametrize("vocabulary_name", ["small", "sprout", "qwen"])
@pytest.mark.parametrize("format_name", FORMAT_NAMES)
def test_calls_as_the_model_is_trained_to_write_them_are_legal(format_name: str, vocabulary_name: str) -> None:
    asked = {"tools": TOOLS, "tool_choice": REQUIRED}
    for tool, arguments in EXAMPLES:
        ids = encode(FORMATS[format_name].encode(tool.name, arguments), vocabulary_name)
        held = constraint(format_name, vocabulary_name, **asked)
        assert held.valid_prefix(ids) == len(ids), decode(ids[: held.valid_prefix(ids) + 1], vocabulary_name)
        held.consume(ids)
        assert held.accepting()
        assert held.close(0) == []


@pytest.mark.parametrize("format_name", FORMAT_NAMES)
def test_two_calls_are_joined_by_a_line_break(format_name: str) -> None:
    one = FORMATS[format_name].encode("get_weather", {"city": "Rome"})
    for parallel in (True, False):
        held = constraint(format_name, tools=TOOLS, tool_choice=REQUIRED, parallel_tool_calls=parallel)
        held.consume(encode(one))
        assert held.complete is not parallel
        assert held.valid_prefix(encode("\n" + one)) == (len(encode("\n" + one)) if parallel else 0)


@walks
@given(seed=st.integers(0, 2**32), case=st.sampled_from(EXAMPLES))
def test_a_response_format_holds(seed: int, case: tuple[Tool, Any]) -> None:
    tool, example = case
    asked = ResponseFormat("json_schema", tool.parameters or {"type": "object"})
    held = constraint(response_format=asked)
    assert held.valid_prefix(encode(dumps(example))) == len(encode(dumps(example)))
    ids = walk(held, random.Random(seed), 60)
    rest = held.close(400)
    if rest is not None:
        try:
            check_output(asked, decode(ids + rest))
        except InvalidOutput as error:
            if not any(words in str(error) for words in BEYOND_THE_GRAMMAR):
                raise


@pytest.mark.parametrize("format_name", FORMAT_NAMES)
def test_control_tokens_are_illegal_inside_values(format_name: str) -> None:
    tool = BY_NAME["get_weather"]
    control = compiler(format_name)._vocabulary.control.values()
    held = constraint(format_name, tools=[tool], tool_choice=REQUIRED)
    whole = encode(
        {"hermes_json": '<tool_call>\n{"name": "get_weather", "arguments": {"city": "a'}.get(
            format_name, "<tool_call>\n<function=get_weather>\n<parameter=city>\na"
        )
    )
    held.consume(whole)
    assert not set(control) & set(legal(held))
    spelled = [id_ for text in ("<tool_call>", "</tool_call>", "<|im_end|>") for id_ in encode(text.replace("<", "< "))]
    assert held.valid_prefix(spelled) == len(spelled)


def test_consuming_what_is_illegal_raises() -> None:
    held = constraint(tools=TOOLS, tool_choice=REQUIRED)
    with pytest.raises(GrammarError):
        held.consume(encode("hello"))
