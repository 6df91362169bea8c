"""Requests in words: how a person asks for a call whose tool and argument values are known.

Verbs and nouns come from the tool's own description, the rest from `language/phrases.json`. Every value that is to be
in the call is said in the request. Knows nothing of records or templates.
"""

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from clover_agent.sprout.values import Value, language, snake

CUT = re.compile(r"\s(for|of a|of an|based|in a|in the|using|given|from|with|by|at|on|that|which|about|between|to)\s")
VAGUE = re.compile(r"\s(in|for|of|at|from|about|on|based on) (an?|the)?\s?(given|specific|particular|certain) .*$")
QUESTION_VERBS = frozenset({"retrieve", "get", "find", "check", "calculate", "fetch", "search", "determine"})
EMPTY_OBJECTS = frozenset({"information", "details", "data", "the information", "a list", "list", "the details"})
QUOTED_KINDS = frozenset({"sentence", "title", "thing", "song", "reminder", "note"})


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument to be said: the parameter's name, its description, and the value."""

    name: str
    description: str
    value: Value


@cache
def phrases() -> Mapping[str, Any]:
    """The phrase book."""
    book: dict[str, Any] = language("phrases")
    return book


class Phraser:
    """Puts requests together; all choices come from `rng`."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    def request(self, name: str, description: str, arguments: Sequence[Argument]) -> str:
        """A request for the tool in which every argument's value occurs."""
        order = list(arguments)
        if self.rng.random() < 0.3:
            self.rng.shuffle(order)
        if len(order) > 1 and self.rng.random() < 0.25:
            return self._in_sentences(name, description, order)
        template = self._ask_template(name, description)
        said = self._joined(order)
        return _tidy(template.replace("{args}", said))

    def two(self, first: str, second: str) -> str:
        """Two requests in one message."""
        lowered = second[:1].lower() + second[1:] if self.rng.random() < 0.7 and second[:2] != "I " else second
        ended = first if first.endswith((".", "?", "!")) else first + "."
        return str(self.rng.choice(phrases()["joins"])).format(a=ended, b=lowered)

    def choose(self, name: str) -> str:
        """A weighted choice among the phrases of that name."""
        options = phrases()[name]
        return str(self.rng.choices([text for text, _ in options], [weight for _, weight in options])[0])

    def _ask_template(self, name: str, description: str) -> str:
        verb, rest = _verb_and_object(name, description)
        short = self._shorten(rest)
        if verb in QUESTION_VERBS and self.rng.random() < 0.45:
            template = self.choose("question_frames").replace("{obj}", re.sub(r"^(the|a|an) ", "", short))
        else:
            doing = f"{self._synonym(verb)} {self._article(short)}"
            template = self.choose("frames").replace("{do}", doing)
        return template[:1].upper() + template[1:] if self.rng.random() < 0.85 else template.lower()

    def _in_sentences(self, name: str, description: str, arguments: Sequence[Argument]) -> str:
        ask = _tidy(self._ask_template(name, description).replace("{args}", "")).rstrip(".?!, ")
        facts = " ".join(self._fact(argument) for argument in arguments)
        listed = ", ".join(f"{self._label(a)} {self._said(a)}" for a in arguments)
        return _tidy(self.choose("sentence_frames").format(ask=ask, facts=facts, list=listed))

    def _fact(self, argument: Argument) -> str:
        fact = self.choose("facts").format(label=self._label(argument), value=self._said(argument))
        return fact[:1].upper() + fact[1:]

    def _joined(self, arguments: Sequence[Argument]) -> str:
        kinds = [argument.value.kind for argument in arguments]
        parts = [self._part(a, alone=kinds.count(a.value.kind) == 1, first=not n) for n, a in enumerate(arguments)]
        if len(parts) < 2:
            return "".join(parts)
        separator = self.rng.choice((", ", " ", ", ", " "))
        return separator.join(parts[:-1]) + self.rng.choice((" and ", ", ", " ", " and ")) + parts[-1]

    def _part(self, argument: Argument, *, alone: bool, first: bool) -> str:
        kind, name = argument.value.kind, snake(argument.name)
        if kind == "boolean":
            options = phrases()["flag_true" if argument.value.json else "flag_false"]
            label = re.sub(r"^(is|has|include|are) ", "", self._label(argument))
            return str(self.rng.choice(options)).format(label=label)
        said = self._said(argument)
        for pattern, forms in phrases()["role"]:
            if re.search(pattern, name) and self.rng.random() < 0.7:
                return str(self.rng.choice(forms)).format(value=said)
        bare = phrases()["bare"].get(kind)
        if bare and alone and self.rng.random() < (0.65 if first else 0.45):
            return str(self.rng.choice(bare)).format(value=said)
        return self.choose("labelled").format(label=self._label(argument), value=said)

    def _label(self, argument: Argument) -> str:
        head = re.split(r"\(| to | for |,|\.", argument.description)[0].strip()
        head = re.sub(r"^(specify |filter by |optional )?(the |a |an )?", "", head, flags=re.IGNORECASE)
        if 2 <= len(head.split()) <= 5 and self.rng.random() < 0.2:
            return head[:1].lower() + head[1:]
        words = snake(argument.name).replace("_", " ")
        return re.sub(r"\bid\b", "ID", words) if self.rng.random() < 0.5 else words

    def _said(self, argument: Argument) -> str:
        value = argument.value
        odds = 0.45 if value.kind in QUOTED_KINDS else 0.12
        if isinstance(value.json, str) and self.rng.random() < odds:
            quote = self.rng.choice("'\"")
            return value.text if quote in value.text else f"{quote}{value.text}{quote}"
        return value.text

    def _shorten(self, rest: str) -> str:
        cut = CUT.split(rest, maxsplit=1)[0].strip()
        usable = len(cut.split()) > 1 and cut not in EMPTY_OBJECTS
        return cut if usable and self.rng.random() < 0.7 else rest

    def _synonym(self, verb: str) -> str:
        return str(self.rng.choice(phrases()["verbs"].get(verb, [verb])))

    def _article(self, text: str) -> str:
        plain = re.match(r"(the|a|an|all|my|your|information|details) ", text) is None
        return f"the {text}" if plain and self.rng.random() < 0.4 else text


def _verb_and_object(name: str, description: str) -> tuple[str, str]:
    text = VAGUE.sub("", re.sub(r"\s*\(.*?\)", "", description)).strip().rstrip(".")
    words = (text or snake(name).replace("_", " ")).split()
    verb = words[0].lower()
    if len(words) == 1:
        words += snake(name).split("_")[1:] or ["it"]
    return verb, " ".join(words[1:])


def _tidy(text: str) -> str:
    text = re.sub(r"\s+", " ", text).strip()
    text = re.sub(r" ([.,?!:])", r"\1", text)
    return re.sub(r"\b(the|a) (the|a)\b", r"\2", re.sub(r"([.?!,])[.,]", r"\1", text))
