"""Argument values for synthetic requests: what a parameter might hold, and the words in which a person says it.

A value is chosen from the parameter's schema first, then from its name, then from the examples in its description.
Many are put together from parts or made up, so that a model can only get them right by copying. Knows nothing of
requests or tools.
"""

import json
import random
import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

CONSONANTS, VOWELS = "bcdfghjklmnprstvwz", "aeiou"
NUMBER_WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
HELD_OUT_ONE_IN = 8
BROAD_POOLS = frozenset({"noun", "adjective", "topic"})
BROAD_SHARE = 0.4  # of the words from those pools that come from a broader list where there is one
RANGES: tuple[tuple[str, int, int], ...] = (
    (r"year", 1900, 2035),
    (r"(^|_)age", 1, 95),
    (r"percent|rate|ratio|score|humidity", 1, 100),
    (r"hour", 0, 24),
    (r"minute|second|timeout", 1, 90),
    (r"people|guests|party|participants|passengers|seats|rooms|tickets|bedrooms|adults", 1, 12),
    (r"limit|count|num|number_of|quantity|max_|top_|size|days|weeks|months|pages?$|level", 1, 50),
    (r"price|budget|cost|amount|salary|income|revenue|population|capacity|distance", 10, 90000),
    (r"id$|code|number", 100, 99999),
)


@dataclass(frozen=True, slots=True)
class Value:
    """`json` is what the call holds, `text` how the request says it, `kind` what sort of thing it is."""

    json: Any
    text: str
    kind: str


def language(name: str) -> Any:
    """One of the language files that ship beside this module, parsed."""
    return json.loads(files(__package__).joinpath("language", f"{name}.json").read_text(encoding="utf-8"))


@cache
def _lexicon() -> Mapping[str, tuple[str, ...]]:
    pools: dict[str, str] = language("lexicon")
    return {kind: tuple(words.split(";") if ";" in words else words.split()) for kind, words in pools.items()}


@cache
def _kind_rules() -> tuple[tuple[re.Pattern[str], str], ...]:
    return tuple((re.compile(pattern), kind) for pattern, kind in language("kinds"))


def is_held_out(word: str) -> bool:
    """Whether a word of the lexicon is kept for evaluation: a fixed one in eight."""
    return zlib.crc32(word.encode()) % HELD_OUT_ONE_IN == 0


