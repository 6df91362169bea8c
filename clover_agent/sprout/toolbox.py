"""Where synthetic requests come from: tools drawn together with a request for them and the right call.

Two boxes: schemas of a corpus, phrased from their descriptions, and everyday agent tools with hand-written requests
(`language/agent_tools.json`). Knows nothing of conversations.
"""

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from clover_agent.sprout.corpus import Call
from clover_agent.sprout.phrasing import Argument, Phraser
from clover_agent.sprout.rewording import reword
from clover_agent.sprout.styles import NAME_STYLES, restyle
from clover_agent.sprout.values import Value, ValueMaker, language, snake
from clover_agent.types import Tool


@dataclass(frozen=True, slots=True)
class Drawn:
    """A tool, a request that it answers, the right call, and the names of values that its results have.

    topic    the schema's field, or the everyday tool
    subject  what the tool is about; two tools of one subject could be mistaken for each other
    """

    tool: Tool
    request: str
    call: Call
    topic: str
    subject: str
    results: tuple[str, ...] = ()


class SchemaBox:
    """Schemas as `(topic, tool)`; the topic is the corpus's field. Half of the optional parameters are left out.

    With `words`, half of the tools are reworded with these, and values hold them.
    """

    def __init__(
        self,
        rng: random.Random,
        schemas: Sequence[tuple[str, Tool]],
        *,
        held_out: bool = False,
        words: Sequence[str] = (),
    ) -> None:
        self.rng = rng
        self._words = words
        self._schemas = schemas
        self._by_topic: dict[str, list[Tool]] = {}
        for topic, tool in schemas:
            self._by_topic.setdefault(topic, []).append(tool)
        self._values = ValueMaker(rng, held_out=held_out, words=words)
        self._phraser = Phraser(rng)

    def draw(self, style: str) -> Drawn:
        topic, plain = self.rng.choice(self._schemas)
        plain = self._reworded(plain)
        styled = restyle(self.rng, plain, style)
        parameters = styled.tool.parameters or {}
        original = (plain.parameters or {}).get("properties") or {}
        required = set(parameters["required"])
        arguments, said = {}, []
        for old, schema in original.items():
            new = styled.renamed[old]
            if new in required or self.rng.random() < 0.5:
                value = self._values.make(old, schema)
                arguments[old] = value.json
                described = parameters["properties"][new].get("description", "")
                said.append(Argument(new, described, value))
        request = self._phraser.request(styled.tool.name, plain.description, said)
        return Drawn(styled.tool, request, styled.call(Call(plain.name, arguments)), topic, subject(plain.name))

    def others(self, drawn: Sequence[Drawn], count: int, style: str, *, siblings: bool) -> list[Tool]:
        """At most `count` tools that fit none of the requests; with `siblings` half of them from a drawn topic."""
        topics = [item.topic for item in drawn]
        taken = {item.subject for item in drawn}
        found: list[Tool] = []
        for _ in range(4 * count):
            if len(found) == count:
                break
            near = self._by_topic.get(self.rng.choice(topics), ()) if topics and siblings else ()
            other, tool = self.rng.choice(self._schemas)
            if near and self.rng.random() < 0.5:
                tool = self.rng.choice(near)
            elif other.split("/")[0] in {topic.split("/")[0] for topic in topics}:
                continue
            tool = self._reworded(tool)
            if subject(tool.name) not in taken:
                taken.add(subject(tool.name))
                found.append(tool)
        return [restyle(self.rng, tool, style).tool for tool in found]

    def _reworded(self, tool: Tool) -> Tool:
        if not self._words or self.rng.random() < 0.5:
            return tool
        return reword(self.rng, tool, self._words, self._values.nonsense)


