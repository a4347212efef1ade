"""Publishes one batch: sends the sections of its staged files to the shards, those of each shard in order, numbered
from 0.

A shard accepts a part only after the part before it, and says OK to a part that it already has. So whatever fails, the
shard's parts are sent again from the first one until all of them are there: nothing is lost, nothing is written twice.
"""

from __future__ import annotations

import asyncio
import logging
import os
from array import array
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from mq_shards.gateway.broker import (
    BadTopicError,
    Broker,
    BrokerError,
    DiskError,
    DrainingError,
    OutOfTurnError,
    ProducerPart,
)
from mq_shards.gateway.byte_window import ByteWindow
from mq_shards.gateway.names import exact
from mq_shards.gateway.pipeline import message_sections
from mq_shards.gateway.pipeline.decisions import Decision
from mq_shards.gateway.pipeline.message_sections import Section, SectionsError
from mq_shards.gateway.workers import WorkersError
from mq_shards.shards import durable

MAX_SECTIONS: Final = 1 << 20  # of one batch
# The most parts and bytes in flight to one shard for one batch.
SHARD_PARTS: Final = 16
SHARD_BYTES: Final = 4 << 20
# The most bytes and sections that are read at once; a larger section is read alone.
READ_BYTES: Final = 1 << 20
READ_SECTIONS: Final = 64
FIRST_PAUSE_S: Final = 0.25
LONGEST_PAUSE_S: Final = 5.0
MAX_CAUSES: Final = 64  # the most causes of delay that are logged for one batch

log = logging.getLogger(__name__)


class HopelessError(Exception):
    """One line: why a batch can never be published whole, however often that is tried."""


@dataclass(slots=True)
class ShardParts:
    """Where each part of a shard lies: three arrays, indexed by the number of the part."""

    file: array[int] = field(default_factory=lambda: array("I"))  # the index of its file in the batch
    offset: array[int] = field(default_factory=lambda: array("Q"))
    size: array[int] = field(default_factory=lambda: array("I"))


@dataclass(slots=True)
class Parts:
    shards: dict[int, ShardParts] = field(default_factory=dict)
    messages: int = 0
    topics: list[str] = field(default_factory=list)


def find_parts(files: Sequence[tuple[Path, int]], shard_of: Callable[[str], int]) -> Parts:
    """Finds the parts of a batch in its files, each given with the number of its bytes that count.

    Raises SectionsError, OSError.
    """
    parts = Parts()
    shards: dict[str, ShardParts] = {}
    sections = 0
    for number, (path, size) in enumerate(files):
        for section in message_sections.in_file(path, size):
            sections += 1
            if sections > MAX_SECTIONS:
                raise SectionsError(f"a batch has {MAX_SECTIONS} sections at most: larger ones are needed")
            found = shards.get(section.topic)
            if found is None:
                shard = shard_of(exact(section.topic))
                found = shards[section.topic] = parts.shards.setdefault(shard, ShardParts())
            found.file.append(number)
            found.offset.append(section.start)
            found.size.append(section.end - section.start)
            parts.messages += section.messages
    parts.topics = list(shards)
    return parts


class Carrying:
    """The publishing of one batch."""

    def __init__(
        self,
        decision: Decision,
        paths: Sequence[Path],
        broker: Broker,
        prepare_topic: Callable[[str], Awaitable[None]],
        window: ByteWindow,
        threads: Executor,
    ) -> None:
        self._errors: dict[int | None, str] = {}  # why a shard makes no progress; None: why the files cannot be read
        self._decision = decision
        self._paths = paths
        self._broker = broker
        self._prepare_topic = prepare_topic
        self._window = window
        self._threads = threads
        self._prepared: set[str] = set()
        self._logged: set[str] = set()

    async def run(self, parts: Parts | None) -> None:
        """Returns when the whole batch is in the log. `parts` None: finds them first. Raises HopelessError."""
        pause_s = FIRST_PAUSE_S
        while parts is None:
            try:
                files = [(path, stamp.size) for path, stamp in zip(self._paths, self._decision.staged, strict=True)]
                loop = asyncio.get_running_loop()
                parts = await loop.run_in_executor(self._threads, find_parts, files, self._broker.shard_of)
            except (SectionsError, FileNotFoundError) as error:
                raise HopelessError(f"what was staged cannot be read: {error}") from None
            except OSError as error:
                self._say(None, f"what was staged cannot be read: {error}")
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
        self.moves(None)
        try:
            async with asyncio.TaskGroup() as group:
                for shard, found in parts.shards.items():
                    group.create_task(self._carry(shard, found))
        except ExceptionGroup as errors:
            hopeless, others = errors.split(HopelessError)
            if hopeless is None or others is not None:
                raise
            raise HopelessError("; ".join(sorted({str(error) for error in hopeless.exceptions}))) from None

    @property
    def error(self) -> str:
        """Why the batch makes no progress; "": it does."""
        return next(iter(self._errors.values()), "")

    async def _carry(self, shard: int, parts: ShardParts) -> None:
        pause_s = FIRST_PAUSE_S
        furthest = begin = 0
        while True:
            sending = _Sending(self, shard, parts, begin)
            try:
                await sending.run()
                return
            except (BadTopicError, SectionsError, FileNotFoundError) as error:
                raise HopelessError(str(error)) from None
            except (BrokerError, WorkersError, OSError) as error:
                self._say(shard, _cause(error))
                # After a refusal the parts before it are known to be written; else only the shard knows which are.
                begin = sending.done if isinstance(error, DiskError | DrainingError) else 0
            if sending.done > furthest:
                furthest, pause_s = sending.done, FIRST_PAUSE_S
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    def moves(self, shard: int | None) -> None:
        self._errors.pop(shard, None)

    def _say(self, shard: int | None, cause: str) -> None:
        self._errors[shard] = cause if shard is None else f"shard {shard}: {cause}"
        if cause not in self._logged and len(self._logged) < MAX_CAUSES:
            self._logged.add(cause)
            log.warning("writer %s, batch %d waits: %s", self._decision.writer, self._decision.batch, cause)

    # --- what _Sending calls, for one shard ---------------------------------------------------------------------------

    async def read(self, parts: ShardParts, first: int, until: int) -> list[bytes]:
        places = [(self._paths[parts.file[n]], parts.offset[n], parts.size[n]) for n in range(first, until)]
        return await asyncio.get_running_loop().run_in_executor(self._threads, _read, places)

    async def publish(self, part: int, section: Section, bodies: memoryview, size: int) -> None:
        """Publishes one part, and gives back `size` bytes of the window, which the caller has taken."""
        try:
            of = ProducerPart(self._decision.key, self._decision.batch, part)
            await self._broker.publish_many(
                exact(section.topic), section.messages, bodies, of,
                has_headers=section.has_headers, delay_ns=section.delay_ns, priority=section.priority,
            )  # fmt: skip
        finally:
            self._window.give(size)

    async def prepare(self, topic: str) -> None:
        if topic not in self._prepared:
            await self._prepare_topic(topic)
            self._prepared.add(topic)

    @property
    def window(self) -> ByteWindow:
        return self._window


