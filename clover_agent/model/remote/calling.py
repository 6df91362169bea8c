"""Calls the forward of a checkpoint's own code, whatever its signature: one sequence, batch size one.

Two kinds of call: the whole sequence without a cache, and new tokens on top of a cache. A `Way` says how the code is
told that a block is to see itself as a whole. What the calls mean is found out elsewhere.
"""

import copy
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

# Keywords by which forwards are told of a block, and what they are given.
BLOCK_KEYWORDS: Mapping[str, Any] = {
    "block_diffusion": True,
    "bidirectional": True,
    "is_diffusion": True,
    "diffusion": True,
}
BLOCK_SIZE_KEYWORDS = ("block_size", "block_length", "bd_size")
# The cache's name, as a keyword and in the output: of old, and of transformers 5.24 on.
CACHE_NAMES = ("past_key_values", "cache")
# Keywords by which forwards are told whether the cache may be written (SDAR's and Fast-dLLM's names).
STORE_KEYWORDS = ("store_kv", "update_past_key_values")


@dataclass(frozen=True, slots=True)
class Way:
    """How a block is asked for: with extra keywords, with a mask of four dimensions, or not at all."""

    name: str
    keywords: Mapping[str, Any] = field(default_factory=dict)
    mask: bool = False


class Caller:
    """The module and what its forward takes."""

    def __init__(self, module: nn.Module, block_size: int) -> None:
        parameters = inspect.signature(module.forward).parameters
        self.module = module
        self._named = {name for name, p in parameters.items() if p.kind is not p.VAR_KEYWORD}
        self._open = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
        self._cache_name = next((name for name in CACHE_NAMES if name in self._named), None)
        self._block_size = block_size

    @property
    def device(self) -> torch.device:
        return next(self.module.parameters()).device

    @property
    def dtype(self) -> torch.dtype:
        return next(p.dtype for p in self.module.parameters() if p.is_floating_point())

    @property
    def weight_bytes(self) -> int:
        return sum(parameter.nbytes for parameter in self.module.parameters())

    @property
    def takes_cache(self) -> bool:
        return self._cache_name is not None

    @property
    def trims_logits(self) -> bool:
        """Only the rows that are asked for go through the head."""
        return "logits_to_keep" in self._named

    def ways(self) -> list[Way]:
        """The ways that this forward may know, the plainest first."""
        ways = [Way("as it is")]
        sized = {name: self._block_size for name in BLOCK_SIZE_KEYWORDS if name in self._named}
        if sized:
            ways.append(Way(", ".join(f"{name}={value}" for name, value in sized.items()), sized))
        told = {name: value for name, value in BLOCK_KEYWORDS.items() if name in self._named}
        ways += [Way(f"{name}={value}", {**sized, name: value}) for name, value in told.items()]
        if "attention_mask" in self._named:
            ways.append(Way("an attention mask of four dimensions", mask=True))
        if "is_causal" in self._named or self._open:
            ways.append(Way("is_causal=False", {"is_causal": False}))
        return ways

    @torch.inference_mode()
    def whole(self, ids: Sequence[int], starts: Sequence[int], way: Way, keep: int = 0) -> Tensor:
        """Logits [keep or len(ids), vocab] of the last `keep` rows, without a cache. `starts` are the first positions
        of the blocks at the end; what lies before them is the prefix."""
        keywords: dict[str, Any] = dict(way.keywords)
        if way.mask:
            keywords["attention_mask"] = _mask(len(ids), starts, self.dtype, self.device)
        if "use_cache" in self._named:
            keywords["use_cache"] = False
        rows = self._logits(self._call(ids, 0, keywords, keep))
        return rows[-keep:] if keep else rows

    @torch.inference_mode()
    def read(self, cache: Any, length: int, ids: Sequence[int], way: Way, *, store: bool) -> Tensor:
        """Logits [len(ids), vocab] of a block on top of a cache of `length` tokens, asked to be written iff `store`."""
        keywords: dict[str, Any] = dict(way.keywords)
        if way.mask:
            keywords["attention_mask"] = torch.zeros(
                (1, 1, len(ids), length + len(ids)), dtype=self.dtype, device=self.device
            )
        return self._logits(self._call(ids, length, {**keywords, **self._caching(cache, store)}, len(ids)))

    @torch.inference_mode()
    def advance(self, cache: Any, length: int, ids: Sequence[int]) -> tuple[Tensor, Any]:
        """The last row of logits [vocab], and the cache with `ids` committed to it. Raises ValueError where the code
        returns no cache."""
        output = self._call(ids, length, self._caching(cache, store=True), 1)
        after = next((kept for name in CACHE_NAMES if (kept := getattr(output, name, None)) is not None), None)
        if after is None:
            raise ValueError("the forward returns no cache")
        return self._logits(output)[-1], after

    def _caching(self, cache: Any, store: bool) -> dict[str, Any]:
        flags = {name: store for name in ("use_cache", *STORE_KEYWORDS) if name in self._named}
        return flags if self._cache_name is None else {self._cache_name: cache, **flags}

    def _call(self, ids: Sequence[int], length: int, keywords: Mapping[str, Any], keep: int) -> Any:
        given = dict(keywords)
        if "position_ids" in self._named:
            given["position_ids"] = torch.arange(length, length + len(ids), device=self.device)[None]
        if keep and self.trims_logits:
            given["logits_to_keep"] = keep
        if "return_dict" in self._named:
            given["return_dict"] = True
        return self.module(input_ids=torch.tensor([list(ids)], device=self.device), **given)

    @staticmethod
    def _logits(output: Any) -> Tensor:
        logits = getattr(output, "logits", None)
        if not isinstance(logits, Tensor) or logits.dim() != 3:
            raise ValueError("the forward returns no logits of three dimensions")
        return logits[0]


def copied(cache: Any) -> Any:
    """An independent copy of a cache. Raises whatever the cache raises when it cannot be copied."""
    with torch.inference_mode():
        return copy.deepcopy(cache)


def tensor_bytes(value: Any, seen: set[int] | None = None) -> int:
    """Bytes of the tensors that an object holds, each storage once, wherever they are in it."""
    seen = set() if seen is None else seen
    if id(value) in seen or isinstance(value, nn.Module | type):
        return 0
    seen.add(id(value))
    if isinstance(value, Tensor):
        storage = value.untyped_storage()
        if storage.data_ptr() in seen:
            return 0
        seen.add(storage.data_ptr())
        return storage.nbytes()
    if isinstance(value, Mapping):
        return sum(tensor_bytes(part, seen) for part in value.values())
    if isinstance(value, list | tuple | set):
        return sum(tensor_bytes(part, seen) for part in value)
    fields = [getattr(value, "__dict__", {}), {n: getattr(value, n, None) for n in getattr(value, "__slots__", ())}]
    return sum(tensor_bytes(part, seen) for part in fields)


def _mask(length: int, starts: Sequence[int], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Additive mask [1, 1, length, length]: a causal prefix, then blocks that see themselves and what is before."""
    stop = torch.arange(length, device=device) + 1
    bounds = [*starts, length]
    for start, end in pairwise(bounds):
        stop[start:end] = end
    hidden = torch.arange(length, device=device)[None] >= stop[:, None]
    mask = torch.zeros((length, length), dtype=dtype, device=device)
    return mask.masked_fill(hidden, torch.finfo(dtype).min)[None, None]
