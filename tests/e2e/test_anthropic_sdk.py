"""The Anthropic SDK against a real gateway: messages and streams agree, a tool loop, thoughts, counts, errors."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import pytest
from anthropic import Anthropic
from pydantic import SecretStr

from clover_agent.api import create_app
from clover_agent.cli.local import local_gateway, serving
from clover_agent.loading import load_service
from clover_agent.settings import ModelSettings, ServerSettings, Settings
from tests.api.anthropic_wire import assert_order

WEATHER: Any = {
    "name": "get_weather",
    "description": "Get the current weather in a city",
    "input_schema": {
        "type": "object",
        "properties": {"city": {"type": "string", "description": "The name of the city"}},
        "required": ["city"],
    },
}
THINK: Any = {"type": "enabled", "budget_tokens": 1024}
RULES: list[dict[str, Any]] = [
    {
        "when": {"contains": "both", "turn": 1},
        "reply": {
            "reasoning": "Two cities.",
            "content": "I will look.",
            "tool_calls": [{"name": "get_weather", "arguments": {"city": city}} for city in ("Lisbon", "Oslo")],
        },
    },
    {"when": {"turn": 2, "contains": "Error: no network"}, "reply": {"content": "I cannot know."}},
    {"when": {"turn": 2, "contains": "22 degrees"}, "reply": {"content": "Warm: 22 degrees."}},
    {"when": {"contains": "count"}, "reply": {"content": "one two three four"}},
    {"reply": {"reasoning": "A greeting.", "content": "Hello!"}},
]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    path: Path = tmp_path_factory.mktemp("replay") / "answers.jsonl"
    path.write_text("".join(json.dumps(rule) + "\n" for rule in RULES))
    with local_gateway(f"replay:{path}") as url:
        yield url


@pytest.fixture
def client(url: str) -> Iterator[Anthropic]:
    headers = {"anthropic-beta": "interleaved-thinking-2025-05-14,of-tomorrow-2027-01-01"}
    with Anthropic(base_url=url, api_key="none", max_retries=0, default_headers=headers) as client:
        yield client


def ask(content: Any = "Hi", **fields: Any) -> Any:
    return {"model": "replay", "max_tokens": 500, "messages": [{"role": "user", "content": content}], **fields}


def content(message: Any) -> dict[str, Any]:
    """A message without what differs each time."""
    told: dict[str, Any] = message.model_dump(exclude={"id"}, exclude_none=True)
    for block in told["content"]:
        block.pop("id", None)
    told["usage"].pop("diffusion", None)  # the SDK keeps it on plain messages only
    return told


@pytest.mark.parametrize(
    "request_",
    [
        ask(),
        ask(thinking=THINK),
        ask("both", tools=[WEATHER], thinking=THINK),
        ask("count", stop_sequences=["three"]),
        ask("count", max_tokens=2),
    ],
    ids=["text", "thought", "calls", "stop", "cut"],
)
def test_a_stream_adds_up_to_the_plain_message(client: Anthropic, request_: Any) -> None:
    plain = client.messages.create(**request_)
    with client.messages.stream(**request_) as stream:
        frames = [event.model_dump() for event in stream if event.type in PLAIN_EVENTS]
        streamed = stream.get_final_message()
    assert_order(frames)
    a, b = content(plain), content(streamed)
    assert a["usage"].pop("cache_read_input_tokens") + a["usage"].pop("input_tokens") == (
        b["usage"].pop("cache_read_input_tokens") + b["usage"].pop("input_tokens")
    )
    assert a == b


PLAIN_EVENTS = frozenset(
    {
        *("message_start", "message_delta", "message_stop"),
        *("content_block_start", "content_block_delta", "content_block_stop"),
    }
)


def test_text_stream_and_stop_sequence(client: Anthropic) -> None:
    with client.messages.stream(**ask("count", stop_sequences=["zero", "three"])) as stream:
        assert "".join(stream.text_stream) == "one two "
        message = stream.get_final_message()
    assert (message.stop_reason, message.stop_sequence) == ("stop_sequence", "three")


def test_thinking_only_if_asked_for(client: Anthropic) -> None:
    assert [block.type for block in client.messages.create(**ask()).content][-1] == "text"
    thought, text = client.messages.create(**ask(thinking=THINK)).content
    assert thought.type == "thinking"
    assert (thought.thinking, bool(thought.signature)) == ("A greeting.", True)
    assert text.type == "text"
    assert text.text == "Hello!"


@pytest.mark.parametrize(
    ("result", "answer"),
    [
        ({"content": [{"type": "text", "text": "22 degrees"}]}, "Warm: 22 degrees."),
        ({"content": "no network", "is_error": True}, "I cannot know."),
    ],
)
def test_a_tool_loop_of_two_turns(client: Anthropic, result: Any, answer: str) -> None:
    request = ask("both, please", tools=[WEATHER], thinking=THINK, system=[{"type": "text", "text": "Be brief."}])
    first = client.messages.create(**request)
    assert first.stop_reason == "tool_use"
    calls = [block for block in first.content if block.type == "tool_use"]
    assert [call.input for call in calls] == [{"city": "Lisbon"}, {"city": "Oslo"}]
    results = [{"type": "tool_result", "tool_use_id": call.id, **result} for call in calls]
    request["messages"] += [{"role": "assistant", "content": first.content}, {"role": "user", "content": results}]
    last = client.messages.create(**request)
    assert last.content[-1].type == "text"
    assert (last.content[-1].text, last.stop_reason) == (answer, "end_turn")


def test_one_call_where_parallel_ones_are_switched_off(client: Anthropic) -> None:
    choice = {"type": "any", "disable_parallel_tool_use": True}
    message = client.messages.create(**ask("both", tools=[WEATHER], tool_choice=choice))
    assert [block.type for block in message.content].count("tool_use") == 1


@pytest.mark.parametrize("tools", [[], [WEATHER]])
def test_the_count_is_what_usage_reports(client: Anthropic, tools: Any) -> None:
    request = ask("both", tools=tools, thinking=THINK, system="Be brief.")
    usage = client.messages.create(**request).usage
    del request["max_tokens"]
    counted = client.messages.count_tokens(**request).input_tokens
    assert counted == usage.input_tokens + (usage.cache_read_input_tokens or 0)


def test_beta_calls(client: Anthropic) -> None:
    message = client.beta.messages.create(**ask(), betas=["context-management-2025-06-27"])
    assert message.stop_reason == "end_turn"


def test_models(client: Anthropic) -> None:
    (model,) = client.models.list()
    assert (model.id, model.type, model.display_name) == ("replay", "model", "replay")
    assert client.models.retrieve("replay").max_input_tokens == 131_072


def test_errors_are_the_sdks_own(client: Anthropic) -> None:
    with pytest.raises(anthropic.NotFoundError, match="gpt") as missing:
        client.messages.create(**{**ask(), "model": "gpt"})
    assert missing.value.request_id
    with pytest.raises(anthropic.BadRequestError, match="vision"):
        client.messages.create(**ask([{"type": "image", "source": {"type": "url", "url": "http://x/y.png"}}]))
    request = ask()
    request["messages"].append({"role": "assistant", "content": "{"})
    with pytest.raises(anthropic.BadRequestError, match="prefill"):
        client.messages.create(**request)


@pytest.mark.parametrize("auth", [{"api_key": "secret"}, {"auth_token": "secret", "api_key": None}])
def test_both_ways_to_send_the_key(tmp_path: Path, auth: Any) -> None:
    path = tmp_path / "answers.jsonl"
    path.write_text('{"reply": {"content": "Hello!"}}\n')
    settings = Settings(
        model=ModelSettings(model=f"replay:{path}"),
        server=ServerSettings(port=0, drain_s=0, api_key=(SecretStr("secret"),)),
    )
    with serving(create_app(load_service(settings), settings)) as url:
        with Anthropic(base_url=url, max_retries=0, **auth) as client:
            assert client.messages.create(**ask()).stop_reason == "end_turn"
        with (
            Anthropic(base_url=url, max_retries=0, api_key="wrong") as client,
            pytest.raises(anthropic.AuthenticationError),
        ):
            client.messages.create(**ask())


def test_sprout_calls_a_tool(sprout_url: str) -> None:
    request = {**ask("What's the weather in Lisbon?", tools=[WEATHER], max_tokens=96), "model": "sprout"}
    with Anthropic(base_url=sprout_url, api_key="none", max_retries=0) as client:
        plain = client.messages.create(**request)
        with client.messages.stream(**request) as stream:
            streamed = stream.get_final_message()
    assert plain.content[-1].type == "tool_use"
    assert plain.content[-1].input == {"city": "Lisbon"}
    assert content(plain)["content"] == content(streamed)["content"]
