"""Conversations to render: hypothesis strategies, and one that has the same text in every place a client can fill."""

import json

from hypothesis import strategies as st

from clover_agent.types import Conversation, Message, Tool, ToolCall
from tests.vocabulary import MERELY_ADDED, SPECIAL

CONTROL = SPECIAL + MERELY_ADDED
PRIVATE = tuple(map(chr, (0x100000, 0x10FFF4, 0x10FFFC, 0x10FFFD)))

client_text = st.lists(
    st.one_of(st.text(max_size=12), st.sampled_from((*CONTROL, *PRIVATE, "<", ">", "\n", "tool_call", "{{ x }}"))),
    max_size=4,
).map("".join)
json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), client_text),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(client_text, inner, max_size=3)),
    max_leaves=6,
)
objects = st.dictionaries(client_text, json_values, max_size=3)
calls = st.builds(ToolCall, client_text, client_text, st.one_of(client_text, objects.map(json.dumps)))
messages = st.one_of(
    st.builds(Message, st.sampled_from(("system", "user", "assistant")), client_text),
    st.builds(
        Message,
        st.just("assistant"),
        client_text,
        reasoning=st.none() | client_text,
        tool_calls=st.lists(calls, max_size=3).map(tuple),
    ),
    st.builds(
        Message, st.just("tool"), client_text, tool_call_id=st.none() | client_text, name=st.none() | client_text
    ),
)
tools = st.builds(Tool, client_text, client_text, st.none() | objects)
conversations = st.builds(
    Conversation,
    st.lists(messages, max_size=7).map(tuple),
    st.lists(tools, max_size=2).map(tuple),
    enable_thinking=st.none() | st.booleans(),
    template_kwargs=st.just({}) | st.fixed_dictionaries({"preserve_thinking": st.booleans() | client_text}),
)


def everywhere(text: str) -> Conversation:
    """`text` in contents, thoughts, names, descriptions, schemas, arguments, results, ids and template variables."""
    schema = {"type": text, "properties": {text: {"description": text, "enum": [text], text: [{text: text}]}}}
    good = ToolCall(text, text, json.dumps({text: text, "deep": {text: [text]}}))
    broken = ToolCall(text, text, "{" + text)
    return Conversation(
        (
            Message("system", text),
            Message("user", text),
            Message("assistant", text, reasoning=text, tool_calls=(good, broken)),
            Message("tool", text, tool_call_id=text, name=text),
            Message("tool", text, tool_call_id=text),
            Message("system", text),
            Message("user", text),
            Message("assistant", text, reasoning=text, tool_calls=(good,)),
            Message("tool", text, tool_call_id=text),
        ),
        (Tool(text, text, schema), Tool(text, text)),
        template_kwargs={"note": text, text: text},
    )
