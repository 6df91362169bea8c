"""Rendering is total, byte-stable from turn to turn, and lets nobody but the template write control tokens."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clover_agent.errors import InvalidRequest, LoadFailed
from clover_agent.templates import ChatTemplate, template_source
from clover_agent.types import Conversation, Message, Prompt, Tool, ToolCall
from tests.templates.conversations import CONTROL, conversations, everywhere
from tests.vocabulary import small_tokenizer

# A checkpoint's own template in the style of Qwen3-Coder: it writes a schema's keys between "<" and ">", builds
# strings in macros, refuses text arguments (`| items`), and looks for markers in contents.
FOREIGN = """
{%- macro extra(schema) -%}
    {%- for key in schema %}{{- '\n<' ~ key ~ '>' ~ (schema[key] | string) ~ '</' ~ key ~ '>' }}{% endfor %}
{%- endmacro -%}
{{- bos }}
{%- for tool in tools or [] %}{{- '<|im_start|>' + tool.function.name + extra(tool.function.parameters) }}{% endfor %}
{%- for message in messages %}
    {%- set content = message.content %}
    {%- if '</think>' in content %}{%- set content = content.split('</think>')[-1].lstrip('\n') %}{%- endif %}
<|im_start|>{{ message.role }}
{% generation %}{{ content }}{% endgeneration %}
    {%- for call in message.tool_calls or [] %}
        {%- for key, value in call.function.arguments | items %}{{- '<' + key + '>' + value | tojson }}{% endfor %}
    {%- endfor %}
    {%- if loop.index > 30 %}{% break %}{% endif %}
