"""Prefix reuse through the chat service: turns as Hermes and Cline send them, told in `usage`."""

import json
from dataclasses import replace

import pytest

from clover_agent.chat import ChatService
from clover_agent.types import Conversation, Message, Tool, ToolCall
from tests.test_chat import FORMAT, TOKENIZER, answer, call, service, usage_of

SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}, "body": {"type": "string"}}}
WRITE = Tool("write", "Write text to a file. " * 20, {**SCHEMA, "required": ["path", "body"]})
TASK = Conversation((Message("system", "Be brief."), Message("user", "Write é to a.txt")), tools=(WRITE,))


def reply(prompt: str) -> str:
    if "wrote it" in prompt:
        return "All right.\n</think>\n\nDone."
    return f"Hm.\n</think>\n\n{call('write', path='a.txt', body='é')}"


def input_length(chat: ChatService, conversation: Conversation) -> int:
    """Tokens up to the end of the last input message."""
    prompt = chat.model.template.render(conversation, add_generation_prompt=False)
    return len(TOKENIZER.encode(prompt.segments))


@pytest.mark.parametrize("echo", [True, False], ids=["cline", "hermes"])
async def test_a_turn_reuses_all_up_to_the_last_input(echo: bool) -> None:
    """Cline echoes the thought; Hermes drops it and sorts and escapes the arguments."""
    with service(reply, prefix_cache=1 << 24) as chat:
        first = await answer(chat, TASK)
        arguments = json.dumps(json.loads(first.tool_calls[0].arguments), sort_keys=not echo, ensure_ascii=not echo)
        said = Message(
            "assistant",
            reasoning=first.reasoning if echo else None,
            tool_calls=(ToolCall("c1", "write", arguments),),
        )
        next_turn = replace(TASK, messages=(*TASK.messages, said, Message("tool", "wrote it", tool_call_id="c1")))
        second = await answer(chat, next_turn)
        assert second.content == "Done."
        assert usage_of(first).diffusion.cached_tokens == 0
        assert usage_of(second).diffusion.cached_tokens >= input_length(chat, TASK)
        new_task = replace(TASK, messages=(TASK.messages[0], Message("user", "Something else")))
        third = await answer(chat, new_task)
        tools = usage_of(third).diffusion.cached_tokens
        assert usage_of(third).prompt_tokens - tools < 20
        stats = chat.engine.stats().cache
        assert (stats.queries, stats.hits) == (3, 2)
    chat.engine.check_integrity()
    assert FORMAT.name == "hermes_json"


async def test_a_warm_answer_is_the_cold_one() -> None:
    with service(reply) as cold, service(reply, prefix_cache=1 << 24) as warm:
        answers = [await answer(chat, TASK) for chat in (cold, warm, warm)]
    assert usage_of(answers[2]).diffusion.cached_tokens > 0
    assert len({(a.content, a.reasoning, a.tool_calls[0].arguments) for a in answers}) == 1


async def test_a_second_attempt_does_not_count_its_own_words_as_cached() -> None:
    picky = Tool("pick", "", {"type": "object", "properties": {"it": {"not": {"enum": ["a"]}}}, "required": ["it"]})
    replies = iter([call("pick", it="a"), call("pick", it="b")])
    first, second = (f"{'Well. ' * 30}\n\n{text}" for text in replies)
    attempts: list[str] = []

    def retried(prompt: str) -> str:
        attempts.append(prompt)
        return second if len(attempts) > 1 else first

    wish = Conversation((Message("user", "pick"),), tools=(picky,), enable_thinking=False)
    with service(retried, prefix_cache=1 << 24) as chat:
        usage = usage_of(await answer(chat, wish))
    assert usage.diffusion.cached_tokens <= usage.prompt_tokens
