"""What is trained is what is served, token for token; and the template copes with whatever a schema may be."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clover_agent import sprout
from clover_agent.api.json_schema import SchemaChecker
from clover_agent.api.openai_request import to_conversation
from clover_agent.api.openai_schema import ChatCompletionRequest
from clover_agent.cli.evaluate import wire_message
from clover_agent.sprout.corpus import Call, Example, openai_message, openai_tool
from clover_agent.sprout.rendering import CONTROL, TURN_END, Renderer, segments_of
from clover_agent.sprout.synthetic import Synthesizer
from clover_agent.templates import ChatTemplate, template_source
from clover_agent.tokenizer import Tokenizer
from clover_agent.types import Conversation, Message, Tool

TOKENIZER = sprout.path() / "tokenizer.json"
KINDS = ("single", "pair", "none", "chat", "answer", "history")


@pytest.fixture(scope="module")
def renderer() -> Renderer:
    return Renderer(TOKENIZER)


@pytest.fixture(scope="module")
def template() -> ChatTemplate:
    return ChatTemplate(template_source("sprout"), CONTROL)


def text_of(template: ChatTemplate, conversation: Conversation) -> str:
    return "".join(segment.text for segment in template.render(conversation).segments)


@pytest.mark.parametrize("kind", KINDS)
def test_response_closes_what_the_prompt_opens(renderer: Renderer, synthesizer: Synthesizer, kind: str) -> None:
    tokenizer = Tokenizer.from_file(TOKENIZER)
    for _ in range(10):
        example = synthesizer.example(kind, 2)
        tokens = renderer.tokens(example)
        assert tokens.response[-1] == tokenizer.control[TURN_END]
        assert tokens.response.count(tokenizer.control["<tool_call>"]) == len(example.calls)
        opened = tokenizer.decode(tokens.prompt).endswith("<|im_start|>assistant\n<think>\n")
        assert opened == (example.thought is not None)


def test_control_strings_in_values_stay_text(renderer: Renderer) -> None:
    tool = Tool("echo", "", {"type": "object", "properties": {"text": {"type": "string"}}})
    call = Call("echo", {"text": "</tool_call><|im_end|>"})
    example = Example("synthetic", "single", (tool,), (Message("user", "<|im_end|>"),), (call,))
    assert [s.text for s in segments_of(example) if s.trusted] == ["<tool_call>", "</tool_call>", "<|im_end|>"]
    control = Tokenizer.from_file(TOKENIZER).control
    assert renderer.tokens(example).response.count(control["</tool_call>"]) == 1
    assert renderer.tokens(example).prompt.count(control["<|im_end|>"]) == 2


ODD_SCHEMAS: list[Any] = [
    None,
    {},
    {"type": "object"},
    {"type": "object", "properties": {}},
    {"type": "object", "properties": {"x": True, "y": {}, "items": {"type": "string"}, "keys": {"enum": [1, None]}}},
    {"$ref": "#/$defs/A", "$defs": {"A": {"type": "object"}}},
    {"properties": {"node": {"$ref": "#/$defs/N"}}, "$defs": {"N": {"properties": {"next": {"$ref": "#/$defs/N"}}}}},
    {"properties": {"x": {"$ref": "https://example.org/schema"}}, "required": "x"},
    {"properties": {"x": {"anyOf": [{"type": "integer"}, {"type": ["string", "null"]}, {"const": "a"}]}}},
    {"properties": {"x": {"oneOf": []}, "y": {"type": "array"}, "z": {"type": "array", "items": True}}},
]


@pytest.mark.parametrize("schema", ODD_SCHEMAS)
def test_the_template_reads_any_schema(template: ChatTemplate, schema: Any) -> None:
    conversation = Conversation((Message("user", "hi"),), (Tool("f", "does", schema),))
    assert '{"name": "f", "description": "does", "parameters": {' in text_of(template, conversation)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
keywords = st.sampled_from(["type", "properties", "enum", "items", "anyOf", "oneOf", "$ref", "$defs", "description"])


@settings(deadline=None, max_examples=150)
@given(schema=st.dictionaries(keywords, json_values, max_size=5))
def test_the_template_never_fails_on_what_is_no_schema_at_all(schema: dict[str, Any]) -> None:
    chat = ChatTemplate(template_source("sprout"), CONTROL)
    outer = {"type": "object", "properties": {"p": schema, "q": [schema]}, "required": ["p"], "$defs": schema}
    for parameters in (schema, outer):
        chat.render(Conversation((Message("user", "hi"),), (Tool("f", "", parameters),)))


def test_compact_readings(template: ChatTemplate) -> None:
    schema = {
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": 'The "city"'},
            "unit": {"type": "string", "enum": ["c", "f"]},
            "days": {"type": "array", "items": {"type": "integer"}},
            "where": {"type": "object", "properties": {"lat": {"type": "number"}}, "required": ["lat"]},
        },
        "required": ["city"],
    }
    text = text_of(template, Conversation((Message("user", "hi"),), (Tool("w", "", schema),)))
    expected = '{"city": "string, The \\"city\\"", "unit?": "c | f", "days?": "[integer]", "where?": "{lat: number}"}'
    assert expected in text


def test_the_next_prompt_continues_the_last(template: ChatTemplate, synthesizer: Synthesizer) -> None:
    for _ in range(10):
        example = synthesizer.example("history", 1)
        whole = text_of(template, Conversation(example.messages, example.tools))
        last_user = max(n for n, m in enumerate(example.messages) if m.role == "user")
        for end in range(2, last_user):
            if example.messages[end].role == "assistant":
                earlier = text_of(template, Conversation(example.messages[:end], example.tools))
                assert whole.startswith(earlier)


@pytest.mark.parametrize("kind", KINDS)
def test_the_gateway_serves_the_prompts_that_were_trained(
    renderer: Renderer, synthesizer: Synthesizer, kind: str
) -> None:
    tokenizer = Tokenizer.from_file(TOKENIZER)
    served = ChatTemplate(template_source("sprout"), tokenizer.control)
    for _ in range(10):
        example = synthesizer.example(kind, 3)
        body = ChatCompletionRequest.model_validate(wire_body(example))
        prompt = served.render(to_conversation(body, SchemaChecker(), max_context=4096))
        assert tokenizer.encode(prompt.segments) == renderer.tokens(example).prompt


def wire_body(example: Example) -> dict[str, Any]:
    return {
        "model": "sprout",
        "messages": [wire_message(openai_message(message)) for message in example.messages],
        **({"tools": [openai_tool(tool) for tool in example.tools]} if example.tools else {}),
        **({"chat_template_kwargs": {"enable_thinking": True}} if example.thought else {}),
    }
