"""One shard's log as readers see it: which topics it has, and where the records of a range of seqs are."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
from mq_shards.shards import durable, medium
from mq_shards.shards.checksum import crc32c
from mq_shards.shards.layout import SEGMENT_HEADER_BYTES
from mq_shards.shards.paths import SEGMENT_NAME, segment_name, shard_path
from mq_shards.shards.reader import index_file
from mq_shards.shards.reader.scan import MESSAGES, U64, Batch, Columns, heads
from mq_shards.shards.reader.segment import ALL_OF_TOPIC, Damage, Segment, log_began_ns, previous_end
from mq_shards.shards.reader.stretches import NOWHERE, Bools, Stretches
from mq_shards.shards.reader.totals import Totals, totals_of

# Most stretches of a topic in one segment that are looked at for one answer; the rest is left to the next answer.
MAX_STRETCHES: Final = 16384
JUMP: Final = (1 << 32) - 1  # SKIP_SEQS, csrc/shards/skip.h
UNREADABLE: Final = b"unreadable".ljust(SEGMENT_HEADER_BYTES, b"\0")  # stands for an unreadable header

log = logging.getLogger(__name__)


class ChangedError(OSError):
    """A segment does not hold what its index says: it was damaged since."""

    def __init__(self, segment: int, offset: int) -> None:
        super().__init__(f"segment {segment} has changed at {offset}")
        self.segment: Final = segment


@dataclass(frozen=True, slots=True)
class Topic:
    """`earliest`: the first seq that still exists. `complete`: the seq from which on retention has removed nothing;
    before it there is only what compaction has kept. `latest`: one beyond the last seq that can be read: reading
    stops before the first message of an open transaction. `log_began_ns`: when the shard's log was begun (wall clock);
    while it is the same, no seq is given out twice. 0: not known. `jumps`: where seqs have jumped since messages may
    have been lost without a trace (csrc/shards/skip.h), from the first seq that is not there to the next that is."""

    name: str
    shard: int
    earliest: int
    complete: int
    latest: int
    records: int
    bytes: int
    last_timestamp_ns: int
    log_began_ns: int
    jumps: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Span:
    """Records [first, until) of a topic, in a stretch of a segment that begins with `seq`."""

    segment: int
    offset: int
    bytes: int
    seq: int
    count: int
    first: int
    until: int

    @property
    def whole(self) -> bool:
        return self.first == self.seq and self.until == self.seq + self.count


@dataclass(frozen=True, slots=True)
class Found:
    """The spans of a range in order of seq. `until`: the seq up to which the range was searched."""

    spans: list[Span]
    until: int


@dataclass(slots=True)
class _Name:
    name: str
    next_seq: int
    segment: int  # the last segment in which the number was seen


@dataclass(slots=True)
class ShardView:
    """The log of one shard. Not for several threads at a time."""

    directory: Path
    shard: int
    shards: int
    columns: Columns
    segments: dict[int, Segment] = field(default_factory=dict)  # in rising order
    names: dict[int, _Name] = field(default_factory=dict)
    numbers: dict[str, set[int]] = field(default_factory=dict)
    failing: set[int] = field(default_factory=set)  # segments that could not be read
    learned: tuple[int, int, bool] = (0, 0, False)  # where names were last taken from
    settled: dict[str, int] = field(default_factory=dict)  # by topic: transactions with messages below have ended
    totals: Totals | None = None  # sums over the sealed segments, while these stay the same
    listed: dict[str, Topic] = field(default_factory=dict)  # by name, those that are as they were last listed
    listed_of: tuple[Totals, list[Segment]] | None = None  # the sealed segments and the others that they are of

    # --- the segments -----------------------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Reads what was appended, sealed and dropped since. Raises OSError when the directory cannot be read."""
        present, indexes = self._listed()
        for number in [n for n in self.segments if n not in present]:
            del self.segments[number]
        headers = self._headers([n for n in present if n not in self.segments or not self.segments[n].sealed])
        for place, number in enumerate(present):
            following = present[place + 1] if place + 1 < len(present) else None
            if number in headers:
                self._see(number, headers[number], self._header_of(following, headers))
        self.segments = dict(sorted(self.segments.items()))
        if self.totals is not None and not self.totals.are_of(self._sealed()):
            self.totals = None
        self._forget_names(present[0] if present else 0)
        for number in indexes - set(present):
            _remove(index_file.index_path(self.path(number)))

    def forget(self, segment: int) -> None:
        """Forgets a segment: the next refresh checks every record of it again."""
        self.segments.pop(segment, None)
        self.settled.clear()
        self.totals = None
        _remove(index_file.index_path(self.path(segment)))

    def state(self) -> object:
        """A value that differs whenever the topics may differ."""
        return [(n, segment.offset, segment.sealed, segment.header) for n, segment in self.segments.items()]

    def is_whole(self) -> bool:
        """Whether all that was written could be read, so that a topic that is not seen does not exist."""
        return not self.failing and not any(segment.damage for segment in self.segments.values())

    def sync(self) -> None:
        """Syncs what readers see to disk, whatever the broker's --sync, so that after a power failure the same seqs are
        not given out again. Raises OSError."""
        path = shard_path(self.directory, self.shard)
        for number in self._listed()[0]:
            with contextlib.suppress(FileNotFoundError):
                durable.sync_file(self.path(number))
        durable.sync_directory(path)

    def path(self, segment: int) -> Path:
        return shard_path(self.directory, self.shard) / segment_name(segment)

    def _listed(self) -> tuple[list[int], set[int]]:
        """The numbers of the segments, and of the indexes, in the folder."""
        segments, indexes = [], set()
        for name in os.listdir(shard_path(self.directory, self.shard)):  # noqa: PTH208, many times a second
            if match := SEGMENT_NAME.fullmatch(name):
                segments.append(int(match[1]))
            elif name.endswith(".index") and name[:-6].isdigit():
                indexes.add(int(name[:-6]))
        return sorted(segments), indexes

    def _headers(self, numbers: Sequence[int]) -> dict[int, bytes]:
        """The headers of the segments that have one: the last may still wait for its first record."""
        found = {}
        for number in numbers:
            try:
                with os.fdopen(durable.open_to_read(self.path(number)), "rb", buffering=0) as file:
                    header = UNREADABLE
                    if not medium.is_failing(file.fileno(), SEGMENT_HEADER_BYTES, 0):
                        header = file.read(SEGMENT_HEADER_BYTES)
            except FileNotFoundError:
                continue
            if len(header) == SEGMENT_HEADER_BYTES and any(header):
                found[number] = header
        return found

    def _header_of(self, number: int | None, headers: dict[int, bytes]) -> bytes | None:
        if number is None:
            return None
        return headers.get(number) or (self.segments[number].header if number in self.segments else None)

    def _see(self, number: int, header: bytes, following: bytes | None) -> None:
        segment = self.segments.get(number)
        if segment is not None and segment.header != header:
            segment = None  # another segment of that name
            self.settled.clear()
        path = self.path(number)
        try:
            if segment is None and following is not None:
                segment = index_file.load(path, number, header, _size(path, following))
            if segment is None:
                segment = Segment(number, header)
            if not segment.sealed:
                self._read(segment, path, following)
        except FileNotFoundError:
            return
        except OSError as error:
            if number not in self.failing:
                log.error("shard %d, segment %d cannot be read: %s", self.shard, number, error)
            self.failing.add(number)
        segment = segment or Segment(number, header)
        self.segments[number] = segment
        state = number, segment.offset, segment.sealed
        if state != self.learned:
            self._learn(segment)
            self.learned = state

    def _read(self, segment: Segment, path: Path, following: bytes | None) -> None:
        damaged = len(segment.damage)
        segment.read_on(path, self.columns, None if following is None else previous_end(following))
        for place in segment.damage[damaged:]:
            log.error(
                "shard %d, segment %d: what is from %d to %d is damaged and passed over",
                self.shard, segment.number, place.offset, place.until,
            )  # fmt: skip
        if following is not None:
            try:
                index_file.save(path, segment, _size(path, following))
            except OSError as error:
                log.warning("shard %d: the index of segment %d is not saved: %s", self.shard, segment.number, error)

    # --- names ------------------------------------------------------------------------------------------------------

    def _learn(self, segment: Segment) -> None:
        for number, known in segment.topics.items():
            self._name(number, known.name.decode("latin-1"), known.next_seq, segment.number)
        for part in (*segment.parts, *segment.staged):
            for number in part.number.tolist():
                known_as = self.names.get(number)
                if known_as is None:
                    self._name(number, self._stand_in(number), 0, segment.number)
                elif known_as.segment < segment.number:
                    known_as.segment = segment.number

    def _name(self, number: int, name: str, next_seq: int, segment: int) -> None:
        known = self.names.get(number)
        if known is not None and known.name == name:
            if next_seq > known.next_seq:
                known.next_seq = next_seq
                self.listed.pop(name, None)
            known.segment = max(known.segment, segment)
            return
        if known is not None:
            self._drop(number)
        self.listed.pop(name, None)
        self.names[number] = _Name(name, next_seq, segment)
        self.numbers.setdefault(name, set()).add(number)

    def _stand_in(self, number: int) -> str:
        """The name that the worker gives a topic whose name is damaged (csrc/shards/replay.c)."""
        n = 0
        while True:
            name = f"lost+found/shard-{self.shard}/topic-{number}/{n}"
            if crc32c(name.encode()) % self.shards == self.shard:
                return name
            n += 1

    def _drop(self, number: int) -> None:
        name = self.names.pop(number).name
        self.listed.pop(name, None)
        self.numbers[name].discard(number)
        if not self.numbers[name]:
            del self.numbers[name]
            self.settled.pop(name, None)

    def _forget_names(self, first: int) -> None:
        """Forgets names that no segment mentions any more; `first`: the oldest segment."""
        for number in [number for number, known in self.names.items() if known.segment < first]:
            self._drop(number)

    # --- topics -----------------------------------------------------------------------------------------------------

    def topics(self) -> list[Topic]:
        """All topics. Of many only those are added up anew of which something was read since the last call."""
        totals, growing = self._totals(), self._growing()
        of_totals, of_growing = self.listed_of or (None, [])
        if of_totals is not totals or [*map(id, of_growing)] != [*map(id, growing)]:
            self.listed.clear()
        self.listed_of = totals, growing
        for segment in growing:
            for number in segment.touched & self.names.keys():
                self.listed.pop(self.names[number].name, None)
            segment.touched.clear()
        for name in self.numbers.keys() - self.listed.keys():
            if (topic := self.topic(name)) is not None:
                self.listed[name] = topic
        return list(self.listed.values())

    def topic(self, name: str) -> Topic | None:
        numbers = self.numbers.get(name)
        if not numbers:
            return None
        earliest = complete = NOWHERE
        latest = max(self.names[number].next_seq for number in numbers)
        records = size = last_ns = 0
        totals = self._totals()
        for number in numbers:
            if (sealed := totals.topics.get(number)) is not None:
                earliest, complete = min(earliest, sealed.earliest), min(complete, sealed.complete)
                latest, last_ns = max(latest, sealed.latest), max(last_ns, sealed.last_ns)
                records += sealed.records
                size += sealed.bytes
        growing = self._growing()
        for _, part, place in self._parts(name, growing):
            start, end = part.range(place)
            earliest = min(earliest, int(part.seq[start]))
            complete = min(complete, int(part.published_from[place]))
            latest = max(latest, int(part.seq[end - 1]) + int(part.count[end - 1]))
            records += int(part.records[place])
            size += int(part.record_bytes[place])
            last_ns = max(last_ns, int(part.last_ns[place]))
        for _, part, place in self._staged(name, growing):
            start, end = part.range(place)
            earliest = min(earliest, int(part.seq[start]))
            complete = min(complete, int(part.published_from[place]))
            latest = max(latest, int(part.seq[end - 1]) + int(part.count[end - 1]))
        latest = min(latest, self._first_open(name))
        return Topic(
            name, self.shard, min(earliest, latest), min(complete, latest), latest, records, size, last_ns,
            self._log_began_ns(), self._jumps(name, latest) if earliest + JUMP <= latest else (),
        )  # fmt: skip

    def _jumps(self, name: str, latest: int) -> tuple[tuple[int, int], ...]:
        there = []
        for _, part, place in (*self._parts(name), *self._staged(name)):
            start, end = part.range(place)
            there.append(np.stack([part.seq[start:end], part.seq[start:end] + part.count[start:end]]).astype(np.int64))
        begins, ends = np.sort(np.concatenate(there, axis=1), axis=1)
        begins = np.append(begins[1:], latest)
        at = np.flatnonzero(begins - ends >= JUMP)
        return tuple(zip(ends[at].tolist(), begins[at].tolist(), strict=True))

    def _log_began_ns(self) -> int:
        """When the log was begun, by the newest segment that knows: the header of a mended one may not."""
        began = (log_began_ns(self.segments[number].header) for number in reversed(self.segments))
        return next((ns for ns in began if ns), 0)

    def _sealed(self) -> list[Segment]:
        return [segment for segment in self.segments.values() if segment.sealed]

    def _growing(self) -> list[Segment]:
        return [segment for segment in self.segments.values() if not segment.sealed]

    def _totals(self) -> Totals:
        if self.totals is None:
            self.totals = totals_of(self._sealed())
        return self.totals

    def _parts(self, name: str, of: Iterable[Segment] | None = None) -> Iterator[tuple[int, Stretches, int]]:
        """Segment, part and place in it of each topic number of `name`, the oldest first. `of` None: all segments."""
        numbers = sorted(self.numbers.get(name, ()))
        for segment in self.segments.values() if of is None else of:
            yield from _places(segment.number, segment.parts, numbers)

    def _staged(self, name: str, of: Iterable[Segment] | None = None) -> Iterator[tuple[int, Stretches, int]]:
        numbers = sorted(self.numbers.get(name, ()))
        for segment in self.segments.values() if of is None else of:
            yield from _places(segment.number, segment.staged, numbers)

    # --- transactions -----------------------------------------------------------------------------------------------

    def _first_open(self, name: str) -> int:
        """The first seq that is staged, and neither published nor aborted; NOWHERE: none. It never falls, since later
        transactions stage higher seqs."""
        settled, end_staged = self.settled.get(name, 0), 0
        pieces = [np.empty(0, np.uint64)]
        for _, part, place in self._staged(name, [*self._totals().staging, *self._growing()]):
            start, end = part.range(place)
            end_staged = max(end_staged, int(part.seq[end - 1]) + int(part.count[end - 1]))
            start += max(0, int(np.searchsorted(part.seq[start:end], np.uint64(settled), "right")) - 1)
            gone = self._aborted(int(part.number[place]), part.time_ns[start:end])
            seqs, counts = part.seq[start:end][~gone], part.count[start:end][~gone]
            before = np.cumsum(counts) - counts
            pieces.append(np.repeat(seqs - before.astype(np.uint64), counts) + np.arange(counts.sum(), dtype=np.uint64))
        waiting = np.concatenate(pieces)
        waiting = waiting[waiting >= np.uint64(settled)]
        for _, part, place in self._parts(name):
            if len(waiting) == 0:
                break
            start, end = part.range(place)
            place_before = np.searchsorted(part.seq[start:end], waiting, "right").astype(np.int64) - 1
            at = start + np.maximum(place_before, 0)
            waiting = waiting[(place_before < 0) | (waiting >= part.seq[at] + part.count[at])]
        if len(waiting) > 0:
            self.settled[name] = int(waiting.min())
            return self.settled[name]
        if end_staged > settled:
            self.settled[name] = end_staged
        return NOWHERE

    def _aborted(self, number: int, transactions: U64) -> Bools:
        """For each of the transactions of a topic number, whether it was aborted."""
        ended = {txn for segment in self.segments.values() for of, txn in segment.aborted if of == number}
        if ALL_OF_TOPIC in ended:
            return np.ones(len(transactions), np.bool_)
        return np.isin(transactions, np.array(sorted(ended), np.uint64))

    # --- ranges -----------------------------------------------------------------------------------------------------

    def find(self, name: str, first: int, until: int, limit: int = MAX_STRETCHES) -> Found:
        """Finds the records of [first, until), each message once: its copy in the newest segment. Staged records before
        the topic's `latest` that were not published belong to aborted transactions."""
        columns: list[list[npt.NDArray[np.uint64]]] = []
        for segment, part, place in (*self._staged(name), *self._parts(name)):
            start, end = part.range(place)
            seqs = part.seq[start:end]
            low = int(np.searchsorted(seqs, np.uint64(first), "right"))
            if low > 0 and int(seqs[low - 1]) + int(part.count[start + low - 1]) > first:
                low -= 1
            high = int(np.searchsorted(seqs, np.uint64(until), "left"))
            if high > low + limit:
                high = low + limit
                until = min(until, int(seqs[high]))
            if high > low:
                chosen = slice(start + low, start + high)
                columns.append([
                    np.full(high - low, segment, np.uint64), part.offset[chosen].astype(np.uint64),
                    part.bytes[chosen].astype(np.uint64), part.seq[chosen], part.count[chosen].astype(np.uint64),
                ])  # fmt: skip
        if not columns:
            return Found([], until)
        segment_of, offset, size, seq, count = (np.concatenate(column) for column in zip(*columns, strict=True))
        return Found(_once(segment_of, offset, size, seq, count, first, until), until)

    def records_from(self, name: str, first: int) -> int:
        """How many records there are of seqs from `first` on. One that compaction has moved may count twice."""
        found = 0
        for _, part, place in self._parts(name):
            start, end = part.range(place)
            count = part.count[start:end].astype(np.uint64)
            ends = part.seq[start:end] + count
            behind = ends > np.uint64(first)
            found += int(np.minimum(ends[behind] - np.uint64(first), count[behind]).sum())
        return found

    def place_of(self, name: str, timestamp_ns: int) -> tuple[int | None, int | None]:
        """The smallest seq whose message is from that time or later, and one beyond the largest seq whose message is
        older; None: no such message. If the clock was set back, the first is smaller than the second. Raises OSError;
        FileNotFoundError when a segment has just been removed, ChangedError when it must be forgotten."""
        later: int | None = None
        older: int | None = None
        time = np.uint64(timestamp_ns)
        for segment, part, place in self._parts(name):
            start, end = part.range(place)
            if int(part.last_ns[place]) >= timestamp_ns:
                at = start + int(np.argmax(part.time_ns[start:end] >= time))
                if later is None or int(part.seq[at]) < later:
                    batch = self._stretch(segment, part, at)
                    found = int(batch.seq[batch.time_ns >= time][0])
                    later = found if later is None else min(later, found)
            before = np.flatnonzero(part.since_ns[start:end] < time)
            if len(before):
                at = start + int(before[-1])
                if older is None or int(part.seq[at]) + int(part.count[at]) > older:
                    batch = self._stretch(segment, part, at)
                    found = int(batch.seq[batch.time_ns < time][-1]) + 1
                    older = found if older is None else max(older, found)
        return later, older

    def _stretch(self, segment: int, part: Stretches, at: int) -> Batch:
        with os.fdopen(durable.open_to_read(self.path(segment)), "rb", buffering=0) as file:
            offset, size = int(part.offset[at]), int(part.bytes[at])
            batch = heads(file.fileno(), offset, size, segment, MESSAGES, self.columns)
        if len(batch) != int(part.count[at]):
            raise ChangedError(segment, offset)
        return batch

    def damage(self, segments: set[int]) -> list[tuple[int, Damage]]:
        return [(n, place) for n in sorted(segments) if n in self.segments for place in self.segments[n].damage]


