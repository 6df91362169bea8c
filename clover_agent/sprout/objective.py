"""The training objective: one pass over clean streams and noisy response blocks, and the losses on it.

Each example is one causal clean stream plus noisy copies of its response blocks only. A noisy block starts from the
clean stream's recurrent state and convolution inputs at its block's start, attends to the clean keys before it and to
all of itself: exactly what a denoising step of cached inference computes. Losses: cross entropy on masked tokens (flat,
no 1/t; as in block diffusion, arXiv 2503.09573) and next-token cross entropy on the clean stream.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from clover_agent.errors import LoadFailed
from clover_agent.model.attention import AttentionRows, attend
from clover_agent.model.config import ModelConfig
from clover_agent.model.gated_delta import DeltaRows, GatedDeltaNet
from clover_agent.model.transformer import HybridTransformer

from .batches import Batch, Layout
from .cross_entropy import linear_cross_entropy

KINDS = ("diffusion", "response", "prompt")


class TrainingPass:
    """Implements `transformer.Pass` for the rows of a `Batch`, flat [batch * length]."""

    def __init__(self, config: ModelConfig, layout: Layout, start: Tensor, dtype: torch.dtype) -> None:
        self.layout = layout
        self.both_ways = config.gdn_in_block == "bidirectional"
        self.tail = config.linear_conv_kernel_dim - 1
        size, border = layout.block_size, layout.prompt_blocks * layout.block_size
        clean = torch.arange(layout.clean, device=start.device)
        noisy = torch.arange(layout.noisy, device=start.device)
        place = torch.cat((clean, border + noisy % (layout.response_blocks * size)))
        self.positions = (place - start[:, None]).clamp(min=0).flatten()
        # A clean row sees the stream up to itself; a noisy row the stream before its block, and its own copy of it.
        horizon = torch.cat((clean + 1, place[layout.clean :] // size * size))
        seen = (clean < horizon[:, None]) & (clean >= start[:, None, None])
        seen |= clean == torch.arange(layout.length, device=start.device)[:, None]
        own = torch.cat((torch.full_like(clean, -1), noisy // size))[:, None] == noisy // size
        visible = torch.cat((seen, own.expand(layout.batch, -1, -1)), dim=-1)[:, None]
        # Added, not boolean: made once here instead of once a layer.
        self.mask = torch.zeros_like(visible, dtype=dtype).masked_fill_(~visible, -torch.inf)

    def attend(self, layer: int, rows: AttentionRows) -> Tensor:
        shape = (self.layout.batch, self.layout.length)
        q, k, v = (x.view(*shape, *x.shape[1:]).transpose(1, 2) for x in (rows.q, rows.k, rows.v))
        return attend(q, k, v, self.mask).transpose(1, 2).flatten(2).flatten(0, 1)

    def mix(self, layer: int, mixer: GatedDeltaNet, rows: DeltaRows) -> Tensor:
        lay, size = self.layout, self.layout.block_size
        blocks = lay.batch * lay.copies * lay.response_blocks
        streams = [x.view(lay.batch, lay.length, -1) for x in (rows.qkv, rows.beta, rows.log_decay)]
        clean = DeltaRows(*(x[:, : lay.clean] for x in streams))
        noisy = DeltaRows(*(x[:, lay.clean :].reshape(blocks, size, -1) for x in streams))
        empty = clean.qkv.new_zeros(lay.batch, self.tail, clean.qkv.shape[-1])
        out, states = mixer.scan(clean, empty, None, chunk=size)
        starts = states[lay.prompt_blocks : lay.prompt_blocks + lay.response_blocks].transpose(0, 1)
        borders = [(lay.prompt_blocks + i) * size for i in range(lay.response_blocks)]
        tails = torch.stack([clean.qkv[:, at - self.tail : at] for at in borders], dim=1)
        state, tail = (
            x[:, None].expand(-1, lay.copies, *x.shape[1:]).reshape(blocks, *x.shape[2:]) for x in (starts, tails)
        )
        denoised = mixer.read(noisy, tail, state, both_ways=self.both_ways)
        return torch.cat((out, denoised.view(lay.batch, lay.noisy, -1)), dim=1).flatten(0, 1)


@dataclass(frozen=True, slots=True)
class Losses:
    """total: what is minimised. by_kind: mean cross entropy of diffusion, response and prompt rows, detached [3];
    accuracy: share of masked tokens that the head ranks first, detached scalar."""

    total: Tensor
    by_kind: Tensor
    accuracy: Tensor


def training_losses(model: HybridTransformer, batch: Batch, table: Tensor | None = None) -> Losses:
    """One training forward. `table` [vocab_size, hidden] stands in for the embedding matrix (and the tied head)."""
    table = model.embed_tokens.weight if table is None else table
    head = table if model.lm_head is None else model.lm_head.weight
    hidden = training_hidden(model, batch, table)
    targets = batch.targets
    weights = targets.weights.to(hidden.dtype)
    total, each, right = linear_cross_entropy(hidden[targets.rows], head, targets.tokens, weights)
    kinds = functional.one_hot(targets.kinds, len(KINDS)).to(each.dtype)
    counts = kinds.sum(0).clamp(min=1)
    accuracy = (right * kinds[:, 0]).sum() / counts[0]
    return Losses(total, (each[:, None] * kinds).sum(0) / counts, accuracy)


def training_hidden(model: HybridTransformer, batch: Batch, table: Tensor) -> Tensor:
    """Hidden rows after the last norm, [batch * length, hidden]. Padding is embedded as zero, and since no layer has a
    bias it stays zero: it writes nothing into a state and brings nothing to a convolution."""
    real = torch.arange(batch.layout.length, device=batch.ids.device) >= batch.start[:, None]
    x = functional.embedding(batch.ids, table) * real[..., None]
    hidden: Tensor = model(x.flatten(0, 1), TrainingPass(model.config, batch.layout, batch.start, x.dtype))
    return hidden


def check_trainable(config: ModelConfig) -> None:
    """Raises `LoadFailed` for a configuration that this objective does not train."""
    if config.logits_shift or config.commit_attention != "causal" or config.attention_bias:
        raise LoadFailed("config.json: training wants logits_shift 0, causal commit_attention and no attention_bias")