class _Sending:
    """One attempt to send the parts of a shard, from part `begin` on."""

    def __init__(self, carrying: Carrying, shard: int, parts: ShardParts, begin: int) -> None:
        self.done = begin  # how many parts, from part 0 on, the shard has
        self._shard = shard
        self._carrying = carrying
        self._parts = parts
        self._on_way: deque[tuple[asyncio.Task[None], int]] = deque()
        self._on_way_bytes = 0

    async def run(self) -> None:
        first, end = self.done, len(self._parts.size)
        try:
            while first < end:
                until, size = self._group(first)
                while self._on_way and self._on_way_bytes + size > SHARD_BYTES:
                    await self._oldest()
                await self._send(first, until, size)
                first = until
            while self._on_way:
                await self._oldest()
        except asyncio.CancelledError:
            for task, _ in self._on_way:
                task.cancel()
            raise
        finally:
            # Parts sent after the one that failed are refused as well, or their results tell nothing new.
            await asyncio.gather(*(task for task, _ in self._on_way), return_exceptions=True)

    def _group(self, first: int) -> tuple[int, int]:
        """Chooses the parts that are read together: returns the end of their range, and their bytes."""
        sizes = self._parts.size
        until, size = first + 1, sizes[first]
        while until < min(len(sizes), first + READ_SECTIONS) and size + sizes[until] <= READ_BYTES:
            size += sizes[until]
            until += 1
        return until, size

    async def _send(self, first: int, until: int, size: int) -> None:
        carrying, sizes = self._carrying, self._parts.size
        await carrying.window.take(size)
        left = size
        try:
            for part, data in enumerate(await carrying.read(self._parts, first, until), first):
                section, bodies = message_sections.split(data)
                await carrying.prepare(section.topic)
                while len(self._on_way) >= SHARD_PARTS:
                    await self._oldest()
                left -= sizes[part]
                task = asyncio.create_task(carrying.publish(part, section, bodies, sizes[part]))
                self._on_way.append((task, sizes[part]))
                self._on_way_bytes += sizes[part]
        finally:
            carrying.window.give(left)

    async def _oldest(self) -> None:
        task, size = self._on_way.popleft()
        self._on_way_bytes -= size
        await task
        self.done += 1
        self._carrying.moves(self._shard)


def _read(places: Sequence[tuple[Path, int, int]]) -> list[bytes]:
    """Reads sections, each given as path, offset and size. Runs in a thread."""
    found = []
    fd, opened = -1, None
    try:
        for path, offset, size in places:
            if path != opened:
                if fd >= 0:
                    os.close(fd)
                fd, opened = -1, None
                fd, opened = durable.open_to_read(path), path
            data = os.pread(fd, size, offset)
            if len(data) != size:
                raise SectionsError(f"{path.name} is shorter than it was when it was staged")
            found.append(data)
    finally:
        if fd >= 0:
            os.close(fd)
    return found


def _cause(error: Exception) -> str:
    match error:
        case DrainingError():
            return "the broker takes no new messages until it is started again"
        case OutOfTurnError():
            return "the log has lost parts of it, which are sent again"
        case _:
            return str(error) or type(error).__name__
