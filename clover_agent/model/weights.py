"""Checkpoint directories: config.json and safetensors, with transformers' tensor names.

Reads what transformers writes for `Qwen3_5Moe` and `Qwen3_5` models: text-only (`model.`) and multimodal
(`model.language_model.`) names, experts fused or one by one; multi-token prediction and vision tensors are left out.
Knows shapes, not layers.
"""

import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from clover_agent.errors import LoadFailed

HEAD = "lm_head.weight"
PREFIXES = ("model.language_model.", "model.", "language_model.")
IGNORED = re.compile(r"^(mtp|model\.visual|visual|model\.vision)\.|rotary_emb\.inv_freq$")
ONE_EXPERT = re.compile(r"^(layers\.\d+\.mlp\.experts)\.(\d+)\.(gate|up|down)_proj\.weight$")
MOST_LISTED = 8


def save_native(path: Path, config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    """Write config.json and model.safetensors into the directory `path`; transformers' names, prefix `model.`.

    config: as `ModelConfig.from_dict` reads it; tensors: a `HybridTransformer`'s state dict.
    """
    path.mkdir(parents=True, exist_ok=True)
    prefixed = {name if name == HEAD else f"model.{name}": tensor for name, tensor in tensors.items()}
    named = {name: tensor.detach().contiguous() for name, tensor in prefixed.items()}
    temporary = path / "model.safetensors.tmp"
    save_file(named, temporary, metadata={"format": "pt"})
    os.replace(temporary, path / "model.safetensors")
    (path / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def read_config(path: Path) -> dict[str, Any]:
    """The directory's config.json. Raises `LoadFailed` where it is no JSON object."""
    return _read_object(path / "config.json")


def read_end_tokens(path: Path) -> tuple[int, ...]:
    """`eos_token_id` of the directory's generation_config.json as a tuple; empty where it names none."""
    file = path / "generation_config.json"
    value = _read_object(file).get("eos_token_id") if file.exists() else None
    ids = value if isinstance(value, list) else [] if value is None else [value]
    if any(isinstance(token, bool) or not isinstance(token, int) or token < 0 for token in ids):
        raise LoadFailed(f"{file}: eos_token_id must be a token id or a list of them, not {value!r}")
    return tuple(ids)


def read_tensors(
    path: Path, expected: Mapping[str, tuple[int, ...]], *, device: str, dtype: torch.dtype
) -> dict[str, Tensor]:
    """The tensors of all *.safetensors files of a directory, by the names and with the shapes that are expected.

    Raises `LoadFailed` listing tensors that are missing, unexpected or of another shape.
    """
    reader = _Reader(expected, device, dtype)
    for file in _files(path):
        try:
            with safe_open(file, framework="pt") as content:
                for name in content.keys():  # noqa: SIM118  a safe_open is no mapping
                    reader.take(name, content.get_tensor)
        except (SafetensorError, OSError) as error:
            raise LoadFailed(f"{file}: cannot read the weights: {error}") from error
    return reader.finish(path)


class _Reader:
    """Collects one checkpoint's tensors and everything that is wrong with them."""

    def __init__(self, expected: Mapping[str, tuple[int, ...]], device: str, dtype: torch.dtype) -> None:
        self.expected, self.device, self.dtype = expected, device, dtype
        self.tensors: dict[str, Tensor] = {}
        self.experts: dict[str, set[tuple[int, str]]] = {}
        self.unexpected: list[str] = []
        self.misshapen: list[str] = []

    def take(self, full_name: str, get: Any) -> None:
        """Take in the tensor called `full_name`, which `get(full_name)` reads."""
        if IGNORED.search(full_name):
            return
        name = next((full_name.removeprefix(p) for p in PREFIXES if full_name.startswith(p)), full_name)
        if name == HEAD and HEAD not in self.expected:
            return  # tied: a copy of the embedding
        one = ONE_EXPERT.match(name)
        if one and f"{one[1]}.gate_up_proj" in self.expected:
            self._take_expert(name, one[1], int(one[2]), one[3], get(full_name))
        elif name not in self.expected:
            self.unexpected.append(name)
        else:
            tensor = get(full_name)
            if self._fits(name, tensor, self.expected[name]):
                self.tensors[name] = tensor.to(device=self.device, dtype=self.dtype)

    def _take_expert(self, name: str, experts: str, index: int, kind: str, tensor: Tensor) -> None:
        """Put one expert's matrix into its place in the fused tensor."""
        fused = f"{experts}.{'down_proj' if kind == 'down' else 'gate_up_proj'}"
        count, outputs, inputs = self.expected[fused]
        size = outputs if kind == "down" else outputs // 2
        if index >= count:
            self.unexpected.append(name)
        elif self._fits(name, tensor, (size, inputs)):
            if fused not in self.tensors:
                self.tensors[fused] = torch.empty((count, outputs, inputs), device=self.device, dtype=self.dtype)
            first = size if kind == "up" else 0
            self.tensors[fused][index, first : first + size] = tensor.to(self.device)
            self.experts.setdefault(fused, set()).add((index, kind))

    def _fits(self, name: str, tensor: Tensor, shape: tuple[int, ...]) -> bool:
        if tuple(tensor.shape) != shape:
            self.misshapen.append(f"{name} {list(tensor.shape)}, expected {list(shape)}")
        return tuple(tensor.shape) == shape

    def finish(self, path: Path) -> dict[str, Tensor]:
        partial = [
            f"{fused} (experts)"
            for fused, found in self.experts.items()
            if len(found) < self.expected[fused][0] * (1 if fused.endswith("down_proj") else 2)
        ]
        misshapen = {entry.split(" ")[0] for entry in self.misshapen}
        missing = [name for name in self.expected if name not in self.tensors and name not in misshapen] + partial
        faults = (("missing", missing), ("unexpected", self.unexpected), ("of the wrong shape", self.misshapen))
        listed = "; ".join(f"{what}: {_listing(names)}" for what, names in faults if names)
        if any(".linear_attn." in name for name in self.unexpected):
            listed += (
                ". The linear_attn tensors belong to an in-block scheme that the native model does not have; running "
                "without them would not be this model. It needs the checkpoint's own code (trust_remote_code), which "
                "is not supported yet"
            )
        if listed:
            raise LoadFailed(f"{path}: the weights do not fit config.json. Tensors {listed}.")
        return self.tensors


def _files(path: Path) -> Iterator[Path]:
    """The files that the index names, else every *.safetensors of the directory."""
    index = path / "model.safetensors.index.json"
    if index.exists():
        names = _read_object(index).get("weight_map")
        if not isinstance(names, dict) or not all(isinstance(name, str) and "/" not in name for name in names.values()):
            raise LoadFailed(f"{index}: weight_map must map tensors to files of this directory")
        files = [path / name for name in sorted(set(names.values()))]
    else:
        files = sorted(path.glob("*.safetensors"))
    if not files:
        raise LoadFailed(f"{path}: no *.safetensors file here")
    for file in files:
        if not file.is_file():
            raise LoadFailed(f"{file} is missing: the download is not complete")
        yield file


def _read_object(file: Path) -> dict[str, Any]:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise LoadFailed(f"{file}: cannot read it: {error}") from error
    if not isinstance(content, dict):
        raise LoadFailed(f"{file}: must hold a JSON object")
    return content


def _listing(names: list[str]) -> str:
    more = f" and {len(names) - MOST_LISTED} more" if len(names) > MOST_LISTED else ""
    return ", ".join(names[:MOST_LISTED]) + more
