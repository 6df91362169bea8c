"""An agent loop in forty lines, on the OpenAI SDK: python examples/openai-sdk/agent.py "What's the weather in Lisbon?" """

import json
import os
import sys

from openai import OpenAI

WEATHER = {"Lisbon": "22 degrees, sunny", "Oslo": "4 degrees, snow"}
MODEL = os.environ.get("MODEL", "clover")
client = OpenAI(base_url=os.environ.get("BASE_URL", "http://127.0.0.1:8000/v1"), api_key="none")


def get_weather(city: str) -> str:
    return json.dumps({"city": city, "weather": WEATHER.get(city, "unknown")})


FUNCTIONS = {"get_weather": get_weather}
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "Get the current weather in a city",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string", "description": "The name of the city"}},
                "required": ["city"],
            },
        },
    }
]

messages = [{"role": "user", "content": sys.argv[1]}]
for _ in range(10):
    with client.chat.completions.stream(model=MODEL, messages=messages, tools=TOOLS) as stream:
        for event in stream:
            if event.type == "content.delta":
                print(event.delta, end="", flush=True)
    message = stream.get_final_completion().choices[0].message
    messages.append(message.model_dump(exclude_none=True, exclude={"parsed"}))
    if not message.tool_calls:
        break
    for call in message.tool_calls:
        print(f"[{call.function.name} {call.function.arguments}]")
        result = FUNCTIONS[call.function.name](**json.loads(call.function.arguments))
        messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
print()
