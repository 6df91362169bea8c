"""The gated delta rule as a chunked scan (Gated DeltaNet: Yang, Kautz, Hatamizadeh, arXiv 2412.06464).

    S_t = exp(g_t) S_{t-1} (I - beta_t k_t k_t^T) + beta_t k_t v_t^T,     o_t = S_t^T q_t

Within a chunk the recurrence is a triangular system, solved for all chunks at once; only the step from chunk to chunk
is sequential. Differentiable, no loop over tokens. Knows nothing of layers and parameters.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

CHUNK = 32


@dataclass(frozen=True, slots=True)
class ScanInputs:
    """What the rule reads at each position; all of one dtype, float32 or float64.

    q, k               [batch, length, key_heads, key_dim], q already scaled
    v                  [batch, length, heads, value_dim]; a key head serves heads / key_heads consecutive heads
    log_decay, beta    [batch, length, heads]
    """

    q: Tensor
    k: Tensor
    v: Tensor
    log_decay: Tensor
    beta: Tensor

    def both_ways(self) -> "ScanInputs":
        """A batch twice as large: these sequences, then the same ones reversed."""
        return ScanInputs(*(torch.cat((x, x.flip(1))) for x in (self.q, self.k, self.v, self.log_decay, self.beta)))

    def padded(self, pad: int) -> "ScanInputs":
        """With `pad` positions appended that leave a state as it is."""
        q, k, v = (functional.pad(x, (0, 0, 0, 0, 0, pad)) for x in (self.q, self.k, self.v))
        log_decay, beta = (functional.pad(x, (0, 0, 0, pad)) for x in (self.log_decay, self.beta))
        return ScanInputs(q, k, v, log_decay, beta)


class _UnitLowerInverse(torch.autograd.Function):
    """(I + A)^-1 for strictly lower triangular A [batch, n, n]; the backward pass needs the result only.

    By substitution: a product of powers of A looks cheaper but loses all digits in float32 where keys repeat, as they
    do in a block of masks.
    """

    @staticmethod
    def forward(ctx: Any, lower: Tensor) -> Tensor:
        identity = torch.eye(lower.shape[-1], dtype=lower.dtype, device=lower.device).expand_as(lower)
        inverse: Tensor = torch.linalg.solve_triangular(lower, identity, upper=False, unitriangular=True)
        ctx.save_for_backward(inverse)
        return inverse

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        inverse: Tensor = ctx.saved_tensors[0]
        return -(inverse.mT @ grads[0] @ inverse.mT)


def delta_scan(inputs: ScanInputs, state: Tensor | None = None, *, chunk: int = CHUNK) -> tuple[Tensor, Tensor]:
    """Scan all positions from `state` [batch, heads, key_dim, value_dim] on (None: the empty state).

    Returns the outputs [batch, length, heads, value_dim] and the states at the chunk boundaries
    [chunks + 1, batch, heads, key_dim, value_dim]: the first is the given state, the last the one after all positions.
    """
    batch, length, heads, value_dim = inputs.v.shape
    key_heads, key_dim = inputs.k.shape[2:]
    if length % chunk:
        inputs = inputs.padded(chunk - length % chunk)
    count = inputs.v.shape[1] // chunk

    def by_chunk(x: Tensor) -> Tensor:
        """[batch, length, n, size] -> [count, batch, n, chunk, size]"""
        return x.reshape(batch, count, chunk, x.shape[2], x.shape[3]).permute(1, 0, 3, 2, 4)

    def serve(x: Tensor) -> Tensor:
        """Key heads -> heads."""
        return x if heads == key_heads else x.repeat_interleave(heads // key_heads, dim=2)

    q, k, v, beta = (by_chunk(x) for x in (inputs.q, inputs.k, inputs.v, inputs.beta[..., None]))
    total = by_chunk(inputs.log_decay[..., None]).cumsum(dim=-2)
    visible = torch.ones(chunk, chunk, dtype=torch.bool, device=v.device).tril()
    decay = (total - total.mT).masked_fill(~visible, -torch.inf).exp()
    decayed = total.exp()
    key_products, query_products = serve(k @ k.mT), serve(q @ k.mT) * decay
    q, k = serve(q), serve(k)

    # The system (I + A) [u | w] = beta [v | k decayed]: u is what an empty state would be given, w what S takes back.
    system = (key_products * decay * beta).tril(-1).flatten(0, 2)
    right = (torch.cat((v, k * decayed), dim=-1) * beta).flatten(0, 2)
    inverse: Tensor = _UnitLowerInverse.apply(system)  # type: ignore[no-untyped-call]
    given, taken = (inverse @ right).view(count, batch * heads, chunk, -1).split_with_sizes((value_dim, key_dim), -1)
    final = total[..., -1:, :]
    keys = (k * (final - total).exp()).flatten(1, 2).mT
    carry = final.exp().flatten(1, 2)

    states = [v.new_zeros(batch * heads, key_dim, value_dim) if state is None else state.flatten(0, 1)]
    news = []
    for i in range(count):
        news.append(torch.baddbmm(given[i], taken[i], states[-1], alpha=-1))
        states.append(torch.baddbmm(states[-1] * carry[i], keys[i], news[-1]))
    values, boundaries = torch.stack(news), torch.stack(states)
    read = (q * decayed).flatten(1, 2) @ boundaries[:-1] + query_products.flatten(1, 2) @ values
    out = read.view(count, batch, heads, chunk, value_dim).permute(1, 0, 3, 2, 4).reshape(batch, -1, heads, value_dim)
    return out[:, :length], boundaries.view(count + 1, batch, heads, key_dim, value_dim)


def scan_both_ways(inputs: ScanInputs, state: Tensor | None, *, chunk: int = CHUNK) -> tuple[Tensor, Tensor]:
    """The scan from `state` on plus a reverse scan of the same positions from an empty state: outputs summed, states of
    the forward scan only; shapes as for `delta_scan`. Both run as one batch."""
    batch = inputs.v.shape[0]
    starts = None if state is None else torch.cat((state, torch.zeros_like(state)))
    out, states = delta_scan(inputs.both_ways(), starts, chunk=chunk)
    return out[:batch] + out[batch:].flip(1), states[:, :batch]
