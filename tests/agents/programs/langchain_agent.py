"""LangChain's ChatOpenAI: a tool loop, streamed and plain. usage: langchain_agent.py BASE_URL"""

import json
import sys
from typing import Any

from langchain_core.messages import HumanMessage, ToolMessage
from langchain_openai import ChatOpenAI


def get_weather(city: str) -> str:
    """Get the current weather in a city."""
    return f"{city}: 22"


def streamed(model: Any, messages: list[Any]) -> Any:
    whole = None
    for chunk in model.stream(messages):
        whole = chunk if whole is None else whole + chunk
    return whole


def told(message: Any) -> dict[str, Any]:
    calls = [[call["name"], call["args"]] for call in message.tool_calls]
    usage = message.usage_metadata["total_tokens"]
    return {"text": message.content, "calls": calls, "tokens": usage}


def main(base_url: str) -> None:
    chat = ChatOpenAI(base_url=base_url, api_key="none", model="clover", max_retries=0, stream_usage=True)
    model = chat.bind_tools([get_weather])
    messages: list[Any] = [HumanMessage("What's the weather in Lisbon and in Oslo?")]
    for _ in range(3):
        answer = streamed(model, messages)
        print(json.dumps({**told(answer), "same": told(answer) == told(model.invoke(messages))}))
        if not answer.tool_calls:
            return
        messages.append(answer)
        messages += [ToolMessage(get_weather(**call["args"]), tool_call_id=call["id"]) for call in answer.tool_calls]


if __name__ == "__main__":
    main(sys.argv[1])
