from clover_agent.engine.block import Block


def test_positions_move_from_masked_over_tentative_to_final() -> None:
    block = Block(4, 4)
    block.put(2, 7)
    assert (block.masked(), block.tentative(), block.ids(1)) == ([0, 1, 3], [2], [1, 1, 7, 1])
    block.finalise(5)
    assert (block.frontier, block.masked(), block.unmasked()) == (1, [1, 3], [5, 7])
    block.finalise(6)
    block.finalise(7)
    block.finalise(8)
    assert block.full
    assert block.tentative() == []


def test_taking_back_leaves_final_tokens_and_counts_strikes() -> None:
    block = Block(5, 5)
    block.finalise(3)
    for position in (1, 3, 4):
        block.put(position, 9)
    block.remask_from(3)
    assert block.tokens == [3, 9, None, None, None]
    assert block.strikes == [0, 0, 0, 1, 1]


def test_positions_beyond_the_budget_are_never_live() -> None:
    block = Block(8, 3)
    assert block.masked() == [0, 1, 2]
    for token in (4, 5, 6):
        block.finalise(token)
    assert block.full
    assert len(block.ids(1)) == 8
