"""Words with and without a leading space share an embedding while training.

E[" Paris"] = E["Paris"] + free[" Paris"] + space, with one learnt vector `space`: a value that is copied from the
middle of a sentence into a JSON string loses its space, and what is learnt about that on one word holds for all. This
is a reparametrisation of the embedding matrix only; an export writes the sum.
"""

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from clover_agent.errors import LoadFailed

SPACE = "Ġ"  # how a byte-level BPE vocabulary writes a leading space


def find_twins(tokenizer: Path, vocab_size: int) -> list[int]:
    """Per id of a tokenizer.json: the id of the same token without its leading space, or -1. Raises `LoadFailed`."""
    vocab: dict[str, Any] = read_tokenizer(tokenizer).get("model", {}).get("vocab", {})
    twins = [-1] * vocab_size
    for token, number in vocab.items():
        bare = token.removeprefix(SPACE)
        if bare and bare != token and not bare.startswith(SPACE) and bare in vocab:
            twins[number] = vocab[bare]
    return twins


def read_twins(data: Path, vocab_size: int) -> list[int]:
    """The twins of `data`/tokenizer.json; none where there is no tokenizer."""
    tokenizer = data / "tokenizer.json"
    return find_twins(tokenizer, vocab_size) if tokenizer.exists() else [-1] * vocab_size


def read_tokenizer(path: Path) -> dict[str, Any]:
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise LoadFailed(f"{path}: cannot read the tokenizer: {error}") from error
    return content


class TwinTable(nn.Module):
    """Composes the embedding matrix from the free one. Has one parameter: `space` [hidden]."""

    twins: Tensor
    spaced: Tensor

    def __init__(self, twins: list[int], hidden_size: int) -> None:
        super().__init__()
        self.space = nn.Parameter(torch.zeros(hidden_size))
        index = torch.tensor(twins)
        self.register_buffer("twins", index.clamp(min=0), persistent=False)
        self.register_buffer("spaced", (index >= 0)[:, None], persistent=False)

    def forward(self, free: Tensor) -> Tensor:
        """free: [vocab_size, hidden] -> the effective embedding matrix, same shape."""
        return free + self.spaced * (free[self.twins] + self.space)

    @torch.no_grad()
    def split(self, effective: Tensor) -> Tensor:
        """The free matrix that is composed to `effective` [vocab_size, hidden]; sets `space`, which takes up as much of
        it as it can: the mean of what a leading space changes."""
        change = effective - effective[self.twins]
        self.space.copy_((self.spaced * change).sum(0) / self.spaced.sum().clamp(min=1))
        return effective - self.spaced * (effective[self.twins] + self.space)