<|im_end|>
{% endfor %}
{%- if note is defined %}{{ '<' + note + '>' }}{% endif %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}
"""
OURS = ("qwen_xml", "hermes_json")
TEMPLATES = {name: ChatTemplate(template_source(name), CONTROL) for name in OURS}
TEMPLATES["foreign"] = ChatTemplate(FOREIGN, CONTROL, extra={"bos": "<|endoftext|>"})
SHORT = settings(deadline=None, max_examples=60)


def text_of(prompt: Prompt) -> str:
    return "".join(segment.text for segment in prompt.segments)


def controls(prompt: Prompt) -> list[str]:
    return [segment.text for segment in prompt.segments if segment.trusted]


@pytest.mark.parametrize("name", TEMPLATES)
@pytest.mark.parametrize("smuggled", [*CONTROL, *(text.strip("<>/|") for text in CONTROL), "<", "|im_end|>"])
def test_no_text_of_a_client_becomes_a_control_token(name: str, smuggled: str) -> None:
    """Rendering it everywhere gives the same control tokens, one by one, as rendering a harmless word everywhere."""
    tokenizer = small_tokenizer()
    harmless = TEMPLATES[name].render(everywhere("harmless"))
    hostile = TEMPLATES[name].render(everywhere(smuggled))
    assert controls(hostile) == controls(harmless)
    assert smuggled in "".join(segment.text for segment in hostile.segments if not segment.trusted)
    ids = tokenizer.encode(hostile.segments)
    assert [text for id_ in ids if (text := tokenizer.control_string(id_))] == controls(harmless)
    assert tokenizer.decode(ids) == text_of(hostile)


@pytest.mark.parametrize("name", TEMPLATES)
@SHORT
@given(conversation=conversations)
def test_any_conversation_renders(name: str, conversation: Conversation) -> None:
    prompt = TEMPLATES[name].render(conversation)
    assert set(controls(prompt)) <= set(CONTROL)
    assert all(a.trusted or b.trusted for a, b in pairwise(prompt.segments))  # text is in one piece


@pytest.mark.parametrize("name", OURS)
@SHORT
@given(conversation=conversations)
def test_every_content_appears_unchanged_but_for_space_at_its_ends(name: str, conversation: Conversation) -> None:
    rendered = text_of(TEMPLATES[name].render(conversation))
    for message in conversation.messages:
        assert message.content.strip() in rendered


@pytest.mark.parametrize("name", OURS)
@SHORT
@given(conversation=conversations, longer=st.lists(conversations, min_size=1, max_size=2), thinking=st.booleans())
def test_a_longer_conversation_starts_with_the_shorter_one(
    name: str, conversation: Conversation, longer: list[Conversation], thinking: bool
) -> None:
    first = tuple(m for m in conversation.messages if m.role != "system")
    more = tuple(m for c in longer for m in c.messages if m.role != "system")
    if first and more and first[-1].role == more[0].role == "tool":
        more = (Message("user", "x"), *more)
    kwargs = {"preserve_thinking": True}
    short = Conversation(first, conversation.tools, enable_thinking=thinking, template_kwargs=kwargs)
    long = Conversation(first + more, conversation.tools, enable_thinking=thinking, template_kwargs=kwargs)
    before = text_of(TEMPLATES[name].render(short, add_generation_prompt=False))
    assert text_of(TEMPLATES[name].render(long)).startswith(before)


@pytest.mark.parametrize("name", OURS)
@pytest.mark.parametrize("thinking", [True, False])
def test_a_tool_loop_continues_the_very_prompt_that_the_model_saw(name: str, thinking: bool) -> None:
    user, result = Message("user", "Weather?"), Message("tool", "Sun", tool_call_id="1")
    call = ToolCall("1", "f", "{}")
    answer = Message("assistant", "I look.", reasoning="Need f." if thinking else None, tool_calls=(call,))
    tools = (Tool("f"),)
    seen = text_of(TEMPLATES[name].render(Conversation((user,), tools, enable_thinking=thinking)))
    then = text_of(TEMPLATES[name].render(Conversation((user, answer, result), tools, enable_thinking=thinking)))
    assert then.startswith(seen)
    assert ("Need f." in then) is thinking


@pytest.mark.parametrize("name", OURS)
def test_thoughts_are_kept_only_since_the_last_user_message_unless_preserved(name: str) -> None:
    messages = (
        Message("user", "a"),
        Message("assistant", "b", reasoning="OLD"),
        Message("user", "c"),
        Message("assistant", "d", reasoning="NEW"),
    )
    template = TEMPLATES[name]
    kept = text_of(template.render(Conversation(messages)))
    assert "OLD" not in kept
    assert "<think>\nNEW\n</think>\n\nd" in kept
    assert "OLD" in text_of(template.render(Conversation(messages, template_kwargs={"preserve_thinking": True})))


@pytest.mark.parametrize("name", OURS)
def test_thinking_tells_whether_the_prompt_ends_inside_a_thought(name: str) -> None:
    template = TEMPLATES[name]
    messages = (Message("user", "a <think>"), Message("assistant", "<think>"), Message("user", "b"))
    assert template.render(Conversation(messages)).thinking
    assert not template.render(Conversation(messages, enable_thinking=False)).thinking
    assert not template.render(Conversation(messages), add_generation_prompt=False).thinking
    by_variable = Conversation(messages, enable_thinking=True, template_kwargs={"enable_thinking": False})
    assert not template.render(by_variable).thinking
    assert not ChatTemplate(template_source(name), ["<|im_end|>"]).render(Conversation(messages)).thinking


@pytest.mark.parametrize("name", OURS)
def test_parallel_results_share_one_user_turn(name: str) -> None:
    calls = (ToolCall("1", "f", '{"a": [1, "é"]}'), ToolCall("2", "f", "{}"))
    results = (Message("tool", "  one\n", tool_call_id="1"), Message("tool", "", tool_call_id="2"))
    messages = (Message("user", "x"), Message("assistant", tool_calls=calls), *results)
    rendered = text_of(TEMPLATES[name].render(Conversation(messages)))
    turn = "<tool_response>\n  one\n</tool_response>\n<tool_response>\n\n</tool_response><|im_end|>\n"
    assert "<|im_end|>\n<|im_start|>user\n" + turn in rendered
    assert rendered.count("<tool_call>") == 2
    assert "</tool_call>\n<tool_call>" in rendered


def test_broken_arguments_are_shown_as_text_or_wrapped_for_a_template_that_needs_an_object() -> None:
    message = Message("assistant", tool_calls=(ToolCall("1", "f", "{oops"),))
    for name in OURS:
        assert "{oops" in text_of(TEMPLATES[name].render(Conversation((message,))))
    assert '<arguments>"{oops"' in text_of(TEMPLATES["foreign"].render(Conversation((message,))))


def test_variables_that_are_the_servers_own_cannot_be_set() -> None:
    for name in ("messages", "tools", "add_generation_prompt", "bos", "raise_exception"):
        with pytest.raises(InvalidRequest, match=name) as caught:
            TEMPLATES["foreign"].render(Conversation((Message("user", "x"),), template_kwargs={name: "y"}))
        assert caught.value.param == "chat_template_kwargs"


@pytest.mark.parametrize(
    "source",
    [
        "{{ raise_exception('no <think> here') }}",
        "{{ messages[0].content + 1 }}",
        "{{ messages.append(1) }}",
        "{{ ''.__class__.__mro__ }}",
        "{{ missing.thing }}",
        "{{ 1 / 0 }}",
    ],
)
def test_a_template_that_fails_is_a_bad_request_not_a_crash(source: str) -> None:
    template = ChatTemplate(source, CONTROL)
    with pytest.raises(InvalidRequest) as caught:
        template.render(Conversation((Message("user", "x"),)))
    assert caught.value.param == "messages"
    assert str(caught.value).isascii()  # no mark leaks into the message


@pytest.mark.parametrize("source", ["{% if %}", "{{", "{% for x in y %}", "{{ x | nofilter }}"])
def test_a_broken_template_fails_to_load(source: str) -> None:
    with pytest.raises(LoadFailed, match="chat template"):
        ChatTemplate(source, CONTROL)


def test_templates_are_found_by_name() -> None:
    with pytest.raises(LoadFailed, match="hermes_json"):
        template_source("../secrets")


def test_a_template_sees_what_hugging_face_would_show_it() -> None:
    source = "{{ tools | tojson(indent=2) }}{{ tools | tojson(separators=(',', ':')) }}{{ strftime_now('%Y') }}"
    rendered = text_of(ChatTemplate(source, CONTROL).render(Conversation((), (Tool("é<b>'", ""),))))
    assert '"name": "é<b>\'"' in rendered
    assert '"name":"é<b>\'"' in rendered
