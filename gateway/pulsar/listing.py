"""The names of a namespace's topics: those that the catalog has, and those that only workers have.

A list is made in turns, and kept until the catalog's or the workers' topics change: pattern consumers ask again and
again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final
from weakref import WeakValueDictionary

from mq_shards.acceptor.protocols.pulsar.names import DEFAULT_NAMESPACE, PERSISTENT, topic_of_core
from mq_shards.gateway.pulsar.catalog import Namespace
from mq_shards.gateway.pulsar.core import Core
from mq_shards.gateway.turns import Turns, in_pieces, sorted_in_turns
from mq_shards.shards.checksum import crc32c

MAX_KEPT_NAMES: Final = 1 << 20  # of all lists together
_DEFAULT: Final = f"{PERSISTENT}://{DEFAULT_NAMESPACE}/"
MAX_KEPT: Final = 4096  # lists, of namespaces that may be gone


@dataclass(frozen=True, slots=True)
class _List:
    of: Namespace
    changes: int  # its count of changes when the list was made
    cores: Sequence[str]  # the names that workers had then
    names: list[str]


class Listing:
    def __init__(self, core: Core) -> None:
        self._core = core
        self._lists: dict[tuple[str, str], _List] = {}  # by namespace and domain, oldest first
        self._kept = 0  # names in them
        self._cores: Sequence[str] = ()  # the names that workers had when last asked
        # By list, held while it is made: a second caller waits, and gets the same list.
        self._making: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()

    async def of(self, name: str, namespace: Namespace, domain: str) -> list[str]:
        """Whole names, sorted, each partition by itself. The list must not be changed."""
        key = name, domain
        lock = self._making.get(key)
        if lock is None:
            lock = self._making[key] = asyncio.Lock()
        async with lock:
            cores = await self._core.names(tubes=_has_tubes(name)) if domain == PERSISTENT else ()
            if domain == PERSISTENT and cores is not self._cores:
                self._cores = cores
                self._drop_outlived()
            found = self._lists.get(key)
            is_so = found is not None and found.of is namespace and found.changes == namespace.changes
            if found is None or not is_so or found.cores is not cores:
                changes = namespace.changes
                names = await _names(name, namespace, domain, cores)
                found = _List(namespace, changes, cores, names)
                self._keep(key, found)
        return found.names

    def _keep(self, key: tuple[str, str], made: _List) -> None:
        before = self._lists.pop(key, None)
        self._kept += len(made.names) - (0 if before is None else len(before.names))
        self._lists[key] = made
        while (self._kept > MAX_KEPT_NAMES or len(self._lists) > MAX_KEPT) and len(self._lists) > 1:
            self._drop(next(iter(self._lists)))

    def _drop_outlived(self) -> None:
        """Drops lists made from earlier names of workers; each would keep those names of all topics in memory."""
        for key in [key for key, one in self._lists.items() if key[1] == PERSISTENT and one.cores is not self._cores]:
            self._drop(key)

    def _drop(self, key: tuple[str, str]) -> None:
        self._kept -= len(self._lists.pop(key).names)


def _has_tubes(namespace: str) -> bool:
    """Whether names that are not Pulsar's are of it."""
    return f"{namespace}/".startswith(f"{DEFAULT_NAMESPACE}/")


async def _names(name: str, namespace: Namespace, domain: str, cores: Sequence[str]) -> list[str]:
    """Makes the list. A topic that is made or deleted meanwhile may be in it or not."""
    found: set[str] = set()
    partitioned: set[str] = set()
    prefix, turns = f"{domain}://", Turns()
    async for piece in in_pieces(list(namespace.topics)):
        for one in piece:
            topic = namespace.topics.get(one)
            if topic is None or not one.startswith(prefix):
                continue
            if topic.partitions:
                partitioned.add(one)
                found.update(f"{one}-partition-{i}" for i in range(topic.partitions))
                await turns.pause()
            else:
                found.add(one)
    found -= namespace.deleted_partitions
    await _add_cores(found, name, f"{prefix}{name}/", cores)
    found -= partitioned
    return await sorted_in_turns(list(found))


async def _add_cores(found: set[str], name: str, prefix: str, cores: Sequence[str]) -> None:
    """Adds the workers' topics that are in the namespace."""
    short = prefix.removeprefix(_DEFAULT) if _has_tubes(name) else None
    async for piece in in_pieces(cores):
        for core in piece:
            if "://" in core:
                is_here, whole = core.startswith(prefix), core
            else:
                is_here, whole = short is not None and core.startswith(short), f"{_DEFAULT}{core}"
            if not is_here or whole in found:
                continue
            name_of = topic_of_core(core)
            if name_of is not None and name_of.namespace == name:
                found.add(str(name_of))


async def matching(names: Sequence[str], matches: Callable[[str], bool]) -> list[str]:
    found: list[str] = []
    turns = Turns()
    async for piece in in_pieces(names, 16):  # some patterns take long for each name
        found += filter(matches, piece)
        await turns.pause()
    return found


async def topics_hash(names: Sequence[str]) -> str:
    """The hash by which clients and brokers tell whether they know the same topics. `names` must be sorted."""
    found, joint = 0, ""
    async for piece in in_pieces(names):
        found = crc32c((joint + ",".join(piece)).encode(), found)
        joint = ","
    return f"{found:08x}"
