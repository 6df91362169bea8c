"""{completion, acompletion, stream, astream} x {in process, over HTTP} x kinds of answers: what the gateway gives."""

from typing import Any

import litellm
import pytest

from tests.litellm_provider.asking import WAYS, directly

WEATHER: Any = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
            "required": ["city"],
        },
    },
}
CITY = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
FORMAT = {"type": "json_schema", "json_schema": {"name": "city", "strict": True, "schema": CITY}}


def asked(text: str, **extra: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}], **extra}


ANSWERS = {
    "text": asked("Say hello."),
    "one call": asked("Weather?", tools=[WEATHER]),
    "two parallel calls": asked("both, please", tools=[WEATHER], parallel_tool_calls=True),
    "reasoning and a call": asked(
        "ponder", tools=[WEATHER], extra_body={"chat_template_kwargs": {"enable_thinking": True}}
    ),
    "json_schema": asked("The city as one object.", response_format=FORMAT),
    "cut by length": asked("Say hello.", max_tokens=7),
    "a call cut by length": asked("Weather?", tools=[WEATHER], max_tokens=7, tool_choice="required"),
    "sampling": asked("Say hello.", temperature=0.5, seed=3, stop=["mundo"], extra_body={"threshold": 0.9, "top_k": 5}),
}
SHAPES = {  # calls and finish reason, where they are not those of a text
    "one call": (1, "tool_calls"),
    "two parallel calls": (2, "tool_calls"),
    "reasoning and a call": (1, "tool_calls"),
    "cut by length": (0, "length"),
    "a call cut by length": (0, "length"),
}


@pytest.mark.parametrize("place", ["in process", "over HTTP"])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", ANSWERS)
def test_the_answer_is_the_gateways(kind: str, way: str, place: str, gateway: str) -> None:
    request = ANSWERS[kind]
    expected = directly(gateway, model="replay", **request)
    assert (len(expected["calls"]), expected["finish"]) == SHAPES.get(kind, (0, "stop"))
    assert bool(expected["reasoning"]) == (kind == "reasoning and a call")
    base = {"api_base": gateway} if place == "over HTTP" else {}
    assert WAYS[way](model="clover/replay", **request, **base) == expected


ERRORS: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "a field that cannot be honoured": (asked("Hi", n=2), litellm.BadRequestError, "only one choice"),
    "a bad schema": (
        asked("Hi", tools=[{"type": "function", "function": {"name": "f", "parameters": {"type": 3}}}]),
        litellm.BadRequestError,
        "parameters",
    ),
    "a prompt that is too long": (asked("x " * 300_000), litellm.ContextWindowExceededError, "context is 131072"),
    "an unknown model": (asked("Hi", model="clover/nobody"), litellm.NotFoundError, "nobody"),
}


@pytest.mark.parametrize("place", ["in process", "over HTTP"])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", ERRORS)
def test_errors_before_the_first_chunk_have_their_class(kind: str, way: str, place: str, gateway: str) -> None:
    request, expected, message = ERRORS[kind]
    base = {"api_base": gateway} if place == "over HTTP" else {}
    with pytest.raises(expected, match=message):
        WAYS[way](**{"model": "clover/replay", **request, **base})


@pytest.mark.parametrize("way", WAYS)
def test_a_gateway_that_is_not_there(way: str) -> None:
    with pytest.raises(litellm.ServiceUnavailableError, match="cannot be reached"):
        WAYS[way](model="clover/replay", api_base="http://127.0.0.1:9", **asked("Hi"))


@pytest.mark.parametrize("place", ["in process", "over HTTP"])
@pytest.mark.parametrize("way", WAYS)
def test_an_error_in_mid_stream_ends_in_an_error(way: str, place: str, loose_gateway: str) -> None:
    base = {"api_base": loose_gateway} if place == "over HTTP" else {}
    name = "clover/replay" if base else "clover/loose"
    with pytest.raises(Exception, match="nothing_like_it") as caught:
        WAYS[way](model=name, **asked("then breaks", tools=[WEATHER]), **base)
    assert getattr(caught.value, "status_code", None) in (500, 503), caught.value
