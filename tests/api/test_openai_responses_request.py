"""What the fields of a responses request mean, and which ones are refused."""

import copy
import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from clover_agent.api.body import parse_model, parse_object
from clover_agent.api.errors import from_validation
from clover_agent.api.json_schema import SchemaChecker
from clover_agent.api.openai_responses_request import CUSTOM_PARAMETERS, encode_thought, read_tools, to_conversation
from clover_agent.api.openai_responses_schema import HARMLESS, HOSTED_ITEMS, REFUSED, REFUSED_ITEMS, ResponsesRequest
from clover_agent.errors import InvalidRequest, UnsupportedParameter
from clover_agent.types import Conversation, Message, ResponseFormat, Tool, ToolCall, ToolChoice
from tests.api.responses_wire import function_tool, responses_body
from tests.api.test_fuzz import paths, values

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}


def as_conversation(body: ResponsesRequest) -> Conversation:
    schemas = SchemaChecker()
    return to_conversation(body, read_tools(body, schemas), schemas, max_context=4096)


def convert(**fields: Any) -> Conversation:
    return as_conversation(parse_model(json.dumps(responses_body(**fields)).encode(), ResponsesRequest))


def history(*items: Any) -> tuple[Message, ...]:
    return convert(input=[*items, {"role": "user", "content": "?"}]).messages[:-1]


def said(text: str) -> dict[str, Any]:
    return {
        "type": "message",
        "id": "msg_1",
        "status": "completed",
        "role": "assistant",
        "content": [{"type": "output_text", "text": text, "annotations": []}],
    }


def called(id_: str, name: str = "f", arguments: str = "{}", **fields: Any) -> dict[str, Any]:
    return {"type": "function_call", "call_id": id_, "name": name, "arguments": arguments, **fields}


def thought(**fields: Any) -> dict[str, Any]:
    return {"type": "reasoning", "id": "rs_1", "summary": [], **fields}


def test_the_smallest_request() -> None:
    assert convert() == Conversation(messages=(Message("user", "Hi"),))


def test_instructions_come_first_and_developers_are_the_system() -> None:
    items = [
        {"role": "developer", "content": [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}]},
        {"type": "message", "role": "user", "content": "Hi"},
    ]
    assert convert(instructions="Be kind.", input=items).messages == (
        Message("system", "Be kind."),
        Message("system", "a\nb"),
        Message("user", "Hi"),
    )


def test_the_items_of_one_turn_are_put_together() -> None:
    items = [
        thought(content=[{"type": "reasoning_text", "text": "hm"}]),
        said("Look."),
        called("x", "f", '{"a": 1}', id="fc_1", status="completed"),
        {"type": "custom_tool_call", "call_id": "y", "name": "patch", "input": 'a "b"\n'},
        {"type": "function_call_output", "call_id": "x", "output": "one"},
        {"type": "custom_tool_call_output", "call_id": "y", "output": [{"type": "input_text", "text": "two"}]},
    ]
    assert history(*items) == (
        Message(
            "assistant",
            "Look.",
            reasoning="hm",
            tool_calls=(ToolCall("x", "f", '{"a": 1}'), ToolCall("y", "patch", '{"input": "a \\"b\\"\\n"}')),
        ),
        Message("tool", "one", tool_call_id="x", name="f"),
        Message("tool", "two", tool_call_id="y", name="patch"),
    )


def test_what_is_out_of_order_belongs_to_the_next_turn() -> None:
    items = [said("a"), thought(summary=[{"type": "summary_text", "text": "hm"}]), said("b"), called("x"), said("c")]
    assert history(*items) == (
        Message("assistant", "a"),
        Message("assistant", "b", reasoning="hm", tool_calls=(ToolCall("x", "f", "{}"),)),
        Message("assistant", "c"),
    )


@pytest.mark.parametrize(
    ("fields", "read"),
    [
        ({"encrypted_content": encode_thought("hm, 世")}, "hm, 世"),
        ({"encrypted_content": encode_thought("all"), "summary": [{"text": "short"}]}, "all"),
        ({"encrypted_content": "gAAAA of another server", "content": [{"text": "hm"}]}, "hm"),
        ({"encrypted_content": "clover:%%%", "summary": [{"text": "short"}]}, "short"),
        ({"encrypted_content": "clover:/w=="}, None),
        ({"summary": [{"text": "a"}, {"text": "b"}]}, "a\nb"),
        ({}, None),
    ],
)
def test_thoughts(fields: dict[str, Any], read: str | None) -> None:
    assert history(thought(**fields), said("x")) == (Message("assistant", "x", reasoning=read),)


