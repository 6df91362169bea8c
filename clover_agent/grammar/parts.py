"""The pieces of a Lark grammar (llguidance's dialect) that tool formats are put together from.

Knows how schemas become grammar text; knows no tool format and no tokens.
"""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from clover_agent.formats.grammar_parts import Parameters
from clover_agent.grammar.dialect import Problem, Schema
from clover_agent.grammar.members import take_apart
from clover_agent.grammar.patterns import ANYTHING, UnsupportedPatternError, whole, without
from clover_agent.grammar.strings import StringForm, admits, string_forms

SEPARATORS = {"item_separator": ", ", "key_separator": ": ", "whitespace_flexible": False}
NOTHING: dict[str, Any] = {"allOf": [{"type": "null"}, {"type": "boolean"}]}  # llguidance takes no `false` at the root

_NUMBER = r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"
_INTEGER = r"-?(?:0|[1-9][0-9]*)(?:(?:\.0+)?|(?:\.[0-9]+)?[eE][+-]?[0-9]+)"
_READS_AS = {
    "number": _NUMBER,
    "integer": _INTEGER,
    "boolean": "true|false",
    "null": "null",
    "array": rf"\[{ANYTHING}",
    "object": rf"\{{{ANYTHING}",
}


def json_schema(schema: Schema) -> str:
    """A lowered schema as text for llguidance, with our separators and no other white space."""
    body = schema if isinstance(schema, dict) else ({} if schema else NOTHING)
    return json.dumps({"x-guidance": SEPARATORS, **body}, ensure_ascii=False)


class LarkParts:
    """Implements `formats.grammar_parts.GrammarParts` for the schemas of one tool.

    terminals   what the expressions name, body -> name; shared by the tools of a grammar, for they have much in common
    problems    what could not be held
    """

    def __init__(self, definitions: Mapping[str, Schema], terminals: dict[str, str]) -> None:
        self._definitions = definitions
        self._terminals = terminals
        self.problems: list[Problem] = []

    def literal(self, text: str) -> str:
        return json.dumps(text, ensure_ascii=False)

    def json(self, schema: Any) -> str:
        if isinstance(schema, dict) and self._definitions and "$defs" not in schema:
            schema = {**schema, "$defs": self._definitions}
        return f"%json {json_schema(schema)}"

    def take_apart(self, schema: Any) -> Parameters:
        return take_apart(schema, self._definitions, self.problems)

    def text(self, schema: Any, *, end: str, forbidden_line: str, instead_of: frozenset[str]) -> str | None:
        forms = string_forms(schema, self._definitions)
        if not instead_of and any(form.unbound for form in forms):
            return f"{self._lines(forbidden_line)} {self.literal(end)}"
        # Every option ends with `end` inside its own terminal: the lexer takes the longest match of all of them.
        options: list[str] = []
        for form in forms:
            if form.literals is None:
                options.append(self._terminal(f"({self._bound(form, end, instead_of)}) {self.literal(end)}"))
            else:
                texts = _writable(form.admitted(), forbidden_line, instead_of)
                options += [self.literal(text + end) for text in texts]
        options += self._scalars(schema, end, instead_of)
        containers = [kind for kind in ("array", "object") if kind in instead_of and self._admits(schema, kind)]
        if containers:
            narrowed = {"allOf": [schema, {"type": containers}]} if schema is not True else {"type": containers}
            options.append(f"{self.json(narrowed)} {self.literal(end)}")
        return "(" + " | ".join(dict.fromkeys(options)) + ")" if options else None

    def _admits(self, schema: Any, kind: str) -> bool:
        return admits(schema, kind, self._definitions) is not False

    def _scalars(self, schema: Any, end: str, kinds: frozenset[str]) -> list[str]:
        """Numbers, booleans and null beside strings. Where the schema admits some only, these are literals or loose."""
        listed = [] if isinstance(schema, bool) else schema.get("enum", [schema["const"]] if "const" in schema else [])
        if listed:
            return [self.literal(json.dumps(v) + end) for v in listed if v is None or isinstance(v, bool | int | float)]
        options = []
        for kind in sorted(kinds & {"number", "integer", "boolean", "null"}):
            verdict = admits(schema, kind, self._definitions)
            if verdict is None and not (kind == "number" and self._admits(schema, "integer")):
                self.problems.append(Problem("#", "type", f"beside text, this tool format cannot narrow a {kind}"))
            if verdict is not False:
                options.append(self._terminal(f"{_regex(_READS_AS[kind])} {self.literal(end)}"))
        return options

    def note(self, place: str, reason: str) -> None:
        self.problems.append(Problem("#", place, reason))

    def name(self, *, forbidden: str, taken: frozenset[str]) -> str:
        body = f"/[^{_quoted(forbidden)}]+/"
        return self._terminal(_except(body, map(_quoted, taken)))

    def _lines(self, forbidden_line: str) -> str:
        """Free text, one terminal a line: the masks of a terminal that spans lines cost ten times as much."""
        first = self._terminal(_except(r"/[^\n]+/", [forbidden_line]))
        line = self._terminal(_except(r"/\n[^\n]*/", [rf"\n(?:{forbidden_line})"]))
        return f"({first}? {line}*)"

    def _bound(self, form: StringForm, end: str, instead_of: frozenset[str]) -> str:
        most = "" if form.most is None else form.most
        must = [rf"(?s:.{{{form.least},{most}}})" if form.least or form.most is not None else ANYTHING]
        for pattern in form.patterns:
            try:
                must.append(whole(pattern))
            except UnsupportedPatternError as error:
                self.problems.append(Problem("#", "pattern", f"this tool format cannot hold {pattern!r} ({error})"))
        must.append(without(end.strip()))
        must_not = (rf"\s*(?:{_READS_AS[kind]})\s*" for kind in sorted(instead_of))
        return _except(" & ".join(map(_regex, must)), must_not)

    def _terminal(self, body: str) -> str:
        return self._terminals.setdefault(body, f"TEXT_{len(self._terminals)}")


def _writable(texts: Iterable[str], forbidden_line: str, instead_of: frozenset[str]) -> list[str]:
    line = re.compile(forbidden_line)
    reads_as = [re.compile(rf"\s*(?:{_READS_AS[kind]})\s*") for kind in sorted(instead_of)]
    return [
        text
        for text in texts
        if not any(map(line.fullmatch, text.split("\n"))) and not any(kind.fullmatch(text) for kind in reads_as)
    ]


def _except(body: str, expressions: Iterable[str]) -> str:
    return " & ".join([body, *(f"~{_regex(expression)}" for expression in expressions)])


def _regex(expression: str) -> str:
    """An expression between slashes, as Lark writes it."""
    return "/" + _TO_ESCAPE.sub(lambda match: match[1] or _ESCAPED[match[0]], expression) + "/"


def _quoted(text: str) -> str:
    return "".join(char if char.isalnum() else f"\\x{{{ord(char):x}}}" for char in text)


_ESCAPED = {"/": r"\/", "\n": r"\n"}
_TO_ESCAPE = re.compile(r"(\\.)|[/\n]", re.DOTALL)
