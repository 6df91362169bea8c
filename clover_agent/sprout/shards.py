"""Training data on disk: flat numpy arrays of tokens, in one directory or in several below it.

A shard is a directory that holds

    prompts.npy            uint16 [p]      the prompts' tokens, one after another
    prompt_offsets.npy     int64 [n + 1]   prompt i is prompts[prompt_offsets[i] : prompt_offsets[i + 1]], never empty
    responses.npy          uint16 [r]      the responses' tokens, each with its end-of-turn token as the last one
    response_offsets.npy   int64 [n + 1]   as for the prompts; never empty
    difficulty.npy         uint8 [n]       0 = from the start; training admits level d once it has seen enough tokens

Knows nothing of tokenizers and models.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from clover_agent.errors import LoadFailed

Tokens = npt.NDArray[np.uint16]
Offsets = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Shards:
    """All examples of a data set, in memory; the arrays are those of the module's docstring."""

    prompts: Tokens
    prompt_offsets: Offsets
    responses: Tokens
    response_offsets: Offsets
    difficulty: npt.NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.difficulty)

    @property
    def prompt_lengths(self) -> Offsets:
        return np.diff(self.prompt_offsets)

    @property
    def response_lengths(self) -> Offsets:
        return np.diff(self.response_offsets)

    def prompt(self, index: int) -> Tokens:
        return self.prompts[self.prompt_offsets[index] : self.prompt_offsets[index + 1]]

    def response(self, index: int) -> Tokens:
        return self.responses[self.response_offsets[index] : self.response_offsets[index + 1]]


def pack(examples: Iterable[tuple[list[int], list[int], int]]) -> Shards:
    """Shards of (prompt ids, response ids, difficulty)."""
    prompts, responses, difficulty = zip(*examples, strict=True)
    return Shards(
        np.concatenate([np.asarray(ids, np.uint16) for ids in prompts]),
        np.cumsum([0, *(len(ids) for ids in prompts)], dtype=np.int64),
        np.concatenate([np.asarray(ids, np.uint16) for ids in responses]),
        np.cumsum([0, *(len(ids) for ids in responses)], dtype=np.int64),
        np.asarray(difficulty, np.uint8),
    )


def save_shards(path: Path, shards: Shards) -> None:
    """Write one shard to the directory `path`."""
    path.mkdir(parents=True, exist_ok=True)
    for name in Shards.__slots__:
        np.save(path / f"{name}.npy", getattr(shards, name))


def load_shards(path: Path) -> Shards:
    """Read the shard in `path` and those in its sub-directories, in order of name, as one data set.

    Raises `LoadFailed` when there is none, or when one is damaged.
    """
    found = [directory for directory in (path, *sorted(path.glob("*/"))) if (directory / "prompts.npy").exists()]
    if not found:
        raise LoadFailed(f"{path}: no training data (prompts.npy) here or one level below")
    shards = [_load(directory) for directory in found]
    if len(shards) == 1:
        return shards[0]
    return Shards(
        np.concatenate([shard.prompts for shard in shards]),
        _joined([shard.prompt_offsets for shard in shards]),
        np.concatenate([shard.responses for shard in shards]),
        _joined([shard.response_offsets for shard in shards]),
        np.concatenate([shard.difficulty for shard in shards]),
    )


def _load(directory: Path) -> Shards:
    try:
        shard = Shards(*(np.load(directory / f"{name}.npy", allow_pickle=False) for name in Shards.__slots__))
    except (OSError, ValueError) as error:
        raise LoadFailed(f"{directory}: cannot read the training data: {error}") from error
    for tokens, offsets in ((shard.prompts, shard.prompt_offsets), (shard.responses, shard.response_offsets)):
        whole = len(offsets) == len(shard) + 1 and offsets[0] == 0 and offsets[-1] == len(tokens)
        if not whole or (np.diff(offsets) < 1).any():
            raise LoadFailed(f"{directory}: the offsets do not fit the tokens; build the data again")
    return shard


def _joined(offsets: list[Offsets]) -> Offsets:
    ends = np.cumsum([0, *(part[-1] for part in offsets)])
    return np.concatenate([[0], *(part[1:] + start for part, start in zip(offsets, ends, strict=False))])
