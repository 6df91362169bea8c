"""The shape of a message, streamed and plain: order, blocks, reasons, usage, errors."""

import json
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from clover_agent.api.anthropic_answer import MessageStream, whole
from clover_agent.errors import (
    ContextLengthExceeded,
    DeadlineExceeded,
    GenerationFailed,
    InvalidToolCall,
    Overloaded,
    Unavailable,
)
from clover_agent.types import Event, FinishReason, ReasoningDelta, TextDelta, ToolCall, ToolCallDone
from tests.api.anthropic_wire import MESSAGES, assert_order, custom_tool, frames_of, message_body
from tests.api.conftest import Connect
from tests.api.fakes import HELLO, STARTED, THOUGHT_AND_CALLS, Item, call, finished

BLOCKS = [
    {"type": "thinking", "thinking": "hm, two", "signature": "clover"},
    {"type": "text", "text": "Looking."},
    {"type": "tool_use", "id": "call_0", "name": "get_weather", "input": {"city": "Lisbon"}},
    {"type": "tool_use", "id": "call_1", "name": "get_weather", "input": {"city": "Oslo"}},
]


def streamed(connect: Connect, script: Sequence[Item], **fields: Any) -> list[dict[str, Any]]:
    response = connect(script).post(MESSAGES, json=message_body(stream=True, **fields))
    assert response.status_code == 200, response.text
    assert response.headers["content-type"].startswith("text/event-stream")
    return frames_of(response.text)


def plain(connect: Connect, script: Sequence[Item], **fields: Any) -> dict[str, Any]:
    response = connect(script).post(MESSAGES, json=message_body(**fields))
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


def test_blocks_come_one_after_another(connect: Connect) -> None:
    frames = streamed(connect, THOUGHT_AND_CALLS, tools=[custom_tool()])
    assert_order(frames)
    assert [frame["type"] for frame in frames].count("content_block_start") == 4
    assert frames[1]["content_block"] == {"type": "thinking", "thinking": "", "signature": ""}
    assert frames[-2]["delta"] == {"stop_reason": "tool_use", "stop_sequence": None}


def test_the_plain_answer_has_the_same_blocks(connect: Connect) -> None:
    answer = plain(connect, THOUGHT_AND_CALLS, tools=[custom_tool()])
    assert answer.pop("id").startswith("msg_")
    assert answer.pop("usage")["diffusion"]["denoising_steps"] == 4
    assert answer == {
        "type": "message",
        "role": "assistant",
        "model": "sprout",
        "content": BLOCKS,
        "stop_reason": "tool_use",
        "stop_sequence": None,
    }


def test_usage_counts_what_the_cache_had_apart(connect: Connect) -> None:
    frames = streamed(connect, HELLO)
    opening, last, whole_answer = frames[0]["message"]["usage"], frames[-2]["usage"], plain(connect, HELLO)["usage"]
    assert opening["input_tokens"] == 11
    for usage in (last, whole_answer):
        assert (usage["input_tokens"], usage["cache_read_input_tokens"], usage["output_tokens"]) == (6, 5, 7)
    count = connect().post(
        f"{MESSAGES}/count_tokens", json={"model": "sprout", "messages": [{"role": "user", "content": "Hi"}]}
    )
    assert count.json() == {"input_tokens": last["input_tokens"] + last["cache_read_input_tokens"]}


@pytest.mark.parametrize(
    ("reason", "stop", "told"),
    [
        ("stop", None, ("end_turn", None)),
        ("stop", "END", ("stop_sequence", "END")),
        ("length", None, ("max_tokens", None)),
        ("tool_calls", "END", ("tool_use", None)),
    ],
)
def test_reasons(connect: Connect, reason: FinishReason, stop: str | None, told: tuple[str, str | None]) -> None:
    script: list[Item] = [STARTED, TextDelta("x"), finished(reason, stop)]
    answer, delta = plain(connect, script), streamed(connect, script)[-2]["delta"]
    assert (answer["stop_reason"], answer["stop_sequence"]) == (delta["stop_reason"], delta["stop_sequence"]) == told


