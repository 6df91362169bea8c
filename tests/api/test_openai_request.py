"""What the fields of a request mean, once they are known to be well-formed."""

from typing import Any

import pytest

from clover_agent.api.json_schema import SchemaChecker
from clover_agent.api.openai_request import to_conversation
from clover_agent.api.openai_schema import ChatCompletionRequest
from clover_agent.types import Conversation, Message, ResponseFormat, Tool, ToolCall, ToolChoice
from tests.api.fakes import body, tool

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}


def convert(**fields: Any) -> Conversation:
    request = ChatCompletionRequest.model_validate(body(**fields))
    return to_conversation(request, SchemaChecker(), max_context=4096, deadline_s=None)


def message(**fields: Any) -> Message:
    return convert(messages=[fields]).messages[0]


def test_the_smallest_request_sets_nothing() -> None:
    assert convert() == Conversation(messages=(Message("user", "Hi"),))


def test_developer_is_system() -> None:
    assert message(role="developer", content="x") == Message("system", "x")


def test_parts_become_lines() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "input_text", "text": "b"}, {"type": "refusal", "refusal": "c"}]
    assert message(role="user", content=parts).content == "a\nb\nc"


@pytest.mark.parametrize("content", [None, "", []])
def test_no_content_is_empty_text(content: Any) -> None:
    assert message(role="assistant", content=content).content == ""


def test_an_assistant_turn_keeps_calls_and_reasoning() -> None:
    calls = [
        {"id": "x", "type": "function", "function": {"name": "f", "arguments": "{broken"}},
        {"function": {"name": "g", "arguments": {"ä": 1}}},
        {"id": "z", "function": {"name": "h"}},
    ]
    assert message(role="assistant", reasoning="r", tool_calls=calls) == Message(
        "assistant",
        reasoning="r",
        tool_calls=(ToolCall("x", "f", "{broken"), ToolCall("call_1", "g", '{"ä": 1}'), ToolCall("z", "h", "")),
    )
    assert message(role="assistant", reasoning="r", reasoning_content="s").reasoning == "s"


def test_reasoning_of_other_roles_is_ignored() -> None:
    assert message(role="user", content="x", reasoning="r") == Message("user", "x")


def test_a_tool_message_keeps_id_and_name() -> None:
    assert message(role="tool", tool_call_id="x", name="f", content="y") == Message(
        "tool", "y", tool_call_id="x", name="f"
    )


def test_tools() -> None:
    bare = {"type": "function", "function": {"name": "g"}}
    conversation = convert(tools=[tool(strict=True, description="d", parameters=SCHEMA), bare])
    assert conversation.tools == (Tool("get_weather", "d", SCHEMA, strict=True), Tool("g"))


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        (None, ToolChoice()),
        ("auto", ToolChoice("auto")),
        ("none", ToolChoice("none")),
        ("required", ToolChoice("required")),
        ({"type": "function", "function": {"name": "b"}}, ToolChoice("required", ("b",))),
        (
            {
                "type": "allowed_tools",
                "allowed_tools": {
                    "mode": "required",
                    "tools": [{"type": "function", "function": {"name": name}} for name in ("c", "a", "c")],
                },
            },
            ToolChoice("required", ("c", "a")),
        ),
    ],
)
def test_tool_choice(choice: Any, expected: ToolChoice) -> None:
    assert convert(tools=[tool("a"), tool("b"), tool("c")], tool_choice=choice).tool_choice == expected


@pytest.mark.parametrize(("given", "expected"), [(None, True), (True, True), (False, False)])
def test_parallel_tool_calls(given: bool | None, expected: bool) -> None:
    assert convert(parallel_tool_calls=given).parallel_tool_calls is expected


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ({"type": "text"}, ResponseFormat()),
        ({"type": "json_object"}, ResponseFormat("json_object")),
        ({"type": "json_object", "schema": SCHEMA}, ResponseFormat("json_schema", SCHEMA)),
        ({"type": "json_schema", "json_schema": {"name": "a"}}, ResponseFormat("json_schema", {})),
        (
            {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA, "strict": True}},
            ResponseFormat("json_schema", SCHEMA, strict=True),
        ),
    ],
)
def test_response_format(form: Any, expected: ResponseFormat) -> None:
    assert convert(response_format=form).response_format == expected


def test_sampling_is_taken_over_and_only_what_was_set() -> None:
    fields: dict[str, Any] = {
        **{"temperature": 1, "top_p": 0.5, "top_k": 4, "min_p": 0.1, "repetition_penalty": 1.1, "seed": 7},
        **{"presence_penalty": 0.5, "frequency_penalty": -0.5, "ignore_eos": False, "threshold": 0.9, "block_size": 16},
        **{"min_tokens": 0},
    }
    assert convert(**fields).sampling == fields
    listed = convert(logit_bias={"5": -100, "7": 2.5}, stop_token_ids=[3, 4]).sampling
    assert listed == {"logit_bias": ((5, -100.0), (7, 2.5)), "stop_token_ids": (3, 4)}
    assert convert(logit_bias={}, stop_token_ids=[]).sampling == {}


def test_off_by_other_names() -> None:
    sampling = convert(top_k=-1, top_p=0, seed=-1).sampling
    assert sampling["top_k"] == 0
    assert 0 < sampling["top_p"] < 1e-6
    assert sampling["seed"] == 2**63 - 1


@pytest.mark.parametrize("field", ["max_tokens", "max_completion_tokens"])
@pytest.mark.parametrize(("asked", "given"), [(5, 5), (4096, 4096), (65536, 4096), (10**100, 4096)])
def test_max_tokens_is_clamped(field: str, asked: int, given: int) -> None:
    assert convert(**{field: asked}).sampling == {"max_tokens": given}


def test_max_completion_tokens_wins() -> None:
    assert convert(max_tokens=9, max_completion_tokens=5).sampling["max_tokens"] == 5


@pytest.mark.parametrize(("stop", "expected"), [(None, ()), ("a", ("a",)), (["a", "b"], ("a", "b")), ([], ())])
def test_stop(stop: Any, expected: tuple[str, ...]) -> None:
    assert convert(stop=stop).stop == expected


@pytest.mark.parametrize(
    ("fields", "thinking", "kwargs"),
    [
        ({}, None, {}),
        ({"chat_template_kwargs": {"enable_thinking": False, "a": [1]}}, False, {"a": [1]}),
        ({"reasoning_effort": "none"}, False, {"reasoning_effort": "none"}),
        ({"reasoning_effort": "high"}, True, {"reasoning_effort": "high"}),
        (
            {"reasoning_effort": "high", "chat_template_kwargs": {"enable_thinking": False}},
            False,
            {"reasoning_effort": "high"},
        ),
    ],
)
def test_thinking(fields: dict[str, Any], thinking: bool | None, kwargs: dict[str, Any]) -> None:
    conversation = convert(**fields)
    assert (conversation.enable_thinking, conversation.template_kwargs) == (thinking, kwargs)


@pytest.mark.parametrize(("budget", "expected"), [(None, None), (0, 0), (100, 100), (10**30, 4096)])
def test_thinking_budget(budget: int | None, expected: int | None) -> None:
    assert convert(thinking_token_budget=budget).thinking_budget == expected


def test_good_schemas_are_checked_once() -> None:
    checker = SchemaChecker()
    for _ in range(3):
        checker.check_parameters(SCHEMA, "here")
    assert len(checker._good) == 1
