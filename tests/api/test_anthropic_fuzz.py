"""Whatever stands in a field of a message request: a conversation, or an error of ours."""

import copy
import json
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from clover_agent.api.anthropic_request import to_conversation
from clover_agent.api.anthropic_schema import HARMLESS, REFUSED, MessagesRequest
from clover_agent.api.body import parse_object
from clover_agent.api.errors import from_validation
from clover_agent.api.json_schema import SchemaChecker
from clover_agent.errors import InvalidRequest
from clover_agent.types import Conversation
from tests.api.anthropic_wire import custom_tool
from tests.api.test_fuzz import paths, values

MARK = {"type": "ephemeral", "ttl": "1h"}
SEARCH = {"type": "tool_reference", "tool_name": "f"}
FULL: dict[str, Any] = {
    **dict.fromkeys([*REFUSED, *HARMLESS]),
    **dict.fromkeys(("temperature", "top_p", "top_k"), 1),
    "model": "sprout",
    "max_tokens": 10,
    "stream": True,
    "system": [{"type": "text", "text": "s", "cache_control": MARK}],
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "a"}]},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "t", "signature": "s"},
                {"type": "redacted_thinking", "data": "d"},
                {"type": "tool_use", "id": "1", "name": "f", "input": {"a": [1]}},
            ],
        },
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": [SEARCH]}]},
        {"role": "system", "content": "later"},
    ],
    "tools": [custom_tool("f", strict=True), {"type": "web_search_20250305", "name": "web_search"}],
    "tool_choice": {"type": "tool", "name": "f", "disable_parallel_tool_use": True},
    "thinking": {"type": "enabled", "budget_tokens": 5, "display": "omitted"},
    "output_config": {"effort": "low", "format": {"type": "json_schema", "schema": {"type": "object"}}},
    "stop_sequences": ["a"],
}


def read(raw: bytes) -> Conversation | InvalidRequest:
    try:
        request = MessagesRequest.model_validate(parse_object(raw))
        return to_conversation(request, SchemaChecker(), max_context=4096)
    except ValidationError as error:
        return from_validation(error)
    except InvalidRequest as error:
        return error


def test_the_full_request_is_good() -> None:
    assert isinstance(read(json.dumps(FULL).encode()), Conversation)


@given(st.sampled_from(paths(FULL)[1:]), values)
@example(("tools", 0, "input_schema"), {"$ref": "#/nowhere"})
@example(("tools", 0, "input_schema"), {"\ud800": float("nan")})
@example(("messages", 0, "content", 0, "type"), [])
@example(("messages",), [{"role": "assistant", "content": "x"}])
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
