"""Which positions of a block are masked in training: partly at random, partly as decoding leaves them."""

import numpy as np
import numpy.typing as npt

UNIFORM = 0.6  # share of blocks masked at a uniform ratio
WHOLE = 0.3  # share of those that are masked entirely
AHEAD = 0.5  # share of the decoding-like blocks with some tokens unmasked beyond the revealed prefix
MOST_AHEAD = 0.4


def draw_masks(rng: np.random.Generator, blocks: int, block_size: int) -> npt.NDArray[np.bool_]:
    """Bool [blocks, block_size], true where masked; at least one position of every block is.

    60 % of the blocks: each position masked with probability u, u uniform in [0, 1] (30 % of them: u = 1). The others:
    a revealed prefix of uniform length, and in half of them up to 40 % of what follows revealed too, as left-to-right
    decoding with a confidence threshold leaves a block.
    """
    ratio = np.where(rng.random(blocks) < WHOLE, 1.0, rng.random(blocks))
    prefix = np.zeros(blocks, np.int64)
    decoding = rng.random(blocks) >= UNIFORM
    ahead = np.where(rng.random(blocks) < AHEAD, rng.random(blocks) * MOST_AHEAD, 0.0)
    ratio[decoding] = 1 - ahead[decoding]
    prefix[decoding] = rng.integers(0, block_size, decoding.sum())
    masked = rng.random((blocks, block_size)) < ratio[:, None]
    masked &= np.arange(block_size) >= prefix[:, None]
    empty = np.flatnonzero(~masked.any(axis=1))
    masked[empty, rng.integers(prefix[empty], block_size)] = True
    return masked
