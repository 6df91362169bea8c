"""Linear layers that multiply in bfloat16 while everything else stays in float32.

On CPUs with bfloat16 instructions a matrix product is twice as fast, rounding on the way included; autocast, which
would also narrow what lies between the products, is slower there than plain float32.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

SMALLEST = 64  # layers with fewer outputs stay in float32: rates and gates are sensitive, and cheap


class _NarrowLinear(torch.autograd.Function):
    """x [..., in] times weight [out, in], all three products in bfloat16."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        x, weight = x.bfloat16(), weight.bfloat16()
        ctx.save_for_backward(x, weight)
        return functional.linear(x, weight).float()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor]:
        x, weight = ctx.saved_tensors
        grad = grads[0].bfloat16()
        return (grad @ weight).float(), (grad.flatten(0, -2).T @ x.flatten(0, -2)).float()


class NarrowLinear(TorchFunctionMode):
    """Within this context, float32 `functional.linear` without bias multiplies in bfloat16."""

    def __torch_function__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is functional.linear and _eligible(*args, **(kwargs or {})):
            return _NarrowLinear.apply(*args[:2])  # type: ignore[no-untyped-call]
        return func(*args, **(kwargs or {}))


def _eligible(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> bool:
    return bias is None and x.dtype == weight.dtype == torch.float32 and len(weight) >= SMALLEST


def has_bfloat16() -> bool:
    """This CPU multiplies bfloat16 natively."""
    capabilities = torch.cpu.get_capabilities() if hasattr(torch.cpu, "get_capabilities") else {}
    return bool(capabilities.get("avx512_bf16"))
