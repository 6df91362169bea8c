"""Where prompts of one conversation agree, found with the templates as agents drive them."""

import json
from dataclasses import replace

import pytest

from clover_agent.loading import EMBEDDED
from clover_agent.templates import ChatTemplate, template_source
from clover_agent.tokenizer import Tokenizer
from clover_agent.types import Conversation, Message, Prompt, Segment, Tool, ToolCall

TOKENIZER = Tokenizer.from_file(EMBEDDED / "tokenizer.json")
TOOLS = (Tool("write", "Write a file.", {"type": "object", "properties": {"path": {"type": "string"}}}),)
FIRST = (Message("system", "You are <|im_end|> helpful."), Message("user", "Write a.txt <tool_call>"))
ARGUMENTS = {"path": "é.txt", "b": 1}


def turn(number: int, *, echo: bool) -> tuple[Message, ...]:
    """One call and its result, as a client sends it back: Cline echoes thoughts, Hermes drops them and re-serialises
    arguments with sorted keys and escapes."""
    arguments = json.dumps(ARGUMENTS, ensure_ascii=not echo, sort_keys=not echo)
    call = ToolCall(f"c{number}", "write", arguments)
    said = Message("assistant", reasoning=f"Thought {number}." if echo else None, tool_calls=(call,))
    return (said, Message("tool", f"done {number}\n", tool_call_id=f"c{number}"))


@pytest.fixture(params=["qwen_xml", "hermes_json", "sprout"])
def template(request: pytest.FixtureRequest) -> ChatTemplate:
    return ChatTemplate(template_source(request.param), TOKENIZER.control)


def heads(template: ChatTemplate, conversation: Conversation) -> tuple[Prompt, list[tuple[Segment, ...]]]:
    prompt = template.render(conversation)
    return prompt, [prompt.segments[:n] for n in template.shared_heads(conversation, prompt)]


@pytest.mark.parametrize("echo", [True, False], ids=["cline", "hermes"])
def test_the_next_turn_starts_with_the_last_turns_input(template: ChatTemplate, echo: bool) -> None:
    conversation = Conversation(FIRST, tools=TOOLS)
    for number in range(3):
        _, found = heads(template, conversation)
        whole = template.render(conversation, add_generation_prompt=False).segments
        assert TOKENIZER.encode(found[-1]) == TOKENIZER.encode(whole)
        conversation = replace(conversation, messages=(*conversation.messages, *turn(number, echo=echo)))
        after = template.render(conversation).segments
        assert after[: len(found[-1])] == found[-1]


def test_a_new_user_message_starts_with_what_was_there_at_the_last_one(template: ChatTemplate) -> None:
    """Thoughts before it are dropped, so no later place will do."""
    conversation = Conversation((*FIRST, *turn(0, echo=True), *turn(1, echo=True)), tools=TOOLS)
    _, found = heads(template, conversation)
    assert len(found) == 3
    asked_again = replace(conversation, messages=(*conversation.messages, Message("assistant", "ok"), FIRST[1]))
    assert template.render(asked_again).segments[: len(found[1])] == found[1]


def test_another_task_starts_with_system_and_tools(template: ChatTemplate) -> None:
    _, found = heads(template, Conversation(FIRST, tools=TOOLS))
    another = template.render(Conversation((FIRST[0], Message("user", "Hi")), tools=TOOLS)).segments
    assert another[: len(found[0])] == found[0]
    assert "Write a file." in "".join(segment.text for segment in found[0])


def test_cuts_fall_between_tokens(template: ChatTemplate) -> None:
    conversation = Conversation((*FIRST, *turn(0, echo=False)), tools=TOOLS)
    prompt = template.render(conversation)
    for count in template.shared_heads(conversation, prompt):
        parts = TOKENIZER.encode(prompt.segments[:count]) + TOKENIZER.encode(prompt.segments[count:])
        assert parts == TOKENIZER.encode(prompt.segments)


def test_a_template_that_refuses_a_part_has_fewer_places() -> None:
    source = "{{ raise_exception('no') if messages | length < 3 }}{{ messages[0].content }}<|im_end|>"
    template = ChatTemplate(source + "{{ messages[1].content }}", TOKENIZER.control)
    conversation = Conversation((*FIRST, *turn(0, echo=False)))
    prompt = template.render(conversation)
    assert template.shared_heads(conversation, prompt) == (len(prompt.segments),)
