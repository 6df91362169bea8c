"""The whole way on the sample that ships: tokenizer -> shards -> training steps -> export -> a model that loads."""

from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console

from clover_agent.model.native import load_native
from clover_agent.model.protocol import Work
from clover_agent.sprout.corpus import read_records
from clover_agent.sprout.dataset import MAX_TOKENS, MixOptions, build, evaluation_set, examples
from clover_agent.sprout.rendering import CONTROL, TURN_END
from clover_agent.sprout.sample import records_path, schemas_path
from clover_agent.sprout.shards import load_shards
from clover_agent.sprout.tokenizer_training import rendered, train_tokenizer
from clover_agent.sprout.train import TrainOptions, run
from clover_agent.tokenizer import Tokenizer

OPTIONS = MixOptions((records_path(),), (schemas_path(),), count=120, seed=3)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory built from the sample, as the documented commands build it."""
    directory = tmp_path_factory.mktemp("data")
    train_tokenizer(rendered(OPTIONS)).save(str(directory / "tokenizer.json"))
    build(OPTIONS, directory / "tokenizer.json", directory / "shard")
    (directory / "shard" / "tokenizer.json").rename(directory / "tokenizer.json")
    return directory


def test_the_trained_tokenizer_keeps_its_promises(data: Path) -> None:
    tokenizer = Tokenizer.from_file(data / "tokenizer.json")
    assert [tokenizer.control[text] for text in CONTROL] == list(range(len(CONTROL)))
    assert tokenizer.vocab_size <= 4096
    text = '{"name": "get_weather", "arguments": {"city": "São Paulo", "days": 14, "all": true}}\n日本'
    assert tokenizer.decode(tokenizer.encode_text(text)) == text
    pieces = [tokenizer.decode([id_]) for id_ in tokenizer.encode_text('{"name": "a_b", "n": 14}')]
    assert pieces == ['{"', "name", '": "', "a", "_", "b", '", "', "n", '": ', "1", "4", "}"]


def test_a_word_is_cut_alike_with_and_without_a_space(data: Path) -> None:
    tokenizer = Tokenizer.from_file(data / "tokenizer.json")
    for word in ("Lisbon", "weather", "Xyloquent", "getHttpPage", "zq"):
        bare = [tokenizer.decode([id_]) for id_ in tokenizer.encode_text(word)]
        spaced = [tokenizer.decode([id_]) for id_ in tokenizer.encode_text(f" {word}")]
        joined = len(spaced) - len(bare) + 1  # pieces that hold the space and the first piece: one, or two
        assert ["".join(spaced[:joined]).strip(), *spaced[joined:]] == bare


def test_shards_hold_what_the_mix_holds(data: Path) -> None:
    shards = load_shards(data)
    tokenizer = Tokenizer.from_file(data / "tokenizer.json")
    assert 60 < len(shards) <= OPTIONS.count
    assert (shards.prompt_lengths + shards.response_lengths).max() <= MAX_TOKENS
    ends = shards.responses[shards.response_offsets[1:] - 1]
    assert np.all(ends == tokenizer.control[TURN_END])
    assert set(shards.difficulty.tolist()) == {0, 1, 2}


def test_building_twice_gives_the_same_examples() -> None:
    assert list(examples(OPTIONS)) == list(examples(OPTIONS))


def test_the_evaluation_set_is_reproducible_and_plain() -> None:
    schemas = list(read_records(schemas_path()))
    made = list(evaluation_set(schemas))
    assert made == list(evaluation_set(schemas))
    assert {example.kind for example in made} == {"single", "pair", "none", "answer"}
    assert all(example.thought is None for example in made)


@pytest.mark.slow
def test_two_steps_of_training_export_a_model_that_loads(data: Path, tmp_path: Path) -> None:
    options = TrainOptions(data=data, out=tmp_path, steps=2, warmup=1, rows=512, log_every=1)
    path = run(options, Console(quiet=True))
    model = load_native(path)
    state = model.new_state()
    block = [model.spec.mask_token_id] * model.spec.block_size
    hidden = model.forward([Work(state, advance=[1, 20, 21], block=block)])
    logits = model.logits(hidden, range(len(block)))
    assert torch.isfinite(logits.values).all()
    assert (path / "tokenizer.json").read_bytes() == (data / "tokenizer.json").read_bytes()
