"""The OpenAI Agents SDK: a tool loop, streamed and plain. usage: openai_agents_loop.py BASE_URL chat|responses"""

import asyncio
import json
import sys

from agents import Agent, OpenAIChatCompletionsModel, OpenAIResponsesModel, Runner, function_tool, set_tracing_disabled
from openai import AsyncOpenAI

MODELS = {"chat": OpenAIChatCompletionsModel, "responses": OpenAIResponsesModel}


@function_tool
def get_weather(city: str) -> str:
    """Get the current weather in a city."""
    return f"{city}: 22"


async def main(base_url: str, face: str) -> None:
    set_tracing_disabled(True)
    client = AsyncOpenAI(base_url=base_url, api_key="none", max_retries=0)
    model = MODELS[face](model="clover", openai_client=client)
    agent = Agent(name="weather", instructions="Answer in one sentence.", model=model, tools=[get_weather])
    asked = "What's the weather in Lisbon and in Oslo?"
    plain = await Runner.run(agent, asked)
    streamed = Runner.run_streamed(agent, asked)
    events = [event.type async for event in streamed.stream_events()]
    for result in (plain, streamed):
        calls = [item.raw_item.arguments for item in result.new_items if item.type == "tool_call_item"]
        print(json.dumps({"said": result.final_output, "calls": calls, "streamed": bool(events)}))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
