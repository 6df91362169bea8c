"""Checkpoint directories: config.json and safetensors, with transformers' tensor names."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import Tensor

HEAD = "lm_head.weight"


def save_native(path: Path, config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    """Write config.json and model.safetensors into the directory `path`; transformers' names, prefix `model.`.

    config: as `ModelConfig.from_dict` reads it; tensors: a `HybridTransformer`'s state dict.
    """
    path.mkdir(parents=True, exist_ok=True)
    named = {
        name if name == HEAD else f"model.{name}": tensor.detach().contiguous() for name, tensor in tensors.items()
    }
    temporary = path / "model.safetensors.tmp"
    save_file(named, temporary, metadata={"format": "pt"})
    os.replace(temporary, path / "model.safetensors")
    (path / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
