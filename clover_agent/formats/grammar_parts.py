"""What a tool format needs to write the grammar of its calls, without knowing how schemas become grammars."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

Schema = bool | Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Parameter:
    """One declared member of an arguments object."""

    name: str
    schema: Schema
    required: bool


@dataclass(frozen=True, slots=True)
class Parameters:
    """An arguments object taken apart: the declared members in order; `others` is the schema of all other members,
    False where there must be none."""

    declared: tuple[Parameter, ...]
    others: Schema


class GrammarParts(Protocol):
    """Pieces of a Lark grammar, to be put in sequence. Each method returns an expression."""

    def literal(self, text: str) -> str:
        """Exactly this text."""

    def json(self, schema: Schema) -> str:
        """JSON text of a value that satisfies the schema, with the separators ", " and ": "."""

    def take_apart(self, schema: Schema) -> Parameters:
        """The members of an arguments object. What a list of members cannot say is loosened (and noted)."""

    def text(self, schema: Schema, *, end: str, forbidden_line: str, instead_of: frozenset[str]) -> str | None:
        """Raw text of a string that satisfies the schema, and then `end`.

        No line of it matches `forbidden_line` as a whole (a regular expression). Values of the other types that may
        stand here, `instead_of`, are written as JSON, and text that reads as one of these is left out.
        None if there is no such value.
        """

    def note(self, place: str, reason: str) -> None:
        """Tell that the grammar is looser than the schema at a place."""

    def name(self, *, forbidden: str, taken: frozenset[str]) -> str:
        """Any member name that has none of the characters `forbidden` and is not `taken`."""
