from pathlib import Path

import numpy as np
import pytest

from clover_agent.errors import LoadFailed
from clover_agent.sprout.shards import load_shards, pack, save_shards

FIRST = [([5, 6, 7], [8, 2], 0), ([9], [10, 11, 2], 3)]
SECOND = [([12, 13], [2], 1)]


def test_several_shards_are_one_data_set(tmp_path: Path) -> None:
    save_shards(tmp_path / "b", pack(SECOND))
    save_shards(tmp_path / "a", pack(FIRST))
    shards = load_shards(tmp_path)
    assert len(shards) == 3
    found = [(shards.prompt(i).tolist(), shards.response(i).tolist(), int(shards.difficulty[i])) for i in range(3)]
    assert found == FIRST + SECOND
    assert shards.prompt_lengths.tolist() == [3, 1, 2]
    assert shards.response_lengths.tolist() == [2, 3, 1]


def test_what_cannot_be_used_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LoadFailed, match="no training data"):
        load_shards(tmp_path)
    save_shards(tmp_path, pack(FIRST))
    np.save(tmp_path / "response_offsets.npy", np.array([0, 2, 4]))
    with pytest.raises(LoadFailed, match="offsets do not fit"):
        load_shards(tmp_path)
    save_shards(tmp_path, pack([*FIRST, ([], [2], 0)]))
    with pytest.raises(LoadFailed, match="offsets do not fit"):
        load_shards(tmp_path)
    (tmp_path / "difficulty.npy").write_bytes(b"nonsense")
    with pytest.raises(LoadFailed, match="cannot read"):
        load_shards(tmp_path)
