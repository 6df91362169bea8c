"""The shape of a stream: the rules that agents' clients impose, one test each. A plain answer says the same."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from clover_agent.api.openai_answer import Answer
from clover_agent.errors import GenerationFailed, InvalidToolCall, Overloaded, Unavailable
from clover_agent.parsing import collect
from clover_agent.types import (
    Draft,
    Event,
    Finished,
    FinishReason,
    ReasoningDelta,
    Started,
    TextDelta,
    ToolCall,
    ToolCallDone,
)
from tests.api.conftest import Connect
from tests.api.fakes import HELLO, STARTED, THOUGHT_AND_CALLS, USAGE, Item, body, call, finished, tool

LISBON, OSLO = '{"city": "Lisbon"}', '{"city": "Oslo"}'
CHAT = "/v1/chat/completions"


def stream(connect: Connect, script: Sequence[Item], **fields: Any) -> list[Any]:
    """The data of a stream's events: parsed JSON, or the text "[DONE]"."""
    response = connect(script).post(CHAT, json=body(stream=True, **fields))
    assert response.status_code == 200, response.text
    assert response.headers["content-type"].startswith("text/event-stream")
    assert "\r" not in response.text
    events = response.text.removesuffix("\n\n").split("\n\n")
    assert all(event.startswith("data: ") and "\n" not in event for event in events)
    return [event if event == "[DONE]" else json.loads(event) for event in (e.removeprefix("data: ") for e in events)]


def deltas(chunks: Sequence[Any]) -> list[dict[str, Any]]:
    return [chunk["choices"][0]["delta"] for chunk in chunks if chunk != "[DONE]" and chunk["choices"]]


def test_the_first_delta_has_the_role_and_empty_content(connect: Connect) -> None:
    assert deltas(stream(connect, HELLO))[0] == {"role": "assistant", "content": ""}


def test_the_role_is_told_once(connect: Connect) -> None:
    assert ["role" in delta for delta in deltas(stream(connect, THOUGHT_AND_CALLS))].count(True) == 1


def test_every_chunk_has_the_same_identity(connect: Connect) -> None:
    chunks = stream(connect, THOUGHT_AND_CALLS)[:-1]
    identity = {(c["id"], c["created"], c["model"], c["system_fingerprint"], c["object"]) for c in chunks}
    assert len(identity) == 1
    id_, created, model, fingerprint, kind = identity.pop()
    assert id_.startswith("chatcmpl-")
    assert isinstance(created, int)
    assert (model, kind) == ("sprout", "chat.completion.chunk")
    assert fingerprint


def test_the_model_is_named_as_it_was_asked_for(connect: Connect) -> None:
    chunks = stream(connect, HELLO, model="other/name")
    assert {chunk["model"] for chunk in chunks[:-1]} == {"other/name"}


def test_reasoning_then_content_then_calls(connect: Connect) -> None:
    kinds = [next(iter(delta), None) for delta in deltas(stream(connect, THOUGHT_AND_CALLS))]
    expected = ["role", "reasoning_content", "reasoning_content", "content", *["tool_calls"] * 4, None]
    assert kinds == expected


def test_a_call_tells_index_id_type_and_name_once_and_then_only_arguments(connect: Connect) -> None:
    calls = [
        d["tool_calls"][0] for d in deltas(stream(connect, THOUGHT_AND_CALLS, tools=[tool()])) if "tool_calls" in d
    ]
    for index, arguments in ((0, {"city": "Lisbon"}), (1, {"city": "Oslo"})):
        first, *rest = [c for c in calls if c["index"] == index]
        assert first == {
            "index": index,
            "id": f"call_{index}",
            "type": "function",
            "function": {"name": "get_weather", "arguments": ""},
        }
        assert all(set(c) == {"index", "function"} and set(c["function"]) == {"arguments"} for c in rest)
        assert json.loads("".join(c["function"]["arguments"] for c in rest)) == arguments
    assert [c["index"] for c in calls] == [0, 0, 1, 1]


def test_long_arguments_are_cut_into_several_chunks(connect: Connect) -> None:
    arguments = json.dumps({"text": "ä€😀" * 5000}, ensure_ascii=False)
    chunks = stream(connect, [STARTED, call(0, arguments), finished("tool_calls")])
    pieces = [d["tool_calls"][0]["function"]["arguments"] for d in deltas(chunks) if "tool_calls" in d]
    assert len(pieces) > 3
    assert "".join(pieces) == arguments


