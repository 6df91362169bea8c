"""Schemas in other words: the parameters stay, what the tool is about is called something else.

A few thousand schemas are soon known by heart, and what is known by heart does not carry over to unseen tools. A tool
whose words were drawn anew can only be found by comparing the request with the tools of the prompt. Knows nothing of
requests: they are phrased from the reworded description.
"""

import random
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from clover_agent.sprout.values import is_held_out, snake
from clover_agent.types import Tool

SHARE = 0.6  # of a description's words that get replaced
MADE_UP = 0.15  # of the replacements that are no word at all
LEAST_LETTERS = 4
KEPT = frozenset(
    ("about", "based", "between", "certain", "data", "details", "from", "given", "information", "into", "list",
     "number", "particular", "provided", "specific", "specified", "that", "their", "this", "using", "which", "with",
     "within")
)  # fmt: skip


def broad_words(schemas: Iterable[tuple[str, Tool]]) -> tuple[str, ...]:
    """The words of all names and descriptions but those that are kept for evaluation, in alphabetical order."""
    texts = (f"{snake(tool.name).replace('_', ' ')} {tool.description}".lower() for _, tool in schemas)
    found = {word for text in texts for word in re.findall(r"\b[a-z]{3,12}\b", text)}
    return tuple(sorted(word for word in found - KEPT if not word.endswith("s") and not is_held_out(word)))


def reword(rng: random.Random, tool: Tool, words: Sequence[str], made_up: Callable[[], str]) -> Tool:
    """The tool with words of its description, but the first, replaced there, in its name and in the descriptions of its
    parameters. `made_up` gives a word that means nothing."""
    body = tool.description.partition(" ")[2].lower()
    stems = dict.fromkeys(word.removesuffix("s") for word in re.findall(rf"[a-z]{{{LEAST_LETTERS},}}", body))
    new = {
        stem: made_up().lower() if rng.random() < MADE_UP else rng.choice(words)
        for stem in stems
        if stem not in KEPT and f"{stem}s" not in KEPT and rng.random() < SHARE
    }
    if not new:
        return tool
    first, space, rest = tool.description.partition(" ")
    verb, *subject = snake(tool.name).split("_")
    name = "_".join([verb, *(_replaced(word, new) for word in subject)])
    return Tool(name, first + space + _replaced(rest, new), _reworded_parameters(tool.parameters, new))


def _reworded_parameters(parameters: Mapping[str, Any] | None, new: Mapping[str, str]) -> dict[str, Any] | None:
    if parameters is None:
        return None
    properties = {
        key: {**schema, "description": _replaced(str(schema["description"]), new)}
        if isinstance(schema, Mapping) and schema.get("description")
        else schema
        for key, schema in (parameters.get("properties") or {}).items()
    }
    return {**parameters, "properties": properties}


def _replaced(text: str, new: Mapping[str, str]) -> str:
    """Whole words replaced, plural and capital kept."""

    def other(found: re.Match[str]) -> str:
        word = new[found[1].lower()] + found[2]
        return word.capitalize() if found[1][0].isupper() else word

    pattern = "|".join(sorted(map(re.escape, new), key=len, reverse=True))
    return re.sub(rf"\b({pattern})(s?)\b", other, text, flags=re.IGNORECASE)
