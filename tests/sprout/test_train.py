import json
import signal
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console

from clover_agent.errors import LoadFailed
from clover_agent.model.native import load_native
from clover_agent.sprout.architecture import read_config
from clover_agent.sprout.optim import rate_factor
from clover_agent.sprout.shards import pack
from clover_agent.sprout.train import TrainOptions, parse, run
from clover_agent.sprout.twins import TwinTable, find_twins

from .examples import END, data_directory, random_shards

QUIET = Console(quiet=True)


@pytest.fixture
def options(tmp_path: Path) -> TrainOptions:
    data = data_directory(tmp_path / "data", random_shards(60, levels=2))
    return TrainOptions(data, tmp_path / "out", steps=6, rows=256, warmup=2, level_tokens=500, log_every=2)


def checkpoint(options: TrainOptions) -> dict[str, object]:
    found: dict[str, object] = torch.load(options.out / "checkpoint.pt", weights_only=True)
    return found


def weights(options: TrainOptions) -> dict[str, torch.Tensor]:
    model: dict[str, torch.Tensor] = checkpoint(options)["model"]  # type: ignore[assignment]
    return model


def test_a_run_in_two_parts_is_the_run_in_one(options: TrainOptions, tmp_path: Path) -> None:
    """Over the end of a window and a change of level, at a constant rate."""
    whole = replace(options, decay=0.0, steps=24)
    run(whole, QUIET)
    parts = replace(whole, out=tmp_path / "parts")
    run(replace(parts, steps=9), QUIET)
    run(replace(parts, steps=15, resume=True), QUIET)
    first, second = checkpoint(whole)["progress"], checkpoint(parts)["progress"]
    assert isinstance(first, dict)
    assert isinstance(second, dict)
    for name in ("step", "tokens", "place"):
        assert first[name] == second[name]
    assert first["place"]["window"] > 0
    assert first["place"]["level"] > 0
    for name, tensor in weights(whole).items():
        torch.testing.assert_close(weights(parts)[name], tensor, rtol=1e-4, atol=1e-5)


def test_the_decay_is_a_branch(options: TrainOptions) -> None:
    run(replace(options, decay=0.0), QUIET)
    before = weights(options)
    path = run(replace(options, resume=True, decay=1.0, steps=5), QUIET)
    assert path.name == "export-000011"
    for name, tensor in weights(options).items():
        assert torch.equal(tensor, before[name])
    exported = load_native(path).transformer.state_dict()
    assert not torch.equal(exported["layers.0.mlp.up_proj.weight"], before["layers.0.mlp.up_proj.weight"])


def test_it_learns_to_copy(tmp_path: Path) -> None:
    """The response repeats the prompt's one word: the losses on it fall far below chance."""
    prompts = [[word] * 6 for word in np.random.default_rng(0).integers(4, 40, 200).tolist()]
    data = data_directory(tmp_path / "data", pack((prompt, [*prompt[-3:], END], 0) for prompt in prompts))
    run(TrainOptions(data, tmp_path / "out", steps=80, rows=1024, warmup=5, log_every=20), QUIET)
    log = [json.loads(line) for line in (tmp_path / "out" / "log.jsonl").read_text().splitlines()]
    assert [entry["step"] for entry in log] == [20, 40, 60, 80]
    assert log[-1]["response"] < 2.2 < log[0]["response"]  # without copying: 3/4 ln 36 = 2.7
    assert log[-1]["diffusion"] < 0.5 * log[0]["diffusion"]
    assert log[-1]["accuracy"] > 0.9
    assert log[-1]["rate"] < 0.2
    assert (tmp_path / "out" / "loss.png").exists()


def test_a_run_from_exported_weights_begins_where_they_are(options: TrainOptions, tmp_path: Path) -> None:
    exported = run(replace(options, decay=0.0), QUIET)
    again = replace(options, out=tmp_path / "again", start=exported, steps=1)
    path = run(replace(again, peak=0.0), QUIET)
    assert checkpoint(again)["progress"]["step"] == 1  # type: ignore[index]
    before, after = (load_native(at).transformer.state_dict() for at in (exported, path))
    for name, tensor in before.items():
        torch.testing.assert_close(after[name], tensor)
    run(replace(again, peak=0.5), QUIET)
    assert not torch.equal(weights(again)["layers.0.mlp.up_proj.weight"], before["layers.0.mlp.up_proj.weight"])


def test_an_export_that_does_not_fit_is_refused(options: TrainOptions, tmp_path: Path) -> None:
    exported = run(replace(options, steps=1), QUIET)
    (options.data / "tokenizer.json").write_text('{"model": {"vocab": {"a": 4}}}')
    (exported / "tokenizer.json").write_text('{"model": {"vocab": {"b": 4}}}')
    with pytest.raises(LoadFailed, match="another tokenizer"):
        run(replace(options, start=exported), QUIET)
    with pytest.raises(LoadFailed, match="tokenizer"):
        run(replace(options, start=tmp_path / "nowhere"), QUIET)


