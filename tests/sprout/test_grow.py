import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from clover_agent.errors import LoadFailed
from clover_agent.model.native import NativeModel, load_native
from clover_agent.model.protocol import Work
from clover_agent.model.weights import save_native
from clover_agent.sprout.grow import grow, grow_model
from clover_agent.sprout.train import TrainOptions, run

from .examples import data_directory, random_shards

QUIET = Console(quiet=True)


@pytest.fixture
def options(tmp_path: Path) -> TrainOptions:
    data = data_directory(tmp_path / "data", random_shards(40, levels=1))
    return TrainOptions(data, tmp_path / "shallow", steps=4, rows=256, warmup=1, decay=0.0)


def deepen(data: Path, types: list[str]) -> dict[str, Any]:
    """Change the configuration beside the data; the new one."""
    config: dict[str, Any] = json.loads((data / "config.json").read_text())
    config |= {"num_hidden_layers": len(types), "layer_types": types}
    (data / "config.json").write_text(json.dumps(config))
    return config


def logits(model: NativeModel) -> torch.Tensor:
    """Of a block of masks after a prompt that is longer than a block."""
    state = model.new_state()
    model.forward([Work(state, advance=list(range(4, 40)))])
    hidden = model.forward([Work(state, block=[model.spec.mask_token_id] * 8)])
    return model.logits(hidden, range(8)).values


def test_the_deeper_model_computes_the_same_and_goes_on(options: TrainOptions, tmp_path: Path) -> None:
    shallow = load_native(run(options, QUIET))
    types = shallow.config.layer_types
    config = deepen(options.data, [*types, types[-1]])
    save_native(tmp_path / "deeper", config, grow_model(shallow.transformer.state_dict(), config["layer_types"]))
    assert torch.equal(logits(load_native(tmp_path / "deeper")), logits(shallow))

    deep = replace(options, out=tmp_path / "deep", resume=True, steps=3)
    grow(options.out / "checkpoint.pt", options.data, deep.out)
    before, after = (torch.load(o.out / "checkpoint.pt", weights_only=True) for o in (options, deep))
    assert after["progress"] == before["progress"]
    for old, new in zip(before["optimizers"], after["optimizers"], strict=True):
        assert len(new["state"]) == len(old["state"])
        assert len(new["param_groups"][0]["params"]) > len(old["param_groups"][0]["params"])
    run(deep, QUIET)
    learnt = torch.load(deep.out / "checkpoint.pt", weights_only=True)
    assert learnt["progress"]["step"] == before["progress"]["step"] + 3
    assert learnt["model"][f"layers.{len(types)}.mlp.down_proj.weight"].abs().max() > 0


def test_layers_of_another_type_are_refused() -> None:
    old = {"layers.0.mlp.up_proj.weight": torch.ones(2, 2), "layers.1.mlp.up_proj.weight": torch.ones(2, 2)}
    for types in (["linear_attention"] * 2, ["linear_attention", "full_attention", "linear_attention"], ["x"] * 5):
        with pytest.raises(LoadFailed, match="layer_types must repeat"):
            grow_model(old, types)
