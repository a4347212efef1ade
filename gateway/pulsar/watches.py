"""Watchers of the topics of a namespace: each has a pattern, and is told when topics that match are made or deleted."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

import orjson
from mq_shards.acceptor.protocols.pulsar.names import NON_PERSISTENT, PERSISTENT, topic_name
from mq_shards.gateway.calls import AcceptorCalls
from mq_shards.gateway.pulsar.listing import topics_hash
from mq_shards.gateway.pulsar.refusals import RefusedError, too_many
from mq_shards.gateway.turns import Turns, sorted_in_turns

MAX_WATCHERS: Final = 4096
MAX_WATCHED_NAMES: Final = 1 << 20  # of all watchers together
MAX_PATTERN_BYTES: Final = 1000
# The memory of a compiled pattern: few characters can stand for megabytes, which also take a second to compile. Up to a
# third of it caches what RE2 learned from names that it has matched, as long as the pattern is watched.
PATTERN_MEMORY_BYTES: Final = 48 << 10
MAX_WATCHED_SIZE: Final = 1 << 20  # of all watchers' patterns together, in RE2's instructions: some 16 bytes each
TOLD_AFTER_S: Final = 0.05  # after one telling to the next: changes that come meanwhile are told together
MAX_NEWS: Final = 1 << 14  # names in changes not yet passed on; beyond, whoever makes or deletes topics waits
TOLD_NAMES: Final = 4096  # names in one message

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Watcher:
    namespace: str
    matches: Matcher
    # The topics it was told of. None: they are being listed, or are too many: then it may be told of one twice.
    names: set[str] | None = None
    is_listed: bool = False
    new: set[str] = field(default_factory=set)
    gone: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class _News:
    namespace: str
    new: list[str]
    gone: list[str]


class Watches:
    def __init__(self, calls: AcceptorCalls) -> None:
        self._calls = calls
        self._loop = asyncio.get_running_loop()
        self._watchers: dict[tuple[int, int], _Watcher] = {}  # by acceptor, and the number that it gave
        self._watched: Counter[str] = Counter()  # how many watchers each namespace has
        self._names = 0
        self._size = 0  # of all patterns
        self._news: list[_News] = []
        self._news_names = 0
        self._heard = asyncio.Event()  # set when there is room for more news
        self._heard.set()
        self._in_turn = asyncio.Lock()  # so that those who wait for room go in order
        self._telling: asyncio.Task[None] | None = None

    def close(self) -> None:
        if self._telling is not None:
            self._telling.cancel()

    def watch(self, acceptor: int, number: int, namespace: str, matches: Matcher) -> None:
        """Adds a watcher, which sees all changes from now on. To be followed by listed()."""
        self.unwatch(acceptor, number)
        if len(self._watchers) >= MAX_WATCHERS or self._size + matches.size > MAX_WATCHED_SIZE:
            raise _full()
        self._watchers[acceptor, number] = _Watcher(namespace, matches)
        self._watched[namespace] += 1
        self._size += matches.size

    def listed(self, acceptor: int, number: int, matches: Matcher, names: list[str]) -> list[str]:
        """Takes `names`, the matching topics at some time since watch(), and returns those that there are now."""
        watcher = self._watchers.get((acceptor, number))
        if watcher is None or watcher.matches is not matches:
            return names  # the watcher is gone, or was replaced
        if watcher.new or watcher.gone:
            names = sorted((set(names) - watcher.gone) | watcher.new)
        if self._names + len(names) > MAX_WATCHED_NAMES:
            self.unwatch(acceptor, number)
            raise _full()
        watcher.names, watcher.is_listed = set(names), True
        watcher.new.clear()
        watcher.gone.clear()
        self._names += len(names)
        return names

    def unwatch(self, acceptor: int, number: int, only: Matcher | None = None) -> None:
        """Removes a watcher. `only`: unless it has another Matcher, since it was replaced."""
        watcher = self._watchers.get((acceptor, number))
        if watcher is not None and (only is None or watcher.matches is only):
            del self._watchers[acceptor, number]
            self._watched[watcher.namespace] -= 1
            if not self._watched[watcher.namespace]:
                del self._watched[watcher.namespace]
            self._names -= len(watcher.names or ())
            self._size -= watcher.matches.size

    def forget(self, acceptor: int) -> None:
        """Removes the watchers of an acceptor that has been restarted."""
        for _, number in [key for key in self._watchers if key[0] == acceptor]:
            self.unwatch(acceptor, number)

    async def changed(self, namespace: str, new: list[str], gone: list[str]) -> None:
        """Of what is not persistent nobody is told, as by a real broker."""
        new, gone = ([name for name in names if not name.startswith(NON_PERSISTENT)] for names in (new, gone))
        if not self._watched[namespace] or not (new or gone):
            return
        async with self._in_turn:
            while self._news_names > MAX_NEWS:
                self._heard.clear()
                await self._heard.wait()
            self._news.append(_News(namespace, new, gone))
            self._news_names += len(new) + len(gone)
        if self._telling is None:
            self._telling = self._loop.create_task(self._tell_all())

    # --- telling ----------------------------------------------------------------------------------------------------

    async def _tell_all(self) -> None:
        try:
            while self._news:
                news, self._news, self._news_names = self._news, [], 0
                self._heard.set()
                try:
                    turns = Turns()
                    for one in news:
                        await self._hear(one, turns)
                    await self._tell()
                except Exception:
                    log.exception("watchers of topics cannot be told")
                await asyncio.sleep(TOLD_AFTER_S)
        finally:
            self._telling = None

    async def _hear(self, news: _News, turns: Turns) -> None:
        new, gone = _by_base(news.new), _by_base(news.gone)
        await turns.pause()
        for key, watcher in list(self._watchers.items()):
            if watcher.namespace != news.namespace:
                continue
            for found, come in ((gone, False), (new, True)):
                for base, names in found.items():
                    if watcher.matches.base(base) and self._watchers.get(key) is watcher:
                        for name in names:
                            self._see(watcher, name, come=come)
                    await turns.pause()

    def _see(self, watcher: _Watcher, name: str, *, come: bool) -> None:
        if watcher.names is not None:
            if (name in watcher.names) == come:
                return
            if come and self._names >= MAX_WATCHED_NAMES:
                self._names -= len(watcher.names)
                watcher.names = None
            elif come:
                watcher.names.add(name)
                self._names += 1
            else:
                watcher.names.discard(name)
                self._names -= 1
        if come:
            watcher.new.add(name)
        else:
            watcher.new.discard(name)
            watcher.gone.add(name)

    async def _tell(self) -> None:
        turns = Turns()
        for key, watcher in list(self._watchers.items()):
            if not watcher.is_listed or not (watcher.new or watcher.gone):
                continue
            await turns.pause()
            new = await sorted_in_turns(list(watcher.new))
            gone = await sorted_in_turns(list(watcher.gone - watcher.new))
            watcher.new.clear()
            watcher.gone.clear()
            # A client that was given no valid hash asks for the whole list when it reconnects.
            known = "" if watcher.names is None else await topics_hash(await sorted_in_turns(list(watcher.names)))
            count = max(len(new), len(gone))
            for at in range(0, count if self._watchers.get(key) is watcher else 0, TOLD_NAMES):
                said: dict[str, Any] = {
                    "watcher": key[1], "new": new[at : at + TOLD_NAMES], "deleted": gone[at : at + TOLD_NAMES],
                    "hash": known if at + TOLD_NAMES >= count else "",
                }  # fmt: skip
                self._calls.ends[key[0]].tell("pulsar.watched", orjson.dumps(said))


def _full() -> RefusedError:
    return too_many("there are as many watchers of topics as there may be")


def _base(name: str) -> str:
    """A whole name without its domain, and without the suffix of a partition."""
    whole = str(topic_name(name).base) if "-partition-" in name else name
    return whole.partition("://")[2]


def _by_base(names: list[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name in names:
        found.setdefault(_base(name), []).append(name)
    return found


def _text(error: Exception) -> str:
    """The message of an error of re2, which may be bytes."""
    why = error.args[0] if error.args else ""
    return why.decode(errors="replace") if isinstance(why, bytes) else str(why)


class ForeignDomainError(RefusedError):
    """The pattern is of topics of a domain that is not there."""


def _without_domain(pattern: str) -> str:
    """As a real broker reads a pattern: what lies before the domain stays, such as a \\Q, and what lies behind a second
    :// does not. Raises RefusedError."""
    before, found, rest = pattern.partition("://")
    if not found:
        return pattern
    domain = next((one for one in (NON_PERSISTENT, PERSISTENT) if before.endswith(one)), None)
    if domain is None:
        why = f"java.lang.IllegalArgumentException: Does not support topic domain: {before}"
        raise ForeignDomainError(412, "MetadataError", why)
    return before.removesuffix(domain) + rest.partition("://")[0]


class Matcher:
    """Matches whole names: by RE2, without the domain and without the suffix of a partition."""

    def __init__(self, pattern: str, *, of_topics: bool = True) -> None:
        """Raises RefusedError."""
        import re2

        options = re2.Options()
        options.max_mem = PATTERN_MEMORY_BYTES
        options.log_errors = False
        options.never_capture = True  # to find what groups match takes a thousand times as long
        if len(pattern.encode()) > MAX_PATTERN_BYTES:
            raise RefusedError(412, "MetadataError", f"a pattern has {MAX_PATTERN_BYTES} bytes at most")
        try:
            self._compiled = re2.compile(_without_domain(pattern) if of_topics else pattern, options)
        except re2.error as error:
            raise RefusedError(412, "MetadataError", f"the pattern cannot be read: {_text(error)}") from None
        # RE2 may compile it a second time, for a search from the end.
        self.size: Final = 2 * int(self._compiled.programsize)

    def __call__(self, name: str) -> bool:
        return self.base(_base(name))

    def base(self, name: str) -> bool:
        """Matches a name in the form of _base()."""
        return self._compiled.fullmatch(name) is not None
