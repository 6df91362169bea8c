"""Whatever stands in a field: a conversation, or an error of ours. Nothing else comes out of reading a request."""

import copy
import json
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from clover_agent.api.body import MAX_DEPTH, parse_object
from clover_agent.api.errors import from_validation
from clover_agent.api.json_schema import SchemaChecker
from clover_agent.api.openai_request import to_conversation
from clover_agent.api.openai_schema import REFUSED, ChatCompletionRequest
from clover_agent.errors import InvalidRequest
from clover_agent.types import Conversation
from tests.api.fakes import body, tool

CALL = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
OTHER = {"type": "function", "function": {"name": "other"}}
FULL: dict[str, Any] = {
    **dict.fromkeys(REFUSED),
    **dict.fromkeys(("temperature", "top_p", "max_tokens", "top_k", "seed", "n"), 1),
    "model": "sprout",
    "messages": [
        {"role": "system", "content": "s"},
        {"role": "user", "content": [{"type": "text", "text": "a"}]},
        {"role": "assistant", "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "1", "content": "r", "name": "f"},
    ],
    "tools": [tool(strict=True), tool("other", parameters={"type": "object", "$defs": {"a": {"enum": [1]}}})],
    "tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [OTHER]}},
    "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "object"}}},
    "stream_options": {"include_usage": True},
    "chat_template_kwargs": {"enable_thinking": True, "x": [1]},
    "logit_bias": {"5": 1},
    "stop": ["a"],
}
SPECIAL: list[Any] = [10**400, -1, "", True]
scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from(SPECIAL)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.text(max_size=5) | st.sampled_from(["type", "$ref", "function", "name"]), inner, max_size=3
        )
    ),
    max_leaves=8,
)


def paths(node: Any, prefix: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    children = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    return [prefix, *(path for key, child in children for path in paths(child, (*prefix, key)))]


def read(raw: bytes) -> Conversation | InvalidRequest:
    try:
        request = ChatCompletionRequest.model_validate(parse_object(raw))
        return to_conversation(request, SchemaChecker(), max_context=4096)
    except ValidationError as error:
        return from_validation(error)
    except InvalidRequest as error:
        return error


def test_the_full_request_is_good() -> None:
    assert isinstance(read(json.dumps(FULL).encode()), Conversation)


@given(st.sampled_from(paths(FULL)[1:]), values)
@example(("tools", 0, "function", "parameters"), {"$ref": "#/nowhere"})
@example(("tools", 0, "function", "parameters"), {"type": ["object", {}]})
@example(("tools", 0, "function", "parameters"), {"\ud800": float("nan")})
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
        assert outcome.param.split(".")[0] == path[0] or path[0] in ("tools", "max_tokens")
        assert str(outcome).encode()


@given(st.binary(max_size=60) | values.map(lambda value: json.dumps(value).encode()))
@settings(max_examples=200, deadline=None)
def test_any_bytes_are_taken_or_refused(raw: bytes) -> None:
    read(raw)


@given(st.integers(1, MAX_DEPTH + 40), st.sampled_from(["chat_template_kwargs", "tools", "anything"]))
@settings(max_examples=60, deadline=None)
def test_depth_is_limited(levels: int, field: str) -> None:
    nested: Any = {}
    for _ in range(levels):
        nested = {"properties": nested}
    value = [tool(parameters=nested)] if field == "tools" else nested
    outcome = read(json.dumps(body(**{field: value})).encode())
    depth = levels + (4 if field == "tools" else 1)
    if depth >= MAX_DEPTH:
        assert isinstance(outcome, InvalidRequest)
        assert outcome.param == field
    else:
        assert isinstance(outcome, Conversation) or "nested" not in str(outcome)