def test_a_table_is_split_into_what_it_is_composed_of() -> None:
    table = TwinTable([-1, 0, -1, 2], 3)
    effective = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
    free = table.split(effective)
    torch.testing.assert_close(table(free), effective)
    assert table.space.abs().sum() > 0


def test_a_checkpoint_of_another_model_is_refused(options: TrainOptions) -> None:
    run(replace(options, steps=1), QUIET)
    config = json.loads((options.data / "config.json").read_text())
    (options.data / "config.json").write_text(json.dumps({**config, "intermediate_size": 16}))
    with pytest.raises(LoadFailed, match="does not fit"):
        run(replace(options, resume=True), QUIET)
    (options.out / "checkpoint.pt").write_bytes(b"broken")
    with pytest.raises(LoadFailed, match="cannot resume"):
        run(replace(options, resume=True), QUIET)


def test_unusable_options_and_data(options: TrainOptions) -> None:
    with pytest.raises(LoadFailed, match="budget"):
        run(replace(options, steps=None), QUIET)
    with pytest.raises(LoadFailed, match="short and easy"):
        run(replace(options, max_length=4), QUIET)
    (options.data / "config.json").unlink()
    with pytest.raises(LoadFailed, match="tokenizer"):
        run(options, QUIET)


def test_every_option_is_a_flag(tmp_path: Path) -> None:
    line = f"--data {tmp_path} --out {tmp_path / 'out'} --minutes 1.5 --resume --level-tokens 7 --decay 1 --start e"
    expected = TrainOptions(
        tmp_path, tmp_path / "out", minutes=1.5, resume=True, start=Path("e"), level_tokens=7, decay=1.0
    )
    assert parse(line.split()) == expected


def test_the_rate_rises_stays_and_falls() -> None:
    factors = [rate_factor(step, step / 100, warmup=10, decay=0.2) for step in range(101)]
    assert factors[0] == 0.1
    assert set(factors[10:80]) == {1.0}
    assert factors[90] == pytest.approx(0.5)
    assert factors[100] == 0
    assert all(a >= b for a, b in pairwise(factors[10:]))
    assert rate_factor(5, 0.5, warmup=0, decay=1.0) == 0.5


def test_twins(tmp_path: Path) -> None:
    vocab = {"Paris": 0, "ĠParis": 1, "Ġ": 2, "ĠĠ": 3, "ĠRome": 4, "x": 5}
    file = tmp_path / "tokenizer.json"
    file.write_text(json.dumps({"model": {"vocab": vocab}}))
    assert find_twins(file, 6) == [-1, 0, -1, -1, -1, -1]
    table = TwinTable([-1, 0, -1, -1, -1, -1], 2)
    torch.nn.init.constant_(table.space, 10.0)
    free = torch.arange(12.0).view(6, 2)
    expected = free.clone()
    expected[1] += free[0] + 10
    assert torch.equal(table(free), expected)


def test_the_default_config_takes_its_ids_from_the_tokenizer(tmp_path: Path) -> None:
    added = [{"content": name, "id": i} for i, name in enumerate(("<|endoftext|>", "<|im_end|>", "<|mask|>"))]
    (tmp_path / "tokenizer.json").write_text(json.dumps({"model": {"vocab": {"a": 3}}, "added_tokens": added}))
    config = read_config(tmp_path)
    assert (config["vocab_size"], config["eos_token_id"], config["pad_token_id"]) == (4, 1, 0)
    assert config["clover"]["mask_token_id"] == 2
    (tmp_path / "tokenizer.json").write_text(json.dumps({"model": {"vocab": {"a": 3}}, "added_tokens": added[:2]}))
    with pytest.raises(LoadFailed, match=r"<\|mask\|>"):
        read_config(tmp_path)


def test_being_told_to_end_saves(options: TrainOptions) -> None:
    """Also where SIGINT was ignored from the start, as a shell does it for what runs in the background."""
    arguments = ["--data", str(options.data), "--out", str(options.out), "--minutes", "30", "--log-every", "1"]
    process = subprocess.Popen(
        [sys.executable, "-m", "clover_agent.sprout.train", *arguments],
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),  # noqa: PLW1509
    )
    with process:
        assert process.stdout is not None
        assert any(" step " in line for line in process.stdout), "it ended by itself"
        process.terminate()
        process.stdout.read()
    assert process.returncode == 0
    assert "model" in checkpoint(options)
