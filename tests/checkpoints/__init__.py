"""Checkpoints that bring their own code, made on the fly: sprout's weights behind a forward with chosen quirks."""

import json
import shutil
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file

from clover_agent.loading import EMBEDDED

MODELING = Path(__file__).parent / "modeling.py"
AUTO_MAP = {"AutoConfig": "modeling.QuirkyConfig", "AutoModelForCausalLM": "modeling.QuirkyModel"}


def write_checkpoint(path: Path, *, config: dict[str, Any] | None = None, **quirks: Any) -> Path:
    """A checkpoint directory. `config` changes config.json (None: no such field), quirks are those of modeling.py."""
    path.mkdir(parents=True)
    for name in ("tokenizer.json", "generation_config.json"):
        shutil.copy(EMBEDDED / name, path)
    shutil.copy(MODELING, path)
    tensors = load_file(EMBEDDED / "model.safetensors")
    named = {f"inner.{name.removeprefix('model.')}": tensor for name, tensor in tensors.items()}
    save_file(named, path / "model.safetensors", metadata={"format": "pt"})
    sprout = json.loads((EMBEDDED / "config.json").read_text())
    texts = {name: sprout["clover"][name] for name in ("tool_format", "chat_template")}
    whole = {
        "model_type": "quirky",
        "architectures": ["QuirkyModel"],
        "auto_map": AUTO_MAP,
        "dtype": "float32",
        "max_position_embeddings": 4096,
        "eos_token_id": 2,
        "mask_token_id": 3,
        "block_size": 32,
        "clover": texts,
        "sprout": sprout,
        "quirks": quirks,
        **(config or {}),
    }
    (path / "config.json").write_text(json.dumps({k: v for k, v in whole.items() if v is not None}))
    return path
