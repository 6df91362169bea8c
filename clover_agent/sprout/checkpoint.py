"""Where a training run stands, on disk: one file, replaced atomically."""

import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from clover_agent.errors import LoadFailed

from .batches import Place


@dataclass(slots=True)
class Progress:
    """How far training has come. tokens: real clean tokens seen; history: one entry per logged step."""

    step: int = 0
    tokens: int = 0
    seconds: float = 0.0
    place: Place = field(default_factory=Place)
    history: list[dict[str, float]] = field(default_factory=list)


def save_checkpoint(path: Path, progress: Progress, tensors: dict[str, Any]) -> None:
    """`tensors`: the state dicts of modules and optimisers."""
    temporary = path.with_suffix(".tmp")
    torch.save({"progress": asdict(progress), **tensors}, temporary)
    os.replace(temporary, path)


def load_checkpoint(path: Path, device: torch.device) -> tuple[Progress, dict[str, Any]]:
    """Raises `LoadFailed` if there is no checkpoint or it cannot be read."""
    try:
        tensors: dict[str, Any] = torch.load(path, map_location=device, weights_only=True)
        progress = tensors.pop("progress")
        return Progress(**{**progress, "place": Place(**progress["place"])}), tensors
    except Exception as error:  # unpickling a damaged file raises nearly anything
        raise LoadFailed(f"{path}: cannot resume from it: {error}") from error
