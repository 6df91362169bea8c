"""Keeps numbers finite: JSON allows any exponent, readers do not (`1e999` is infinity, or an error).

llguidance knows no such limit, so a further digit is refused here after two digits of a positive exponent. Knows
tokens and matchers, no schemas.
"""

import re
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from llguidance import LLMatcher

from clover_agent.grammar.vocabulary import TEXT, Vocabulary

TAIL = 8  # bytes of what was written that must be known

_FULL = re.compile(rb"[0-9][eE]\+?[0-9]{2}\Z")
_OVERFULL = re.compile(rb"[0-9][eE]\+?[0-9]{3}")
_NUMERIC = re.compile(rb"[0-9eE+.]")


class NumberGuard:
    """`digits`: packed bits of the tokens that begin with a digit; shape as the masks of the vocabulary's head."""

    def __init__(self, vocabulary: Vocabulary, kinds: bytes, words: int) -> None:
        text = ((id_, vocabulary.token_bytes(id_)) for id_, kind in enumerate(kinds) if kind == TEXT)
        numeric = {id_: data for id_, data in text if _NUMERIC.match(data)}
        bits = np.zeros(32 * words, dtype=np.bool_)
        bits[[id_ for id_, data in numeric.items() if data[:1].isdigit()]] = True
        self.digits: npt.NDArray[np.uint32] = np.packbits(bits, bitorder="little").view(np.uint32)
        self._numeric = frozenset(numeric)
        self._vocabulary = vocabulary
        self._beside = [vocabulary.encode_text(mark) for mark in ('"', "~")]
        self._after = [vocabulary.encode_text(mark) for mark in (",", "}", "]", "\n")]

    def full(self, matcher: LLMatcher, tail: bytes) -> bool:
        """The frontier is in a number that takes no further digit. `tail`: what was written, its last bytes."""
        return _FULL.search(tail) is not None and self._in_number(matcher)

    def finite_prefix(self, matcher: LLMatcher, tail: bytes, ids: Sequence[int]) -> int:
        """How many of `ids`, all legal for the matcher, leave numbers finite."""
        if self._numeric.isdisjoint(ids):
            return len(ids)
        for n, id_ in enumerate(ids):
            written = tail + self._vocabulary.token_bytes(id_)
            if id_ in self._numeric and _OVERFULL.search(written) is not None:
                here = matcher.deep_copy()
                here.consume_tokens(list(ids[:n]))
                if self._in_number(here):
                    return n
            tail = written[-TAIL:]
        return len(ids)

    def _in_number(self, matcher: LLMatcher) -> bool:
        """After digits: a string would take a quote or other characters, only a number takes what ends a value."""
        return not _any(matcher, self._beside) and _any(matcher, self._after)


def _any(matcher: LLMatcher, texts: Sequence[list[int]]) -> bool:
    return any(matcher.validate_tokens(ids) == len(ids) for ids in texts)
