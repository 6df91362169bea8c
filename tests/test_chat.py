"""ChatService over the scripted model: the whole path but HTTP. Refusals, limits, the second attempt, cancellation."""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import replace
from typing import Any

import pytest

from clover_agent.chat import ChatService, ServedModel
from clover_agent.engine import Engine, EngineOptions
from clover_agent.errors import ContextLengthExceeded, InvalidRequest, InvalidSchema, InvalidToolCall, Unavailable
from clover_agent.formats import FORMATS
from clover_agent.grammar import GrammarCompiler
from clover_agent.loading import EMBEDDED
from clover_agent.model.protocol import ModelSpec
from clover_agent.model.scripted import ScriptedModel, ScriptedReply
from clover_agent.parsing import Completion, collect
from clover_agent.templates import ChatTemplate, template_source
from clover_agent.tokenizer import Tokenizer
from clover_agent.types import (
    Conversation,
    Draft,
    Event,
    Finished,
    Message,
    SamplingParams,
    Segment,
    Started,
    TextDelta,
    Tool,
    ToolCallDone,
    ToolChoice,
    Usage,
)

TOKENIZER = Tokenizer.from_file(EMBEDDED / "tokenizer.json")
FORMAT = FORMATS["hermes_json"]
SPEC = ModelSpec(
    vocab_size=TOKENIZER.vocab_size,
    mask_token_id=TOKENIZER.control["<|mask|>"],
    end_token_ids=(TOKENIZER.control["<|im_end|>"],),
    block_size=32,
    max_context=2048,
)
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER = Tool("get_weather", "", CITY)
# `not` is beyond the grammar: it is loosened there and the result is checked.
PICKY = Tool("pick", "", {"type": "object", "properties": {"it": {"not": {"enum": ["a"]}}}, "required": ["it"]})
HELLO = Conversation((Message("user", "hello"),), enable_thinking=False)


def call(name: str, **arguments: Any) -> str:
    return FORMAT.encode(name, arguments)


@contextmanager
def service(reply: str | Callable[[str], str], **options: Any) -> Iterator[ChatService]:
    """A running service whose model answers `reply`, or what `reply` makes of the prompt's text."""

    def reply_for(ids: Sequence[int]) -> ScriptedReply:
        text = reply if isinstance(reply, str) else reply(TOKENIZER.decode(ids))
        return ScriptedReply(tuple(TOKENIZER.encode([Segment(text, trusted=True)])))

    model = ServedModel(
        names=("scripted",),
        tokenizer=TOKENIZER,
        template=ChatTemplate(template_source("hermes_json"), TOKENIZER.control),
        format=FORMAT,
        grammar=GrammarCompiler(TOKENIZER, SPEC.vocab_size, SPEC.end_token_ids, FORMAT),
        sampling=SamplingParams(),
        max_context=SPEC.max_context,
    )
    chat = ChatService(model, Engine(ScriptedModel(SPEC, reply_for), EngineOptions(**options)))
    chat.start()
    try:
        yield chat
    finally:
        chat.engine.close()


async def events_of(chat: ChatService, conversation: Conversation) -> list[Event]:
    async with aclosing(chat.stream(conversation)) as events:
        return [event async for event in events]


async def answer(chat: ChatService, conversation: Conversation) -> Completion:
    return collect(await events_of(chat, conversation))


def usage_of(completion: Completion) -> Usage:
    assert completion.usage is not None
    return completion.usage


async def test_the_first_event_tells_the_request_is_accepted_and_the_last_that_it_is_done() -> None:
    with service("Hello!") as chat:
        first, *middle, last = await events_of(chat, HELLO)
    assert isinstance(first, Started)
    assert first.grammar is None
    assert first.prompt_tokens > 0
    assert "".join(event.text for event in middle if isinstance(event, TextDelta)) == "Hello!"
    assert isinstance(last, Finished)
    assert last.reason == "stop"
    assert last.usage.prompt_tokens == first.prompt_tokens
    assert last.usage.completion_tokens == len(TOKENIZER.encode_text("Hello!"))


async def test_a_call_is_made_under_an_exact_grammar() -> None:
    with service(f"Wait.\n\n{call('get_weather', city='Lima')}") as chat:
        events = await events_of(chat, replace(HELLO, tools=(WEATHER,)))
    assert isinstance(events[0], Started)
    assert events[0].grammar == "exact"
    completion = collect(events)
    assert (completion.content, completion.finish) == ("Wait.", "tool_calls")
    assert json.loads(completion.tool_calls[0].arguments) == {"city": "Lima"}
    assert usage_of(completion).diffusion.forced_tokens > 0


