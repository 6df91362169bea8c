"""Bad input: a 4xx that names the field, and the server goes on. Odd input that clients really send: 200."""

import json
from typing import Any

import pytest

from tests.api.conftest import Connect
from tests.api.fakes import body, tool

CHAT = "/v1/chat/completions"
JSON = {"Content-Type": "application/json"}
USER = {"role": "user", "content": "Hi"}


def deep(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


def messages(*items: Any) -> dict[str, Any]:
    return body(messages=list(items))


def parameters(schema: Any) -> dict[str, Any]:
    return body(tools=[tool(parameters=schema)])


NAMED = {"type": "function", "function": {"name": "nope"}}
ALLOWED = {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [NAMED]}}

# (name, request, the field that the error names)
BAD_FIELDS: list[tuple[str, dict[str, Any], str]] = [
    ("no model", {"messages": [USER]}, "model"),
    ("model is a number", body(model=5), "model"),
    ("no messages", {"model": "sprout"}, "messages"),
    ("empty messages", body(messages=[]), "messages"),
    ("messages is text", body(messages="Hi"), "messages"),
    ("message is text", messages("Hi"), "messages.0"),
    ("unknown role", messages(USER, {"role": "wizard", "content": "x"}), "messages.1.role"),
    ("old function role", messages({"role": "function", "content": "x"}), "messages.0.role"),
    ("role is a list", messages({"role": ["user"], "content": "x"}), "messages.0.role"),
    ("no role", messages({"content": "x"}), "messages.0.role"),
    ("content is a number", messages(USER, USER, {"role": "user", "content": 5}), "messages.2.content"),
    ("content is an object", messages({"role": "user", "content": {"text": "x"}}), "messages.0.content"),
    ("content part is text", messages({"role": "user", "content": ["x"]}), "messages.0.content.0"),
    ("text part without text", messages({"role": "user", "content": [{"type": "text"}]}), "messages.0.content.0.text"),
    ("image", messages({"role": "user", "content": [{"type": "image_url"}]}), "messages.0.content.0.type"),
    ("audio in", messages({"role": "user", "content": [{"type": "input_audio"}]}), "messages.0.content.0.type"),
    ("file", messages({"role": "user", "content": [{"type": "file"}]}), "messages.0.content.0.type"),
    ("tool message without id", messages({"role": "tool", "content": "x"}), "messages.0.tool_call_id"),
    ("tool_calls is an object", messages({"role": "assistant", "tool_calls": {}}), "messages.0.tool_calls"),
    (
        "call without a function",
        messages({"role": "assistant", "tool_calls": [{"id": "a", "type": "function"}]}),
        "messages.0.tool_calls.0.function",
    ),
    (
        "arguments is a number",
        messages({"role": "assistant", "tool_calls": [{"id": "a", "function": {"name": "f", "arguments": 5}}]}),
        "messages.0.tool_calls.0.function.arguments",
    ),
    ("old function_call in history", messages({"role": "assistant", "function_call": {}}), "messages.0.function_call"),
    ("stream is text", body(stream="yes"), "stream"),
    ("stream_options is a list", body(stream=True, stream_options=[]), "stream_options"),
    ("include_usage is 1", body(stream_options={"include_usage": 1}), "stream_options.include_usage"),
    ("tools is an object", body(tools={}), "tools"),
    ("tool is text", body(tools=["get_weather"]), "tools.0"),
    ("tool without a function", body(tools=[{"type": "function"}]), "tools.0.function"),
    ("custom tool", body(tools=[{"type": "custom", "custom": {"name": "x"}}]), "tools.0.type"),
    ("web search tool", body(tools=[tool(), {"type": "web_search"}]), "tools.1.type"),
    ("tool name with a space", body(tools=[tool("get weather")]), "tools.0.function.name"),
    ("tool name with a line end", body(tools=[tool("get\n")]), "tools.0.function.name"),
    ("tool name empty", body(tools=[tool("")]), "tools.0.function.name"),
    ("tool name too long", body(tools=[tool("a" * 65)]), "tools.0.function.name"),
    ("tool name twice", body(tools=[tool(), tool()]), "tools.1.function.name"),
    ("strict is text", body(tools=[tool(strict="true")]), "tools.0.function.strict"),
    ("description is a list", body(tools=[tool(description=[])]), "tools.0.function.description"),
    ("parameters is a list", parameters([]), "tools.0.function.parameters"),
    ("schema with an unknown type", parameters({"type": "strnig"}), "tools.0.function.parameters"),
    ("schema with properties as a list", parameters({"properties": ["a"]}), "tools.0.function.parameters"),
    (
        "schema with a negative length",
        parameters({"properties": {"a": {"minLength": -1}}}),
        "tools.0.function.parameters",
    ),
    ("schema of an array", parameters({"type": "array"}), "tools.0.function.parameters"),
    ("schema dialect is a number", parameters({"$schema": 5}), "tools.0.function.parameters"),
    ("schema too long", parameters({"description": "x" * 300_000}), "tools.0.function.parameters"),
    ("schema too deep", parameters(deep(200)), "tools"),
    ("tool_choice unknown", body(tools=[tool()], tool_choice="always"), "tool_choice"),
    ("tool_choice required without tools", body(tool_choice="required"), "tool_choice"),
    ("tool_choice names no tool", body(tools=[tool()], tool_choice=NAMED), "tool_choice.function.name"),
    ("tool_choice names nothing", body(tools=[tool()], tool_choice={"type": "function"}), "tool_choice.function"),
    (
        "allowed_tools names no tool",
        body(tools=[tool()], tool_choice=ALLOWED),
        "tool_choice.allowed_tools.tools.0.function.name",
    ),
    ("parallel_tool_calls is 0", body(parallel_tool_calls=0), "parallel_tool_calls"),
    ("response_format is text", body(response_format="json_object"), "response_format"),
    ("response_format unknown", body(response_format={"type": "xml"}), "response_format.type"),
    ("response_format without schema", body(response_format={"type": "json_schema"}), "response_format.json_schema"),
    (
        "response_format with a bad schema",
        body(response_format={"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": 5}}}),
        "response_format.json_schema.schema",
    ),
    ("max_tokens 0", body(max_tokens=0), "max_tokens"),
    ("max_tokens negative", body(max_tokens=-5), "max_tokens"),
    ("max_tokens is text", body(max_tokens="5"), "max_tokens"),
    ("max_tokens is true", body(max_tokens=True), "max_tokens"),
    ("max_tokens is a fraction", body(max_tokens=1.5), "max_tokens"),
    ("max_completion_tokens 0", body(max_completion_tokens=0), "max_completion_tokens"),
    ("min_tokens above max_tokens", body(max_tokens=5, min_tokens=6), "min_tokens"),
    ("temperature above 2", body(temperature=2.5), "temperature"),
    ("temperature negative", body(temperature=-0.1), "temperature"),
    ("temperature is text", body(temperature="0"), "temperature"),
    ("temperature is true", body(temperature=True), "temperature"),
    ("top_p above 1", body(top_p=1.1), "top_p"),
    ("top_k below -1", body(top_k=-2), "top_k"),
    ("min_p above 1", body(min_p=2), "min_p"),
    ("seed too large", body(seed=2**70), "seed"),
    ("seed is a fraction", body(seed=0.5), "seed"),
    ("presence_penalty", body(presence_penalty=3), "presence_penalty"),
    ("frequency_penalty", body(frequency_penalty=-3), "frequency_penalty"),
    ("repetition_penalty 0", body(repetition_penalty=0), "repetition_penalty"),
    ("logit_bias is a list", body(logit_bias=[]), "logit_bias"),
    ("logit_bias of no id", body(logit_bias={"abc": 1}), "logit_bias"),
    ("logit_bias too strong", body(logit_bias={"5": 101}), "logit_bias.5"),
    ("stop is a number", body(stop=5), "stop"),
    ("stop is empty text", body(stop=["a", ""]), "stop.1"),
    ("stop_token_ids negative", body(stop_token_ids=[-1]), "stop_token_ids.0"),
    ("block_size 0", body(block_size=0), "block_size"),
    ("threshold 0", body(threshold=0), "threshold"),
    ("threshold above 1", body(threshold=1.5), "threshold"),
    ("reasoning_effort unknown", body(reasoning_effort="hard"), "reasoning_effort"),
    ("thinking_token_budget negative", body(thinking_token_budget=-1), "thinking_token_budget"),
    ("chat_template_kwargs is text", body(chat_template_kwargs="x"), "chat_template_kwargs"),
    (
        "enable_thinking is text",
        body(chat_template_kwargs={"enable_thinking": "no"}),
        "chat_template_kwargs.enable_thinking",
    ),
    ("messages through the template", body(chat_template_kwargs={"messages": []}), "chat_template_kwargs.messages"),
    ("n is 2", body(n=2), "n"),
    ("n is text", body(n="1"), "n"),
    ("logprobs", body(logprobs=True), "logprobs"),
    ("top_logprobs", body(top_logprobs=3), "top_logprobs"),
    ("audio out", body(audio={"voice": "x"}), "audio"),
    ("modalities with audio", body(modalities=["text", "audio"]), "modalities.1"),
    ("web search", body(web_search_options={}), "web_search_options"),
    ("old functions", body(functions=[{"name": "f"}]), "functions"),
    ("old function_call", body(function_call="auto"), "function_call"),
    ("own template", body(chat_template="{{ messages }}"), "chat_template"),
    ("guided_json", body(guided_json={}), "guided_json"),
    ("beam search", body(use_beam_search=True), "use_beam_search"),
]