def _places(segment: int, parts: list[Stretches], numbers: Sequence[int]) -> Iterator[tuple[int, Stretches, int]]:
    for part in parts:
        for number in numbers:
            if (place := part.place(number)) >= 0:
                yield segment, part, place


def _once(segment: U64, offset: U64, size: U64, seq: U64, count: U64, first: int, until: int) -> list[Span]:
    """The spans of stretches, clipped to [first, until). Where stretches overlap, the last one in order counts."""
    begin = np.maximum(seq, np.uint64(first))
    end = np.minimum(seq + count, np.uint64(until))
    order = np.argsort(begin, kind="stable")
    order = order[begin[order] < end[order]]
    chosen, begins, ends = order, begin[order], end[order]
    if (ends[:-1] > begins[1:]).any():
        # Each interval between two bounds belongs to the last stretch that covers it.
        bounds = np.unique(np.concatenate([begins, ends]))
        owner = np.full(len(bounds), -1, np.int64)
        last = np.sort(order)  # in the order they came, so those of the newest segment are last
        lows, highs = np.searchsorted(bounds, begin[last]), np.searchsorted(bounds, end[last])
        for n, low, high in zip(last.tolist(), lows.tolist(), highs.tolist(), strict=True):
            owner[low:high] = n
        changes = np.flatnonzero(np.concatenate(([True], owner[1:] != owner[:-1])))
        owned = owner[changes] >= 0
        chosen, begins = owner[changes][owned], bounds[changes][owned]
        ends = np.append(bounds[changes][1:], bounds[-1])[owned]
    rows = zip(
        segment[chosen].tolist(), offset[chosen].tolist(), size[chosen].tolist(), seq[chosen].tolist(),
        count[chosen].tolist(), begins.tolist(), ends.tolist(), strict=True,
    )  # fmt: skip
    return [Span(*row) for row in rows]


def _size(path: Path, following: bytes) -> int:
    """The size of a sealed segment, by the header of the next: its file may not be cut to that size yet."""
    size, end = path.stat().st_size, previous_end(following)
    return end if 0 < end <= size else size


def _remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        log.warning("%s cannot be removed: %s", path, error)
