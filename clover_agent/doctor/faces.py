"""The checks of the other two faces: OpenAI's responses (Codex needs them) and Anthropic's messages (Claude Code).

A server without one is no failure: it is skipped.
"""

from collections.abc import Mapping
from typing import Any

from clover_agent.doctor.chat import LISBON, MAX_TOKENS
from clover_agent.doctor.report import Skip, require
from clover_agent.doctor.wire import Endpoint

MISSING = (404, 405, 501)


def responses(endpoint: Endpoint, model: str) -> str:
    """A plain and a streamed response."""
    path = "/responses"
    body = {"model": model, "input": LISBON, "max_output_tokens": MAX_TOKENS, "store": False}
    _exists(endpoint, path, body)
    data = endpoint.json(path, body)
    require(data.get("object") == "response", f"object is {data.get('object')!r}.", 'It is "response".')
    require(isinstance(data.get("output"), list), "The response has no list `output`.")
    events = [event.data for event in endpoint.events(path, body) if isinstance(event.data, dict)]
    kinds = [event.get("type") for event in events]
    require("response.created" in kinds[:1], f"The first event is {kinds[:1]}.", "It is response.created.")
    require(
        kinds[-1] in ("response.completed", "response.incomplete"),
        f"The last event is {kinds[-1]!r}.",
        "Codex takes a stream without response.completed for broken and asks again.",
    )
    require("response.output_item.done" in kinds, "No response.output_item.done.", "Codex reads the answer from it.")
    return f"{len(kinds)} events up to {kinds[-1]}"


def messages(endpoint: Endpoint, model: str) -> str:
    """A plain and a streamed message."""
    path = "/messages"
    body = {"model": model, "max_tokens": MAX_TOKENS, "messages": [{"role": "user", "content": "Say hello."}]}
    _exists(endpoint, path, body)
    data = endpoint.json(path, body)
    require(data.get("type") == "message", f"type is {data.get('type')!r}.", 'It is "message".')
    require(isinstance(data.get("content"), list), "The message has no list `content`.")
    require(data.get("stop_reason"), "The message has no stop_reason.")
    events = endpoint.events(path, body)
    kinds = [event.data.get("type") if isinstance(event.data, dict) else None for event in events]
    require(kinds[:1] == ["message_start"], f"The first event is {kinds[:1]}.", "It is message_start.")
    require(kinds[-1] == "message_stop", f"The last event is {kinds[-1]!r}.", "It is message_stop.")
    require(
        all(event.name == kind for event, kind in zip(events, kinds, strict=True)),
        "The events' names are not their types.",
        "Each has a line `event: TYPE`; the SDK goes by it.",
    )
    return f"{len(kinds)} events up to message_stop"


def _exists(endpoint: Endpoint, path: str, body: Mapping[str, Any]) -> None:
    reply = endpoint.ask(path, {**body, "max_output_tokens": 16} if path == "/responses" else {**body, "max_tokens": 1})
    if reply.status in MISSING:
        raise Skip(f"the server has no {path} ({reply.status})")
