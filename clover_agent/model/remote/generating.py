"""Path c: the checkpoint's own `generate()`, for models whose blocks cannot be denoised from outside.

Parameters have the names of the model card (block_size, threshold) and of transformers. It is interrupted, and its
forward passes are counted, where every pass begins: at the embedding of its tokens.
"""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any

import torch
from torch import Tensor, nn
from transformers import GenerationMixin

from clover_agent.errors import GenerationFailed, UnsupportedParameter
from clover_agent.types import SamplingParams

from ..protocol import Generated, Interrupted, ModelSpec

# Field of SamplingParams -> keyword of generate().
KEYWORDS = {
    **{name: name for name in ("threshold", "block_size", "presence_penalty", "frequency_penalty")},
    **{name: name for name in ("repetition_penalty", "temperature", "top_p", "top_k", "min_p")},
    "min_tokens": "min_new_tokens",
}
TRANSFORMERS_OWN = {"repetition_penalty", "temperature", "top_p", "top_k", "min_p", "min_new_tokens"}
# Not the model's to honour, or without meaning where it decides how it decodes.
LEFT_OUT = {"max_tokens", "seed", "stop_token_ids", "ignore_eos", "fallback", "length_penalty", "length_penalty_start"}


class RemoteGenerator:
    """Implements `protocol.Generator`. `defaults` are the checkpoint's: only what a request changes can be refused."""

    def __init__(self, module: nn.Module, spec: ModelSpec, defaults: SamplingParams) -> None:
        function: Any = module.generate
        parameters = inspect.signature(function).parameters
        own = getattr(type(module), "generate", None) is not GenerationMixin.generate
        named = {name for name, p in parameters.items() if p.kind is not p.VAR_KEYWORD}
        takes_more = own and any(p.kind is p.VAR_KEYWORD for p in parameters.values())
        self._takes = {*KEYWORDS.values()} if takes_more else named if own else TRANSFORMERS_OWN
        self._module, self._generate = module, function
        self._spec, self._defaults = spec, defaults
        self._samples = "do_sample" in named or takes_more or not own

    @property
    def spec(self) -> ModelSpec:
        return self._spec

    def check(self, sampling: SamplingParams) -> None:
        for name in (field.name for field in fields(SamplingParams) if field.name not in LEFT_OUT):
            changed = getattr(sampling, name) != getattr(self._defaults, name)
            if changed and KEYWORDS.get(name) not in self._takes:
                raise UnsupportedParameter(f"{name} cannot be honoured by this model's own generate().", param=name)

    def generate(self, ids: Sequence[int], sampling: SamplingParams, interrupted: Callable[[], bool]) -> Generated:
        """See `Generator.generate`. Raises `GenerationFailed` for an answer that is none."""
        passes = 0

        def begin(*_: Any) -> None:
            nonlocal passes
            passes += 1
            if interrupted():
                raise Interrupted

        embedding: nn.Module = self._module.get_input_embeddings()  # type: ignore[operator]
        handle = embedding.register_forward_pre_hook(begin)
        if sampling.seed is not None:
            torch.manual_seed(sampling.seed)
        try:
            with torch.inference_mode():
                prompt = torch.tensor([list(ids)], device=next(self._module.parameters()).device)
                output = self._generate(prompt, **self._settings(sampling))
        finally:
            handle.remove()
        tokens, ended = self._answer(output, tuple(ids))
        return Generated(tokens, ended, passes)

    def _settings(self, sampling: SamplingParams) -> dict[str, Any]:
        given: dict[str, Any] = {"max_new_tokens": sampling.max_tokens}
        if self._samples:
            given["do_sample"] = sampling.temperature > 0
        for name, keyword in KEYWORDS.items():
            value = getattr(sampling, name)
            neutral = getattr(SamplingParams(), name) if name != "threshold" else None
            if keyword in self._takes and value not in (neutral, None, ()):
                given[keyword] = value
        return given

    def _answer(self, output: Any, prompt: tuple[int, ...]) -> tuple[tuple[int, ...], bool]:
        sequences = getattr(output, "sequences", output)
        if not isinstance(sequences, Tensor):
            raise GenerationFailed("The checkpoint's generate() returned no token ids.")
        ids = tuple(sequences.reshape(-1).tolist() if sequences.dim() < 2 else sequences[0].tolist())
        if ids[: len(prompt)] == prompt:
            ids = ids[len(prompt) :]
        ends = [ids.index(token) for token in self._spec.end_token_ids if token in ids]
        tokens = ids[: min(ends)] if ends else ids
        if self._spec.mask_token_id in tokens:
            raise GenerationFailed("The checkpoint's generate() left masked tokens in its answer.")
        return tokens, bool(ends)