def test_omitted_thoughts_leave_only_their_signature(connect: Connect) -> None:
    thinking = {"type": "adaptive", "display": "omitted"}
    answer = plain(connect, THOUGHT_AND_CALLS, thinking=thinking)
    assert answer["content"][0] == {"type": "thinking", "thinking": "", "signature": "clover"}
    assert_order(streamed(connect, THOUGHT_AND_CALLS, thinking=thinking))


@pytest.mark.parametrize("number", ["1.10", "1e400", "123456789012345678901234567890", "-0.0"])
def test_numbers_leave_as_the_model_wrote_them(connect: Connect, number: str) -> None:
    script = [STARTED, call(0, f'{{"x":{number}}}'), finished("tool_calls")]
    response = connect(script).post(MESSAGES, json=message_body())
    assert f'"input":{{"x":{number}}}' in response.text


def test_names_of_lines_are_no_ends_of_lines(connect: Connect) -> None:
    frames = streamed(connect, [STARTED, TextDelta("a\u2028b\x85c\nd\r"), finished()])
    assert frames[2]["delta"]["text"] == "a\u2028b\x85c\nd\r"


arguments = st.dictionaries(st.text(max_size=3), st.text(max_size=3) | st.integers(), max_size=2).map(json.dumps)
deltas = st.one_of(st.builds(TextDelta, st.text(min_size=1)), st.builds(ReasoningDelta, st.text(min_size=1)), arguments)


def script_of(drawn: Sequence[Any]) -> list[Event]:
    """Events, the drawn arguments as calls."""
    calls = 0
    events: list[Event] = []
    for item in drawn:
        if isinstance(item, str):
            events.append(ToolCallDone(calls, ToolCall(f"call_{calls}", "f", item)))
            calls += 1
        else:
            events.append(item)
    return [*events, finished("tool_calls" if calls else "stop")]


@hypothesis_settings(deadline=None, max_examples=100)
@given(st.lists(deltas, max_size=8))
def test_any_answer_is_in_order_and_says_the_same_plain(drawn: list[Any]) -> None:
    stream = MessageStream("m", 11)
    events = script_of(drawn)
    frames = [stream.opening(), *(frame for event in events for frame in stream.frames(event))]
    assert_order(frames)
    answer = json.loads(whole(frames))
    joined = {kind: "".join(b.get(kind, "") for b in answer["content"]) for kind in ("text", "thinking")}
    assert joined["text"] == "".join(event.text for event in events if isinstance(event, TextDelta))
    assert joined["thinking"] == "".join(event.text for event in events if isinstance(event, ReasoningDelta))
    inputs = [block["input"] for block in answer["content"] if block["type"] == "tool_use"]
    assert inputs == [json.loads(event.call.arguments) for event in events if isinstance(event, ToolCallDone)]
    kinds = [block["type"] for block in answer["content"]]
    assert all(a != b or a == "tool_use" for a, b in pairwise(kinds))


FAILURES = [
    (ContextLengthExceeded("too long"), 400, "invalid_request_error"),
    (Overloaded("full", retry_after_s=7), 429, "rate_limit_error"),
    (Unavailable("away"), 503, "overloaded_error"),
    (InvalidToolCall("bad"), 500, "api_error"),
    (GenerationFailed("bad"), 500, "api_error"),
    (DeadlineExceeded("late"), 504, "timeout_error"),
]


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(("failure", "status", "kind"), FAILURES)
def test_a_failure_before_the_answer_has_a_status(
    connect: Connect, failure: Exception, status: int, kind: str, stream: bool
) -> None:
    response = connect([failure]).post(MESSAGES, json=message_body(stream=stream))
    assert response.status_code == status
    identity = response.headers["request-id"]
    error = {"type": kind, "message": str(failure)}
    assert response.json() == {"type": "error", "error": error, "request_id": identity}
    assert response.headers.get("retry-after") == {429: "7", 503: "5"}.get(status)


