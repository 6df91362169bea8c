"""The prefix cache alone: any history of requests leaves the books right and finds the longest head that is there."""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from clover_agent.engine.prefix_cache import Entry, PrefixCache
from tests.engine.fakes import FakeSnapshot, FakeState, fake
from tests.engine.strategies import bounded

FIXED, TOKEN = 100, 8  # bytes of a fake snapshot
ROOM = 10_000


def state(ids: list[int]) -> FakeState:
    made = FakeState()
    made.tokens = list(ids)
    return made


def insert(cache: PrefixCache, ids: list[int], base: Entry | None = None, keep: list[bytes] | None = None) -> Entry:
    entry = cache.insert(cache.keys(ids, [len(ids)])[len(ids)], state(ids), base, keep=keep or [])
    assert entry is not None
    cache.check_integrity()
    return entry


def found(cache: PrefixCache, ids: list[int]) -> int:
    entry = cache.match(ids)
    return 0 if entry is None else entry.length


class Conversations(RuleBasedStateMachine):
    """Requests walk over tokens of a small alphabet, so that they share heads; the oracle is a set of heads."""

    @initialize(limit=st.sampled_from([300, 900, 2500]))
    def begin(self, limit: int) -> None:
        self.limit = limit
        self.cache = PrefixCache(limit)
        self.inserted: set[tuple[int, ...]] = set()
        self.running: list[tuple[list[int], Entry | None]] = []

    @rule(ids=st.lists(st.integers(0, 1), min_size=1, max_size=12))
    def start(self, ids: list[int]) -> None:
        entry = self.cache.match(ids)
        if entry is not None:
            assert isinstance(entry.snapshot, FakeSnapshot)
            assert entry.snapshot.tokens == tuple(ids[: entry.length])
            assert not entry.snapshot.is_shed
            self.cache.hold(entry)
        heads = {h for h in self.inserted if (e := self.entry(list(h))) is not None and not e.shed}
        longest = max((len(h) for h in heads if h == tuple(ids[: len(h)])), default=0)
        assert (0 if entry is None else entry.length) == longest
        self.running.append((ids[: entry.length] if entry else [], entry))

    def entry(self, ids: list[int]) -> Entry | None:
        return self.cache._entries.get(self.cache.keys(ids, [len(ids)])[len(ids)])

    @precondition(lambda self: self.running)
    @rule(which=st.integers(0, 9), more=st.lists(st.integers(0, 1), min_size=1, max_size=6), keep=st.booleans())
    def advance(self, which: int, more: list[int], keep: bool) -> None:
        ids, held = self.running.pop(which % len(self.running))
        ids = ids + more
        kept = [held.key] if keep and held is not None else []
        entry = self.cache.insert(self.cache.keys(ids, [len(ids)])[len(ids)], state(ids), held, keep=kept)
        if entry is not None:
            assert entry.length == len(ids)
            self.inserted.add(tuple(ids))
            self.cache.hold(entry)
            if held is not None:
                self.cache.release(held)
        self.running.append((ids, entry or held))

    @precondition(lambda self: self.running)
    @rule(which=st.integers(0, 9))
    def end(self, which: int) -> None:
        _, held = self.running.pop(which % len(self.running))
        if held is not None:
            self.cache.release(held)

    @rule()
    def clear(self) -> None:
        self.cache.clear()
        if not any(held for _, held in self.running):
            assert self.cache.stats().nbytes == 0

    @invariant()
    def whole(self) -> None:
        self.cache.check_integrity()
        assert all(held is None or self.cache._entries.get(held.key) is held for _, held in self.running)

    def teardown(self) -> None:
        while self.running:
            self.end(0)
        self.cache.check_integrity(idle=True)


Conversations.TestCase.settings = bounded(25)
TestConversations = Conversations.TestCase


