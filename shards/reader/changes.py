"""Which topics have changed since a caller's last listing.

Each change has a number. A caller that returns the number of its last listing gets only what changed since: of 20,000
topics, ten of which are written to, those ten. Numbers begin anew with each process, which the token names as well.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from mq_shards.shards.reader.shard import Topic

# So many deleted names are remembered; a caller that looked longer ago gets the whole list.
MAX_GONE: Final = 65536


@dataclass(frozen=True, slots=True)
class Listing:
    """`topics`: all topics if the listing is `whole`, else those that changed. `gone`: deleted names. `token`: what to
    pass for the next listing."""

    token: str
    whole: bool
    topics: list[Topic]
    gone: list[str]


class _Change(NamedTuple):
    number: int
    topic: Topic | None  # None: it was deleted


class Changes:
    """The changes of all topics. Not for several threads at a time."""

    def __init__(self, max_gone: int = MAX_GONE) -> None:
        self._start = secrets.token_hex(8)
        self._number = 0
        self._last: dict[str, _Change] = {}  # by name, in the order of their numbers
        self._of_shard: dict[int, set[str]] = {}
        self._gone: dict[str, None] = {}  # the oldest first
        self._max_gone = max_gone
        self._floor = 0  # deletions up to this number have been forgotten

    def take(self, shard: int, topics: Iterable[Topic]) -> None:
        """Notes what has changed; `topics`: all topics of a shard, as they are now."""
        before, now = self._of_shard.get(shard, set()), set()
        for topic in topics:
            now.add(topic.name)
            last = self._last.get(topic.name)
            if last is None or (last.topic is not topic and last.topic != topic):
                self._note(topic.name, topic)
        for name in before - now:
            self._note(name, None)
        self._of_shard[shard] = now

    def listing(self, token: str) -> Listing:
        """What changed since the listing with this token; everything if that is of another process, or too old."""
        since = self._since(token)
        told = f"{self._start}.{self._number}"
        if since is None:
            topics = [change.topic for change in self._last.values() if change.topic is not None]
            return Listing(told, True, sorted(topics, key=lambda topic: topic.name), [])
        topics, gone = [], []
        for name, change in reversed(self._last.items()):
            if change.number <= since:
                break
            if change.topic is None:
                gone.append(name)
            else:
                topics.append(change.topic)
        return Listing(told, False, sorted(topics, key=lambda topic: topic.name), sorted(gone))

    def _since(self, token: str) -> int | None:
        start, _, number = token.partition(".")
        if start != self._start or not number.isdecimal():
            return None
        since = int(number)
        return since if self._floor <= since <= self._number else None

    def _note(self, name: str, topic: Topic | None) -> None:
        self._number += 1
        self._last.pop(name, None)  # moves it to the end
        self._last[name] = _Change(self._number, topic)
        self._gone.pop(name, None)
        if topic is None:
            self._gone[name] = None
            if len(self._gone) > self._max_gone:
                oldest = next(iter(self._gone))
                del self._gone[oldest]
                self._floor = self._last.pop(oldest).number