@pytest.mark.parametrize(("failure", "status", "kind"), FAILURES)
def test_a_failure_in_the_stream_is_its_last_event(
    connect: Connect, failure: Exception, status: int, kind: str
) -> None:
    frames = streamed(connect, [STARTED, TextDelta("x"), failure])
    assert [frame["type"] for frame in frames[:3]] == ["message_start", "content_block_start", "content_block_delta"]
    assert frames[3]["error"] == {"type": kind, "message": str(failure)}
    assert len(frames) == 4


def test_an_end_without_a_finish_is_a_failure(connect: Connect) -> None:
    assert streamed(connect, [STARTED, TextDelta("x")])[-1]["error"]["type"] == "api_error"
    assert connect([STARTED, TextDelta("x")]).post(MESSAGES, json=message_body()).status_code == 500


@pytest.mark.parametrize(
    ("request_", "status", "kind"),
    [
        ({"json": message_body(model="gpt")}, 404, "not_found_error"),
        ({"json": message_body(max_tokens=0)}, 400, "invalid_request_error"),
        ({"content": b"{", "headers": {"content-type": "application/json"}}, 400, "invalid_request_error"),
        ({"content": b"x"}, 415, "invalid_request_error"),
        ({"content": b'"' * 2000, "headers": {"content-type": "application/json"}}, 413, "request_too_large"),
        ({"json": message_body(), "headers": {"host": "evil.example"}}, 403, "permission_error"),
    ],
)
@pytest.mark.parametrize("path", [MESSAGES, f"{MESSAGES}/count_tokens"])
def test_errors_of_requests(connect: Connect, request_: Any, status: int, kind: str, path: str) -> None:
    if path != MESSAGES and "json" in request_ and request_["json"]["max_tokens"] == 0:
        request_ = {"json": {"model": "sprout", "messages": []}}
    response = connect(max_body_bytes=1024).post(path, **request_)
    assert (response.status_code, response.json()["error"]["type"]) == (status, kind)
    assert response.json()["request_id"] == response.headers["request-id"]


def test_errors_of_paths(connect: Connect) -> None:
    client = connect()
    assert client.get(MESSAGES).json()["error"]["type"] == "invalid_request_error"
    assert client.get(f"{MESSAGES}/batches").json()["error"]["type"] == "not_found_error"
    assert "code" in client.get("/v1/messages_of_others").json()["error"], "that is no path of this face"


@pytest.mark.parametrize(
    "headers",
    [
        {"x-api-key": "good"},
        {"authorization": "Bearer good"},
        {"x-api-key": "dummy", "authorization": "Bearer good"},
        {"x-api-key": "good", "authorization": "Bearer dummy"},
    ],
)
def test_either_header_may_have_the_key(connect: Connect, headers: dict[str, str]) -> None:
    assert connect(api_key=["good"]).post(MESSAGES, json=message_body(), headers=headers).status_code == 200


@pytest.mark.parametrize(
    "headers", [{}, {"x-api-key": "bad"}, {"authorization": "Bearer bad"}, {"authorization": "good"}]
)
def test_without_the_key_nothing_is_answered(connect: Connect, headers: dict[str, str]) -> None:
    response = connect(api_key=["good"]).post(MESSAGES, json=message_body(), headers=headers)
    assert (response.status_code, response.json()["error"]["type"]) == (401, "authentication_error")


def test_models_have_both_forms_at_once(connect: Connect) -> None:
    page = connect().get("/v1/models", headers={"anthropic-version": "2023-06-01"}).json()
    assert (page["has_more"], page["first_id"], page["last_id"]) == (False, "sprout", "other/name")
    entry = page["data"][0]
    assert (entry["object"], entry["type"], entry["display_name"]) == ("model", "model", "sprout")
