"""Responses on the wire: a small request, and what every stream of one must look like."""

import json
from collections.abc import Sequence
from typing import Any

RESPONSES = "/v1/responses"
TERMINAL = ("response.completed", "response.incomplete", "response.failed")


def responses_body(**fields: Any) -> dict[str, Any]:
    return {"model": "sprout", "input": "Hi", **fields}


def function_tool(name: str = "get_weather", **fields: Any) -> dict[str, Any]:
    parameters = {"type": "object", "properties": {"city": {"type": "string"}}}
    return {"type": "function", "name": name, "parameters": parameters, **fields}


def frames_of(text: str) -> list[dict[str, Any]]:
    """The events of a stream, each named as its type."""
    frames = []
    for block in text.split("\n\n"):
        lines = [line for line in block.split("\n") if line and not line.startswith(":")]
        if not lines:
            continue
        name, data = lines
        frame = json.loads(data.removeprefix("data: "))
        assert name == f"event: {frame['type']}"
        frames.append(frame)
    return frames


def assert_order(frames: Sequence[dict[str, Any]]) -> None:
    """Numbered without a gap; items one after another, each with its parts; one terminal event that has them all."""
    assert [frame["sequence_number"] for frame in frames] == list(range(len(frames)))
    kinds = [frame["type"] for frame in frames]
    assert kinds[:2] == ["response.created", "response.in_progress"]
    assert [kind for kind in kinds if kind in TERMINAL] == kinds[-1:]
    item: dict[str, Any] | None = None
    done: list[dict[str, Any]] = []
    text = ""
    for frame in frames[2:-1]:
        kind = frame["type"].removeprefix("response.")
        if kind == "in_progress":
            continue
        assert frame["output_index"] == len(done)
        if kind == "output_item.added":
            assert item is None
            item, text = frame["item"], ""
            assert item["status"] == "in_progress"
            continue
        assert item is not None
        if kind == "output_item.done":
            assert frame["item"]["id"] == item["id"]
            done.append(frame["item"])
            item = None
            continue
        assert frame["item_id"] == item["id"]
        if kind.endswith(".delta"):
            text += frame["delta"]
        elif kind.endswith("text.done"):
            assert frame["text"] == text
        elif kind.endswith(("arguments.done", "input.done")):
            assert frame[kind.rpartition("_")[2].removesuffix(".done")] == text
    if kinds[-1] != "response.failed":
        assert item is None
    assert frames[-1]["response"]["output"] == done
