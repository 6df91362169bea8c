"""Pieces -> events: thoughts, visible text, and whole tool calls.

Only control pieces open and close anything; text that looks like a marker is text. What happened is never taken back:
a call becomes an event once, when it is complete and well-formed. Knows nothing of schemas' truth, ids or HTTP.
"""

import secrets
from collections.abc import Iterable, Sequence
from typing import Literal

from clover_agent.formats import THINK_BEGIN, THINK_END, ToolFormat
from clover_agent.parsing.spacing import Spacing
from clover_agent.types import Event, Piece, ReasoningDelta, TextDelta, Tool, ToolCall, ToolCallDone

Place = Literal["text", "thought", "call"]


class Parser:
    """Reads one answer, in any split: `feed` as it comes, `flush` at its end.

    thinking  the prompt ends inside an open thought

    Without tools there are no calls, and their markers are text. A call that is made inside a thought is a call and
    ends the thought (models do this: vllm-project/vllm#39056). Closers that close nothing are dropped; control tokens
    that mean nothing here are shown as text, in a call they are part of its body.
    """

    def __init__(self, format_: ToolFormat, tools: Sequence[Tool], *, thinking: bool) -> None:
        self._format = format_
        self._tools = tools
        self._place: Place = "thought" if thinking else "text"
        self._text = Spacing(after_marker=thinking)
        self._thought = Spacing(after_marker=True)
        self._body: list[str] = []
        self._calls = 0

    @property
    def thinking(self) -> bool:
        """A thought is open."""
        return self._place == "thought"

    @property
    def open_call(self) -> bool:
        """A call has begun and is not complete. Stays true after `flush`, which drops it."""
        return self._place == "call"

    def feed(self, pieces: Iterable[Piece]) -> list[Event]:
        """The events that are certain now. Raises `InvalidToolCall` where a call ends that cannot be read."""
        events: list[Event] = []
        for piece in pieces:
            if not self._marker(piece.control, events):
                self._content(piece.text, events)
        return events

    def flush(self) -> list[Event]:
        """What was held back. An unfinished call is dropped."""
        if self.open_call:
            return []
        channel, delta = (self._thought, ReasoningDelta) if self.thinking else (self._text, TextDelta)
        held = channel.flush()
        return [delta(held)] if held else []

    def _content(self, text: str, events: list[Event]) -> None:
        if self._place == "call":
            self._body.append(text)
        elif self._place == "thought":
            if said := self._thought.feed(text):
                events.append(ReasoningDelta(said))
        elif said := self._text.feed(text):
            events.append(TextDelta(said))

    def _marker(self, control: str | None, events: list[Event]) -> bool:
        """Act on a control piece; false if it is content here."""
        if control is None:
            return False
        if self._place == "call":
            if control == self._format.call_end:
                self._end_call(events)
                return True
            return False
        opens: dict[str, Place] = {THINK_BEGIN: "thought", THINK_END: "text"}
        if self._tools:
            opens |= {self._format.call_begin: "call", self._format.call_end: self._place}
        if control not in opens:
            return False
        self._go(opens[control])
        return True

    def _go(self, place: Place) -> None:
        self._text.marker()
        self._thought.marker()
        self._place = place

    def _end_call(self, events: list[Event]) -> None:
        body, self._body = "".join(self._body), []
        self._go("text")
        name, arguments = self._format.decode(body, self._tools)
        events.append(ToolCallDone(self._calls, ToolCall(f"call_{secrets.token_hex(12)}", name, arguments)))
        self._calls += 1
