"""The SDK's stream helper, which is stricter about chunks than `create(stream=True)`: it puts the message together."""

import json
from typing import Any

from tests.e2e.conftest import WEATHER


def streamed(client: Any, messages: list[Any]) -> tuple[list[str], Any]:
    """The kinds of events that the helper makes of a stream, and its final message."""
    with client.chat.completions.stream(model="replay", messages=messages, tools=[WEATHER]) as stream:
        kinds = [event.type for event in stream]
    return kinds, stream.get_final_completion().choices[0].message


def test_a_tool_conversation(replay: Any) -> None:
    messages: list[Any] = [{"role": "user", "content": "both, please"}]
    kinds, message = streamed(replay, messages)
    assert kinds.count("tool_calls.function.arguments.done") == 2
    assert [json.loads(call.function.arguments)["city"] for call in message.tool_calls] == ["Lisbon", "Oslo"]
    messages.append(message.model_dump(exclude_none=True))
    messages += [{"role": "tool", "tool_call_id": call.id, "content": "22"} for call in message.tool_calls]
    kinds, message = streamed(replay, messages)
    assert "content.done" in kinds
    assert message.content == "It is 22 degrees in Lisbon."
