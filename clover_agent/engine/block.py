"""The block being denoised: which positions are masked, tentative and final. Knows no grammar and no probabilities."""


class Block:
    """`size` positions of which the first `limit` may ever be filled (the rest lies beyond the token budget).

    `tokens[i]` is None while masked. Positions below `frontier` are final; a token at or right of it is tentative.
    Only `finalise` moves the frontier. Invariant: tokens below the frontier never change, none at or right of
    `limit` is set.
    """

    __slots__ = ("frontier", "limit", "size", "strikes", "tokens")

    def __init__(self, size: int, limit: int) -> None:
        self.size = size
        self.limit = min(size, limit)
        self.tokens: list[int | None] = [None] * size
        self.strikes = [0] * size
        self.frontier = 0

    @property
    def full(self) -> bool:
        """Nothing is left to decide."""
        return self.frontier >= self.limit

    def masked(self) -> list[int]:
        """Live positions, ascending: masked, and within the budget."""
        return [i for i in range(self.frontier, self.limit) if self.tokens[i] is None]

    def tentative(self) -> list[int]:
        """Positions that hold a token which is not final, ascending."""
        return [i for i in range(self.frontier, self.limit) if self.tokens[i] is not None]

    def unmasked(self) -> list[int]:
        """Every token that stands in the block, final or not, in order of position."""
        return [token for token in self.tokens if token is not None]

    def put(self, position: int, token: int) -> None:
        """Unmask a position at or ahead of the frontier."""
        self.tokens[position] = token

    def remask(self, position: int) -> None:
        """Take a tentative token back; the position gets a strike."""
        self.tokens[position] = None
        self.strikes[position] += 1

    def remask_from(self, position: int) -> None:
        """Take back every tentative token at or right of `position`."""
        for i in self.tentative():
            if i >= position:
                self.remask(i)

    def finalise(self, token: int) -> None:
        """Write the final token of the frontier and move on."""
        self.tokens[self.frontier] = token
        self.frontier += 1

    def ids(self, mask_token_id: int) -> list[int]:
        """The block as the model reads it."""
        return [mask_token_id if token is None else token for token in self.tokens]