class AgentBox:
    """The everyday tools; a few are kept for evaluation (`held_out`) together with the held-out words.

    With `words`, values hold these too.
    """

    def __init__(self, rng: random.Random, *, held_out: bool = False, words: Sequence[str] = ()) -> None:
        self.rng = rng
        self._all: list[Mapping[str, Any]] = language("agent_tools")
        self._asked = [spec for spec in self._all if bool(spec.get("held_out")) == held_out]
        self._values = ValueMaker(rng, held_out=held_out, words=words)

    def draw(self, style: str) -> Drawn:
        spec = self.rng.choice(self._asked)
        names = {slot: self.rng.choice(parameter["names"]) for slot, parameter in spec["parameters"].items()}
        flags, request = self._template(spec)
        tool = self._tool(spec, names, style)
        arguments: dict[str, Any] = {}
        for slot, parameter in spec["parameters"].items():
            if slot in flags:
                arguments[names[slot]] = flags[slot]
            elif f"{{{slot}}}" in request:
                value = self._value(slot, parameter)
                arguments[names[slot]] = value.json
                request = request.replace(f"{{{slot}}}", value.text)
        order = (tool.parameters or {})["properties"]
        call = Call(tool.name, {key: arguments[key] for key in order if key in arguments})
        return Drawn(tool, request, call, spec["names"][0], spec["names"][0], tuple(spec["result"]))

    def others(self, drawn: Sequence[Drawn], count: int, style: str, *, siblings: bool) -> list[Tool]:
        """At most `count` everyday tools that fit none of the requests."""
        near = self._near({item.subject for item in drawn})
        pool = [spec for spec in self._all if spec["names"][0] not in near and not spec.get("held_out")]
        chosen = self.rng.sample(pool, min(count, len(pool)))
        return [
            self._tool(spec, {slot: self.rng.choice(p["names"]) for slot, p in spec["parameters"].items()}, style)
            for spec in chosen
        ]

    def _near(self, subjects: set[str]) -> set[str]:
        conflicts = (spec["conflicts"] for spec in self._all if spec["names"][0] in subjects)
        return subjects.union(*conflicts)

    def _template(self, spec: Mapping[str, Any]) -> tuple[dict[str, bool], str]:
        flagged = spec.get("flag_requests")
        if flagged:
            slot = next(iter(flagged))
            templates, flag = self.rng.choice(flagged[slot])
            return {slot: flag}, str(self.rng.choice(templates))
        request = str(self.rng.choice(spec["requests"]))
        if self.rng.random() < 0.12:
            request = request.lower().rstrip(".?")
        elif self.rng.random() < 0.08:
            request = self.rng.choice(("Hi! ", "Hey, ", "Hello, ", "OK. ", "Please: ")) + request
        return {}, request

    def _value(self, slot: str, parameter: Mapping[str, Any]) -> Value:
        schema = {"type": parameter["type"], **({"enum": parameter["enum"]} if "enum" in parameter else {})}
        kind = parameter["kind"]
        value = self._values.make(parameter["names"][0], schema, kind or None)
        return Value(value.json, str(value.json), value.kind) if slot != "n" or kind else value

    def _tool(self, spec: Mapping[str, Any], names: Mapping[str, str], style: str) -> Tool:
        bare = self.rng.random() < 0.25
        properties = {}
        for slot, parameter in spec["parameters"].items():
            described = "" if bare else self.rng.choice(parameter["descriptions"])
            schema = {"type": parameter["type"], **({"enum": parameter["enum"]} if "enum" in parameter else {})}
            properties[names[slot]] = {**schema, **({"description": described} if described else {})}
        required = [names[slot] for slot, parameter in spec["parameters"].items() if parameter["required"]]
        parameters = {"type": "object", "properties": properties, "required": required}
        plain = Tool(self.rng.choice(spec["names"]), self.rng.choice(spec["descriptions"]), parameters)
        if style not in NAME_STYLES or self.rng.random() < 0.6:
            return plain
        styled = restyle(self.rng, plain, style, rename=False, shuffle=False)
        return Tool(styled.tool.name, plain.description, parameters)


def subject(name: str) -> str:
    """A tool's name without its verb: `getCropYield` -> `crop_yield`."""
    words = snake(name)
    return words.partition("_")[2] or words


def held_out_topics(topics: Sequence[str], one_in: int = 16) -> frozenset[str]:
    """A fixed share of the topics, by position in alphabetical order: their schemas are for evaluation only."""
    return frozenset(sorted(set(topics))[one_in // 2 :: one_in])


def split_schemas(
    records: Sequence[Mapping[str, Any]],
) -> tuple[list[tuple[str, Tool]], list[tuple[str, Tool]]]:
    """(topic, tool) of a schema file, for training and for evaluation. A held-out name never trains under any topic."""
    named = [(str(r["field"]), r["tool"]["function"]) for r in records]
    held = held_out_topics([topic for topic, _ in named])
    tools = [(topic, Tool(f["name"], f.get("description") or "", f.get("parameters"))) for topic, f in named]
    words = {re.sub(r"[^a-z]", "", tool.name.lower()) for topic, tool in tools if topic in held}
    kept = [(t, tool) for t, tool in tools if t not in held and re.sub(r"[^a-z]", "", tool.name.lower()) not in words]
    return kept, [(topic, tool) for topic, tool in tools if topic in held]
