import asyncio
import threading

from clover_agent.engine.outbox import Outbox


async def test_items_arrive_in_order_from_another_thread() -> None:
    outbox: Outbox[int] = Outbox(1000, lambda: None)
    thread = threading.Thread(target=lambda: [outbox.put(i) for i in range(500)])
    thread.start()
    assert [await outbox.get() for _ in range(500)] == list(range(500))
    thread.join()


async def test_room_is_told_once_per_full_box() -> None:
    told = []
    outbox: Outbox[int] = Outbox(2, lambda: told.append(outbox.full))
    states = [outbox.full for item in (1, 2) if outbox.put(item)]
    assert states == [False, True]
    assert [await outbox.get(), await outbox.get()] == [1, 2]
    assert told == [False]


def test_a_closed_loop_is_reported() -> None:
    async def make() -> Outbox[int]:
        return Outbox(2, lambda: None)

    outbox = asyncio.run(make())
    assert outbox.put(1) is False
