"""One answer as it is written: final token ids go in, events come out, every call checked before it leaves.

Knows nothing of the engine or of prompts. A turn is fed by one attempt; `replay` brings a second turn to the place
where a failed one was still right.
"""

from collections.abc import Iterable
from typing import Literal

from clover_agent.errors import InvalidToolCall
from clover_agent.formats import ToolFormat
from clover_agent.grammar import check_call, check_output
from clover_agent.parsing import Parser, StopFilter, Verbatim
from clover_agent.tokenizer import Tokenizer
from clover_agent.types import (
    Conversation,
    DiffusionStats,
    Draft,
    Event,
    FinishReason,
    ReasoningDelta,
    Step,
    TextDelta,
    ToolCallDone,
)


class Turn:
    """Turns steps into events.

    ids      the final tokens so far
    finish   why it ended: the engine's word, or "stop" once a stop string was met; None while it goes on
    failure  the bad call that ended it, if one did
    """

    def __init__(
        self,
        conversation: Conversation,
        tokenizer: Tokenizer,
        format_: ToolFormat,
        *,
        thinking: bool,
        hold_text: bool,
    ) -> None:
        self._conversation = conversation
        self._tools = {tool.name: tool for tool in conversation.tools}
        self._tokenizer = tokenizer
        self._detokenizer = tokenizer.detokenizer()
        raw = conversation.raw is not None
        self._parser: Parser | Verbatim = Verbatim() if raw else Parser(format_, conversation.tools, thinking=thinking)
        self._stop = StopFilter(conversation.stop)
        self._hold_text = hold_text and conversation.response_format.kind != "text"
        self._text: list[str] = []  # the visible text so far, kept only where it must satisfy a response_format
        self._calls = 0
        self._kept = 0
        self._earlier = DiffusionStats()
        self._second = False
        self._current = DiffusionStats()
        self.ids: list[int] = []
        self.reasoning_tokens = 0
        self.finish: Literal["stop", "length"] | None = None
        self.failure: InvalidToolCall | None = None

    @property
    def stats(self) -> DiffusionStats:
        """Counters of this answer, over all its attempts."""
        a, b = self._earlier, self._current
        return DiffusionStats(
            denoising_steps=a.denoising_steps + b.denoising_steps,
            forwards=a.forwards + b.forwards,
            forced_tokens=a.forced_tokens + b.forced_tokens,
            new_tokens=len(self.ids),
            cached_tokens=a.cached_tokens if self._second else b.cached_tokens,  # of the prompt alone
        )

    @property
    def reason(self) -> FinishReason:
        """Cut by the budget is "length", whatever was said before."""
        if self.finish == "length":
            return "length"
        return "tool_calls" if self._calls else "stop"

    @property
    def stop(self) -> str | None:
        """The stop string that was met."""
        return self._stop.matched

    def feed(self, step: Step) -> list[Event]:
        """The events of a step. A bad call does not take the events before it along: it is left in `failure`."""
        self._current = step.stats
        events: list[Event] = []
        try:
            for id_ in step.tokens:
                self._token(id_, events)
                if self.finish is not None:
                    return _merged(events)
        except InvalidToolCall as error:
            self.failure = error
            return _merged(events)
        self.finish = step.finish
        if step.draft is not None:
            decode = self._tokenizer.decode
            events.append(Draft(tuple(None if id_ is None else decode([id_]) for id_ in step.draft)))
        return _merged(events)

    def end(self) -> list[Event]:
        """What was held back. Raises `InvalidToolCall` or `InvalidOutput` where it is not what was asked for."""
        events: list[Event] = []
        if not self._stop.hit:
            self._release([*self._parser.feed(self._detokenizer.flush()), *self._parser.flush()], events)
            self._visible(self._stop.flush(), events)
        if self.finish == "stop" and not self._stop.hit:
            self._check_whole()
        if self._hold_text and self._text:
            events.append(TextDelta("".join(self._text)))
        return _merged(events)

    def kept_ids(self) -> list[int]:
        """The tokens up to the last place where nothing was open and nothing was held back."""
        return self.ids[: self._kept]

    def replay(self, ids: Iterable[int], stats: DiffusionStats) -> None:
        """Start from where an earlier turn was still right; its events are already out."""
        for id_ in ids:
            self._token(id_, [])
        self._earlier, self._second = stats, True

    def _token(self, id_: int, events: list[Event]) -> None:
        self.ids.append(id_)
        thinking = self._parser.thinking
        self._release(self._parser.feed(self._detokenizer.feed([id_])), events)
        self.reasoning_tokens += thinking or self._parser.thinking
        if not self._parser.open_call and not (self._hold_text and self._text):
            self._kept = len(self.ids)

    def _release(self, parsed: Iterable[Event], events: list[Event]) -> None:
        for event in parsed:
            if isinstance(event, TextDelta):
                self._visible(self._stop.feed(event.text), events)
                if self._stop.hit:
                    self.finish = "stop"
                    return
            elif isinstance(event, ToolCallDone):
                check_call(self._tools[event.call.name], event.call.arguments)
                self._calls += 1
                events.append(event)
            else:
                events.append(event)

    def _visible(self, text: str, events: list[Event]) -> None:
        if text and self._conversation.response_format.kind != "text":
            self._text.append(text)
        if text and not self._hold_text:
            events.append(TextDelta(text))

    def _check_whole(self) -> None:
        if self._parser.open_call:
            raise InvalidToolCall("The model ended its turn inside a tool call.")
        if self._conversation.tool_choice.mode == "required" and not self._calls:
            raise InvalidToolCall("tool_choice requires a tool call, and the model made none.")
        if self._conversation.response_format.kind != "text" and not self._calls:
            check_output(self._conversation.response_format, "".join(self._text))


def _merged(events: list[Event]) -> list[Event]:
    """Neighbouring deltas of one kind become one: a step is one event a kind, not one a token."""
    merged: list[Event] = []
    for event in events:
        last = merged[-1] if merged else None
        if isinstance(event, TextDelta) and isinstance(last, TextDelta):
            merged[-1] = TextDelta(last.text + event.text)
        elif isinstance(event, ReasoningDelta) and isinstance(last, ReasoningDelta):
            merged[-1] = ReasoningDelta(last.text + event.text)
        else:
            merged.append(event)
    return merged
