"""Round trips, control-token safety, and incremental detokenising."""

import copy
import json
from itertools import pairwise
from pathlib import Path

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st

from clover_agent.errors import GenerationFailed, LoadFailed
from clover_agent.tokenizer import Tokenizer
from clover_agent.types import Piece, Segment
from tests.vocabulary import MERELY_ADDED, SPECIAL, definition, small_tokenizer

CONTROL = SPECIAL + MERELY_ADDED
tokenizer = small_tokenizer()
texts = st.text(max_size=40).map(lambda text: text.encode("utf-8", "ignore").decode())
with_control = st.lists(st.one_of(texts, st.sampled_from(CONTROL)), max_size=8).map("".join)


def test_control_tokens_are_all_added_tokens_special_or_not() -> None:
    assert set(tokenizer.control) == set(CONTROL)
    assert tokenizer.vocab_size == max(tokenizer.control.values()) + 1


@settings(deadline=None)
@given(with_control)
def test_plain_text_round_trips_and_never_holds_a_control_token(text: str) -> None:
    ids = tokenizer.encode_text(text)
    assert tokenizer.decode(ids) == text
    assert not set(ids) & set(tokenizer.control.values())


@settings(deadline=None)
@given(st.lists(st.builds(Segment, with_control, st.booleans()), max_size=6))
def test_only_trusted_text_becomes_control_tokens(segments: list[Segment]) -> None:
    ids = tokenizer.encode(segments)
    assert tokenizer.decode(ids) == "".join(segment.text for segment in segments)
    wanted = sum(len(tokenizer._control_pattern.findall(s.text)) for s in segments if s.trusted)
    assert sum(tokenizer.control_string(id_) is not None for id_ in ids) == wanted


@settings(deadline=None)
@given(with_control)
def test_trusted_text_is_encoded_as_the_original_tokenizer_does(text: str) -> None:
    whole = tokenizers.Tokenizer.from_str(json.dumps(definition()))
    assert tokenizer.encode([Segment(text, trusted=True)]) == whole.encode(text, add_special_tokens=False).ids


@settings(deadline=None)
@given(texts, st.integers(0, 40))
def test_where_text_is_cut_into_segments_does_not_change_its_ids(text: str, at: int) -> None:
    parts = [Segment(text[:at], trusted=False), Segment(text[at:], trusted=True)]
    assert tokenizer.encode(parts) == tokenizer.encode_text(text)


@settings(deadline=None)
@given(st.lists(st.integers(0, tokenizer.vocab_size - 1), max_size=30), st.lists(st.integers(0, 30), max_size=5))
def test_any_split_of_the_ids_gives_the_same_pieces(ids: list[int], cuts: list[int]) -> None:
    def pieces(parts: list[list[int]]) -> list[Piece]:
        detokenizer = tokenizer.detokenizer()
        out: list[Piece] = []
        for piece in [*(piece for part in parts for piece in detokenizer.feed(part)), *detokenizer.flush()]:
            if out and out[-1].control is None and piece.control is None:
                out[-1] = Piece(out[-1].text + piece.text)
            else:
                out.append(piece)
        return out

    places = [0, *sorted(cuts), len(ids)]
    assert pieces([ids[a:b] for a, b in pairwise(places)]) == pieces([ids])
    assert [p.control for p in pieces([ids]) if p.control] == [
        text for id_ in ids if (text := tokenizer.control_string(id_)) is not None
    ]


def test_a_character_is_held_back_until_it_is_whole_and_replaced_only_when_it_cannot_be() -> None:
    byte = {tokenizer.token_bytes(id_): id_ for id_ in range(tokenizer.vocab_size)}
    smile = [byte[bytes([b])] for b in "🙂".encode()]
    detokenizer = tokenizer.detokenizer()
    assert [detokenizer.feed([id_]) for id_ in smile] == [[], [], [], [Piece("🙂")]]
    assert detokenizer.feed(smile[:2]) == []
    control = tokenizer.control["</think>"]
    assert detokenizer.feed([control]) == [Piece("\ufffd"), Piece("</think>", "</think>")]
    assert detokenizer.feed(smile[:3]) == []
    assert detokenizer.flush() == [Piece("\ufffd")]
    assert detokenizer.flush() == []


def test_lone_surrogates_become_replacement_characters() -> None:
    assert tokenizer.decode(tokenizer.encode_text("a\ud800b")) == "a\ufffdb"
    assert tokenizer.decode(tokenizer.encode_text("\ud83d\ude42")) == "🙂"


@pytest.mark.parametrize("id_", [-1, tokenizer.vocab_size, 2**40])
def test_an_id_outside_the_vocabulary_is_an_error_that_names_it(id_: int) -> None:
    with pytest.raises(GenerationFailed, match=str(id_)):
        tokenizer.decode([id_])


def test_unused_ids_are_empty() -> None:
    sparse = copy.deepcopy(definition())
    sparse["added_tokens"][-1]["id"] += 7
    assert Tokenizer(sparse).decode([tokenizer.vocab_size + 2]) == ""


@pytest.mark.parametrize("content", [None, "", "{", "[]", "{}", '{"model": {"type": "BPE"}}', "\x00"])
def test_broken_files_fail_to_load(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "tokenizer.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(LoadFailed):
        Tokenizer.from_file(path)


def test_other_kinds_of_tokenizers_are_refused() -> None:
    wordpiece = tokenizers.Tokenizer(tokenizers.models.WordPiece({"[UNK]": 0}, unk_token="[UNK]"))
    with pytest.raises(LoadFailed, match="byte-level"):
        Tokenizer(json.loads(wordpiece.to_str()))


def test_a_vocabulary_without_all_bytes_is_refused() -> None:
    gap = copy.deepcopy(definition())
    del gap["model"]["vocab"]["ÿ"]
    with pytest.raises(LoadFailed, match="byte"):
        Tokenizer(gap)


def test_a_file_loads(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text(json.dumps(definition()))
    loaded = Tokenizer.from_file(tmp_path / "tokenizer.json")
    assert loaded.encode_text("Paris") == tokenizer.encode_text("Paris")