def test_calls_of_a_namespace_have_its_name() -> None:
    turn, result = history(
        called("x", "spawn", namespace="agents"), {"type": "function_call_output", "call_id": "x", "output": "ok"}
    )
    assert turn.tool_calls[0].name == result.name == "agents__spawn"


@pytest.mark.parametrize("kind", sorted(HOSTED_ITEMS))
def test_records_of_hosted_tools_are_left_out(kind: str) -> None:
    assert history({"type": kind, "id": "ws_1", "status": "completed", "action": {"type": "search"}}) == ()


def test_tools() -> None:
    tools = [
        function_tool("f", description="d", strict=True, defer_loading=True),
        function_tool("g", parameters=None, strict=None),
        {"type": "custom", "name": "patch", "description": "p", "format": {"type": "text"}},
        {"type": "namespace", "name": "n", "description": "x", "tools": [function_tool("f"), {"type": "web_search"}]},
        *({"type": kind} for kind in ("web_search_preview_2025_03_11", "mcp", "code_interpreter", "image_generation")),
    ]
    schema = function_tool()["parameters"]
    assert convert(tools=tools).tools == (
        Tool("f", "d", schema, strict=True),
        Tool("g"),
        Tool("patch", "p", CUSTOM_PARAMETERS),
        Tool("n__f", "", schema),
    )


@pytest.mark.parametrize(
    ("choice", "meant"),
    [
        (None, ToolChoice()),
        ("none", ToolChoice("none")),
        ("required", ToolChoice("required")),
        ({"type": "function", "name": "f"}, ToolChoice("required", ("f",))),
        ({"type": "custom", "name": "patch"}, ToolChoice("required", ("patch",))),
        ({"type": "function", "name": "f", "namespace": "n"}, ToolChoice("required", ("n__f",))),
        (
            {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "f"}] * 2},
            ToolChoice("auto", ("f",)),
        ),
    ],
)
def test_tool_choice(choice: Any, meant: ToolChoice) -> None:
    tools = [
        function_tool("f"),
        {"type": "custom", "name": "patch"},
        {"type": "namespace", "name": "n", "description": "x", "tools": [function_tool("f")]},
    ]
    assert convert(tools=tools, tool_choice=choice).tool_choice == meant


def test_the_other_fields() -> None:
    conversation = convert(
        parallel_tool_calls=False,
        text={"format": {"type": "json_schema", "name": "x", "schema": SCHEMA, "strict": True}, "verbosity": "high"},
        reasoning={"effort": "none"},
        max_output_tokens=10**9,
        temperature=0.5,
        top_p=0,
        seed=-1,
        top_k=5,
        threshold=0.9,
        stop="x",
        chat_template_kwargs={"a": 1},
        thinking_token_budget=9,
    )
    assert conversation == Conversation(
        messages=(Message("user", "Hi"),),
        parallel_tool_calls=False,
        response_format=ResponseFormat("json_schema", SCHEMA, strict=True),
        sampling={
            "max_tokens": 4096,
            "temperature": 0.5,
            "top_p": 1e-9,
            "seed": 2**63 - 1,
            "top_k": 5,
            "threshold": 0.9,
        },
        stop=("x",),
        enable_thinking=False,
        thinking_budget=9,
        template_kwargs={"reasoning_effort": "none", "a": 1},
    )
    assert convert(text={"format": {"type": "json_object"}}).response_format == ResponseFormat("json_object")
    assert convert(text={}).response_format == ResponseFormat()
    assert convert(reasoning={"effort": "high"}).enable_thinking is True


