"""Restyled tools: the same function under other names, spellings, descriptions and parameter orders.

Keeps a map of what was renamed, so that calls can follow. Knows nothing of requests.
"""

import json
import random
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from clover_agent.sprout.corpus import Call
from clover_agent.sprout.values import snake
from clover_agent.types import Tool, ToolCall

NAME_STYLES = ("snake", "snake", "camel", "camel", "pascal", "kebab")
VERBS: Mapping[str, tuple[str, ...]] = {
    "get": ("get", "fetch", "retrieve", "lookup", "find", "show"),
    "create": ("create", "make", "add", "new"),
    "calculate": ("calculate", "compute", "calc"),
    "delete": ("delete", "remove"),
    "update": ("update", "edit", "modify"),
    "check": ("check", "verify", "get"),
    "send": ("send", "submit"),
    "search": ("search", "find"),
}
PARAMETERS: Mapping[str, tuple[str, ...]] = {
    "location": ("location", "place", "city", "where", "area"),
    "country": ("country", "nation", "country_name"),
    "name": ("name", "full_name", "title"),
    "query": ("query", "q", "search_text"),
    "text": ("text", "input", "content"),
    "date": ("date", "day", "on_date"),
    "amount": ("amount", "value", "sum"),
    "email": ("email", "email_address", "mail"),
    "language": ("language", "lang"),
    "description": ("description", "details", "notes"),
    "type": ("type", "kind", "category"),
    "quantity": ("quantity", "count", "number"),
}


@dataclass(frozen=True, slots=True)
class Restyled:
    """A restyled tool, the new name of each parameter, and the name that the tool had."""

    tool: Tool
    renamed: Mapping[str, str]
    original: str

    def call(self, call: Call) -> Call:
        """The call under the new names, arguments in the new order."""
        arguments = {self.renamed.get(key, key): value for key, value in call.arguments.items()}
        order = list((self.tool.parameters or {}).get("properties", ()))
        known = [key for key in order if key in arguments]
        return Call(self.tool.name, {key: arguments[key] for key in known})

    def tool_call(self, call: ToolCall) -> ToolCall:
        """The same for a call of the history."""
        new = self.call(Call(call.name, json.loads(call.arguments)))
        return ToolCall(call.id, new.name, json.dumps(dict(new.arguments), ensure_ascii=False))


def spell(name: str, style: str) -> str:
    """A name in snake, camel, pascal or kebab case, at most 64 characters of [A-Za-z0-9_-]."""
    words = snake(name).split("_")
    if style == "camel":
        spelled = words[0] + "".join(word.capitalize() for word in words[1:])
    elif style == "pascal":
        spelled = "".join(word.capitalize() for word in words)
    else:
        spelled = ("-" if style == "kebab" else "_").join(words)
    return spelled[:64] or "tool"


def restyle(rng: random.Random, tool: Tool, style: str, *, rename: bool = True, shuffle: bool = True) -> Restyled:
    """The tool with its name and parameters in `style`; with `rename` some get other words too."""
    properties: Mapping[str, Any] = (tool.parameters or {}).get("properties") or {}
    required = set((tool.parameters or {}).get("required") or ())
    parameter_style = "snake" if style == "kebab" else "camel" if style == "pascal" else style
    renamed: dict[str, str] = {}
    for key in properties:
        words = PARAMETERS.get(snake(key), (key,)) if rename and rng.random() < 0.5 else (key,)
        new = spell(rng.choice(words), parameter_style)
        renamed[key] = new if new not in renamed.values() else spell(key, parameter_style)
    if len(set(renamed.values())) < len(renamed):
        renamed = {key: key for key in properties}
    order = list(properties)
    if shuffle and rng.random() < 0.4:
        rng.shuffle(order)
    trimmed = rng.random() < 0.7
    members = {renamed[key]: _property(rng, properties[key], trimmed) for key in order}
    parameters = {"type": "object", "properties": members, "required": [renamed[k] for k in order if k in required]}
    name = spell(_other_verb(rng, tool.name) if rename else tool.name, style)
    return Restyled(Tool(name, _description(rng, tool.description, trimmed), parameters), renamed, tool.name)


def _property(rng: random.Random, schema: Any, trimmed: bool) -> Any:
    if not isinstance(schema, Mapping) or not schema.get("description"):
        return schema
    text = str(schema["description"])
    text = re.sub(r"\s*\([^()]*\)", "", text) if trimmed else text
    kept = {**schema, "description": text}
    if rng.random() < 0.3:
        del kept["description"]
    return kept


def _description(rng: random.Random, text: str, trimmed: bool) -> str:
    roll = rng.random()
    if roll < 0.06:
        return ""
    text = re.sub(r"\s*\([^()]*\)", "", text) if trimmed else text
    first, _, rest = text.partition(" ")
    if roll < 0.2 and rest and first.isalpha():
        first = first + ("es" if first.endswith(("ch", "sh", "s", "x")) else "s")
    elif roll < 0.35 and rest:
        verb = rng.choice(VERBS.get(first.lower().replace("retrieve", "get"), (first,)))
        first = verb.capitalize() if verb != "lookup" else "Look up"
    return f"{first} {rest}".strip() + ("." if rng.random() < 0.2 else "")


def _other_verb(rng: random.Random, name: str) -> str:
    first, _, rest = snake(name).partition("_")
    if not rest:
        return name
    roll = rng.random()
    if roll < 0.12 and "_" in rest:
        return rest
    return f"{rng.choice(VERBS.get(first, (first,)))}_{rest}" if roll < 0.5 else name