@pytest.mark.parametrize(("request_", "field"), [case[1:] for case in BAD_FIELDS], ids=[case[0] for case in BAD_FIELDS])
def test_a_bad_field_is_named(connect: Connect, request_: dict[str, Any], field: str) -> None:
    client = connect()
    _check_error(client.post(CHAT, json=request_), 400, field)
    assert client.post(CHAT, json=body()).status_code == 200


# (name, raw body, headers, status, part of the message)
BAD_BODIES: list[tuple[str, bytes, dict[str, str], int, str]] = [
    ("empty", b"", JSON, 400, "JSON"),
    ("cut", b'{"model": "spr', JSON, 400, "JSON"),
    ("two values", b"{} {}", JSON, 400, "JSON"),
    ("a list", b"[]", JSON, 400, "object"),
    ("null", b"null", JSON, 400, "object"),
    ("not UTF-8", b'{"model": "\xff\xfe"}', JSON, 400, "UTF-8"),
    ("latin-1 declared", b"{}", {"Content-Type": "application/json; charset=latin-1"}, 415, "UTF-8"),
    ("too deep for the parser", b'{"messages": ' + b"[" * 100_000, JSON, 400, "deep"),
    ("a number of 5,000 digits", b'{"max_tokens": ' + b"9" * 5000 + b"}", JSON, 400, "number"),
    ("text", b"{}", {"Content-Type": "text/plain"}, 415, "Content-Type"),
    ("a form", b"a=b", {"Content-Type": "application/x-www-form-urlencoded"}, 415, "Content-Type"),
    ("no type", b"{}", {}, 415, "Content-Type"),
    ("gzip", b"{}", {**JSON, "Content-Encoding": "gzip"}, 415, "Content-Encoding"),
    ("10 MB", b'{"model": "' + b"x" * 10_000_000 + b'"}', JSON, 413, "larger"),
    ("too many values", b'{"model": [' + b"0," * 600_000 + b"0]}", JSON, 400, "values"),
    ("wrong host", b"{}", {**JSON, "Host": "evil.example"}, 403, "evil.example"),
    ("host of a rebound name", b"{}", {**JSON, "Host": "127.0.0.1.evil.example:8000"}, 403, "evil.example"),
    ("foreign origin", b"{}", {**JSON, "Origin": "https://evil.example"}, 403, "evil.example"),
    ("opaque origin", b"{}", {**JSON, "Origin": "null"}, 403, "Origin"),
]


