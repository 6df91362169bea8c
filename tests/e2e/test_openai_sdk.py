"""The OpenAI SDK against a real gateway: streamed and plain agree, tool conversations, many at once, hang-ups."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from clover_agent.cli.local import local_gateway
from clover_agent.settings import EngineSettings
from tests.e2e.conftest import WEATHER

Message = dict[str, Any]


def streamed(client: Any, model: str, messages: list[Message], **extra: Any) -> dict[str, Any]:
    """A streamed completion, put together as a client would: content, calls, finish reason, usage."""
    content, finish, usage = "", None, None
    calls: dict[int, dict[str, str]] = {}
    request: Any = {"model": model, "messages": messages, "stream": True, **extra}
    for chunk in client.chat.completions.create(**request, stream_options={"include_usage": True}):
        usage = chunk.usage or usage
        for choice in chunk.choices:
            content += choice.delta.content or ""
            finish = choice.finish_reason or finish
            for delta in choice.delta.tool_calls or []:
                call = calls.setdefault(delta.index, {"name": "", "arguments": ""})
                call["name"] += delta.function.name or ""
                call["arguments"] += delta.function.arguments or ""
    assert usage is not None
    return {"content": content, "calls": list(calls.values()), "finish": finish, "usage": own_usage(usage)}


def own_usage(usage: Any) -> dict[str, Any]:
    """A request's usage without what depends on the prompts that were there before it: the prefix cache's share."""
    dump: dict[str, Any] = usage.model_dump()
    del dump["prompt_tokens_details"]["cached_tokens"], dump["diffusion"]["forwards"]
    return dump


def plain(client: Any, model: str, messages: list[Message], **extra: Any) -> dict[str, Any]:
    request: Any = {"model": model, "messages": messages, **extra}
    answer = client.chat.completions.create(**request)
    message = answer.choices[0].message
    calls = [{"name": c.function.name, "arguments": c.function.arguments} for c in message.tool_calls or []]
    return {
        "content": message.content or "",
        "calls": calls,
        "finish": answer.choices[0].finish_reason,
        "usage": own_usage(answer.usage),
    }


@pytest.mark.parametrize("question", ["What's the weather in Lisbon?", "weather in New York please", "Hi"])
def test_streamed_and_plain_answers_agree_on_sprout(sprout: Any, question: str) -> None:
    messages = [{"role": "user", "content": question}]
    extra = {"tools": [WEATHER], "max_tokens": 96}
    assert streamed(sprout, "sprout", messages, **extra) == plain(sprout, "sprout", messages, **extra)


@pytest.mark.parametrize("question", ["weather?", "both, please", "hi"])
def test_streamed_and_plain_answers_agree_on_a_replay(replay: Any, question: str) -> None:
    messages = [{"role": "user", "content": question}]
    extra = {"tools": [WEATHER]} if question != "hi" else {}
    assert streamed(replay, "replay", messages, **extra) == plain(replay, "replay", messages, **extra)


@pytest.mark.parametrize("stream", [True, False])
def test_the_response_tells_how_the_answer_is_held(replay_url: str, stream: bool) -> None:
    picky: Any = {"type": "object", "properties": {"city": {"type": "string", "not": {"const": "x"}}}}
    loosened = {"type": "function", "function": {**WEATHER["function"], "parameters": picky}}
    held = []
    for tools in ([], [WEATHER], [loosened]):
        body = {"model": "replay", "messages": [{"role": "user", "content": "hi"}], "tools": tools, "stream": stream}
        answer = httpx.post(f"{replay_url}/v1/chat/completions", json=body)
        held.append(answer.headers["x-clover-grammar"])
    assert held == ["none", "exact", "loosened"]


def test_a_two_turn_tool_conversation(replay: Any) -> None:
    messages: list[Message] = [{"role": "user", "content": "What's the weather in Lisbon?"}]
    first = replay.chat.completions.create(model="replay", messages=messages, tools=[WEATHER])
    message = first.choices[0].message
    assert first.choices[0].finish_reason == "tool_calls"
    assert message.content == "I will look."
    assert [json.loads(call.function.arguments) for call in message.tool_calls] == [{"city": "Lisbon"}]
    messages += [message.model_dump(exclude_none=True)]
    messages += [{"role": "tool", "tool_call_id": call.id, "content": "22 C"} for call in message.tool_calls]
    second = replay.chat.completions.create(model="replay", messages=messages, tools=[WEATHER])
    assert second.choices[0].finish_reason == "stop"
    assert second.choices[0].message.content == "It is 22 degrees in Lisbon."


def test_two_parallel_calls_have_their_own_ids(replay: Any) -> None:
    answer = replay.chat.completions.create(
        model="replay", messages=[{"role": "user", "content": "both, please"}], tools=[WEATHER]
    )
    calls = answer.choices[0].message.tool_calls
    assert [json.loads(call.function.arguments)["city"] for call in calls] == ["Lisbon", "Oslo"]
    assert len({call.id for call in calls}) == 2


def test_sixteen_streams_at_once_are_the_same_as_one(sprout: Any) -> None:
    cities = ["Lisbon", "Oslo", "Lima", "Osaka"]
    ask = [[{"role": "user", "content": f"What's the weather in {city}?"}] for city in cities]
    alone = [streamed(sprout, "sprout", messages, tools=[WEATHER], max_tokens=64) for messages in ask]
    with ThreadPoolExecutor(16) as pool:
        together = list(pool.map(lambda m: streamed(sprout, "sprout", m, tools=[WEATHER], max_tokens=64), ask * 4))
    answers = [{k: v for k, v in answer.items() if k != "usage"} for answer in together]
    assert answers == [{k: v for k, v in answer.items() if k != "usage"} for answer in alone] * 4


def test_cut_by_the_budget_there_is_no_call(replay: Any) -> None:
    answer = replay.chat.completions.create(
        model="replay", messages=[{"role": "user", "content": "both, please"}], tools=[WEATHER], max_tokens=6
    )
    assert answer.choices[0].finish_reason == "length"
    assert not answer.choices[0].message.tool_calls
    assert answer.usage.completion_tokens <= 6


def test_a_client_that_hangs_up_frees_its_slot_within_a_block(replay_file: Path) -> None:
    """One slot: the second request can only be answered once the first one's is free. The engine's own count shows that
    the first was cancelled long before its end."""
    with local_gateway(f"replay:{replay_file}", engine=EngineSettings(max_num_seqs=1)) as url:
        forever = {"model": "replay", "messages": [{"role": "user", "content": "forever"}], "stream": True}
        with httpx.stream("POST", f"{url}/v1/chat/completions", json=forever) as answer:
            next(line for line in answer.iter_lines() if '"content":"a' in line)
        hello = {"model": "replay", "messages": [{"role": "user", "content": "hello"}]}
        second = httpx.post(f"{url}/v1/chat/completions", json=hello).json()
        assert second["choices"][0]["message"]["content"] == "Hello! How can I help?"
        metrics = httpx.get(f"{url}/metrics").text
    assert 'clover:request_cancelled_total{model_name="replay"} 1.0' in metrics
