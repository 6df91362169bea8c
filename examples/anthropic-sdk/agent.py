"""A whole agent in forty lines: the Anthropic SDK, one tool, a loop. usage: agent.py BASE_URL [QUESTION]"""

import json
import sys
from typing import Any

from anthropic import Anthropic

TOOLS: Any = [
    {
        "name": "get_weather",
        "description": "Get the current weather in a city",
        "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    }
]


def get_weather(city: str) -> str:
    return json.dumps({"city": city, "temperature": 21, "sky": "clear"})


def main(base_url: str, question: str) -> None:
    client = Anthropic(base_url=base_url, api_key="none")
    model = client.models.list().data[0].id
    messages: list[Any] = [{"role": "user", "content": question}]
    for _ in range(5):
        with client.messages.stream(model=model, max_tokens=512, messages=messages, tools=TOOLS) as stream:
            message = stream.get_final_message()
        calls = [block for block in message.content if block.type == "tool_use"]
        if not calls:
            print("".join(block.text for block in message.content if block.type == "text"))
            return
        results: list[Any] = []
        for call in calls:
            arguments: Any = call.input
            print(f"calling {call.name}({json.dumps(arguments)})")
            results.append({"type": "tool_result", "tool_use_id": call.id, "content": get_weather(**arguments)})
        messages += [{"role": "assistant", "content": message.content}, {"role": "user", "content": results}]


if __name__ == "__main__":
    main(sys.argv[1], " ".join(sys.argv[2:]) or "What's the weather in Lisbon?")
