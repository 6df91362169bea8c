"""The sequence state of the native model: keys and values, recurrent states, last inputs of the convolutions.

Recurrent states and convolution inputs are immutable tensors that a commit replaces, so a snapshot only refers to
them. Keys and values live in a buffer that is only ever appended to; states and snapshots that share a prefix share
the buffer until one of them wants to write where another has written: that one then moves to a copy. Knows nothing of
the layers.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from .config import ModelConfig
from .protocol import Snapshot

SMALLEST = 256  # positions in a fresh buffer; it doubles from there, so a snapshot pins at most twice what it counts


class KeyValues:
    """Keys and values of all attention layers, [layers, 2, kv_heads, capacity, head_dim].

    filled: positions that belong to a state or snapshot. What lies beyond is scratch, valid within one layer of one
    forward pass (a block that is denoised leaves its keys there).
    """

    def __init__(self, data: Tensor, filled: int) -> None:
        self.data = data
        self.filled = filled

    @property
    def capacity(self) -> int:
        return self.data.shape[3]


@dataclass(frozen=True, slots=True)
class Recurrent:
    """Per Gated DeltaNet layer: state [heads, key_dim, value_dim] in float32 or wider, tail [kernel - 1, width]: the
    last raw inputs of the convolution."""

    state: Tensor
    tail: Tensor


@dataclass(frozen=True, slots=True)
class NativeSnapshot:
    length: int
    keys: KeyValues
    recurrent: tuple[Recurrent, ...]
    last_hidden: Tensor | None

    @property
    def nbytes(self) -> int:
        """Bytes that this snapshot refers to; some may be shared with states and other snapshots."""
        per_position = self.keys.data[:, :, :, 0].numel() * self.keys.data.element_size()
        fixed = sum(part.state.nbytes + part.tail.nbytes for part in self.recurrent)
        return self.length * per_position + fixed + (0 if self.last_hidden is None else self.last_hidden.nbytes)


class NativeState:
    """Implements `protocol.State`. Changed only by `NativeModel.forward`, at its end and all at once.

    last_hidden: the output row of the last committed token, kept for checkpoints with shifted logits only.
    """

    def __init__(self, config: ModelConfig, dtype: torch.dtype, device: torch.device) -> None:
        attention = sum(kind == "full_attention" for kind in config.layer_types)
        shape = (attention, 2, config.num_key_value_heads, 0, config.head_dim)
        wide = torch.promote_types(dtype, torch.float32)
        heads = (config.linear_num_value_heads, config.linear_key_head_dim, config.linear_value_head_dim)
        tail = (config.linear_conv_kernel_dim - 1, 2 * config.key_dim + config.value_dim)
        empty = Recurrent(torch.zeros(heads, dtype=wide, device=device), torch.zeros(tail, dtype=dtype, device=device))
        self._length = 0
        self.keys = KeyValues(torch.empty(shape, dtype=dtype, device=device), 0)
        self.recurrent: tuple[Recurrent, ...] = (empty,) * (len(config.layer_types) - attention)
        self.last_hidden: Tensor | None = None
        self.freed = False

    @property
    def length(self) -> int:
        return self._length

    def reserve(self, advance: int, block: int) -> None:
        """Make room to write `advance` positions that stay and `block` positions of scratch after them.

        A forward that fails after this leaves claimed positions behind that nobody refers to; the next one moves away.
        """
        wanted = self._length + advance + block
        keys = self.keys
        if keys.filled != self._length or keys.capacity < wanted:
            capacity = keys.capacity if keys.capacity >= wanted else max(SMALLEST, 2 * keys.capacity, wanted)
            data = keys.data.new_empty((*keys.data.shape[:3], capacity, keys.data.shape[4]))
            data[:, :, :, : self._length] = keys.data[:, :, :, : self._length]
            self.keys = KeyValues(data, self._length)
        self.keys.filled += advance

    def advance(self, count: int, recurrent: tuple[Recurrent, ...], last_hidden: Tensor | None) -> None:
        """Take over what a forward computed for `count` tokens."""
        self._length += count
        self.recurrent, self.last_hidden = recurrent, last_hidden

    def snapshot(self) -> NativeSnapshot:
        return NativeSnapshot(self._length, self.keys, self.recurrent, self.last_hidden)

    def restore(self, snapshot: Snapshot) -> None:
        if not isinstance(snapshot, NativeSnapshot):
            raise TypeError(f"a snapshot of a native state is needed, not {type(snapshot).__name__}")
        self._length, self.keys = snapshot.length, snapshot.keys
        self.recurrent, self.last_hidden = snapshot.recurrent, snapshot.last_hidden

    def free(self) -> None:
        self.freed = True
        self.keys = KeyValues(self.keys.data[:, :, :, :0].clone(), 0)
        self.recurrent, self.last_hidden = (), None