@pytest.mark.parametrize(
    ("content", "headers", "status", "word"), [case[1:] for case in BAD_BODIES], ids=[case[0] for case in BAD_BODIES]
)
def test_a_bad_body_is_refused(
    connect: Connect, content: bytes, headers: dict[str, str], status: int, word: str
) -> None:
    client = connect()
    response = client.post(CHAT, content=content, headers=headers)
    assert word.lower() in _check_error(response, status)["message"].lower()
    assert client.post(CHAT, json=body()).status_code == 200


NOT_FINITE = [
    ("temperature", '{"temperature": NaN}'),
    ("temperature", '{"temperature": -Infinity}'),
    ("top_p", '{"top_p": 1e999}'),
    ("tools.0.function.parameters.maximum", '{"tools": [{"function": {"parameters": {"maximum": 1e999}}}]}'),
    ("chat_template_kwargs.a.1", '{"chat_template_kwargs": {"a": [1, Infinity]}}'),
]


@pytest.mark.parametrize(("field", "extra"), NOT_FINITE)
def test_a_number_that_is_not_finite_is_named(connect: Connect, field: str, extra: str) -> None:
    content = json.dumps(body())[:-1] + ", " + extra[1:]
    _check_error(connect().post(CHAT, content=content, headers=JSON), 400, field)