IMAGE = {"role": "user", "content": [{"type": "input_image", "image_url": "http://x/y.png"}]}
FILE = {"role": "user", "content": [{"type": "input_file", "file_id": "f"}]}
BAD: list[tuple[dict[str, Any], str]] = [
    ({"input": []}, "input"),
    ({"input": None}, "input"),
    ({"input": [{"role": "tool", "content": "x"}]}, "input.0.role"),
    ({"input": [{"role": "user"}]}, "input.0.content"),
    ({"input": [IMAGE]}, "input.0.content.0.type"),
    ({"input": [FILE]}, "input.0.content.0.type"),
    ({"input": [called("x") | {"call_id": None}]}, "input.0.call_id"),
    ({"input": [{"type": "function_call_output", "call_id": "x"}]}, "input.0.output"),
    ({"input": [{"type": "of_tomorrow"}]}, "input.0.type"),
    ({"tools": [{"type": "of_tomorrow", "name": "x"}]}, "tools.0.type"),
    ({"tools": [function_tool("no spaces")]}, "tools.0.name"),
    ({"tools": [function_tool(), function_tool()]}, "tools.1.name"),
    ({"tools": [function_tool(parameters={"type": "array"})]}, "tools.0.parameters"),
    ({"tools": [function_tool(parameters={"type": 5})]}, "tools.0.parameters"),
    ({"tools": [{"type": "namespace", "name": "n", "tools": [function_tool("a b")]}]}, "tools.0.tools.0.name"),
    ({"tool_choice": "required"}, "tool_choice"),
    ({"tool_choice": "required", "tools": [{"type": "web_search"}]}, "tool_choice"),
    ({"tool_choice": {"type": "function", "name": "g"}, "tools": [function_tool()]}, "tool_choice"),
    ({"tool_choice": {"type": "web_search"}, "tools": [{"type": "web_search"}]}, "tool_choice.type"),
    ({"tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": []}}, "tool_choice.tools"),
    ({"text": {"format": {"type": "json_schema", "name": "x"}}}, "text.format.schema"),
    ({"text": {"format": {"type": "xml"}}}, "text.format.type"),
    ({"reasoning": {"effort": "extreme"}}, "reasoning.effort"),
    ({"max_output_tokens": 0}, "max_output_tokens"),
    ({"min_tokens": 9, "max_output_tokens": 8}, "min_tokens"),
    ({"include": ["message.output_text.logprobs"]}, "include.0"),
    ({"chat_template_kwargs": {"messages": []}}, "chat_template_kwargs.messages"),
    *(({name: "x"}, name) for name in REFUSED),
    *(({"input": [{"type": kind, "id": "x"}]}, "input.0.type") for kind in REFUSED_ITEMS),
]


@pytest.mark.parametrize(("fields", "param"), BAD, ids=[f"{param} {i}" for i, (_, param) in enumerate(BAD)])
def test_bad_requests_name_the_field(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        convert(**fields)
    assert caught.value.param == param
    assert str(caught.value)


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_null_is_no_wish(name: str) -> None:
    assert convert(**{name: None}) == convert()


def test_what_cannot_be_honoured_is_not_a_mistake_of_form() -> None:
    with pytest.raises(UnsupportedParameter, match="send the whole conversation"):
        convert(previous_response_id="resp_1")


FULL: dict[str, Any] = {
    **dict.fromkeys([*REFUSED, *HARMLESS]),
    "model": "sprout",
    "input": [
        {"role": "developer", "content": "d"},
        thought(content=[{"type": "reasoning_text", "text": "t"}], encrypted_content="x"),
        said("a"),
        called("x"),
        {"type": "function_call_output", "call_id": "x", "output": [{"type": "input_text", "text": "o"}]},
        {"type": "web_search_call", "id": "w"},
    ],
    "instructions": "i",
    "stream": True,
    "tools": [
        function_tool("f"),
        {"type": "custom", "name": "p", "format": {"type": "text"}},
        {"type": "namespace", "name": "n", "tools": [function_tool("f")]},
        {"type": "web_search"},
    ],
    "tool_choice": {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "f"}]},
    "text": {"format": {"type": "json_schema", "name": "x", "schema": SCHEMA}, "verbosity": "low"},
    "reasoning": {"effort": "low", "summary": "auto"},
    "include": ["reasoning.encrypted_content"],
    "max_output_tokens": 10,
    "temperature": 1,
}


def read(raw: bytes) -> Conversation | InvalidRequest:
    try:
        return as_conversation(ResponsesRequest.model_validate(parse_object(raw)))
    except ValidationError as error:
        return from_validation(error)
    except InvalidRequest as error:
        return error


def test_the_full_request_is_good() -> None:
    assert isinstance(read(json.dumps(FULL).encode()), Conversation)


@given(st.sampled_from(paths(FULL)[1:]), values)
@example(("tools", 0, "parameters"), {"$ref": "#/nowhere"})
@example(("input", 2, "content", 0, "type"), [])
@example(("input",), [{"type": "reasoning"}])
@settings(max_examples=300, deadline=None)
def test_any_value_at_any_place_is_taken_or_named(path: tuple[Any, ...], value: Any) -> None:
    request = copy.deepcopy(FULL)
    parent: Any = request
    for key in path[:-1]:
        parent = parent[key]
    parent[path[-1]] = value
    outcome = read(json.dumps(request).encode())
    if isinstance(outcome, InvalidRequest):
        assert outcome.param
        assert outcome.param.split(".")[0] == path[0] or path[0] == "tools"
        assert str(outcome).encode()
