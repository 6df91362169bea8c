"""The OpenAI SDK's responses against a real gateway: plain and streamed agree, a tool loop, thoughts, parsed output."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from openai import BadRequestError, OpenAI
from openai.types.responses import ParsedResponse, Response
from pydantic import BaseModel

from clover_agent.cli.local import local_gateway

WEATHER: Any = {
    "type": "function",
    "name": "get_weather",
    "description": "Get the current weather in a city",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    "strict": False,
}
PATCH: Any = {"type": "custom", "name": "apply_patch", "description": "Apply a patch"}
PATCH_TEXT = '*** Begin Patch\n+a "quoted"\tline 世界\n*** End Patch'
RULES: list[dict[str, Any]] = [
    {
        "when": {"contains": "both", "turn": 1},
        "reply": {
            "reasoning": "Two cities.",
            "content": "I will look.",
            "tool_calls": [{"name": "get_weather", "arguments": {"city": city}} for city in ("Lisbon", "Oslo")],
        },
    },
    {"when": {"turn": 2}, "reply": {"content": "Warm: 22 degrees."}},
    {
        "when": {"contains": "patch"},
        "reply": {"tool_calls": [{"name": "apply_patch", "arguments": {"input": PATCH_TEXT}}]},
    },
    {"when": {"contains": "object"}, "reply": {"content": '{"city": "Lisbon", "days": 2}'}},
    {"reply": {"reasoning": "A greeting.", "content": "Hello! And so on."}},
]


class Trip(BaseModel):
    city: str
    days: int


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenAI]:
    path: Path = tmp_path_factory.mktemp("replay") / "answers.jsonl"
    path.write_text("".join(json.dumps(rule) + "\n" for rule in RULES))
    with (
        local_gateway(f"replay:{path}") as url,
        OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client,
    ):
        yield client


def told(response: Response | ParsedResponse[Any]) -> list[dict[str, Any]]:
    """The output without what differs each time, and without what the SDK adds when it parses."""
    dumped: list[dict[str, Any]] = json.loads(response.model_dump_json(include={"output"}, warnings=False))["output"]
    for item in dumped:
        for name in ("id", "call_id", "parsed_arguments"):
            item.pop(name, None)
        for part in item.get("content") or ():
            part.pop("parsed", None)
    return dumped


@pytest.mark.parametrize(
    ("said", "fields"),
    [
        ("Hi", {}),
        ("Hi", {"reasoning": {"effort": "low", "summary": "auto"}, "include": ["reasoning.encrypted_content"]}),
        ("both", {"tools": [WEATHER]}),
        ("patch", {"tools": [PATCH]}),
        ("object", {"text": {"format": {"type": "json_object"}}}),
    ],
)
def test_the_streamed_answer_is_the_plain_one(client: OpenAI, said: str, fields: dict[str, Any]) -> None:
    plain = client.responses.create(model="replay", input=said, **fields)
    with client.responses.stream(model="replay", input=said, **fields) as stream:
        text = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
        final = stream.get_final_response()
    assert told(final) == told(plain)
    assert text == plain.output_text
    assert (plain.status, plain.usage and plain.usage.output_tokens_details.reasoning_tokens is not None) == (
        "completed",
        True,
    )


def test_a_tool_loop(client: OpenAI) -> None:
    items: list[Any] = [{"role": "user", "content": "both"}]
    first = client.responses.create(
        model="replay", input=items, tools=[WEATHER], store=False, include=["reasoning.encrypted_content"]
    )
    calls = [item for item in first.output if item.type == "function_call"]
    assert [json.loads(item.arguments) for item in calls] == [{"city": "Lisbon"}, {"city": "Oslo"}]
    items += [item.model_dump(exclude_none=True) for item in first.output]
    items += [{"type": "function_call_output", "call_id": item.call_id, "output": "22 degrees"} for item in calls]
    second = client.responses.create(model="replay", input=items, tools=[WEATHER])
    assert second.output_text == "Warm: 22 degrees."
    assert second.usage is not None
    assert second.usage.input_tokens_details.cached_tokens >= 0


def test_custom_tools_get_text_as_it_is(client: OpenAI) -> None:
    choice: Any = {"type": "custom", "name": "apply_patch"}
    (call,) = client.responses.create(model="replay", input="patch", tools=[PATCH], tool_choice=choice).output
    assert call.type == "custom_tool_call"
    assert call.input == PATCH_TEXT


def test_parsed_output(client: OpenAI) -> None:
    parsed = client.responses.parse(model="replay", input="object", text_format=Trip)
    assert parsed.output_parsed == Trip(city="Lisbon", days=2)


def test_a_limit_makes_it_incomplete(client: OpenAI) -> None:
    response = client.responses.create(model="replay", input="Hi", max_output_tokens=2)
    assert response.status == "incomplete"
    assert response.incomplete_details is not None
    assert response.incomplete_details.reason == "max_output_tokens"


def test_what_is_not_stored_is_said(client: OpenAI) -> None:
    with pytest.raises(BadRequestError, match="send the whole conversation") as caught:
        client.responses.create(model="replay", input="Hi", previous_response_id="resp_1")
    assert (caught.value.code, caught.value.param) == ("unsupported_parameter", "previous_response_id")