def test_a_model_that_is_not_served(connect: Connect) -> None:
    error = _check_error(connect().post(CHAT, json=body(model="gpt-4o")), 404, "model")
    assert error["code"] == "model_not_found"
    assert "sprout" in error["message"]


@pytest.mark.parametrize("stream", [False, True])
def test_the_status_of_an_error_does_not_depend_on_streaming(connect: Connect, stream: bool) -> None:
    _check_error(connect().post(CHAT, json=body(stream=stream, temperature=9)), 400, "temperature")


def test_a_large_body_within_the_limit_is_read(connect: Connect) -> None:
    assert connect().post(CHAT, json=messages({"role": "user", "content": "x" * 4_000_000})).status_code == 200


TEXT = {"type": "text", "text": "a"}
HISTORY_CALL = {"id": "call_9", "type": "function", "function": {"name": "any thing", "arguments": "{broken"}}
GOOD: list[tuple[str, dict[str, Any]]] = [
    ("mask and control tokens", messages({"role": "user", "content": "<|mask|><|im_end|>\n<tool_call></think>"})),
    ("zero bytes", messages({"role": "user", "content": "a\x00b"})),
    ("unknown fields", body(frobnicate=1, extra_body={"a": [None]}, **{"": 0})),
    ("harmless fields", body(user="u", metadata={"a": "b"}, store=False, service_tier="auto", prompt_cache_key="k")),
    ("neutral fields", body(n=1, logprobs=False, top_logprobs=None, modalities=["text"], audio=None, functions=None)),
    ("nulls", body(temperature=None, tools=None, tool_choice=None, stop=None, max_tokens=None, stream=None, seed=None)),
    ("null content", messages(USER, {"role": "assistant", "content": None, "tool_calls": [HISTORY_CALL]}, USER)),
    ("absent content", messages(USER, {"role": "assistant"})),
    ("empty content", messages({"role": "system", "content": ""}, USER)),
    ("empty parts", messages({"role": "user", "content": []})),
    (
        "parts",
        messages({"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "input_text", "text": "b"}]}),
    ),
    ("parts with extras", messages({"role": "user", "content": [{**TEXT, "cache_control": {}}]})),
    ("developer, late", messages(USER, {"role": "developer", "content": "x"})),
    ("two users in a row", messages(USER, USER)),
    ("no user at all", messages({"role": "system", "content": "x"})),
    ("tool result without a call", messages(USER, {"role": "tool", "tool_call_id": "nope", "content": "x"})),
    (
        "tool result in parts",
        messages({"role": "tool", "tool_call_id": "a", "content": [{"type": "text", "text": "x"}]}),
    ),
    ("broken arguments in the history", messages(USER, {"role": "assistant", "tool_calls": [HISTORY_CALL]})),
    (
        "arguments as an object",
        messages({"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": {"a": 1}}}]}),
    ),
    (
        "reasoning in the history",
        messages({"role": "assistant", "content": "x", "reasoning_content": "y", "reasoning": "z"}),
    ),
    ("no parameters", body(tools=[{"type": "function", "function": {"name": "f"}}])),
    ("null parameters", body(tools=[tool(parameters=None, description=None, strict=None)])),
    ("empty parameters", body(tools=[tool(parameters={})])),
    ("empty tools", body(tools=[])),
    ("tool_choice auto without tools", body(tool_choice="auto")),
    ("tool_choice none", body(tools=[tool()], tool_choice="none")),
    ("schema with a dialect", parameters({"$schema": "http://json-schema.org/draft-07/schema#", "type": "object"})),
    ("schema with an unknown dialect", parameters({"$schema": "https://example.com/mine"})),
    ("schema with a pattern of another language", parameters({"properties": {"a": {"pattern": "^\\p{L}+$"}}})),
    ("schema with unknown keywords", parameters({"properties": {"a": {"type": "string", "x-order": 1}}})),
    ("schema with a huge maximum", parameters({"properties": {"a": {"maximum": 9007199254740991}}})),
    ("absurd max_tokens", body(max_tokens=10**300, max_completion_tokens=10**18)),
    ("top_p 0 and top_k -1", body(top_p=0, top_k=-1, min_p=0)),
    ("a seed below zero", body(seed=-1)),
    ("64 stops", body(stop=["a"] * 64)),
    ("stream options without a stream", body(stream_options={"include_usage": True, "unknown": 1})),
    ("json_object", body(response_format={"type": "json_object"})),
    (
        "everything of vLLM",
        body(repetition_penalty=1.1, ignore_eos=True, min_tokens=1, stop_token_ids=[5], logit_bias={"7": -1}),
    ),
]


