"""The shape of a response, streamed and plain: order, items, status, usage, errors."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from clover_agent.api.openai_responses_answer import ResponseStream
from clover_agent.api.openai_responses_request import Origin
from clover_agent.errors import ContextLengthExceeded, GenerationFailed, InvalidToolCall, Overloaded, Unavailable
from clover_agent.types import Event, ReasoningDelta, TextDelta, ToolCall, ToolCallDone
from tests.api.conftest import Connect
from tests.api.fakes import HELLO, STARTED, THOUGHT_AND_CALLS, Item, call, finished
from tests.api.responses_wire import RESPONSES, assert_order, frames_of, function_tool, responses_body

ENCRYPTED = ["reasoning.encrypted_content"]


def streamed(connect: Connect, script: Sequence[Item], **fields: Any) -> list[dict[str, Any]]:
    response = connect(script).post(RESPONSES, json=responses_body(stream=True, **fields))
    assert response.status_code == 200, response.text
    assert response.headers["content-type"].startswith("text/event-stream")
    return frames_of(response.text)


def plain(connect: Connect, script: Sequence[Item], **fields: Any) -> dict[str, Any]:
    response = connect(script).post(RESPONSES, json=responses_body(**fields))
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


def bare(response: dict[str, Any]) -> dict[str, Any]:
    """Without what differs each time."""
    output = [{name: value for name, value in item.items() if name != "id"} for item in response["output"]]
    rest = {name: response[name] for name in response if name not in ("id", "created_at", "completed_at", "output")}
    return {**rest, "output": output}


def test_items_come_one_after_another(connect: Connect) -> None:
    frames = streamed(connect, THOUGHT_AND_CALLS, tools=[function_tool()])
    assert_order(frames)
    kinds = [frame["item"]["type"] for frame in frames if frame["type"] == "response.output_item.done"]
    assert kinds == ["reasoning", "message", "function_call", "function_call"]


@pytest.mark.parametrize("fields", [{}, {"reasoning": {"summary": "auto"}, "include": ENCRYPTED}])
def test_the_plain_answer_is_the_one_that_ends_the_stream(connect: Connect, fields: dict[str, Any]) -> None:
    frames = streamed(connect, THOUGHT_AND_CALLS, tools=[function_tool()], **fields)
    answer = plain(connect, THOUGHT_AND_CALLS, tools=[function_tool()], **fields)
    assert bare(answer) == bare(frames[-1]["response"])
    assert answer["status"] == "completed"
    assert [item["type"] for item in answer["output"]] == ["reasoning", "message", "function_call", "function_call"]
    assert answer["output"][1]["content"] == [
        {"type": "output_text", "text": "Looking.", "annotations": [], "logprobs": []}
    ]
    assert [(item["call_id"], item["arguments"]) for item in answer["output"][2:]] == [
        ("call_0", '{"city": "Lisbon"}'),
        ("call_1", '{"city": "Oslo"}'),
    ]


def test_a_thought_is_told_as_it_is(connect: Connect) -> None:
    item = plain(connect, THOUGHT_AND_CALLS)["output"][0]
    assert (item["summary"], item["content"]) == ([], [{"type": "reasoning_text", "text": "hm, two"}])
    assert "encrypted_content" not in item


@pytest.mark.parametrize("name", ["summary", "generate_summary"])
def test_a_thought_is_told_as_a_summary_where_one_is_asked_for(connect: Connect, name: str) -> None:
    fields: dict[str, Any] = {"reasoning": {name: "detailed"}}
    item = plain(connect, THOUGHT_AND_CALLS, **fields)["output"][0]
    assert (item["summary"], "content" in item) == ([{"type": "summary_text", "text": "hm, two"}], False)
    kinds = [frame["type"] for frame in streamed(connect, THOUGHT_AND_CALLS, **fields)]
    assert kinds[3:8] == [
        "response.reasoning_summary_part.added",
        "response.reasoning_summary_text.delta",
        "response.reasoning_summary_text.delta",
        "response.reasoning_summary_text.done",
        "response.reasoning_summary_part.done",
    ]


def test_a_thought_comes_back_as_it_was(connect: Connect) -> None:
    """What a client keeps of the answer is a history that means the same."""
    from tests.api.test_openai_responses_request import history

    output = plain(connect, THOUGHT_AND_CALLS, tools=[function_tool()], include=ENCRYPTED)["output"]
    for item in output:
        item.pop("content", None) if item["type"] == "reasoning" else None  # as Codex keeps it
    (turn,) = history(*output)
    assert (turn.reasoning, turn.content) == ("hm, two", "Looking.")
    assert [c.arguments for c in turn.tool_calls] == ['{"city": "Lisbon"}', '{"city": "Oslo"}']


def test_usage(connect: Connect) -> None:
    usage = plain(connect, HELLO)["usage"]
    assert usage.pop("diffusion")["denoising_steps"] == 4
    assert usage == {
        "input_tokens": 11,
        "input_tokens_details": {"cached_tokens": 5, "cache_write_tokens": 0},
        "output_tokens": 7,
        "output_tokens_details": {"reasoning_tokens": 2},
        "total_tokens": 18,
    }


@pytest.mark.parametrize("said", [TextDelta("x"), ReasoningDelta("x")])
def test_what_was_cut_is_incomplete(connect: Connect, said: Event) -> None:
    script: list[Item] = [STARTED, said, finished("length")]
    for answer in (plain(connect, script), streamed(connect, script)[-1]["response"]):
        assert (answer["status"], answer["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
        assert [item["status"] for item in answer["output"]] == ["incomplete"]
    assert_order(streamed(connect, script))


@pytest.mark.parametrize("script", [[STARTED, finished()], [STARTED, ReasoningDelta("hm"), finished()]])
def test_an_answer_without_words_has_an_empty_message(connect: Connect, script: list[Item]) -> None:
    assert_order(streamed(connect, script))
    assert plain(connect, script)["output"][-1]["content"][0]["text"] == ""


def test_custom_and_namespaced_tools_are_named_as_the_request_did(connect: Connect) -> None:
    tools = [
        {"type": "custom", "name": "patch"},
        {"type": "namespace", "name": "agents", "description": "x", "tools": [function_tool("spawn")]},
    ]
    script: list[Item] = [
        STARTED,
        call(0, '{"input":"*** Begin\\n\\u00e9"}', "patch"),
        call(1, '{"city":"x"}', "agents__spawn"),
        finished("tool_calls"),
    ]
    frames = streamed(connect, script, tools=tools)
    assert_order(frames)
    patch, spawn = plain(connect, script, tools=tools)["output"]
    assert (patch["type"], patch["name"], patch["input"]) == ("custom_tool_call", "patch", "*** Begin\né")
    assert (spawn["type"], spawn["name"], spawn["namespace"]) == ("function_call", "spawn", "agents")
    deltas = [f["delta"] for f in frames if f["type"] == "response.custom_tool_call_input.delta"]
    assert "".join(deltas) == patch["input"]


def test_the_response_repeats_what_was_asked(connect: Connect) -> None:
    tools = [function_tool(strict=True), {"type": "web_search", "search_context_size": "low"}]
    asked: dict[str, Any] = {
        "instructions": "Be kind.",
        "tools": tools,
        "tool_choice": {"type": "function", "name": "get_weather"},
        "parallel_tool_calls": False,
        "temperature": 0.5,
        "metadata": {"a": "b"},
        "text": {"format": {"type": "json_object"}, "verbosity": "low"},
        "reasoning": {"effort": "low"},
        "max_output_tokens": 99,
    }
    answer = plain(connect, HELLO, store=True, **asked)
    expected = {**asked, "tools": [tools[0], {"type": "web_search"}], "reasoning": {"effort": "low", "summary": None}}
    assert {name: answer[name] for name in asked} == expected
    assert (answer["store"], answer["previous_response_id"]) == (False, None)


def test_dropped_tools_are_told(connect: Connect) -> None:
    tools = [{"type": "web_search"}, {"type": "mcp", "server_label": "x"}, {"type": "web_search"}]
    response = connect().post(RESPONSES, json=responses_body(tools=tools))
    assert response.headers["x-clover-dropped-tools"] == "web_search,mcp"


@pytest.mark.parametrize(
    ("error", "status"),
    [(ContextLengthExceeded("too long", param="input"), 400), (Overloaded("full"), 429), (Unavailable("bye"), 503)],
)
def test_what_fails_before_the_answer_has_a_status(connect: Connect, error: Exception, status: int) -> None:
    for stream in (True, False):
        response = connect([error]).post(RESPONSES, json=responses_body(stream=stream))
        assert response.status_code == status
        assert response.json()["error"]["message"] == str(error)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (InvalidToolCall("bad call"), "invalid_tool_call"),
        (GenerationFailed("broke"), "generation_failed"),
        (Overloaded("full"), "rate_limit_exceeded"),
        (RuntimeError("secret"), "server_error"),
    ],
)
def test_what_fails_later_ends_the_stream_as_failed(connect: Connect, error: Exception, code: str) -> None:
    frames = streamed(connect, [STARTED, TextDelta("x"), error])
    assert_order(frames)
    response = frames[-1]["response"]
    assert (response["status"], response["error"]["code"]) == ("failed", code)
    assert "secret" not in json.dumps(frames)


@pytest.mark.parametrize("method", ["get", "delete"])
def test_nothing_is_stored(connect: Connect, method: str) -> None:
    response = connect().request(method, f"{RESPONSES}/resp_1")
    assert response.status_code == 404
    assert "error" in response.json()


texts = st.text(min_size=1, max_size=5)
calls = st.dictionaries(st.text(max_size=3), st.text(max_size=3) | st.integers(), max_size=2).map(json.dumps)
parts = st.one_of(st.builds(TextDelta, texts), st.builds(ReasoningDelta, texts), calls)


@given(st.lists(parts, max_size=8), st.sampled_from(["stop", "length", "tool_calls"]), st.booleans())
@hypothesis_settings(max_examples=100, deadline=None)
def test_any_events_make_a_stream_in_order(said: list[Any], reason: Any, summarised: bool) -> None:
    events: list[Event] = [
        ToolCallDone(i, ToolCall(f"c{i}", "f", part)) if isinstance(part, str) else part for i, part in enumerate(said)
    ]
    stream = ResponseStream({"model": "m"}, {"f": Origin("f", None, custom=False)}, summarised=summarised)
    frames = list(stream.opening())
    for event in [*events, finished(reason)]:
        frames += stream.frames(event)
    assert_order(frames)
    output = frames[-1]["response"]["output"]
    spoken = "".join(item["content"][0]["text"] for item in output if item["type"] == "message")
    assert spoken == "".join(event.text for event in events if isinstance(event, TextDelta))
    assert [item["arguments"] for item in output if item["type"] == "function_call"] == [
        event.call.arguments for event in events if isinstance(event, ToolCallDone)
    ]
