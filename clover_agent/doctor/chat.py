"""The checks of chat completions, from a plain word to JSON by a schema. Each returns what it saw, or raises."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from clover_agent.doctor.chunks import REASONS, check_usage, fold
from clover_agent.doctor.report import Skip, Trouble, require
from clover_agent.doctor.wire import Endpoint

CHAT = "/chat/completions"
MAX_TOKENS = 512  # a model that thinks first needs room; a model that does not end must not take for ever
CITY: Mapping[str, Any] = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
PERSON: Mapping[str, Any] = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}


def tool(name: str, description: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "description": description, "parameters": CITY}}


WEATHER = tool("get_weather", "Get the current weather in a city")
TIME = tool("get_time", "Get the current local time in a city")
LISBON = "What is the weather in Lisbon? Use the tool."


def request(model: str, text: str, **fields: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": text}]
    return {"model": model, "messages": messages, "max_tokens": MAX_TOKENS, "temperature": 0, **fields}


def plain(endpoint: Endpoint, model: str) -> str:
    """One answer, not streamed."""
    data = endpoint.json(CHAT, request(model, "Say hello."))
    message, finish = _message(data)
    require(isinstance(message.get("content"), str), f"content is {message.get('content')!r}.", "It must be text.")
    require(
        message["content"].strip() or finish == "length", "The answer is empty.", "Look at the chat template's prompt."
    )
    usage = check_usage(data.get("usage"))
    return f"{usage['completion_tokens']} tokens, finish_reason {finish}"


def streaming(endpoint: Endpoint, model: str) -> str:
    """The order of chunks, with usage asked for and without."""
    wanted = request(model, "Say hello.", stream_options={"include_usage": True})
    folded = fold(endpoint.events(CHAT, wanted), include_usage=True)
    require(folded.content or folded.reasoning, "The stream says nothing.", "Look at the server's log.")
    fold(endpoint.events(CHAT, request(model, "Say hello.")), include_usage=False)
    return f"role, text, finish_reason {folded.finish}, usage, [DONE]"


def one_call(endpoint: Endpoint, model: str) -> str:
    """A call, streamed and not."""
    message, finish = _message(endpoint.json(CHAT, request(model, LISBON, tools=[WEATHER])))
    check_calls(message.get("tool_calls"), finish, {"get_weather"})
    folded = fold(endpoint.events(CHAT, request(model, LISBON, tools=[WEATHER])), include_usage=False)
    arguments = check_calls(folded.calls, folded.finish, {"get_weather"})
    return f"get_weather({json.dumps(arguments[0], ensure_ascii=False)})"


def tool_result(endpoint: Endpoint, model: str) -> str:
    """The turn after a call: content null, arguments as text, a result of role tool."""
    call = {"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city":"Lisbon"}'}}
    history = [
        {"role": "user", "content": LISBON},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "22 degrees and sunny"},
    ]
    data = endpoint.json(CHAT, request(model, "", messages=history, tools=[WEATHER]))
    message, finish = _message(data)
    if message.get("tool_calls"):
        check_calls(message["tool_calls"], finish, {"get_weather"})
        return "the model calls again; the history is accepted"
    require(message.get("content"), "The turn after a tool's result is empty.", "Does the template show tool results?")
    return str(message["content"])[:60]


def parallel(endpoint: Endpoint, model: str) -> str:
    """Two calls in one answer, if the model makes them."""
    text = "What is the weather in Lisbon and in Oslo? Call the tool once for each city, both at once."
    folded = fold(endpoint.events(CHAT, request(model, text, tools=[WEATHER])), include_usage=False)
    if len(folded.calls) < 2:
        raise Skip(f"the model made {len(folded.calls)} call(s) where two were asked for: nothing to judge")
    check_calls(folded.calls, folded.finish, {"get_weather"})
    return f"{len(folded.calls)} calls with indexes and ids of their own"


def forced(endpoint: Endpoint, model: str) -> str:
    """tool_choice required, and one tool by name, on a text that asks for none."""
    tools = [WEATHER, TIME]
    named = {"type": "function", "function": {"name": "get_time"}}
    for choice, allowed in (("required", {"get_weather", "get_time"}), (named, {"get_time"})):
        body = request(model, "Hello, I am in Lisbon.", tools=tools, tool_choice=choice)
        message, finish = _message(endpoint.json(CHAT, body))
        kind = "required" if choice == "required" else "a named tool"
        require(
            message.get("tool_calls"),
            f"tool_choice asks for {kind}, no call came.",
            "The server ignores tool_choice: clients that retry with it loop. It takes constrained decoding.",
        )
        # OpenAI's own answer to a named choice ends with "stop".
        check_calls(message["tool_calls"], "tool_calls" if finish == "stop" else finish, allowed)
    return "required and named are kept"


def json_schema(endpoint: Endpoint, model: str) -> str:
    """response_format with a strict schema."""
    form = {"type": "json_schema", "json_schema": {"name": "person", "schema": PERSON, "strict": True}}
    message, finish = _message(endpoint.json(CHAT, request(model, "Ada is 36 years old.", response_format=form)))
    require(finish == "stop", f"finish_reason is {finish!r}.", "Was there enough room?")
    advice = "The server does not hold the model to the schema: it takes constrained decoding."
    value = _json_object(message.get("content"), "The content", advice)
    good = set(value) == {"name", "age"} and isinstance(value["name"], str) and type(value["age"]) is int
    require(good, f"The content does not satisfy the schema: {str(value)[:100]}", advice)
    return json.dumps(value, ensure_ascii=False)[:60]


def errors(endpoint: Endpoint, model: str) -> str:
    """A bad request is a 4xx in OpenAI's shape."""
    reply = endpoint.ask(CHAT, {"model": model, "messages": "none"})
    require(400 <= reply.status < 500, f'messages: "none" is answered with {reply.status}.', "Bad requests are a 4xx.")
    error = reply.data.get("error") if isinstance(reply.data, dict) else None
    require(
        isinstance(error, dict) and isinstance(error.get("message"), str),
        f"The error's body is {reply.text[:100]!r}.",
        'OpenAI\'s shape is {"error": {"message", "type", "param", "code"}}; clients show the message.',
    )
    return f"{reply.status}, OpenAI's shape"