@pytest.mark.parametrize("request_", [case[1] for case in GOOD], ids=[case[0] for case in GOOD])
def test_what_clients_really_send_is_answered(connect: Connect, request_: dict[str, Any]) -> None:
    response = connect().post(CHAT, json=request_)
    assert response.status_code == 200, response.text
    assert response.json()["choices"][0]["message"]["content"] == "Hello"


@pytest.mark.parametrize("cut", [r'"\ud83d"', r'"a\ude00b"', r'"\ud83d\ude00\ud83d"', r'"\uD83D\ud83d"'])
def test_half_an_emoji_becomes_a_replacement_character(connect: Connect, cut: str) -> None:
    client = connect()
    content = json.dumps(body()).replace('"Hi"', cut)
    assert client.post(CHAT, content=content, headers=JSON).status_code == 200
    text = client.service.seen[0].messages[0].content
    assert "\ufffd" in text
    assert text.encode()
    assert ("😀" in text) == (r"\ud83d\ude00" in cut)


def test_a_byte_order_mark_is_no_error(connect: Connect) -> None:
    content = b"\xef\xbb\xbf" + json.dumps(body()).encode()
    assert connect().post(CHAT, content=content, headers=JSON).status_code == 200


def _check_error(response: Any, status: int, field: str | None = None) -> dict[str, Any]:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    error: dict[str, Any] = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    if field is not None:
        assert error["param"] == field
        assert field.split(".")[0] in error["message"]
    return error


def test_unknown_paths_and_methods_are_json(connect: Connect) -> None:
    client = connect()
    for path in ("/api/tags", "/props", "/v1/props", "/v1/chat/completions/", "/", "/docs", "/v1/models/"):
        _check_error(client.get(path, follow_redirects=False), 404)
    _check_error(client.post("/api/show", json={}), 404)
    assert "POST" in client.get(CHAT).headers["allow"]
    _check_error(client.get(CHAT), 405)
    _check_error(client.delete("/v1/models"), 405)
