"""A bounded hand-over from the engine's thread to one reader on an event loop. Knows no requests."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Outbox(Generic[T]):
    """`put` and `full` belong to the engine's thread, `get` to the loop that the outbox was made on.

    `put` never blocks: the engine looks at `full` first and lets a slow reader's request wait. `on_room` is called on
    the loop when a full outbox has room again.
    """

    def __init__(self, size: int, on_room: Callable[[], None]) -> None:
        self._size = size
        self._on_room = on_room
        self._items: deque[T] = deque()
        self._loop = asyncio.get_running_loop()
        self._ready = asyncio.Event()

    @property
    def full(self) -> bool:
        return len(self._items) >= self._size

    def put(self, item: T) -> bool:
        """Append; False if nobody can read it any more because the loop is closed."""
        self._items.append(item)
        try:
            self._loop.call_soon_threadsafe(self._ready.set)
        except RuntimeError:
            return False
        return True

    async def get(self) -> T:
        while not self._items:
            self._ready.clear()
            if not self._items:
                await self._ready.wait()
        was_full = self.full
        item = self._items.popleft()
        if was_full and not self.full:
            self._on_room()
        return item