def check_calls(calls: Any, finish: Any, names: set[str]) -> list[dict[str, Any]]:
    """The arguments of each call. Raises `Trouble` where a client would stumble."""
    require(calls, "No call came.", "Are tools passed to the template, and is the right tool-call parser chosen?")
    require(isinstance(calls, list), "tool_calls is not a list.")
    found = [_arguments(call, names) for call in calls]
    ids = [call["id"] for call in calls]
    require(len({*ids}) == len(ids), f"Two calls have the same id: {ids}.", "Results are matched by it.")
    require(
        finish == "tool_calls",
        f"There are calls, and finish_reason is {finish!r}.",
        'It must be "tool_calls": clients that look at it do not run the call.',
    )
    return found


def _arguments(call: Any, names: set[str]) -> dict[str, Any]:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict):
        raise Trouble(f"A call is {str(call)[:80]}.", "It needs id, type and function.")
    require(isinstance(call.get("id"), str) and call["id"], "A call has no `id`.", "Clients drop it, or fail.")
    require(function.get("name") in names, f"The model calls {function.get('name')!r}, there are {sorted(names)}.")
    text = function.get("arguments")
    require(isinstance(text, str), f"`arguments` is {type(text).__name__}.", "It is a string of JSON text.")
    value = _json_object(text, "`arguments`", "Calls must leave only when they are whole.")
    require(isinstance(value.get("city"), str), f"`arguments` lacks the city: {text}", "Is the schema kept?")
    return value


def _json_object(text: Any, what: str, advice: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (TypeError, ValueError):
        value = None
    if not isinstance(value, dict):
        raise Trouble(f"{what} is no JSON object: {str(text)[:100]!r}", advice)
    return value


def _message(data: Mapping[str, Any]) -> tuple[dict[str, Any], Any]:
    choices: Sequence[Any] | None = data.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    if not isinstance(choice, dict) or not isinstance(choice.get("message"), dict):
        raise Trouble(f"The answer has no choices[0].message: {str(data)[:120]}", "Is this a chat completion?")
    finish = choice.get("finish_reason")
    require(finish in REASONS, f"finish_reason is {finish!r}.", f"It is one of {', '.join(REASONS)}.")
    message: dict[str, Any] = choice["message"]
    return message, finish
