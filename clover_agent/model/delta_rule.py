"""The gated delta rule as a chunked scan (Gated DeltaNet: Yang, Kautz, Hatamizadeh, arXiv 2412.06464).

    S_t = exp(g_t) S_{t-1} (I - beta_t k_t k_t^T) + beta_t k_t v_t^T,     o_t = S_t^T q_t

Within a chunk the recurrence is a triangular system, solved for all chunks at once; only the step from chunk to chunk
is sequential. A block that is only read is one chunk, and leads to no state. Differentiable, no loop over tokens. Knows
nothing of layers and parameters.
"""

from dataclasses import dataclass
from functools import partial
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

    def padded(self, pad: int) -> "ScanInputs":
        """With `pad` positions appended that leave a state as it is."""
        q, k, v = (functional.pad(x, (0, 0, 0, 0, 0, pad)) for x in (self.q, self.k, self.v))
        log_decay, beta = (functional.pad(x, (0, 0, 0, pad)) for x in (self.log_decay, self.beta))
        return ScanInputs(q, k, v, log_decay, beta)


class _UnitInverse(torch.autograd.Function):
    """(I + A)^-1 for strictly triangular A [..., n, n]; the backward pass needs the result only.

    By substitution: a product of powers of A looks cheaper but loses all digits in float32 where keys repeat, as they
    do in a block of masks.
    """

    @staticmethod
    def forward(ctx: Any, system: Tensor, upper: bool) -> Tensor:
        identity = torch.eye(system.shape[-1], dtype=system.dtype, device=system.device).expand_as(system)
        inverse: Tensor = torch.linalg.solve_triangular(system, identity, upper=upper, unitriangular=True)
        ctx.save_for_backward(inverse)
        return inverse

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        inverse: Tensor = ctx.saved_tensors[0]
        return -(inverse.mT @ grads[0] @ inverse.mT), None


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

    serve = partial(_serve, groups=heads // key_heads, dim=2)
    q, k, v, beta = (by_chunk(x) for x in (inputs.q, inputs.k, inputs.v, inputs.beta[..., None]))
    total = by_chunk(inputs.log_decay[..., None]).cumsum(dim=-2)
    decay = _decay(total, upper=False)
    decayed = total.exp()
    key_products, query_products = serve(k @ k.mT), serve(q @ k.mT) * decay
    q, k = serve(q), serve(k)

    # The system (I + A) [u | w] = beta [v | k decayed]: u is what an empty state would be given, w what S takes back.
    system = (key_products * decay * beta).tril(-1).flatten(0, 2)
    right = (torch.cat((v, k * decayed), dim=-1) * beta).flatten(0, 2)
    inverse: Tensor = _UnitInverse.apply(system, False)  # type: ignore[no-untyped-call]
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


def read_block(inputs: ScanInputs, state: Tensor | None = None, *, both_ways: bool = False) -> Tensor:
    """The outputs of `delta_scan`, [batch, length, heads, value_dim], with no state to show for it: a block is read
    again at each denoising step, and only its commit leads on.

    `both_ways` adds the outputs of a scan from the last position to the first that starts from an empty state. Both
    share their products: backwards, the triangles are the upper ones.
    """
    heads, key_heads = inputs.v.shape[2], inputs.k.shape[2]
    serve = partial(_serve, groups=heads // key_heads, dim=1)
    q, k, v = (x.transpose(1, 2) for x in (inputs.q, inputs.k, inputs.v))  # [batch, heads, length, size]
    log_decay, beta = (x.transpose(1, 2)[..., None] for x in (inputs.log_decay, inputs.beta))
    key_products, query_products = serve(k @ k.mT) * beta, serve(q @ k.mT)
    written = v * beta

    def outputs(total: Tensor, written: Tensor, *, upper: bool) -> Tensor:
        decay = _decay(total, upper=upper)
        weights = key_products * decay
        system = weights.triu(1) if upper else weights.tril(-1)
        inverse: Tensor = _UnitInverse.apply(system, upper)  # type: ignore[no-untyped-call]
        return (query_products * decay) @ (inverse @ written)

    total = log_decay.cumsum(dim=-2)
    if state is None:
        out = outputs(total, written, upper=False)
    else:
        decayed = total.exp()
        known = (serve(k) * (decayed * beta)) @ state
        out = outputs(total, written - known, upper=False) + (serve(q) * decayed) @ state
    if both_ways:
        out = out + outputs(total[..., -1:, :] - total + log_decay, written, upper=True)
    return out.transpose(1, 2)


def _serve(x: Tensor, *, groups: int, dim: int) -> Tensor:
    """Key heads -> heads: each serves `groups` consecutive ones."""
    return x if groups == 1 else x.repeat_interleave(groups, dim=dim)


def _decay(total: Tensor, *, upper: bool) -> Tensor:
    """How much of what position j writes is left at i: exp(total_i - total_j), zero where i comes before j.

    total: decay summed up in the order of the scan, [..., n, 1]; `upper`: it runs from the last position to the first.
    """
    square = torch.ones(total.shape[-2], total.shape[-2], dtype=torch.bool, device=total.device)
    hidden = square.tril(-1) if upper else square.triu(1)
    return (total - total.mT).masked_fill(hidden, -torch.inf).exp()
