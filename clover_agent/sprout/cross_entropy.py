"""Cross entropy of a linear head, without ever holding the logits of more than a few rows.

The gradients are made on the way forward, chunk by chunk, so the logits of a large vocabulary neither fill the memory
nor have to be written and read again.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

CHUNK = 512


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, head: Tensor, targets: Tensor, weights: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        losses, right = torch.empty_like(weights), torch.empty_like(targets, dtype=torch.bool)
        grad_hidden, grad_head = torch.empty_like(hidden), torch.zeros_like(head)
        for first in range(0, len(hidden), CHUNK):
            rows = slice(first, first + CHUNK)
            target, weight = targets[rows, None], weights[rows, None]
            logits = (hidden[rows] @ head.T).to(hidden.dtype)
            highest, best = logits.max(dim=-1, keepdim=True)
            logits.sub_(highest)
            wanted = logits.gather(1, target)
            total = logits.exp_().sum(dim=-1, keepdim=True)
            losses[rows] = (total.log() - wanted)[:, 0]
            right[rows] = (best == target)[:, 0]
            logits.mul_(weight / total).scatter_add_(1, target, -weight)
            # As linear layers, so that `narrow.NarrowLinear` covers them; the logits themselves keep their digits.
            grad_hidden[rows] = functional.linear(logits, head.T)
            grad_head += functional.linear(logits.T, hidden[rows].T)
        ctx.save_for_backward(grad_hidden, grad_head)
        ctx.mark_non_differentiable(losses, right)
        return (losses * weights).sum(), losses, right

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None, None]:
        grad_hidden, grad_head = ctx.saved_tensors
        return grad_hidden * grads[0], grad_head * grads[0], None, None


def linear_cross_entropy(
    hidden: Tensor, head: Tensor, targets: Tensor, weights: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """hidden: [rows, size]; head: [vocab_size, size]; targets: int64 [rows]; weights: [rows] in hidden's dtype.

    Returns sum(weights * cross entropy), differentiable in hidden and head; the cross entropy per row; and whether the
    target is the likeliest token, bool [rows].
    """
    result: tuple[Tensor, Tensor, Tensor] = _LinearCrossEntropy.apply(hidden, head, targets, weights)  # type: ignore[no-untyped-call]
    return result
