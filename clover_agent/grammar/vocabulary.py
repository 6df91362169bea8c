"""The token vocabulary as the grammar's engine needs it. Knows bytes and ids, no text formats."""

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt
from llguidance import LLTokenizer, TokenizerWrapper


class Vocabulary(Protocol):
    """What a tokenizer must tell: `tokenizer.Tokenizer` does.

    control      every control token: string -> id
    vocab_size   one more than the highest id
    """

    @property
    def control(self) -> Mapping[str, int]: ...

    @property
    def vocab_size(self) -> int: ...

    def token_bytes(self, id_: int) -> bytes:
        """The bytes of a token, empty for an unused id."""

    def encode_text(self, text: str) -> list[int]:
        """Ids of plain text, never a control token."""


def engine_tokenizer(vocabulary: Vocabulary, end_ids: Sequence[int]) -> LLTokenizer:
    """The vocabulary as llguidance wants it, built once (0.7 s for 248,077 tokens). Every control token is special in
    it, so none is ever legal inside text or a JSON string."""
    return LLTokenizer(
        TokenizerWrapper(_Wrapped(vocabulary, end_ids[0])), n_vocab=vocabulary.vocab_size, eos_token=list(end_ids)
    )


UNUSED, TEXT, CONTROL = range(3)


def kinds(vocabulary: Vocabulary) -> bytes:
    """UNUSED, TEXT or CONTROL for every id; length `vocab_size`."""
    control = set(vocabulary.control.values())
    return bytes(
        CONTROL if id_ in control else TEXT if vocabulary.token_bytes(id_) else UNUSED
        for id_ in range(vocabulary.vocab_size)
    )


def text_mask(kinds_: bytes, vocab_size: int) -> npt.NDArray[np.uint32]:
    """The text tokens as packed bits, little-endian, for a head of `vocab_size`: shape [ceil(vocab_size / 32)]."""
    bits = np.zeros(-(-max(vocab_size, len(kinds_)) // 32) * 32, dtype=np.bool_)
    bits[: len(kinds_)] = np.frombuffer(kinds_, dtype=np.uint8) == TEXT
    return np.packbits(bits, bitorder="little").view(np.uint32)


class _Wrapped:
    """The attributes that llguidance reads from a tokenizer."""

    def __init__(self, vocabulary: Vocabulary, end_id: int) -> None:
        self.eos_token_id = end_id
        self.bos_token_id = None
        self.tokens = [vocabulary.token_bytes(id_) for id_ in range(vocabulary.vocab_size)]
        self.special_token_ids = sorted(vocabulary.control.values())
        self._vocabulary = vocabulary

    def __call__(self, text: str | bytes) -> list[int]:
        if isinstance(text, bytes):
            raise TypeError("this tokenizer encodes text only")  # llguidance asks, and then hands over text
        return self._vocabulary.encode_text(text)