async def test_the_grammar_overrules_the_model() -> None:
    required = replace(HELLO, tools=(WEATHER,), tool_choice=ToolChoice("required"), sampling={"max_tokens": 90})
    with service("I would rather talk about something else, if you do not mind.") as chat:
        completion = await answer(chat, required)
    if completion.finish == "tool_calls":
        assert set(json.loads(completion.tool_calls[0].arguments)) == {"city"}
    else:
        assert (completion.finish, completion.tool_calls) == ("length", ())


async def test_a_prompt_that_does_not_fit_is_refused_before_anything_starts() -> None:
    with service("x") as chat:
        with pytest.raises(ContextLengthExceeded, match="2048"):
            await answer(chat, replace(HELLO, messages=(Message("user", "word " * 4000),)))
        assert chat.engine.stats().finished == 0


async def test_absurd_limits_are_clamped_to_the_context() -> None:
    with service("again and again " * 1000) as chat:
        completion = await answer(chat, replace(HELLO, sampling={"max_tokens": 10**12}))
    usage = usage_of(completion)
    assert completion.finish == "length"
    assert usage.prompt_tokens + usage.completion_tokens == SPEC.max_context


async def test_a_bias_on_a_token_that_does_not_exist_is_refused() -> None:
    with service("x") as chat, pytest.raises(InvalidRequest, match="logit_bias"):
        await answer(chat, replace(HELLO, sampling={"logit_bias": ((10**6, 1.0),)}))


async def test_a_strict_schema_beyond_the_grammar_is_refused() -> None:
    with service("x") as chat, pytest.raises(InvalidSchema, match="not"):
        await answer(chat, replace(HELLO, tools=(replace(PICKY, strict=True),)))


async def test_a_loosened_schema_is_checked_and_a_bad_call_gets_a_second_attempt() -> None:
    attempts: list[str] = []

    def reply(prompt: str) -> str:
        attempts.append(prompt)  # the second prompt ends with what was said before the bad call
        return f"Hm.\n\n{call('pick', it='a')}" if len(attempts) == 1 else call("pick", it="b")

    with service(reply) as chat:
        events = await events_of(chat, replace(HELLO, tools=(PICKY,)))
    assert isinstance(events[0], Started)
    assert events[0].grammar == "loosened"
    completion = collect(events)
    assert completion.content == "Hm."
    assert [json.loads(c.arguments) for c in completion.tool_calls] == [{"it": "b"}]
    assert len(attempts) == 2
    assert attempts[1].startswith(attempts[0])


async def test_a_call_that_is_bad_twice_is_an_error_and_never_leaves() -> None:
    seen: list[Event] = []

    async def read(chat: ChatService) -> None:
        async for event in chat.stream(replace(HELLO, tools=(PICKY,))):
            seen.append(event)

    with service(call("pick", it="a")) as chat, pytest.raises(InvalidToolCall):
        await read(chat)
    assert not any(isinstance(event, ToolCallDone | Finished) for event in seen)


async def test_closing_the_stream_frees_the_slot() -> None:
    endless = "again and again " * 1000
    with service(lambda prompt: endless if "first" in prompt else "Hello!", max_num_seqs=1) as chat:
        stream = chat.stream(replace(HELLO, messages=(Message("user", "first"),)))
        async for event in stream:
            if isinstance(event, TextDelta):
                break
        await stream.aclose()
        completion = await answer(chat, HELLO)  # there is one slot: this waits until it is free
        assert completion.content == "Hello!"
        assert chat.engine.stats().cancelled == 1


async def test_drafts_come_only_when_asked_for() -> None:
    with service("one two three four five six seven eight nine ten eleven twelve") as chat:
        without = await events_of(chat, HELLO)
        with_drafts = await events_of(chat, replace(HELLO, include_drafts=True))
    assert not any(isinstance(event, Draft) for event in without)
    assert any(isinstance(event, Draft) and None in event.positions for event in with_drafts)
    assert collect(without).content == collect(with_drafts).content


async def test_a_closed_service_says_so() -> None:
    with service("x") as chat:
        await chat.close()
        assert not chat.healthy
        with pytest.raises(Unavailable):
            await answer(chat, HELLO)


async def test_the_operator_s_template_variables_apply_unless_the_request_has_its_own() -> None:
    with service(lambda prompt: "open" if prompt.endswith("<think>\n") else "closed") as chat:
        chat.model = replace(chat.model, template_kwargs={"enable_thinking": False})
        assert (await answer(chat, replace(HELLO, enable_thinking=None))).content == "closed"
        assert (await answer(chat, replace(HELLO, enable_thinking=True))).content != "closed"
