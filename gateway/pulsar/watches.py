"""Watchers of the topics of a namespace: a pattern, and who is told when topics that match come or go."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any, Final

import orjson
from mq_shards.acceptor.protocols.pulsar.names import PulsarNameError, topic_name, topics_hash
from mq_shards.gateway.calls import AcceptorCalls
from mq_shards.gateway.pulsar.refusals import RefusedError, too_many

MAX_WATCHERS: Final = 4096
MAX_WATCHED_NAMES: Final = 1 << 20  # by all watchers together
MAX_PATTERN_BYTES: Final = 1000
# Of one that is compiled: few characters can stand for megabytes, which also take a second to make.
PATTERN_MEMORY_BYTES: Final = 1 << 18
MAX_WATCHED_SIZE: Final = 1 << 20  # of all watchers' patterns together, in RE2's instructions: some 16 bytes each
TOLD_AFTER_S: Final = 0.05  # what changes together is told together


@dataclass(slots=True)
class _Watcher:
    namespace: str
    matches: Matcher
    names: set[str]
    new: set[str] = field(default_factory=set)
    gone: set[str] = field(default_factory=set)


class Watches:
    def __init__(self, calls: AcceptorCalls) -> None:
        self._calls = calls
        self._loop = asyncio.get_running_loop()
        self._watchers: dict[tuple[int, int], _Watcher] = {}  # by acceptor and its number
        self._names = 0
        self._size = 0  # of their patterns
        self._due: asyncio.TimerHandle | None = None

    def close(self) -> None:
        if self._due is not None:
            self._due.cancel()

    def watch(self, acceptor: int, number: int, namespace: str, pattern: str, names: list[str]) -> None:
        """`names` match already."""
        self.unwatch(acceptor, number)
        matches = Matcher(pattern)
        full = len(self._watchers) >= MAX_WATCHERS or self._names + len(names) > MAX_WATCHED_NAMES
        if full or self._size + matches.size > MAX_WATCHED_SIZE:
            raise too_many("there are as many watchers of topics as there may be")
        self._watchers[acceptor, number] = _Watcher(namespace, matches, set(names))
        self._names += len(names)
        self._size += matches.size

    def unwatch(self, acceptor: int, number: int) -> None:
        watcher = self._watchers.pop((acceptor, number), None)
        if watcher is not None:
            self._names -= len(watcher.names)
            self._size -= watcher.matches.size

    def forget(self, acceptor: int) -> None:
        """Its process is another now."""
        for _, number in [key for key in self._watchers if key[0] == acceptor]:
            self.unwatch(acceptor, number)

    def changed(self, namespace: str, new: list[str], gone: list[str]) -> None:
        for watcher in self._watchers.values():
            if watcher.namespace != namespace:
                continue
            for name in filter(watcher.matches, new):
                if name not in watcher.names:
                    watcher.names.add(name)
                    watcher.new.add(name)
                    self._names += 1
            for name in watcher.names.intersection(gone):
                watcher.names.discard(name)
                watcher.new.discard(name)
                watcher.gone.add(name)
                self._names -= 1
        if self._due is None and any(watcher.new or watcher.gone for watcher in self._watchers.values()):
            self._due = self._loop.call_later(TOLD_AFTER_S, self._tell)

    def _tell(self) -> None:
        self._due = None
        for (acceptor, number), watcher in self._watchers.items():
            if not watcher.new and not watcher.gone:
                continue
            said: dict[str, Any] = {
                "watcher": number,
                "new": sorted(watcher.new),
                "deleted": sorted(watcher.gone - watcher.names),
                "hash": topics_hash(sorted(watcher.names)),
            }
            watcher.new.clear()
            watcher.gone.clear()
            self._calls.ends[acceptor].tell("pulsar.watched", orjson.dumps(said))


def _text(error: Exception) -> str:
    """The library says it in bytes."""
    why = error.args[0] if error.args else ""
    return why.decode(errors="replace") if isinstance(why, bytes) else str(why)


class Matcher:
    """Of whole names: RE2, on what follows the domain, of a partitioned topic's name without its partition."""

    def __init__(self, pattern: str) -> None:
        """Raises RefusedError."""
        import re2

        options = re2.Options()
        options.max_mem = PATTERN_MEMORY_BYTES
        options.log_errors = False
        options.never_capture = True  # to tell what groups match takes a thousand times as long
        _, found, rest = pattern.partition("://")
        if len(pattern.encode()) > MAX_PATTERN_BYTES:
            raise RefusedError(412, "MetadataError", f"a pattern has {MAX_PATTERN_BYTES} bytes at most")
        try:
            self._compiled = re2.compile(rest if found else pattern, options)
        except re2.error as error:
            raise RefusedError(412, "MetadataError", f"the pattern cannot be read: {_text(error)}") from None
        # It is made anew for a search from behind, if there is one.
        self.size: Final = 2 * int(self._compiled.programsize)

    def __call__(self, name: str) -> bool:
        try:
            base = str(topic_name(name).base)
        except PulsarNameError:
            return False
        return self._compiled.fullmatch(base.partition("://")[2]) is not None
