"""The sequence state of the native model: keys and values, recurrent states, last inputs of the convolutions.

A state owns one contiguous buffer of keys and values, as attention wants it. A snapshot owns only the keys and values
beyond its base, so a chain of snapshots holds each position once; restoring one copies the chain into a buffer.
Recurrent states and convolution inputs are immutable tensors that a commit replaces. Knows nothing of the layers.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from .config import ModelConfig
from .protocol import Snapshot

SMALLEST = 256  # positions in a fresh buffer
GROWTH = 1.5  # of a buffer that is full


@dataclass(frozen=True, slots=True)
class Recurrent:
    """Per Gated DeltaNet layer: state [heads, key_dim, value_dim] in float32 or wider, tail [kernel - 1, width]: the
    last raw inputs of the convolution."""

    state: Tensor
    tail: Tensor


@dataclass(slots=True)
class NativeSnapshot:
    """keys: [layers, 2, kv_heads, length - base.length, head_dim]. `recurrent` is None once it was shed."""

    length: int
    base: "NativeSnapshot | None"
    keys: Tensor
    recurrent: tuple[Recurrent, ...] | None
    last_hidden: Tensor | None

    @property
    def nbytes(self) -> int:
        fixed = sum(part.state.nbytes + part.tail.nbytes for part in self.recurrent or ())
        return self.keys.nbytes + fixed + (0 if self.last_hidden is None else self.last_hidden.nbytes)

    def shed(self) -> None:
        self.recurrent = self.last_hidden = None


class NativeState:
    """Implements `protocol.State`. Changed only by `NativeModel.forward`, at its end and all at once.

    keys          [layers, 2, kv_heads, capacity, head_dim]. What lies beyond `length` is scratch, valid within one
                  layer of one forward pass (a block that is denoised leaves its keys there)
    last_hidden   the output row of the last committed token, kept for checkpoints with shifted logits only
    """

    def __init__(self, config: ModelConfig, dtype: torch.dtype, device: torch.device) -> None:
        shapes = _Shapes.of(config)
        empty = Recurrent(
            torch.zeros(shapes.recurrent, dtype=torch.promote_types(dtype, torch.float32), device=device),
            torch.zeros(shapes.tail, dtype=dtype, device=device),
        )
        self._length = 0
        self.keys = torch.empty((*shapes.keys[:3], 0, shapes.keys[3]), dtype=dtype, device=device)
        self.recurrent: tuple[Recurrent, ...] = (empty,) * shapes.recurrent_layers
        self.last_hidden: Tensor | None = None
        self.freed = False

    @property
    def length(self) -> int:
        return self._length

    @property
    def capacity(self) -> int:
        return self.keys.shape[3]

    def reserve(self, count: int) -> None:
        """Make room to write `count` positions after those that the state holds."""
        wanted = self._length + count
        if self.capacity < wanted:
            data = self._buffer(max(SMALLEST, wanted, int(GROWTH * self.capacity)))
            data[:, :, :, : self._length] = self.keys[:, :, :, : self._length]
            self.keys = data

    def advance(self, count: int, recurrent: tuple[Recurrent, ...], last_hidden: Tensor | None) -> None:
        """Take over what a forward computed for `count` tokens."""
        self._length += count
        self.recurrent, self.last_hidden = recurrent, last_hidden

    def snapshot(self, base: Snapshot | None = None) -> NativeSnapshot:
        if base is not None and (not isinstance(base, NativeSnapshot) or base.length > self._length):
            raise TypeError("the base of a snapshot is a snapshot of a native state that is no longer than this one")
        start = 0 if base is None else base.length
        keys = self.keys[:, :, :, start : self._length].clone()
        return NativeSnapshot(self._length, base, keys, self.recurrent, self.last_hidden)

    @torch.inference_mode()
    def restore(self, snapshot: Snapshot) -> None:
        if not isinstance(snapshot, NativeSnapshot):
            raise TypeError(f"a snapshot of a native state is needed, not {type(snapshot).__name__}")
        if snapshot.recurrent is None:
            raise ValueError("the snapshot has been shed: it can be a base, not be restored")
        if self.capacity < snapshot.length:
            self.keys = self._buffer(max(SMALLEST, int(GROWTH * snapshot.length)))
        part: NativeSnapshot | None = snapshot
        while part is not None:
            self.keys[:, :, :, part.length - part.keys.shape[3] : part.length] = part.keys
            part = part.base
        self._length = snapshot.length
        self.recurrent, self.last_hidden = snapshot.recurrent, snapshot.last_hidden

    def free(self) -> None:
        self.freed = True
        self.keys = self.keys[:, :, :, :0].clone()
        self.recurrent, self.last_hidden = (), None

    def _buffer(self, capacity: int) -> Tensor:
        return self.keys.new_empty((*self.keys.shape[:3], capacity, self.keys.shape[4]))


@dataclass(frozen=True, slots=True)
class _Shapes:
    """keys: (attention layers, 2, kv_heads, head_dim), without the positions; recurrent, tail: of one layer."""

    keys: tuple[int, int, int, int]
    recurrent: tuple[int, int, int]
    tail: tuple[int, int]
    recurrent_layers: int

    @classmethod
    def of(cls, config: ModelConfig) -> "_Shapes":
        attention = sum(kind == "full_attention" for kind in config.layer_types)
        return cls(
            (attention, 2, config.num_key_value_heads, config.head_dim),
            (config.linear_num_value_heads, config.linear_key_head_dim, config.linear_value_head_dim),
            (config.linear_conv_kernel_dim - 1, 2 * config.key_dim + config.value_dim),
            len(config.layer_types) - attention,
        )


def state_bytes(config: ModelConfig, dtype: torch.dtype) -> tuple[int, int]:
    """Memory of one state: (whatever its length, per token), the slack of a growing buffer included."""
    shapes = _Shapes.of(config)
    wide = torch.promote_types(dtype, torch.float32).itemsize
    recurrent = torch.Size(shapes.recurrent).numel() * wide + torch.Size(shapes.tail).numel() * dtype.itemsize
    per_token = torch.Size(shapes.keys).numel() * dtype.itemsize
    return shapes.recurrent_layers * recurrent + SMALLEST * per_token, int(GROWTH * per_token)
