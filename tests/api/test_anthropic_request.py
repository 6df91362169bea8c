"""What the fields of a message request mean, and which ones are refused."""

import json
import logging
from typing import Any

import pytest

from clover_agent.api.anthropic_request import to_conversation
from clover_agent.api.anthropic_schema import CountTokensRequest, MessagesRequest
from clover_agent.api.body import parse_model
from clover_agent.api.json_schema import SchemaChecker
from clover_agent.errors import InvalidRequest, UnsupportedParameter
from clover_agent.types import Conversation, Message, ResponseFormat, Tool, ToolCall, ToolChoice
from tests.api.anthropic_wire import custom_tool, message_body

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
ASK = {"role": "user", "content": "Hi"}
MARK = {"type": "ephemeral"}


def convert(**fields: Any) -> Conversation:
    request = parse_model(json.dumps(message_body(**fields)).encode(), MessagesRequest)
    return to_conversation(request, SchemaChecker(), max_context=4096)


def history(*messages: Any) -> tuple[Message, ...]:
    return convert(messages=[*messages, ASK]).messages[:-1]


def use(id_: str, name: str = "f", **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": id_, "name": name, "input": arguments}


def text(said: str, **fields: Any) -> dict[str, Any]:
    return {"type": "text", "text": said, **fields}


def test_the_smallest_request_does_not_think() -> None:
    assert convert() == Conversation(
        messages=(Message("user", "Hi"),), sampling={"max_tokens": 64}, enable_thinking=False
    )


@pytest.mark.parametrize("system", ["a\nb", [text("a", cache_control=MARK), text("b")]])
def test_system_comes_first(system: Any) -> None:
    assert convert(system=system).messages == (Message("system", "a\nb"), Message("user", "Hi"))


def test_a_system_message_may_stand_among_the_others() -> None:
    assert history({"role": "system", "content": [text("x")]}) == (Message("system", "x"),)


def test_an_assistant_turn_keeps_text_thoughts_and_calls() -> None:
    turn = [
        {"type": "thinking", "thinking": "hm", "signature": "of another server"},
        {"type": "redacted_thinking", "data": "xyz"},
        text("Look"),
        text("ing."),
        use("x", "f", ä=1),
        use("y", "g"),
    ]
    assert history({"role": "assistant", "content": turn}) == (
        Message(
            "assistant",
            "Looking.",
            reasoning="hm",
            tool_calls=(ToolCall("x", "f", '{"ä": 1}'), ToolCall("y", "g", "{}")),
        ),
    )


def test_results_become_messages_with_the_name_of_their_tool() -> None:
    calls = {"role": "assistant", "content": [use("x", "f"), use("y", "g")]}
    results = [
        {"type": "tool_result", "tool_use_id": "y", "content": "second", "cache_control": MARK},
        {"type": "tool_result", "tool_use_id": "x", "is_error": True, "content": [text("no"), text("file")]},
        text("And now?"),
    ]
    assert history(calls, {"role": "user", "content": results})[1:] == (
        Message("tool", "second", tool_call_id="y", name="g"),
        Message("tool", "Error: no\nfile", tool_call_id="x", name="f"),
        Message("user", "And now?"),
    )


def test_what_is_said_before_a_result_stays_before_it() -> None:
    said = [text("a"), text("b"), {"type": "tool_result", "tool_use_id": "gone"}, text("c")]
    assert history({"role": "user", "content": said}) == (
        Message("user", "a\nb"),
        Message("tool", "", tool_call_id="gone"),
        Message("user", "c"),
    )


def test_a_tool_search_finds_names() -> None:
    found = [{"type": "tool_reference", "tool_name": "f"}, {"type": "tool_reference", "tool_name": "g"}]
    result = {"type": "tool_result", "tool_use_id": "x", "content": found}
    assert history({"role": "user", "content": [result]})[0].content == "f\ng"


def test_an_empty_message_is_one() -> None:
    assert history({"role": "user", "content": []}) == (Message("user", ""),)


def test_tools() -> None:
    tools = [
        custom_tool("f", type="custom", cache_control=MARK, defer_loading=True, input_examples=[{}]),
        {"name": "g", "input_schema": {}, "strict": True},
    ]
    assert convert(tools=tools).tools == (Tool("f", "", custom_tool()["input_schema"]), Tool("g", strict=True))


def test_hosted_tools_are_dropped_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    hosted = {"type": "web_search_20250305", "name": "web_search", "max_uses": 8}
    with caplog.at_level(logging.WARNING, "clover_agent.api"):
        assert [tool.name for tool in convert(tools=[hosted, custom_tool("f")]).tools] == ["f"]
    assert "dropped" in caplog.text
    with pytest.raises(InvalidRequest, match=r"tool_choice\.name"):
        convert(tools=[hosted], tool_choice={"type": "tool", "name": "web_search"})


@pytest.mark.parametrize(
    ("choice", "meaning"),
    [
        (None, ToolChoice()),
        ({"type": "auto"}, ToolChoice()),
        ({"type": "none"}, ToolChoice("none")),
        ({"type": "any"}, ToolChoice("required")),
        ({"type": "tool", "name": "get_weather"}, ToolChoice("required", ("get_weather",))),
    ],
)
@pytest.mark.parametrize("alone", [None, False, True])
def test_tool_choice(choice: Any, meaning: ToolChoice, alone: bool | None) -> None:
    asked = choice and {**choice, "disable_parallel_tool_use": alone}
    found = convert(tools=[custom_tool()], tool_choice=asked)
    assert found.tool_choice == meaning
    assert found.parallel_tool_calls is not (choice is not None and alone is True)


@pytest.mark.parametrize(
    ("thinking", "on", "budget"),
    [
        (None, False, None),
        ({"type": "disabled"}, False, None),
        ({"type": "adaptive", "display": "omitted"}, True, None),
        ({"type": "enabled"}, True, None),
        ({"type": "enabled", "budget_tokens": 1024}, True, 1024),
        ({"type": "enabled", "budget_tokens": 10**9}, True, 4096),
    ],
)
def test_thinking(thinking: Any, on: bool, budget: int | None) -> None:
    found = convert(thinking=thinking)
    assert (found.enable_thinking, found.thinking_budget) == (on, budget)


def test_sampling_and_ends() -> None:
    found = convert(max_tokens=10**9, temperature=0.5, top_p=0, top_k=3, stop_sequences=["a", "\n"])
    assert found.sampling == {"max_tokens": 4096, "temperature": 0.5, "top_p": 1e-9, "top_k": 3}
    assert found.stop == ("a", "\n")


@pytest.mark.parametrize("place", ["output_config", "output_format"])
def test_an_output_format_is_honoured(place: str) -> None:
    asked = {"type": "json_schema", "schema": SCHEMA}
    found = convert(**({"output_config": {"format": asked}} if place == "output_config" else {place: asked}))
    assert found.response_format == ResponseFormat("json_schema", SCHEMA)


def test_effort_reaches_the_template() -> None:
    assert convert(output_config={"effort": "max"}).template_kwargs == {"reasoning_effort": "max"}


def test_what_changes_nothing_is_accepted() -> None:
    harmless: dict[str, Any] = {
        "metadata": {"user_id": "x"},
        "service_tier": "auto",
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        "mcp_servers": [],
        "container": None,
        "of_tomorrow": 1,
    }
    assert convert(**harmless) == convert()


PREFILL = [ASK, {"role": "assistant", "content": "{"}]
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]}, "messages.0.content.0.type"),
    ({"messages": [{"role": "user", "content": [{"type": "document"}]}]}, "messages.0.content.0.type"),
    ({"messages": PREFILL}, "messages"),
    ({"mcp_servers": [{"url": "http://x"}]}, "mcp_servers"),
    ({"container": "c"}, "container"),
    ({"tools": [{"type": "bash_20250124", "name": "bash"}]}, "tools.0.type"),
    ({"thinking": {"type": "between_tools"}}, "thinking.type"),
]
WRONG: list[tuple[dict[str, Any], str]] = [
    ({"messages": []}, "messages"),
    ({"messages": [{"role": "user", "content": 3}]}, "messages.0.content"),
    ({"messages": [{"role": "tool", "content": ""}]}, "messages.0.role"),
    ({"messages": [{"role": "user", "content": [use("x")]}]}, "messages.0.content.0.type"),
    (
        {"messages": [{"role": "assistant", "content": [{"type": "tool_result", "tool_use_id": "x"}]}, ASK]},
        "messages.0.content.0.type",
    ),
    ({"max_tokens": 0}, "max_tokens"),
    ({"max_tokens": None}, "max_tokens"),
    ({"stop_sequences": [""]}, "stop_sequences.0"),
    ({"temperature": 3}, "temperature"),
    ({"tools": [custom_tool(), custom_tool()]}, "tools.1.name"),
    ({"tools": [custom_tool("a b")]}, "tools.0.name"),
    ({"tools": [{"name": "f"}]}, "tools.0.input_schema"),
    ({"tools": [custom_tool(input_schema={"type": "string"})]}, "tools.0.input_schema"),
    ({"tools": [custom_tool(input_schema={"type": "nonsense"})]}, "tools.0.input_schema"),
    ({"tool_choice": {"type": "any"}}, "tool_choice"),
    ({"tool_choice": {"type": "tool", "name": "x"}, "tools": [custom_tool()]}, "tool_choice.name"),
    ({"tool_choice": "auto"}, "tool_choice"),
    ({"output_format": {"type": "json_schema", "schema": {"type": 1}}}, "output_format.schema"),
]


@pytest.mark.parametrize(("fields", "param"), REFUSED, ids=lambda value: str(value)[:40])
def test_what_would_change_the_answer_is_refused(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(UnsupportedParameter) as refusal:
        convert(**fields)
    assert refusal.value.param == param


@pytest.mark.parametrize(("fields", "param"), WRONG, ids=lambda value: str(value)[:40])
def test_a_wrong_field_is_named(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequest) as complaint:
        convert(**fields)
    assert complaint.value.param == param


def test_a_count_needs_no_limit() -> None:
    request = parse_model(json.dumps({"model": "m", "messages": [ASK]}).encode(), CountTokensRequest)
    counted = to_conversation(request, SchemaChecker(), max_context=4096)
    assert counted.sampling == {}
    assert counted.messages == (Message("user", "Hi"),)