@pytest.mark.parametrize("reason", ["stop", "length", "tool_calls"])
def test_the_finish_reason_has_a_chunk_of_its_own(connect: Connect, reason: FinishReason) -> None:
    *chunks, last, done = stream(connect, [STARTED, TextDelta("x"), finished(reason)])
    assert done == "[DONE]"
    assert last["choices"] == [{"index": 0, "delta": {}, "logprobs": None, "finish_reason": reason}]
    assert all(chunk["choices"][0]["finish_reason"] is None for chunk in chunks)


def test_usage_is_not_sent_unasked(connect: Connect) -> None:
    assert all("usage" not in chunk and chunk["choices"] for chunk in stream(connect, HELLO)[:-1])


def test_usage_comes_last_with_empty_choices_when_asked_for(connect: Connect) -> None:
    *chunks, last, _ = stream(connect, HELLO, stream_options={"include_usage": True})
    assert all(chunk["usage"] is None and chunk["choices"] for chunk in chunks)
    assert last["choices"] == []
    assert last["usage"] == {
        "prompt_tokens": 11,
        "completion_tokens": 7,
        "total_tokens": 18,
        "prompt_tokens_details": {"cached_tokens": 5},
        "completion_tokens_details": {"reasoning_tokens": 2},
        "diffusion": {"denoising_steps": 4, "forwards": 6, "forced_tokens": 3, "tokens_per_forward": 1.75},
    }


def test_drafts_are_sent_only_on_request_and_without_choices(connect: Connect) -> None:
    script = [STARTED, Draft(("Hel", None)), *HELLO[1:]]
    assert not [c for c in stream(connect, script)[:-1] if "draft" in c]
    client_chunks = stream(connect, script, stream_options={"include_drafts": True})
    assert [c["draft"] for c in client_chunks[:-1] if not c["choices"]] == [{"positions": ["Hel", None]}]


def test_the_wish_for_drafts_reaches_the_service(connect: Connect) -> None:
    client = connect(HELLO)
    for options in ({}, {"include_drafts": True}):
        client.post(CHAT, json=body(stream=True, stream_options=options))
    assert [c.include_drafts for c in client.service.seen] == [False, True]


def test_line_breaks_of_other_alphabets_do_not_break_a_line(connect: Connect) -> None:
    text = "a\u2028b\u2029c\x85d\ne\r\nf\x0bg"
    response = connect([STARTED, TextDelta(text), finished()]).post(CHAT, json=body(stream=True))
    lines = [line for line in response.text.splitlines() if line]
    assert all(line.startswith("data: ") for line in lines)
    parsed = [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]
    assert "".join(d.get("content", "") for d in deltas(parsed)) == text


@pytest.mark.parametrize("error", [InvalidToolCall("no city", param="tools"), Unavailable("gone")])
def test_an_error_after_the_first_chunk_is_an_event_and_the_end(connect: Connect, error: Any) -> None:
    *chunks, last = stream(connect, [STARTED, TextDelta("x"), error])
    assert last == error.body()
    assert all(chunk["choices"][0]["finish_reason"] is None for chunk in chunks)


def test_a_defect_after_the_first_chunk_is_not_shown(connect: Connect) -> None:
    last = stream(connect, [STARTED, TextDelta("x"), ZeroDivisionError("secret")])[-1]
    assert last["error"]["type"] == "server_error"
    assert "secret" not in last["error"]["message"]


def test_a_stream_that_just_ends_is_an_error(connect: Connect) -> None:
    last = stream(connect, [STARTED, TextDelta("x")])[-1]
    assert last["error"]["code"] == "generation_failed"


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize("before", [[], [STARTED]])
@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (Overloaded("full", retry_after_s=7), (429, "7")),
        (Unavailable("down"), (503, "5")),
        (InvalidToolCall("bad"), (500, None)),
        (GenerationFailed("bad"), (500, None)),
        (ZeroDivisionError("secret"), (500, None)),
    ],
)
def test_an_error_before_the_first_chunk_is_a_status(
    connect: Connect, streamed: bool, before: list[Item], error: Any, expected: tuple[int, str | None]
) -> None:
    response = connect([*before, error]).post(CHAT, json=body(stream=streamed))
    status, retry_after = expected
    assert response.status_code == status
    assert set(response.json()["error"]) == {"message", "type", "param", "code"}
    assert "secret" not in response.text
    assert response.headers.get("retry-after") == retry_after
    assert response.headers["x-request-id"]


