"""Optimisers and learning rates: Muon for the matrices inside the layers, AdamW for everything else."""

from collections.abc import Iterable

import torch
from torch import nn

MUON_RATE = 0.02
ADAM_RATE = 3e-3
SMALLEST_MATRIX = 16  # a matrix with fewer rows or columns than this is left to AdamW


def make_optimizers(named: Iterable[tuple[str, nn.Parameter]]) -> list[torch.optim.Optimizer]:
    """[Muon, AdamW] over the parameters; each group remembers its full rate as `full_lr`."""
    matrices: list[nn.Parameter] = []
    others: list[nn.Parameter] = []
    for name, parameter in named:
        inner = parameter.ndim == 2 and "layers." in name and min(parameter.shape) >= SMALLEST_MATRIX
        (matrices if inner else others).append(parameter)
    muon = torch.optim.Muon(matrices, lr=MUON_RATE)
    adam = torch.optim.AdamW(others, lr=ADAM_RATE, betas=(0.9, 0.95), weight_decay=0.0, fused=True)
    for optimizer in (muon, adam):
        for group in optimizer.param_groups:
            group["full_lr"] = group["lr"]
    return [muon, adam]


def set_rate(optimizers: Iterable[torch.optim.Optimizer], factor: float) -> None:
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = group["full_lr"] * factor


def rate_factor(step: int, used: float, *, warmup: int, decay: float) -> float:
    """Warm-up over `warmup` steps of the whole training, then constant; over the last `decay` share of this run's
    budget (`used`: share spent so far, 0 to 1) linearly to zero."""
    rise = min(1.0, (step + 1) / warmup) if warmup else 1.0
    fall = 1.0 if used <= 1 - decay else max(0.0, (1 - used) / decay)
    return rise * fall
