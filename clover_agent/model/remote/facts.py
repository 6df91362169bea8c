"""What the files of a checkpoint say about block diffusion, under the names that checkpoints use.

Reads parsed JSON only; runs nothing and loads nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard

from clover_agent.errors import LoadFailed

BLOCK_SIZE_NAMES = ("block_size", "block_length", "bd_size", "diffusion_block_size")
MASK_STRINGS = ("<|mask|>", "<|MASK|>", "|<MASK>|", "<|mask_token|>", "<mask>", "[MASK]")
DEFAULT_BLOCK_SIZE = 32
LARGEST_BLOCK = 256


@dataclass(frozen=True, slots=True)
class Files:
    """The JSON objects of a checkpoint's files (empty where there is no such file), and the tokenizer's control
    tokens: string -> id."""

    config: Mapping[str, Any]
    generation: Mapping[str, Any]
    tokenizer: Mapping[str, Any]
    control: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Facts:
    """`mask_token_id` is None where nothing tells it; the sources say where each came from."""

    mask_token_id: int | None
    mask_source: str
    block_size: int
    block_source: str
    end_token_ids: tuple[int, ...]
    max_context: int


def read_facts(files: Files, *, mask_token: str | None = None, block_size: int | None = None) -> Facts:
    """The operator's word first, then the files'. Raises `LoadFailed` naming what is missing or cannot be."""
    mask, mask_source = _mask(files, mask_token)
    size, size_source = (block_size, "--block-size") if block_size else _block_size(files)
    ends = _integers(_first(files.generation, files.config, name="eos_token_id"), "eos_token_id")
    if not ends:
        raise LoadFailed("Neither generation_config.json nor config.json has an eos_token_id: no answer could end.")
    context = _flat(files.config).get("max_position_embeddings")
    if not _is_id(context) or not context:
        raise LoadFailed("config.json has no max_position_embeddings: the length of the context is not known.")
    return Facts(mask, mask_source, size, size_source, ends, context)


def _mask(files: Files, wanted: str | None) -> tuple[int | None, str]:
    if wanted is not None:
        token = int(wanted) if wanted.isdigit() else files.control.get(wanted)
        if token is None:
            raise LoadFailed(f"--mask-token: {wanted!r} is neither a token id nor a control token of this tokenizer.")
        return token, "--mask-token"
    for source, name in ((_flat(files.config), "config.json"), (files.generation, "generation_config.json")):
        value = source.get("mask_token_id")
        if _is_id(value):
            return value, name
    named = files.tokenizer.get("mask_token")
    text = named.get("content") if isinstance(named, Mapping) else named
    if isinstance(text, str) and text in files.control:
        return files.control[text], "tokenizer_config.json"
    found = next((string for string in MASK_STRINGS if string in files.control), None)
    if found is not None:
        return files.control[found], f"the name of the control token {found}"
    return None, ""


def _block_size(files: Files) -> tuple[int, str]:
    for source, where in ((_flat(files.config), "config.json"), (files.generation, "generation_config.json")):
        for name in BLOCK_SIZE_NAMES:
            value = source.get(name)
            if _is_id(value) and 1 <= value <= LARGEST_BLOCK:
                return value, f"{name} in {where}"
    return DEFAULT_BLOCK_SIZE, "no file says it"


def _flat(config: Mapping[str, Any]) -> dict[str, Any]:
    """Top level, `text_config` and `clover` section as one."""
    sections = [config.get(name) for name in ("text_config", "clover")]
    merged = dict(config)
    for section in sections:
        merged |= section if isinstance(section, Mapping) else {}
    return merged


def _first(*sources: Mapping[str, Any], name: str) -> Any:
    return next((source[name] for source in map(_flat, sources) if source.get(name) is not None), None)


def _integers(value: Any, name: str) -> tuple[int, ...]:
    values = value if isinstance(value, list | tuple) else [] if value is None else [value]
    if not all(_is_id(token) for token in values):
        raise LoadFailed(f"{name} must be a token id or a list of them, not {value!r}.")
    return tuple(values)


def _is_id(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
