"""Pieces -> text and nothing else, for raw prompts: whoever wrote the prompt reads the answer, markers included."""

from collections.abc import Iterable

from clover_agent.types import Event, Piece, TextDelta


class Verbatim:
    """Has the face of `Parser`; no thought or call is ever open."""

    thinking = False
    open_call = False

    def feed(self, pieces: Iterable[Piece]) -> list[Event]:
        return [TextDelta(piece.text) for piece in pieces]

    def flush(self) -> list[Event]:
        return []
