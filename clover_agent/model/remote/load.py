"""Loads a checkpoint with its own code through transformers. Importing this module imports transformers.

Whether that code may run was decided before: here it does.
"""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

import torch
import transformers
from torch import nn

from clover_agent.errors import LoadFailed

log = logging.getLogger(__name__)

AUTO_CLASSES = ("AutoModelForCausalLM", "AutoModelForMaskedLM", "AutoModel")  # in the order in which they are tried


def brings_code(config: Mapping[str, Any]) -> bool:
    return bool(config.get("auto_map"))


def check_code_is_local(config: Mapping[str, Any]) -> None:
    """Raises `LoadFailed` where a checkpoint names code of another repository, which transformers would fetch."""
    named = config.get("auto_map")
    values = named.values() if isinstance(named, Mapping) else ()
    elsewhere = [value for value in values if "--" in str(value)]
    if elsewhere:
        raise LoadFailed(
            f"auto_map names code of another repository ({elsewhere[0]}); only the checkpoint's own is run."
        )


def load_module(
    path: Path, config: Mapping[str, Any], *, device: str, dtype: torch.dtype | None, device_map: str | None = None
) -> nn.Module:
    """The model of a checkpoint directory, by its own code, in evaluation mode. No network is used.

    dtype: None = as config.json says. device_map: as in transformers, needs `accelerate`; else all goes to `device`.
    Raises `LoadFailed`, the code's own exception as its cause.
    """
    check_code_is_local(config)
    given: dict[str, Any] = {"dtype": "auto" if dtype is None else dtype}
    if device_map is not None:
        given["device_map"] = device_map
    try:
        model = _auto_class(config).from_pretrained(
            path, trust_remote_code=True, local_files_only=True, use_safetensors=True, **given
        )
        model = model if device_map is not None else model.to(device)
    except Exception as error:  # of foreign code: anything
        _failed(path, error)
    return model.eval().requires_grad_(False)  # type: ignore[no-any-return]


def can_generate(module: nn.Module) -> bool:
    return callable(getattr(module, "generate", None))


def _auto_class(config: Mapping[str, Any]) -> Any:
    for name in AUTO_CLASSES:
        if name in config["auto_map"]:
            return getattr(transformers, name)
    raise LoadFailed(f"auto_map in config.json names none of {', '.join(AUTO_CLASSES)}.")


def _failed(path: Path, error: Exception) -> NoReturn:
    if isinstance(error, LoadFailed):
        raise error
    log.info("The checkpoint's own code failed.", exc_info=error)
    text = " ".join(str(error).split())[:500]
    raise LoadFailed(f"{path}: its own code could not load it: {type(error).__name__}: {text}") from error