def test_an_error_in_the_middle_of_a_plain_answer_is_a_status(connect: Connect) -> None:
    assert connect([STARTED, TextDelta("x"), InvalidToolCall("bad")]).post(CHAT, json=body()).status_code == 500
    assert connect([STARTED, TextDelta("x")]).post(CHAT, json=body()).status_code == 500


def test_a_plain_answer(connect: Connect) -> None:
    answer = connect(THOUGHT_AND_CALLS).post(CHAT, json=body()).json()
    assert answer["object"] == "chat.completion"
    assert answer["usage"]["total_tokens"] == 18
    assert answer["choices"] == [
        {
            "index": 0,
            "message": {
                "role": "assistant",
                "content": "Looking.",
                "refusal": None,
                "reasoning_content": "hm, two",
                "tool_calls": [
                    {
                        "id": "call_0",
                        "type": "function",
                        "function": {"name": "get_weather", "arguments": '{"city": "Lisbon"}'},
                    },
                    {
                        "id": "call_1",
                        "type": "function",
                        "function": {"name": "get_weather", "arguments": '{"city": "Oslo"}'},
                    },
                ],
            },
            "logprobs": None,
            "finish_reason": "tool_calls",
        }
    ]


def test_a_call_alone_has_null_content_and_text_alone_has_no_calls(connect: Connect) -> None:
    alone = connect([STARTED, call(0), finished("tool_calls")]).post(CHAT, json=body()).json()
    assert alone["choices"][0]["message"]["content"] is None
    text = connect(HELLO).post(CHAT, json=body()).json()["choices"][0]["message"]
    assert text == {"role": "assistant", "content": "Hello", "refusal": None}


texts = st.text(max_size=20)
events = st.lists(
    st.one_of(
        st.builds(TextDelta, texts),
        st.builds(ReasoningDelta, texts),
        st.builds(Draft, st.tuples(st.none() | texts)),
        st.builds(Started, st.integers(0, 9)),
    ),
    max_size=6,
)
arguments = st.lists(st.dictionaries(texts, texts).map(json.dumps), max_size=3)


@given(events, arguments, st.sampled_from(["stop", "length", "tool_calls"]), st.booleans(), st.booleans())
@hypothesis_settings(max_examples=100, deadline=None)
def test_streamed_and_plain_say_the_same(
    said: list[Event], calls: list[str], reason: FinishReason, usage: bool, drafts: bool
) -> None:
    made = [ToolCallDone(i, ToolCall(f"call_{i}", "f", text)) for i, text in enumerate(calls)]
    script: list[Event] = [*said, *made, Finished(reason, USAGE)]
    answer = Answer("sprout", "print", include_usage=usage, include_drafts=drafts)
    chunks = [answer.opening(), *(chunk for event in script for chunk in answer.chunks(event))]
    plain = answer.whole(collect(script))["choices"][0]
    assert _assembled(chunks) == (
        plain["message"]["content"] or "",
        plain["message"].get("reasoning_content", ""),
        plain["message"].get("tool_calls", []),
        plain["finish_reason"],
    )


def _assembled(chunks: list[dict[str, Any]]) -> tuple[str, str, list[dict[str, Any]], str]:
    """What a client puts together from the chunks."""
    content, reasoning, reason = "", "", ""
    calls: list[dict[str, Any]] = []
    for chunk in chunks:
        for choice in chunk["choices"]:
            delta = choice["delta"]
            content += delta.get("content", "")
            reasoning += delta.get("reasoning_content", "")
            reason = choice["finish_reason"] or reason
            for piece in delta.get("tool_calls", []):
                if piece["index"] == len(calls):
                    calls.append({"id": piece["id"], "type": piece["type"], "function": dict(piece["function"])})
                else:
                    calls[piece["index"]]["function"]["arguments"] += piece["function"]["arguments"]
    return content, reasoning, calls, reason