def test_the_longest_head_is_found_and_counted() -> None:
    cache = PrefixCache(ROOM)
    assert found(cache, [1, 2, 3]) == 0
    base = insert(cache, [1, 2])
    insert(cache, [1, 2, 3, 4], base)
    assert [found(cache, ids) for ids in ([1, 2, 3, 4, 5], [1, 2, 3, 4], [1, 2, 3], [1, 2], [2, 1])] == [4, 4, 2, 2, 0]
    stats = cache.stats()
    assert (stats.entries, stats.queries, stats.hits, stats.saved_tokens) == (2, 6, 4, 12)


def test_tokens_that_entries_share_are_held_once() -> None:
    cache = PrefixCache(ROOM)
    tools = insert(cache, [1] * 200)
    for user in (2, 3, 4):
        insert(cache, [1] * 200 + [user] * 5, tools)
    assert cache.stats().nbytes == TOKEN * (200 + 3 * 5) + 4 * FIXED


def test_a_long_conversation_keeps_its_first_and_last_points_and_what_its_turns_name() -> None:
    cache = PrefixCache(ROOM)
    ids = [1] * 20
    entries = [insert(cache, ids)]
    for turn in range(2, 8):
        ids = ids + [turn] * 5
        entries.append(insert(cache, ids, entries[-1], keep=[e.key for e in entries[1:2]]))
    assert [entry.shed for entry in entries] == [False, False, True, True, True, False, False]
    assert cache.stats().nbytes == TOKEN * len(ids) + 4 * FIXED
    assert found(cache, ids[:35]) == 25


def test_a_point_where_conversations_part_is_not_thinned() -> None:
    cache = PrefixCache(ROOM)
    root = insert(cache, [1])
    fork = insert(cache, [1, 2], root)
    insert(cache, [1, 2, 9], fork)
    tip = insert(cache, [1, 2, 3], fork)
    insert(cache, [1, 2, 3, 4], tip)
    assert not fork.shed


def test_the_least_recently_used_leaves_first_and_never_what_others_rest_on() -> None:
    cache = PrefixCache(4 * FIXED + 6 * TOKEN)
    root = insert(cache, [1])
    insert(cache, [1, 2], root)
    insert(cache, [1, 3], root)
    assert found(cache, [1, 2]) == 2
    insert(cache, [5, 5, 5])
    insert(cache, [6])
    assert [found(cache, ids) for ids in ([1, 3], [1, 2], [5, 5, 5], [6])] == [1, 2, 3, 1]
    assert cache.stats().evicted == 1


def test_what_is_held_stays_and_what_does_not_fit_is_refused() -> None:
    cache = PrefixCache(FIXED + 10 * TOKEN)
    entry = insert(cache, [1] * 5)
    cache.hold(entry)
    key = cache.keys([2], [1])[1]
    assert cache.insert(key, state([2]), None) is None
    cache.clear()
    assert found(cache, [1] * 5) == 5
    with pytest.raises(RuntimeError, match="holders"):
        cache.check_integrity(idle=True)
    cache.release(entry)
    cache.check_integrity(idle=True)
    assert cache.insert(cache.keys([3] * 11, [11])[11], state([3] * 11), None) is None
    assert cache.insert(key, state([2]), None) is not None


def test_damage_is_noticed() -> None:
    cache = PrefixCache(ROOM)
    entry = insert(cache, [1] * 5)
    entry.nbytes += 1
    with pytest.raises(RuntimeError, match="bytes, snapshots"):
        cache.check_integrity()


def test_keys_tell_heads_apart_and_caches_too() -> None:
    cache, other = PrefixCache(1), PrefixCache(1)
    keys = cache.keys([1, 2, 3], [1, 2, 3, 9])
    assert list(keys) == [1, 2, 3]
    assert len(set(keys.values())) == 3
    assert cache.keys([1, 2, 4], [2]) == {2: keys[2]}
    assert other.keys([1, 2, 3], [3]) != {3: keys[3]}
    assert fake(state([1])).length == 1
