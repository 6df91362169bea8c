"""A whole agent in forty lines: the OpenAI SDK, one tool, a loop. usage: agent.py BASE_URL [QUESTION]"""

import json
import sys
from typing import Any

from openai import OpenAI

TOOLS: Any = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "Get the current weather in a city",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        },
    }
]


def get_weather(city: str) -> str:
    return json.dumps({"city": city, "temperature": 21, "sky": "clear"})


def main(base_url: str, question: str) -> None:
    client = OpenAI(base_url=base_url, api_key="none")
    model = client.models.list().data[0].id
    messages: list[Any] = [{"role": "user", "content": question}]
    for _ in range(5):
        message = client.chat.completions.create(model=model, messages=messages, tools=TOOLS).choices[0].message
        messages.append(message.model_dump(exclude_none=True))
        if not message.tool_calls:
            print(message.content)
            return
        for call in message.tool_calls:
            if call.type == "function":
                print(f"calling {call.function.name}({call.function.arguments})")
                result = get_weather(**json.loads(call.function.arguments))
                messages.append({"role": "tool", "tool_call_id": call.id, "content": result})


if __name__ == "__main__":
    main(sys.argv[1], " ".join(sys.argv[2:]) or "What's the weather in Lisbon?")
