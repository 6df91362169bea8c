"""Anthropic's form in tests: good requests, the frames of a stream, and the order that they must have."""

import json
from collections.abc import Sequence
from typing import Any

MESSAGES = "/v1/messages"
DELTAS = {
    "text": {"text_delta"},
    "thinking": {"thinking_delta", "signature_delta"},
    "tool_use": {"input_json_delta"},
}


def message_body(**fields: Any) -> dict[str, Any]:
    """A good request, with `fields` on top."""
    return {"model": "sprout", "max_tokens": 64, "messages": [{"role": "user", "content": "Hi"}], **fields}


def custom_tool(name: str = "get_weather", **fields: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    return {"name": name, "description": "", "input_schema": schema, **fields}


def frames_of(text: str) -> list[dict[str, Any]]:
    """The events of a stream. Each is named as its type says, on two lines."""
    found = []
    for part in text.removesuffix("\n\n").split("\n\n"):
        name, data = part.split("\n")
        frame = json.loads(data.removeprefix("data: "))
        assert name == f"event: {frame['type']}"
        found.append(frame)
    return found


def assert_order(frames: Sequence[dict[str, Any]]) -> None:
    """message_start (block_start delta* block_stop)* message_delta message_stop, pings anywhere after the first."""
    first, *rest = frames
    assert first["type"] == "message_start"
    *rest, reason, last = [frame for frame in rest if frame["type"] != "ping"]
    assert (reason["type"], last["type"]) == ("message_delta", "message_stop")
    index, kind = 0, ""
    for frame in rest:
        assert frame["index"] == index
        if frame["type"] == "content_block_start":
            assert not kind
            kind = frame["content_block"]["type"]
        elif frame["type"] == "content_block_delta":
            assert frame["delta"]["type"] in DELTAS[kind]
        else:
            assert frame["type"] == "content_block_stop"
            index, kind = index + 1, ""
    assert not kind
