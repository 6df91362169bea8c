"""The native block-diffusion model: the hybrid transformer behind the `BlockModel` protocol, with cached states.

It knows nothing of requests, sampling and text. What differs between checkpoints is in the config.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from clover_agent.errors import LoadFailed

from .config import ModelConfig
from .protocol import DenseLogits, Hidden, ModelSpec, Work
from .ragged import RaggedPass, Span
from .state import NativeState, state_bytes
from .transformer import HybridTransformer
from .weights import read_config, read_end_tokens, read_tensors

PREFILL_CHUNK = 1024  # tokens of one work that advance in one pass: bounds activations, mask and states at boundaries


@dataclass(frozen=True, slots=True)
class NativeHidden:
    """Output rows [rows, hidden] of the blocks, in order of work and position, already shifted where that is needed."""

    values: Tensor

    @property
    def rows(self) -> int:
        return len(self.values)


class NativeModel:
    """Implements `protocol.BlockModel`. Device and dtype are those of the transformer's weights; float64 works."""

    def __init__(self, transformer: HybridTransformer, end_token_ids: tuple[int, ...] | None = None) -> None:
        config = transformer.config
        fixed, per_token = state_bytes(config, transformer.embed_tokens.weight.dtype)
        self.transformer = transformer.eval().requires_grad_(False)
        self._spec = ModelSpec(
            vocab_size=config.vocab_size,
            mask_token_id=config.mask_token_id,
            end_token_ids=config.end_token_ids if end_token_ids is None else end_token_ids,
            block_size=config.block_size,
            max_context=config.max_position_embeddings,
            block_alignment=config.block_alignment,
            causal_commit=config.commit_attention == "causal",
            state_bytes=fixed,
            token_bytes=per_token,
        )

    @property
    def spec(self) -> ModelSpec:
        return self._spec

    @property
    def config(self) -> ModelConfig:
        return self.transformer.config

    @property
    def device(self) -> torch.device:
        return self.transformer.embed_tokens.weight.device

    @property
    def weight_bytes(self) -> int:
        return sum(parameter.nbytes for parameter in self.transformer.parameters())

    def new_state(self) -> NativeState:
        weight = self.transformer.embed_tokens.weight
        return NativeState(self.config, weight.dtype, weight.device)

    @torch.inference_mode()
    def forward(self, work: Sequence[Work]) -> NativeHidden:
        """See `BlockModel.forward`. Long advances are cut into passes of `PREFILL_CHUNK` tokens.

        Raises TypeError for a state of another model, ValueError for a state that was freed, is given twice, or is
        empty where a shifted checkpoint needs a token before the block.
        """
        states = [_native(item.state) for item in work]
        if len({id(state) for state in states}) < len(states):
            raise ValueError("a state may take part in a forward only once")
        done = 0
        while any(len(item.advance) - done > PREFILL_CHUNK for item in work):
            end = done + PREFILL_CHUNK
            pieces = [(state, item.advance[done:end]) for state, item in zip(states, work, strict=True)]
            self._pass([(state, piece, ()) for state, piece in pieces if piece])
            done = end
        return self._pass([(state, item.advance[done:], item.block) for state, item in zip(states, work, strict=True)])

    def _pass(self, works: Sequence[tuple[NativeState, Sequence[int], Sequence[int]]]) -> NativeHidden:
        weight = self.transformer.embed_tokens.weight
        advances = [Span(i, state, ids, state.length) for i, (state, ids, _) in enumerate(works) if ids]
        blocks = [
            Span(i, state, ids, state.length + len(before)) for i, (state, before, ids) in enumerate(works) if ids
        ]
        if not advances and not blocks:
            return NativeHidden(weight.new_empty((0, self.config.hidden_size)))
        for state, advance, block in works:
            state.reserve(len(advance) + len(block))
        layout = RaggedPass(self.config, advances, blocks, weight.device)
        hidden = self.transformer(self.transformer.embed_tokens(layout.ids), layout)
        last: dict[int, Tensor] = {}
        if self.config.logits_shift:
            last = {
                span.work: hidden[span.row + group.length - 1].clone()
                for group in layout.advances
                for span in group.spans
            }
        rows = self._block_rows(hidden, layout, last)
        for span in advances:
            span.state.advance(len(span.ids), tuple(layout.recurrent[span.work]), last.get(span.work))
        return NativeHidden(rows)

    def _block_rows(self, hidden: Tensor, layout: RaggedPass, last: dict[int, Tensor]) -> Tensor:
        """Rows that predict the tokens *at* the block positions, in order of work."""
        spans = sorted((span for group in layout.blocks for span in group.spans), key=lambda span: span.work)
        if not spans:
            return hidden[:0]
        if not self.config.logits_shift:
            if len(layout.blocks) == 1:  # one group: already in order, all the rows after the advances
                return hidden[layout.blocks[0].rows]
            return torch.cat([hidden[span.row : span.row + len(span.ids)] for span in spans])
        parts = []
        for span in spans:
            before = last.get(span.work, span.state.last_hidden)
            if before is None:
                raise ValueError("logits_shift needs at least one committed token before a block")
            parts += [before[None], hidden[span.row : span.row + len(span.ids) - 1]]
        return torch.cat(parts)

    @torch.inference_mode()
    def logits(self, hidden: Hidden, rows: Sequence[int]) -> DenseLogits:
        if not isinstance(hidden, NativeHidden):
            raise TypeError(f"hidden rows of a native model are needed, not {type(hidden).__name__}")
        values = hidden.values
        if len(rows) != len(values) or list(rows) != list(range(len(values))):
            values = values[torch.tensor(rows, dtype=torch.int64, device=values.device)]
        return DenseLogits(self.transformer.head(values))


def _native(state: object) -> NativeState:
    if not isinstance(state, NativeState):
        raise TypeError(f"a state of a native model is needed, not {type(state).__name__}")
    if state.freed:
        raise ValueError("the state was freed")
    return state


def load_native(path: Path, *, device: str = "cpu", dtype: torch.dtype = torch.float32) -> NativeModel:
    """The model of a checkpoint directory (config.json, *.safetensors; generation_config.json may name end tokens).

    Raises `LoadFailed` naming what is missing, unexpected or of the wrong shape.
    """
    raw = read_config(path)
    config = ModelConfig.from_dict(raw)
    with torch.device("meta"):
        transformer = HybridTransformer(config)
    expected = {name: tuple(tensor.shape) for name, tensor in transformer.state_dict().items()}
    tensors = read_tensors(path, expected, device=device, dtype=dtype)
    transformer.load_state_dict(tensors, assign=True)
    end_token_ids = read_end_tokens(path) or config.end_token_ids
    if not end_token_ids:
        raise LoadFailed(f"{path}: neither generation_config.json nor config.json has an eos_token_id")
    return NativeModel(transformer, end_token_ids)
