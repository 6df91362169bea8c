"""The way to the end of a held output when the token budget runs out: a short one, found by search.

In a response format it may write structure and values that the model has not begun. In a tool call it writes closing
structure only: an agent will run the call, and a value that nobody chose (`"content": ""`) may do harm. A string,
number or array of a call that the model left open is never closed for it either (`open_value`, the tool format's word),
nor is a call made up that the model has not begun. Knows no schemas.
"""

import heapq
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice

import numpy as np
from llguidance import LLMatcher

from clover_agent.formats import ToolFormat
from clover_agent.grammar.constraint import Closer
from clover_agent.grammar.vocabulary import Vocabulary

MAX_NODES = 300
MAX_TOO_LONG = 6  # ways that outgrew the budget; the greedy way is about the shortest, others will not be much shorter
TOKEN_COST = 0.03

_STRUCTURE = re.compile(r"(?:[\]}\s]|</\w+>)*")

# Texts that lead to an end, the most welcome first; each is one step of the search.
_IN_TEXT = ('"}', '"', '"]')
_BETWEEN = (
    *("}", "]", "}}", '"', "{}", "[]", "null", "true"),
    *(' ""', " {}", " []", " null", " true", " 0", ' "', " {", " ["),  # after ":" and ",", where a space is due
    *("{", "[", ', "', ", ", ": "),
)
_DIGITS = "0123456789"
_IN_STRINGS_ONLY = "~xZ"  # legal in hardly any place but a string: these tell which of the two is at hand
# Where a string cannot end at once: values of the usual formats, then characters of each kind.
_USUAL = (
    *("a@a.aa", "2000-01-01", "2000-01-01T00:00:00Z", "00:00:00Z", "http://a.aa", "127.0.0.1", "::1", "P1D"),
    "00000000-0000-4000-8000-000000000000",
)
# Marks come first: in a pattern that repeats, the mark is what leads on.
_LETTERS = "aebcdfghijklmnopqrstuvwxyz"
_KINDS = (":@.,/ _#+-", "=%$!?&*()<>[]{}\\'`~|^;\n", _DIGITS, _LETTERS, _LETTERS.upper())
_OF_A_KIND = 2


@dataclass(order=True, slots=True)
class _Way:
    """A way so far: what was written, and one more step. `matcher` stands before that step and belongs to others too.

    `cost` grows a little with each token and by one with each step less welcome than another: the search tries the
    greedy way first, then ways that differ from it in one place, and so on.
    """

    cost: float
    serial: int
    matcher: LLMatcher = field(compare=False)
    ids: tuple[int, ...] = field(compare=False)
    step: tuple[int, ...] = field(compare=False)


class CloseSearch:
    """Finds ways to the end for one vocabulary and tool format."""

    def __init__(self, vocabulary: Vocabulary, format_: ToolFormat) -> None:
        self._vocabulary = vocabulary
        self._format = format_
        self._begin = vocabulary.control[format_.call_begin]
        self._end = vocabulary.control[format_.call_end]
        self._in_text = self._encoded((*format_.closing_texts, *_IN_TEXT))
        self._between = [(self._end,), *self._encoded((*format_.closing_texts, *_BETWEEN))]
        self._in_strings_only = self._encoded(_IN_STRINGS_ONLY)
        self._usual = self._encoded(_USUAL)
        self._digits = self._encoded(_DIGITS)
        self._kinds = [[ids[0] for c in kind if len(ids := vocabulary.encode_text(c)) == 1] for kind in _KINDS]

    def closer(self, required: Iterable[str]) -> Closer:
        """The closer of one grammar. `required`: names of members that its objects must have, which is what to write
        next where several members may come."""
        texts = [text for name in required for text in self._format.member_texts(name)]
        return partial(self._close, self._encoded(texts))

    def _close(
        self, members: Sequence[tuple[int, ...]], matcher: LLMatcher, held_ids: Sequence[int], budget: int
    ) -> list[int] | None:
        body = self._open_call(held_ids)
        if body is not None and self._format.open_value(body):
            return None
        ways = [_Way(0.0, 0, matcher, (), ())]
        serial = too_long = 0
        for _ in range(MAX_NODES):
            if not ways or too_long > MAX_TOO_LONG:
                break
            way = heapq.heappop(ways)
            here = way.matcher.deep_copy()
            ids = self._follow(here, way)
            if ids is None or len(ids) > budget:
                too_long += ids is not None
                continue
            if here.is_accepting():
                return list(ids) if body is None or self._is_structure(ids) else None
            for rank, step in enumerate(self._legal(here, members)):
                serial += 1
                heapq.heappush(ways, _Way(way.cost + rank + TOKEN_COST * len(step), serial, here, ids, step))
        return None

    def _encoded(self, texts: Sequence[str]) -> list[tuple[int, ...]]:
        return [tuple(self._vocabulary.encode_text(text)) for text in texts]

    def _open_call(self, held_ids: Sequence[int]) -> str | None:
        """The body, so far, of the call that the frontier is in; None outside of calls."""
        marks = [n for n, id_ in enumerate(held_ids) if id_ in (self._begin, self._end)]
        if not marks or held_ids[marks[-1]] == self._end:
            return None
        return self._text(held_ids[marks[-1] + 1 :])

    def _is_structure(self, ids: Sequence[int]) -> bool:
        """The text only closes what is open: brackets, white space, closing tags and markers."""
        return _STRUCTURE.fullmatch(self._text(ids)) is not None

    def _text(self, ids: Sequence[int]) -> str:
        return b"".join(map(self._vocabulary.token_bytes, ids)).decode("utf-8", "replace")

    def _follow(self, here: LLMatcher, way: _Way) -> tuple[int, ...] | None:
        """Take the step and what it forces; None where that would begin a call or is a dead end."""
        here.consume_tokens(list(way.step))
        forced = [] if here.is_accepting() else here.compute_ff_tokens()
        if self._begin in forced or not here.consume_tokens(forced):
            return None
        return (*way.ids, *way.step, *forced)

    def _legal(self, matcher: LLMatcher, members: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
        """The steps to try, the most welcome first."""

        def those(steps: Iterable[tuple[int, ...]]) -> list[tuple[int, ...]]:
            return [step for step in steps if matcher.validate_tokens(list(step)) == len(step)]

        if not those(self._in_strings_only):
            steps = those(members) or those(self._between) or those(self._usual) or those(self._digits)
        else:
            steps = those(self._in_text) or those(members)
        if steps:
            return steps
        marks, others = self._kinds[:2], self._kinds[2:]
        for kind in marks:
            steps += islice(((id_,) for id_ in kind if matcher.validate_tokens([id_]) == 1), _OF_A_KIND)
        steps += those(self._usual)
        for kind in others:
            steps += islice(((id_,) for id_ in kind if matcher.validate_tokens([id_]) == 1), _OF_A_KIND)
        return steps or [(id_,) for id_ in self._any_legal(matcher)]

    def _any_legal(self, matcher: LLMatcher) -> Iterator[int]:
        bits = np.unpackbits(np.frombuffer(matcher.compute_bitmask(), dtype=np.uint8), bitorder="little")
        return (int(id_) for id_ in np.flatnonzero(bits)[:4] if id_ != self._begin)
