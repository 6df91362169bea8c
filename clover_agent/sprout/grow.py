"""Go on training with a deeper model: copy a checkpoint's last layers on top of it.

    python -m clover_agent.sprout.grow --checkpoint RUN/checkpoint.pt --data DIR --out NEW_RUN

`DIR/config.json` describes the deeper model; it must differ from the checkpoint's by layers at the end, repeating the
types of the layers before them. The new layers start as copies of those, with their outputs (`o_proj`, `out_proj`,
`down_proj`) at zero: the deeper model computes exactly what the shallower one did, and learns from there. Optimiser
states move by the name of their parameter; new parameters start without one. NEW_RUN goes on with `train --resume`.

Knows nothing of data and losses.
"""

import argparse
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from torch import Tensor

from clover_agent.errors import CloverError, LoadFailed
from clover_agent.model.config import ModelConfig
from clover_agent.model.transformer import HybridTransformer

from .architecture import read_config
from .checkpoint import load_checkpoint, save_checkpoint
from .optim import make_optimizers
from .twins import TwinTable, read_twins

OUTPUTS = ("o_proj.weight", "out_proj.weight", "down_proj.weight")
LAYER = re.compile(r"layers\.(\d+)\.(.*)")


def grow_model(old: Mapping[str, Tensor], types: Sequence[str]) -> dict[str, Tensor]:
    """The state dict of a model with layers of these `types` that computes what `old` computes.

    Raises `LoadFailed` if the layers on top are not of the types of those they are copied from.
    """
    have = 1 + max(int(found[1]) for name in old if (found := LAYER.match(name)))
    more = len(types) - have
    if not 0 < more <= have or list(types[have:]) != list(types[have - more : have]):
        raise LoadFailed(f"config.json: layer_types must repeat the last of the checkpoint's {have} layers on top")
    grown = dict(old)
    for name, tensor in old.items():
        found = LAYER.match(name)
        if found and int(found[1]) >= have - more:
            new = torch.zeros_like(tensor) if found[2].endswith(OUTPUTS) else tensor.clone()
            grown[f"layers.{int(found[1]) + more}.{found[2]}"] = new
    return grown


def move_states(states: Sequence[Any], before: Iterable[Sequence[str]], after: Iterable[Sequence[str]]) -> list[Any]:
    """Optimiser state dicts whose parameters are named, in order, `before`, for parameters named `after`."""
    moved = []
    for state, old, new in zip(states, before, after, strict=True):
        known = {name: state["state"][index] for index, name in enumerate(old) if index in state["state"]}
        (group,) = state["param_groups"]
        moved.append(
            {
                "state": {index: known[name] for index, name in enumerate(new) if name in known},
                "param_groups": [{**group, "params": list(range(len(new)))}],
            }
        )
    return moved


def optimizer_names(config: ModelConfig, twins: TwinTable) -> list[list[str]]:
    """Names of the parameters of each optimiser of a run, in its order."""
    named = [*HybridTransformer(config).named_parameters(), *twins.named_parameters()]
    names = {id(parameter): name for name, parameter in named}
    return [[names[id(p)] for p in optimizer.param_groups[0]["params"]] for optimizer in make_optimizers(named)]


def grow(checkpoint: Path, data: Path, out: Path) -> None:
    """Write `out/checkpoint.pt`. Raises `LoadFailed` for what does not fit."""
    raw = read_config(data)
    config = ModelConfig.from_dict(raw)
    progress, tensors = load_checkpoint(checkpoint, torch.device("cpu"))
    model = grow_model(tensors["model"], config.layer_types)
    have = 1 + max(int(found[1]) for name in tensors["model"] if (found := LAYER.match(name)))
    shallow = ModelConfig.from_dict({**raw, "num_hidden_layers": have, "layer_types": raw["layer_types"][:have]})
    twins = TwinTable(read_twins(data, config.vocab_size), config.hidden_size)
    names = (optimizer_names(shallow, twins), optimizer_names(config, twins))
    states = move_states(tensors["optimizers"], *names)
    out.mkdir(parents=True, exist_ok=True)
    save_checkpoint(out / "checkpoint.pt", progress, {**tensors, "model": model, "optimizers": states})


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m clover_agent.sprout.grow", description="See the module docstring.")
    for name in ("checkpoint", "data", "out"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    try:
        grow(**vars(parser.parse_args()))
    except CloverError as error:
        Console().print(f"[red]{error}[/red]")
        raise SystemExit(1) from error


if __name__ == "__main__":
    main()
