"""Real records as training examples: other distractor tools, other spellings, one refusal instead of many.

Distractors that came from another corpus than the record's own are left out and drawn anew from the schemas, so that
no text of a corpus gets in that the mix leaves out (Schema-Guided Dialogue is share-alike, and is not used).
Knows nothing of templates and tokens.
"""

import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from clover_agent.sprout.corpus import Call, Example, example_of
from clover_agent.sprout.styles import Restyled, restyle
from clover_agent.sprout.synthetic import REFUSAL, Synthesizer
from clover_agent.types import Message, Tool, ToolCall

SOURCES = frozenset({"snips", "nlued", "tm4", "polyai", "sealtools", "clinc"})
STYLES = ("snake", "snake", "camel", "pascal", "kebab")


class RecordMix:
    """Draws records by source. `schema_names` are the tools whose schemas may be trained on."""

    def __init__(
        self,
        rng: random.Random,
        records: Sequence[Mapping[str, Any]],
        synthesizer: Synthesizer,
        schema_names: frozenset[str],
    ) -> None:
        self.rng = rng
        self._synthesizer = synthesizer
        self._records: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
        own: dict[str, set[str]] = defaultdict(set)
        for record in records:
            if record["source"] in SOURCES:
                self._records[record["source"]].append(record)
                own[record["source"]].update(call["name"] for call in record.get("calls") or ())
        self._usable = {source: own[source] | schema_names for source in self._records}

    @property
    def sources(self) -> frozenset[str]:
        return frozenset(self._records)

    def example(self, source: str, distractors: int) -> Example:
        """A record of the source with about that many tools beside the right ones."""
        example = example_of(self.rng.choice(self._records[source]))
        needed = {call.name for call in example.calls}
        needed |= {call.name for message in example.messages for call in message.tool_calls}
        usable = [tool for tool in example.tools if tool.name in self._usable[source] and tool.name not in needed]
        right = [tool for tool in example.tools if tool.name in needed]
        kept = self.rng.sample(usable, min(len(usable), distractors))
        if example.kind == "none":
            example = replace(example, answer=REFUSAL)
            distractors = max(1, distractors)
        restyled = self.rng.random() < 0.5
        style = self.rng.choice(STYLES)
        made = [restyle(self.rng, tool, style) if restyled else _as_is(tool) for tool in (*right, *kept)]
        fresh = self._synthesizer.distractor_tools(distractors - len(kept), style if restyled else "camel")
        return self._put_together(example, made, fresh)

    def _put_together(self, example: Example, made: Sequence[Restyled], fresh: Sequence[Tool]) -> Example:
        names = [item.tool.name for item in made]
        if len(set(names)) < len(names):
            made = [_as_is(tool) for tool in example.tools if tool.name in {item.original for item in made}]
            names = [item.tool.name for item in made]
        by_name = {item.original: item for item in made}
        tools = [item.tool for item in made] + [tool for tool in _distinct(fresh) if tool.name not in names]
        self.rng.shuffle(tools)
        messages = tuple(_restyled_message(message, by_name) for message in example.messages)
        calls = tuple(_restyled_call(call, by_name) for call in example.calls)
        return replace(example, tools=tuple(tools), messages=messages, calls=calls)


def _as_is(tool: Tool) -> Restyled:
    properties = (tool.parameters or {}).get("properties") or {}
    return Restyled(tool, {key: key for key in properties}, tool.name)


def _restyled_call(call: Call, by_name: Mapping[str, Restyled]) -> Call:
    return by_name[call.name].call(call) if call.name in by_name else call


def _restyled_message(message: Message, by_name: Mapping[str, Restyled]) -> Message:
    calls = tuple(_restyled_tool_call(call, by_name) for call in message.tool_calls)
    return replace(message, tool_calls=calls) if calls else message


def _restyled_tool_call(call: ToolCall, by_name: Mapping[str, Restyled]) -> ToolCall:
    item = by_name.get(call.name)
    return item.tool_call(call) if item else call


def _distinct(tools: Sequence[Tool]) -> list[Tool]:
    return list({tool.name: tool for tool in tools}.values())
