"""Text to token ids and back, with one hard rule: only trusted text may become control tokens.

Wraps a byte-level BPE `tokenizer.json` (Hugging Face `tokenizers`). A control token is every added token of that file,
special or merely added: `<|im_end|>` and `<tool_call>` alike. Ordinary text goes through a second tokenizer that has
never heard of them, so it cannot become one, whatever it spells. Knows nothing of templates, formats or models.
"""

import codecs
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import tokenizers

from clover_agent.errors import GenerationFailed, LoadFailed
from clover_agent.types import Piece, Segment


class Tokenizer:
    """A byte-level BPE vocabulary with its control tokens.

    control     every added token: string -> id
    vocab_size  one more than the highest id; a model's head may be wider (padding)

    `definition` is the content of a tokenizer.json. Raises `LoadFailed` if it cannot be used.
    """

    def __init__(self, definition: Mapping[str, Any]) -> None:
        try:
            self.control: Mapping[str, int] = {t["content"]: t["id"] for t in definition.get("added_tokens", ())}
            self._plain = tokenizers.Tokenizer.from_str(json.dumps(_without_control(definition)))
        except Exception as error:  # `tokenizers` raises bare Exception
            raise LoadFailed(f"This tokenizer definition cannot be used: {error}") from error
        if not _is_byte_level(definition):
            raise LoadFailed("This tokenizer is not byte-level BPE, the only kind that is supported.")
        self._bytes = _token_bytes(self._plain.get_vocab(with_added_tokens=False))
        if len({data for data in self._bytes.values() if len(data) == 1}) < 256:
            raise LoadFailed("The tokenizer's vocabulary does not cover all bytes: some text could not be written.")
        self._control_strings = {id_: text for text, id_ in self.control.items()}
        self.vocab_size = max((*self._bytes, *self._control_strings), default=-1) + 1
        self._check_separation()

    @classmethod
    def from_file(cls, path: Path) -> "Tokenizer":
        """Read a tokenizer.json. Raises `LoadFailed` if it is missing, broken, or not byte-level BPE."""
        try:
            definition = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise LoadFailed(f"Cannot read the tokenizer {path}: {error}") from error
        if not isinstance(definition, dict):
            raise LoadFailed(f"{path} is not a tokenizer.json: it holds no JSON object.")
        return cls(definition)

    def encode(self, segments: Sequence[Segment]) -> list[int]:
        """Ids of a prompt. Text between control tokens is encoded as one run, however many segments it comes in."""
        ids: list[int] = []
        run: list[str] = []
        for segment in segments:
            if not segment.trusted:
                run.append(segment.text)
                continue
            for part in self._control_pattern.split(segment.text):
                if part in self.control:
                    ids += self.encode_text("".join(run))
                    ids.append(self.control[part])
                    run = []
                else:
                    run.append(part)
        return ids + self.encode_text("".join(run))

    def encode_text(self, text: str) -> list[int]:
        """Ids of plain text; never a control token. Lone surrogates become U+FFFD."""
        if not text:
            return []
        return list(self._plain.encode(_without_surrogates(text), add_special_tokens=False).ids)

    def decode(self, ids: Sequence[int]) -> str:
        """Text of the ids, control tokens as their strings, broken UTF-8 as U+FFFD."""
        detokenizer = self.detokenizer()
        return "".join(piece.text for piece in (*detokenizer.feed(ids), *detokenizer.flush()))

    def detokenizer(self) -> "Detokenizer":
        return Detokenizer(self)

    def token_bytes(self, id_: int) -> bytes:
        """The bytes that a token stands for; a control token's are those of its string, an unused id's are empty.

        Raises `GenerationFailed` for an id outside the vocabulary.
        """
        if not 0 <= id_ < self.vocab_size:
            raise GenerationFailed(f"Token {id_} is outside the vocabulary of {self.vocab_size} tokens.")
        control = self._control_strings.get(id_)
        return control.encode() if control is not None else self._bytes.get(id_, b"")

    def control_string(self, id_: int) -> str | None:
        """The string of a control token; None for an ordinary one."""
        return self._control_strings.get(id_)

    @cached_property
    def _control_pattern(self) -> re.Pattern[str]:
        longest_first = sorted(self.control, key=len, reverse=True)
        return re.compile("(" + "|".join(map(re.escape, longest_first)) + ")" if longest_first else "(?!)")

    def _check_separation(self) -> None:
        for text, id_ in self.control.items():
            if id_ in self.encode_text(text):
                raise LoadFailed(f"The control token {text!r} is also ordinary text here: it cannot be kept apart.")


class Detokenizer:
    """Ids to pieces, one at a time or many: any split of the ids gives the same text.

    A character that needs more tokens is held back until it is whole; bytes that can never become one are U+FFFD.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, ids: Iterable[int]) -> list[Piece]:
        pieces: list[Piece] = []
        run = ""
        for id_ in ids:
            data = self._tokenizer.token_bytes(id_)
            control = self._tokenizer.control_string(id_)
            if control is None:
                run += self._decoder.decode(data)
                continue
            run += self._decoder.decode(b"", final=True)
            pieces += [*_text(run), Piece(control, control)]
            run = ""
        return pieces + _text(run)

    def flush(self) -> list[Piece]:
        """What is held back: at most one character that was never completed."""
        return _text(self._decoder.decode(b"", final=True))


def _text(text: str) -> list[Piece]:
    return [Piece(text)] if text else []


def _without_surrogates(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def _without_control(definition: Mapping[str, Any]) -> dict[str, Any]:
    """The same tokenizer without its added tokens: not in the list, not in the vocabulary, not in post-processing.

    A string that merges can produce stays in the vocabulary (removing it would break the merges).
    """
    model = dict(definition["model"])
    made = {"".join(m if isinstance(m, list) else m.split(" ")) for m in model.get("merges", ())}
    control = {token["content"] for token in definition.get("added_tokens", ())}
    model["vocab"] = {text: id_ for text, id_ in model["vocab"].items() if text not in control - made}
    return {
        **definition,
        "model": model,
        "added_tokens": [],
        "post_processor": None,
        "truncation": None,
        "padding": None,
    }


def _is_byte_level(definition: Mapping[str, Any]) -> bool:
    decoder = definition.get("decoder") or {}
    parts = decoder.get("decoders", [decoder])
    return definition["model"].get("type") == "BPE" and any(part.get("type") == "ByteLevel" for part in parts)


def _token_bytes(vocabulary: Mapping[str, int]) -> dict[int, bytes]:
    """Undo the byte alphabet of byte-level BPE (GPT-2): every byte is written as one printable character."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in printable]
    byte_of = {chr(byte): byte for byte in printable} | {chr(256 + n): byte for n, byte in enumerate(others)}
    try:
        return {id_: bytes(byte_of[char] for char in text) for text, id_ in vocabulary.items()}
    except KeyError as error:
        raise LoadFailed(f"The tokenizer's vocabulary has {error}, which byte-level BPE cannot write.") from error
