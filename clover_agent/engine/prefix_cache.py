"""The prefix cache: snapshots of sequence states, found again by the token ids that led to them.

A hybrid state cannot be cut back to an earlier token, so what can be reused is decided when a snapshot is taken.
Entries form a tree: an entry's snapshot rests on that of its parent, the longest head of it that was there, so tokens
that conversations share are held once. Found by a keyed digest of all ids before the point. Knows no model and no
tensors: a snapshot is opaque. Belongs to one thread.
"""

import hashlib
import secrets
from array import array
from collections import Counter, OrderedDict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from clover_agent.model.protocol import Snapshot, State


@dataclass(frozen=True, slots=True)
class CacheStats:
    """entries, nbytes: now; the rest since the start. queries, hits: lookups, and those that found something."""

    entries: int = 0
    nbytes: int = 0
    queries: int = 0
    hits: int = 0
    saved_tokens: int = 0
    evicted: int = 0


@dataclass(eq=False, slots=True)
class Entry:
    """A snapshot at one point.

    children   entries whose snapshot rests on this one
    holders    requests that run on it: it stays as long as they do
    shed       only a base for its children: it can no longer be matched
    """

    key: bytes
    length: int
    snapshot: Snapshot
    parent: "Entry | None"
    nbytes: int
    children: int = 0
    holders: int = 0
    shed: bool = False

    @property
    def useless(self) -> bool:
        return self.shed and not self.children and not self.holders

    def ancestors(self) -> Iterator["Entry"]:
        """From the parent to the root."""
        entry = self.parent
        while entry is not None:
            yield entry
            entry = entry.parent


class PrefixCache:
    """At most `limit` bytes of snapshots, the least recently used out first. A limit of 0 keeps nothing."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._secret = secrets.token_bytes(16)  # nobody can prepare two prompts of one digest
        self._entries: OrderedDict[bytes, Entry] = OrderedDict()  # least recently used first
        self._lengths: Counter[int] = Counter()
        self._nbytes = 0
        self._queries = self._hits = self._saved = self._evicted = 0

    @property
    def enabled(self) -> bool:
        return self._limit > 0

    def stats(self) -> CacheStats:
        return CacheStats(len(self._entries), self._nbytes, self._queries, self._hits, self._saved, self._evicted)

    def keys(self, ids: Sequence[int], lengths: Collection[int]) -> dict[int, bytes]:
        """The key of each head of `ids` that has one of the lengths (1 to len(ids)), in ascending order."""
        digest = hashlib.blake2b(key=self._secret, digest_size=16)
        found, done = dict[int, bytes](), 0
        data = array("q", ids) if lengths else array("q")
        for length in sorted(length for length in lengths if length <= len(ids)):
            digest.update(data[done:length].tobytes())
            found[length], done = digest.digest(), length
        return found

    def match(self, ids: Sequence[int]) -> Entry | None:
        """The entry of the longest head of `ids`; counted as a query."""
        self._queries += 1
        for key in reversed(self.keys(ids, self._lengths).values()):
            if (entry := self.get(key)) is not None:
                self._hits += 1
                self._saved += entry.length
                return entry
        return None

    def get(self, key: bytes) -> Entry | None:
        """The entry that can be matched under a key; uses it."""
        entry = self._entries.get(key)
        if entry is None or entry.shed:
            return None
        self._touch(entry)
        return entry

    def hold(self, entry: Entry) -> None:
        """Keep the entry until `release`, called as often as `hold`."""
        entry.holders += 1

    def release(self, entry: Entry) -> None:
        entry.holders -= 1
        if entry.useless:
            self._remove(entry)

    def insert(self, key: bytes, state: State, base: Entry | None, *, keep: Collection[bytes] = ()) -> Entry | None:
        """Take a snapshot of `state`, whose tokens have the key, on top of `base`, which must be held.

        Of the entries that it descends from, those that only it has use for are thinned: what stays is the first one,
        the last one, and those in `keep`. Returns the entry, which may have been there, perhaps shed (then it serves as
        a base only), None where there is no room for it.
        """
        known = self._entries.get(key)
        if known is not None:
            self._touch(known)
            return known
        snapshot = state.snapshot(None if base is None else base.snapshot)
        if not self._make_room(snapshot.nbytes):
            return None
        entry = Entry(key, snapshot.length, snapshot, base, snapshot.nbytes)
        self._entries[key] = entry
        self._lengths[entry.length] += 1
        self._nbytes += entry.nbytes
        if base is not None:
            base.children += 1
        self._thin(entry, keep)
        self._touch(entry)
        return entry

    def clear(self) -> None:
        """Forget everything that nobody holds."""
        self._make_room(self._limit)

    def check_integrity(self, *, idle: bool = False) -> None:
        """Raise `RuntimeError` if the books do not agree with the entries, or, where nothing runs (`idle`), if
        somebody still holds one."""
        entries = list(self._entries.values())
        children = Counter(id(entry.parent) for entry in entries if entry.parent is not None)
        faults = {
            "bytes": self._nbytes != sum(entry.nbytes for entry in entries),
            "limit": self._nbytes > self._limit,
            "lengths": +self._lengths != Counter(entry.length for entry in entries),
            "keys": any(entry.key != key for key, entry in self._entries.items()),
            "snapshots": any(
                (entry.snapshot.nbytes, entry.snapshot.length) != (entry.nbytes, entry.length) for entry in entries
            ),
            "children": any(entry.children != children[id(entry)] for entry in entries),
            "parents": any(
                self._entries.get(entry.parent.key) is not entry.parent or entry.parent.length >= entry.length
                for entry in entries
                if entry.parent is not None
            ),
            "shed": any(entry.useless for entry in entries),
            "holders": any(entry.holders < 0 or (idle and entry.holders > 0) for entry in entries),
        }
        if wrong := [name for name, fault in faults.items() if fault]:
            raise RuntimeError(f"the prefix cache is damaged: {', '.join(wrong)}")

    def _touch(self, entry: Entry) -> None:
        """Used now; what it rests on counts as used after it, and so leaves after it."""
        for used in (entry, *entry.ancestors()):
            self._entries.move_to_end(used.key)

    def _thin(self, entry: Entry, keep: Collection[bytes]) -> None:
        for older in list(entry.ancestors())[1:-1]:
            if older.children == 1 and not (older.shed or older.holders or older.key in keep):
                older.snapshot.shed()
                self._nbytes += older.snapshot.nbytes - older.nbytes
                older.nbytes, older.shed = older.snapshot.nbytes, True

    def _make_room(self, nbytes: int) -> bool:
        """Evict until `nbytes` fit; False if they cannot."""
        if nbytes > self._limit:
            return False
        while self._nbytes + nbytes > self._limit:
            victim = next((e for e in self._entries.values() if not e.children and not e.holders), None)
            if victim is None:
                return False
            self._remove(victim)
        return True

    def _remove(self, entry: Entry) -> None:
        """Take out an entry without children; and with it what was only there as its base."""
        gone: Entry | None = entry
        while gone is not None:
            del self._entries[gone.key]
            self._lengths[gone.length] -= 1
            if not self._lengths[gone.length]:
                del self._lengths[gone.length]
            self._nbytes -= gone.nbytes
            self._evicted += 1
            parent = gone.parent
            if parent is not None:
                parent.children -= 1
            gone = parent if parent is not None and parent.useless else None