def snake(name: str) -> str:
    """`checkInDate`, `check-in date` -> `check_in_date`."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name)
    return re.sub(r"[^A-Za-z0-9]+", "_", spaced).strip("_").lower()


class ValueMaker:
    """Draws values. With `held_out` every word comes from the slice of the lexicon that training never sees.

    words   a broader list, from which some of the words come that may be any
    """

    def __init__(self, rng: random.Random, *, held_out: bool = False, words: Sequence[str] = ()) -> None:
        self.rng = rng
        self.held_out = held_out
        self._words = words
        self._composed: dict[str, Callable[[], str]] = {
            "person": self._person, "place": self._place, "company": self._company, "thing": self._thing,
            "email": self._email, "url": self._url, "path": self._path, "directory": self._directory,
            "code": self._code, "nonce": self._nonce, "username": self._username, "date": self._date,
            "time": self._time, "phone": self._phone, "sentence": self._sentence, "title": self._title,
            "topic": self._topic, "phrase": self._phrase, "sql": self._sql, "command": self._command,
            "expression": self._expression, "word_noun": lambda: self.word("noun"),
            "word_adjective": lambda: self.word("adjective"), "reminder": self._reminder, "note": self._sentence,
        }  # fmt: skip

    @property
    def kinds(self) -> frozenset[str]:
        """The kinds that are put together from parts; others are pools of the lexicon."""
        return frozenset(self._composed)

    def word(self, pool: str) -> str:
        """A word of the lexicon's pool, training or held-out slice; of some pools, also one of the broader list."""
        if self._words and pool in BROAD_POOLS and self.rng.random() < BROAD_SHARE:
            return self.rng.choice(self._words)
        words = _lexicon()[pool]
        for _ in range(60):
            choice = self.rng.choice(words)
            if is_held_out(choice) == self.held_out:
                return choice
        return self.nonsense()

    def text(self, kind: str) -> str:
        """A string of the kind: composed, from the pool of that name, or for an unknown kind a short phrase."""
        if kind in self._composed:
            return self._composed[kind]()
        if kind in _lexicon():
            return self.word(kind) if self.rng.random() < 0.85 else self._phrase()
        return self._phrase()

    def make(self, name: str, schema: Mapping[str, Any], kind: str | None = None) -> Value:
        """A value for parameter `name`. `kind` overrules what the name suggests."""
        options = schema.get("enum")
        if options:
            choice = self.rng.choice(list(options))
            return Value(choice, str(choice).replace("_", " ") if self.rng.random() < 0.3 else str(choice), "enum")
        declared = schema.get("type")
        if declared in ("integer", "number"):
            return self._number(snake(name), integer=declared == "integer")
        if declared == "boolean":
            flag = self.rng.random() < 0.65
            return Value(flag, self.rng.choice(("true", "yes", "on") if flag else ("false", "no", "off")), "boolean")
        if declared == "array":
            return self._array(name, schema, kind)
        if declared == "object":
            return self._object(schema)
        return self._string(name, str(schema.get("description", "")), kind)

    def nonsense(self) -> str:
        """A capitalised word that means nothing, two or three syllables."""
        syllables = self.rng.randint(2, 3)
        word = "".join(self.rng.choice(CONSONANTS) + self.rng.choice(VOWELS) for _ in range(syllables))
        return (word + self.rng.choice(("", "", "n", "r", "s", "x"))).capitalize()

    def _string(self, name: str, description: str, kind: str | None) -> Value:
        known = kind or next((kind for pattern, kind in _kind_rules() if pattern.search(snake(name))), None)
        examples = _examples(description)
        if examples and (known in (None, "phrase") or self.rng.random() < 0.25) and self.rng.random() < 0.6:
            text = self.rng.choice(examples)
            return Value(text, text, known or "phrase")
        if known is None and any(re.search(pattern, snake(name)) for pattern, _, _ in RANGES[:-1]):
            number = self._number(snake(name), integer=True)
            return Value(str(number.json), str(number.json), "number")
        if kind is None and self.rng.random() < 0.06:
            text = self._nonce()
            return Value(text, text, "code")
        text = self.text(known or self.rng.choice(("phrase", "phrase", "thing", "topic")))
        return Value(text, text, known or "phrase")

    def _number(self, name: str, *, integer: bool) -> Value:
        low, high = next(((low, high) for pattern, low, high in RANGES if re.search(pattern, name)), (1, 0))
        if high < low:
            high = self.rng.choice((10, 100, 1000, 20000))
        whole = self.rng.randint(low, high)
        if not integer and self.rng.random() < 0.7:
            value = round(min(whole, 999) + self.rng.random(), self.rng.choice((1, 1, 2)))
            return Value(value, str(value), "number")
        if 0 < whole < len(NUMBER_WORDS) and self.rng.random() < 0.15:
            return Value(whole, NUMBER_WORDS[whole], "number")
        return Value(whole, f"{whole:,}" if whole > 999 and self.rng.random() < 0.04 else str(whole), "number")

    def _array(self, name: str, schema: Mapping[str, Any], kind: str | None) -> Value:
        items = schema.get("items")
        item_schema = items if isinstance(items, Mapping) else {"type": "string"}
        singular = name[:-1] if name.endswith("s") else name
        parts = [self.make(singular, item_schema, kind) for _ in range(self.rng.randint(1, 3))]
        texts = [part.text for part in parts]
        joined = texts[0] if len(texts) == 1 else ", ".join(texts[:-1]) + " and " + texts[-1]
        return Value([part.json for part in parts], joined, "list")

    def _object(self, schema: Mapping[str, Any]) -> Value:
        properties = schema.get("properties")
        members = {key: self.make(key, sub) for key, sub in (properties or {}).items() if isinstance(sub, Mapping)}
        said = ", ".join(f"{snake(key).replace('_', ' ')} {value.text}" for key, value in members.items())
        return Value({key: value.json for key, value in members.items()}, said or "nothing", "object")

    # ---- composed strings: each a small grammar of its own

    def _person(self) -> str:
        if self.rng.random() < 0.1:
            return f"{self.nonsense()} {self.nonsense()}"
        return self.word("first") + (f" {self.word('last')}" if self.rng.random() < 0.7 else "")

    def _place(self) -> str:
        roll = self.rng.random()
        if roll < 0.12:
            return self.nonsense()
        if roll < 0.2:
            return f"{self.rng.randint(1, 250)} {self.word('last')} Street"
        city = self.word("city")
        return f"{city}, {self.word('country')}" if roll < 0.27 else city

    def _company(self) -> str:
        suffix = self.rng.choice(("Ltd", "Inc", "Corp", "Group", "Labs", "Foundation", "Motors", "Foods"))
        name = self.rng.choice((self.nonsense, lambda: self.word("last"), lambda: self.word("noun").capitalize()))()
        return self.word("company") if self.rng.random() < 0.35 else f"{name} {suffix}"

    def _thing(self) -> str:
        words = [self.word("adjective"), self.word("noun")]
        roll = self.rng.random()
        if roll < 0.2:
            return self.nonsense()
        if roll < 0.75:
            return " ".join(words).title()
        return self.rng.choice(("_", "-", " ")).join(words)

    def _email(self) -> str:
        local = self.rng.choice((self.word("first"), self.word("last"), self.nonsense())).lower()
        if self.rng.random() < 0.4:
            local += self.rng.choice((".", "_", "")) + self.word("last").lower()
        return f"{local}{self.rng.choice(('', '', str(self.rng.randint(1, 99))))}@{self.word('domain')}"

    def _url(self) -> str:
        page = self.rng.choice(("", f"/{self.word('noun')}", f"/{self.word('noun')}/{self.rng.randint(1, 999)}"))
        return f"{self.rng.choice(('https://', 'https://www.', 'http://', ''))}{self.word('domain')}{page}"

    def _directory(self) -> str:
        depth = self.rng.randint(1, 2)
        parts = [self.rng.choice((self.word("folder"), self.word("noun"))) for _ in range(depth)]
        return self.rng.choice(("", "/", "./", "~/")) + "/".join(parts)

    def _path(self) -> str:
        stem = self.rng.choice((self.word("stem"), self.word("stem"), self.nonsense().lower(), self.word("noun")))
        name = f"{stem}.{self.word('extension')}"
        return f"{self._directory()}/{name}" if self.rng.random() < 0.5 else name

    def _code(self) -> str:
        digits = str(self.rng.randint(10, 99999))
        letters = "".join(self.rng.choice("ABCDEFGHJKLMNPQRSTUVWXYZ") for _ in range(self.rng.randint(1, 3)))
        return self.rng.choice((digits, letters + digits, f"{letters}-{digits}", letters + digits, self._nonce()))

    def _nonce(self) -> str:
        alphabet = self.rng.choice(
            ("abcdefghijklmnopqrstuvwxyz0123456789", "0123456789abcdef", "ABCDEFGHJKMNP23456789")
        )
        return "".join(self.rng.choice(alphabet) for _ in range(self.rng.randint(4, 9)))

    def _username(self) -> str:
        return (
            self.word("first").lower()
            + self.rng.choice(("", "_", "."))
            + self.rng.choice((str(self.rng.randint(1, 999)), self.word("noun"), self.word("last").lower()))
        )

    def _date(self) -> str:
        year, month, day = self.rng.randint(1990, 2030), self.rng.randint(1, 12), self.rng.randint(1, 28)
        named = _lexicon()["month"][month - 1]
        iso = f"{year}-{month:02d}-{day:02d}"
        spoken = (f"{named} {day}", f"{day} {named} {year}", f"{named} {day}, {year}")
        return self.rng.choice((iso, iso, iso, self.rng.choice(spoken), self.word("day")))

    def _time(self) -> str:
        hour, minute = self.rng.randint(0, 23), self.rng.choice((0, 0, 15, 30, 45, self.rng.randint(0, 59)))
        half = f"{hour % 12 or 12}{f':{minute:02d}' if minute else ''}"
        return self.rng.choice((f"{hour:02d}:{minute:02d}", f"{half} {self.rng.choice(('am', 'pm'))}", f"{half}pm"))

    def _phone(self) -> str:
        groups = [str(self.rng.randint(100, 999)), str(self.rng.randint(100, 999)), str(self.rng.randint(1000, 9999))]
        return self.rng.choice(("", "+1 ", "+49 ")) + self.rng.choice(("-", " ", "")).join(groups)

    def _sentence(self) -> str:
        roll = self.rng.random()
        if roll < 0.5:
            return self.word("sentence")
        if roll < 0.8:
            return f"{self.word('verb').capitalize()} the {self.word('adjective')} {self.word('noun')}"
        return f"The {self.word('noun')} is {self.word('adjective')}"

    def _reminder(self) -> str:
        return self.word("reminder") if self.rng.random() < 0.5 else f"{self.word('verb')} the {self.word('noun')}"

    def _title(self) -> str:
        title = f"{self.word('adjective')} {self.word('noun')}"
        return self.rng.choice((title.title(), title.capitalize(), self.word("topic").capitalize()))

    def _topic(self) -> str:
        roll = self.rng.random()
        if roll < 0.55:
            return self.word("topic")
        return f"{self.word('adjective')} {self.word('noun')}" if roll < 0.85 else f"best {self.word('noun')}s"

    def _phrase(self) -> str:
        roll = self.rng.random()
        if roll < 0.4:
            return self.word("noun")
        return f"{self.word('adjective')} {self.word('noun')}" if roll < 0.85 else self.nonsense()

    def _sql(self) -> str:
        table, column, bound = self.word("noun") + "s", self.word("noun"), self.rng.randint(1, 99)
        what = self.rng.choice(("*", column, "count(*)"))
        return f"SELECT {what} FROM {table}" + self.rng.choice(("", f" WHERE {column} > {bound}", f" LIMIT {bound}"))  # noqa: S608

    def _command(self) -> str:
        return self.rng.choice(
            (f"ls -la {self._directory()}", f"cat {self._path()}", f"python {self._path()}", "git status", "pytest -q",
             f"mkdir {self.word('noun')}", f"grep -r {self.word('noun')} {self._directory()}", f"rm {self._path()}",
             f"npm run {self.word('verb')}", f"echo {self.word('noun')}", f"make {self.word('verb')}")
        )  # fmt: skip

    def _expression(self) -> str:
        def number() -> str:
            if self.rng.random() < 0.8:
                return str(self.rng.randint(1, 999))
            return str(round(self.rng.uniform(1, 99), 1))

        sign = self.rng.choice(("+", "-", "*", "/"))
        space = self.rng.choice((" ", " ", ""))
        basic = f"{number()}{space}{sign}{space}{number()}"
        roll = self.rng.random()
        if roll < 0.7:
            return basic
        return f"({basic}){space}*{space}{number()}" if roll < 0.85 else f"{basic}{space}+{space}{number()}"


def _examples(description: str) -> tuple[str, ...]:
    """`(e.g., a, b, etc.)` -> the examples."""
    found = re.search(r"e\.g\.,? ([^()]+)\)", description)
    if not found:
        return ()
    parts = (part.strip(" '\"") for part in re.split(r", | or ", found.group(1)))
    return tuple(part for part in parts if 1 < len(part) < 40 and not part.startswith("etc"))
