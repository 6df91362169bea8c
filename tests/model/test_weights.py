import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from clover_agent.errors import LoadFailed
from clover_agent.model.native import load_native
from clover_agent.model.protocol import Work
from clover_agent.model.weights import save_native

from .builders import MASK, MOE, block_logits, raw_config, tiny_model

RAW = raw_config(**MOE, tie_word_embeddings=False)


@pytest.fixture
def saved(tmp_path: Path) -> tuple[Path, Tensor]:
    """A checkpoint directory with experts, and some logits of it."""
    model = tiny_model(RAW)
    save_native(tmp_path, RAW, model.transformer.state_dict())
    return tmp_path, block_logits(model, Work(model.new_state(), [5, 6, 7], [MASK] * 4))


def logits(path: Path) -> Tensor:
    model = load_native(path, dtype=torch.float64)
    return block_logits(model, Work(model.new_state(), [5, 6, 7], [MASK] * 4))


def assert_same(found: Tensor, expected: Tensor) -> None:
    """But for the last bits: products depend on how the weights are aligned in memory."""
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


def rewrite(path: Path, change: Any) -> None:
    """Replace the file's tensors by what `change` makes of them."""
    tensors = load_file(path / "model.safetensors")
    save_file(change(tensors) or tensors, path / "model.safetensors")


def test_a_round_trip(saved: tuple[Path, Tensor]) -> None:
    path, expected = saved
    assert_same(logits(path), expected)
    assert json.loads((path / "config.json").read_text()) == RAW
    assert all(name == "lm_head.weight" or name.startswith("model.") for name in load_file(path / "model.safetensors"))


def test_multimodal_names_and_left_out_parts(saved: tuple[Path, Tensor]) -> None:
    path, expected = saved

    def change(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        named = {name.replace("model.", "model.language_model.", 1): tensor for name, tensor in tensors.items()}
        return {**named, "mtp.layers.0.mlp.gate.weight": torch.ones(3), "model.visual.patch_embed.bias": torch.ones(2)}

    rewrite(path, change)
    assert_same(logits(path), expected)


def test_experts_one_by_one(saved: tuple[Path, Tensor]) -> None:
    path, expected = saved

    def change(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        out = {}
        for name, tensor in tensors.items():
            if name.endswith("experts.gate_up_proj"):
                for i, expert in enumerate(tensor):
                    gate, up = expert.chunk(2)
                    out[name.replace("gate_up_proj", f"{i}.gate_proj.weight")] = gate.contiguous()
                    out[name.replace("gate_up_proj", f"{i}.up_proj.weight")] = up.contiguous()
            elif name.endswith("experts.down_proj"):
                for i, expert in enumerate(tensor):
                    out[name.replace("down_proj", f"{i}.down_proj.weight")] = expert.clone()
            else:
                out[name] = tensor
        return out

    rewrite(path, change)
    assert_same(logits(path), expected)

    def lose(tensors: dict[str, Tensor]) -> None:
        del tensors["model.layers.1.mlp.experts.4.up_proj.weight"]

    rewrite(path, lose)
    with pytest.raises(LoadFailed, match=r"missing: layers\.1\.mlp\.experts\.gate_up_proj \(experts\)"):
        load_native(path)


def test_several_files_behind_an_index(saved: tuple[Path, Tensor]) -> None:
    path, expected = saved
    tensors = load_file(path / "model.safetensors")
    names = sorted(tensors)
    weight_map = {name: f"part-{i % 2}.safetensors" for i, name in enumerate(names)}
    for file in ("part-0.safetensors", "part-1.safetensors"):
        save_file({name: tensors[name] for name in names if weight_map[name] == file}, path / file)
    (path / "model.safetensors").unlink()
    (path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    assert_same(logits(path), expected)
    (path / "part-1.safetensors").unlink()
    with pytest.raises(LoadFailed, match=r"part-1\.safetensors is missing"):
        load_native(path)
    (path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": "../../etc/passwd"}}))
    with pytest.raises(LoadFailed, match="weight_map"):
        load_native(path)


def test_tied_heads_may_come_twice(tmp_path: Path) -> None:
    model = tiny_model()
    tensors = dict(model.transformer.state_dict())
    save_native(tmp_path, raw_config(), {**tensors, "lm_head.weight": tensors["embed_tokens.weight"].clone()})
    assert_same(logits(tmp_path), block_logits(model, Work(model.new_state(), [5, 6, 7], [MASK] * 4)))


@pytest.mark.parametrize(
    ("name", "tensor", "message"),
    [
        ("model.layers.0.linear_attn.reverse_gate", torch.ones(4), "trust_remote_code"),
        ("model.layers.0.mlp.bias", torch.ones(4), r"unexpected: layers\.0\.mlp\.bias"),
        ("model.norm.weight", torch.ones(7), r"of the wrong shape: norm\.weight \[7\], expected \[32\]"),
        ("model.layers.2.linear_attn.A_log", None, r"missing: layers\.2\.linear_attn\.A_log"),
        ("lm_head.weight", None, r"missing: lm_head\.weight"),
    ],
)
def test_what_does_not_fit_is_listed(
    saved: tuple[Path, Tensor], name: str, tensor: Tensor | None, message: str
) -> None:
    path, _ = saved

    def change(tensors: dict[str, Tensor]) -> None:
        if tensor is None:
            del tensors[name]
        else:
            tensors[name] = tensor

    rewrite(path, change)
    with pytest.raises(LoadFailed, match=message):
        load_native(path)


def test_unreadable_directories(saved: tuple[Path, Tensor], tmp_path: Path) -> None:
    path, _ = saved
    with pytest.raises(LoadFailed, match=r"config\.json"):
        load_native(tmp_path / "nowhere")
    weights = path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:100])
    with pytest.raises(LoadFailed, match="cannot read the weights"):
        load_native(path)
    weights.unlink()
    with pytest.raises(LoadFailed, match=r"no \*\.safetensors"):
        load_native(path)
    (path / "config.json").write_text("[]")
    with pytest.raises(LoadFailed, match="JSON object"):
        load_native(path)


def test_end_tokens_of_the_generation_config_win(saved: tuple[Path, Tensor]) -> None:
    path, _ = saved
    assert load_native(path).spec.end_token_ids == (1,)
    (path / "generation_config.json").write_text('{"eos_token_id": [1, 2]}')
    assert load_native(path).spec.end_token_ids == (1, 2)
    (path / "generation_config.json").write_text('{"eos_token_id": "two"}')
    with pytest.raises(LoadFailed, match="eos_token_id"):
        load_native(path)
    (path / "generation_config.json").unlink()
    (path / "config.json").write_text(json.dumps({**RAW, "eos_token_id": None}))
    with pytest.raises(LoadFailed, match="eos_token_id"):
        load_native(path)
