"""The four ways to ask LiteLLM, and what each answer comes to."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import litellm
from openai import OpenAI

Outcome = dict[str, Any]


def completion(**request: Any) -> Outcome:
    return _whole(litellm.completion(**request))


def acompletion(**request: Any) -> Outcome:
    return _whole(asyncio.run(litellm.acompletion(**request)))


def stream(**request: Any) -> Outcome:
    return _folded(list(litellm.completion(**request, stream=True, stream_options={"include_usage": True})))


def astream(**request: Any) -> Outcome:
    async def read() -> list[Any]:
        chunks = await litellm.acompletion(**request, stream=True, stream_options={"include_usage": True})
        return [chunk async for chunk in chunks]

    return _folded(asyncio.run(read()))


WAYS: Mapping[str, Callable[..., Outcome]] = {
    "completion": completion,
    "acompletion": acompletion,
    "stream": stream,
    "astream": astream,
}


def directly(url: str, **request: Any) -> Outcome:
    """What the gateway itself answers."""
    with OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
        extra = request.pop("extra_body", {})
        return _whole(client.chat.completions.create(**request, extra_body=extra))


def _whole(answer: Any) -> Outcome:
    (choice,) = answer.choices
    message = choice.message
    return {
        "content": message.content or "",
        "reasoning": getattr(message, "reasoning_content", None) or "",
        "calls": [(call.function.name, call.function.arguments) for call in message.tool_calls or ()],
        "finish": choice.finish_reason,
        "usage": _usage(answer.usage),
    }


def _folded(chunks: list[Any]) -> Outcome:
    content = reasoning = ""
    calls: dict[int, list[str]] = {}
    finishes, usages = [], []
    for chunk in chunks:
        usages += [usage] if (usage := getattr(chunk, "usage", None)) else []
        for choice in chunk.choices:
            finishes += [choice.finish_reason] if choice.finish_reason else []
            content += choice.delta.content or ""
            reasoning += getattr(choice.delta, "reasoning_content", None) or ""
            for delta in choice.delta.tool_calls or ():
                call = calls.setdefault(delta.index, ["", ""])
                call[0] += delta.function.name or ""
                call[1] += delta.function.arguments or ""
    (finish,), (usage,) = finishes, usages
    called = [(name, arguments) for name, arguments in calls.values()]
    return {"content": content, "reasoning": reasoning, "calls": called, "finish": finish, "usage": _usage(usage)}


def _usage(usage: Any) -> dict[str, int]:
    return {
        "prompt": usage.prompt_tokens,
        "completion": usage.completion_tokens,
        "total": usage.total_tokens,
        "cached": usage.prompt_tokens_details.cached_tokens,
        "reasoning": usage.completion_tokens_details.reasoning_tokens,
    }
