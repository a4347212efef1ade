"""A worker in this process whose segments are files, small ones, and what a Python program reads in them by itself."""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import crc32c
from mq_shards.csrc._core import ffi, lib
from mq_shards.shards.dump import Damage, Record, decode_segment
from mq_shards.shards.paths import segment_name, shard_path
from mq_shards.shards.reader.view import DataView

from tests.shards.bench import OK, SHARDS
from tests.shards.subscriptions import Channels

SEGMENT_BYTES = 160 << 10
TOPIC, PUBLISH, MOVED, STAGED = 1, 3, 6, 18
RUN = struct.Struct("<IIQ")
HEAD = struct.Struct("<IIBBHIQQQ")


class Disk(Channels):
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        for shard in range(SHARDS):
            shard_path(directory, shard).mkdir(parents=True)
        super().__init__()

    def start(self) -> None:
        for shard, kept in self.segments.items():
            for number, fd in kept:
                if not any(os.pread(fd, 64, 0)):  # it waits for its first record; the store drops such files too
                    self.path(shard, number).unlink()
                    os.ftruncate(fd, 0)
        super().start()

    def path(self, shard: int, number: int) -> Path:
        return shard_path(self.directory, shard) / segment_name(number)

    def supply(self) -> None:
        size, number = ffi.new("uint64_t *"), ffi.new("uint32_t *")
        while (shard := lib.worker_wanting_shard(self.worker, size, number)) >= 0:
            fd = os.open(self.path(shard, number[0]), os.O_RDWR | os.O_CREAT | os.O_EXCL)
            self.segments[shard].append((number[0], fd))
            room = SEGMENT_BYTES if size[0] <= 64 << 20 else size[0]
            assert lib.worker_add_segment(self.worker, shard, os.dup(fd), number[0], room, True, self.wall)

    def shard_of(self, name: str) -> int:
        return int(crc32c.crc32c(name.encode())) % SHARDS

    def topic(self, name: str) -> int:
        if name not in self.numbers:
            self.numbers[name] = len(self.numbers) + 1
        self.open(name, self.numbers[name])
        return self.numbers[name]

    def open(self, name: str, number: int, shard: int = 0, flags: int = 0) -> None:
        super().open(name, number, self.shard_of(name), flags)

    def publish(self, name: str, bodies: Sequence[bytes]) -> None:
        topic, first = self.topic(name), self.next_id + self.shard_of(name)
        self.next_id += SHARDS * len(bodies)
        body = b"".join(struct.pack(">I", len(b)) + b for b in bodies)
        slot = self.raw(lib.MSG_PUBLISH_MANY, 999, topic=topic, id=first, pri=len(bodies), body=body)
        answers = self.turn()
        assert [a.status for a in answers if a.slot == slot] == [OK]
        self.early = [a for a in answers if a.slot != slot]

    def roll(self, shard: int) -> None:
        active = lib.worker_active_segment(self.worker, shard)
        lib.worker_roll(self.worker, shard)
        self.early = self.turn()
        if lib.worker_active_segment(self.worker, shard) == active:  # the next one was not there yet
            lib.worker_roll(self.worker, shard)

    def compact(self, shard: int) -> None:
        for _ in range(1000):
            if lib.worker_compact(self.worker, shard, 1 << 20) and lib.worker_compact_needed(
                self.worker, shard, 1 << 20
            ):
                break
            self.turn()
        self.turn()

    def drop_dead(self, shard: int) -> int:
        """How many of the oldest segments went."""
        count = int(lib.worker_dead_segments(self.worker, shard))
        assert lib.worker_flush(self.worker)
        for _ in range(count):
            assert lib.worker_drop_first(self.worker, shard)
            number, fd = self.segments[shard].pop(0)
            os.close(fd)
            self.path(shard, number).unlink()
        return count


def messages_in(directory: Path) -> dict[str, dict[int, tuple[int, Record]]]:
    """By topic and seq, the copy that counts and its segment: what `shards.store` makes of the files."""
    found: dict[str, dict[int, tuple[int, Record]]] = {}
    for path in sorted(directory.glob("shard-*")):
        names: dict[int, str] = {}
        for file in sorted(path.glob("*.log")):
            if not any(file.read_bytes()[:64]):
                continue  # it waits for its first record
            for record in decode_segment(file):
                if isinstance(record, Damage):
                    continue
                if record.kind == TOPIC:
                    names[record.topic] = record.body.decode()
                if record.kind in (PUBLISH, MOVED):
                    found.setdefault(names[record.topic], {})[record.seq] = int(file.stem), record
    return found


@dataclass(frozen=True)
class Sent:
    segment: int
    seq: int
    time_ns: int
    id: int
    body: bytes


def decode_runs(data: bytes) -> list[Sent]:
    """What a reader far away makes of the bytes it got. Every CRC must be right. What is STAGED is no message."""
    found, at = [], 0
    while at < len(data):
        segment, records, size = RUN.unpack_from(data, at)
        at += RUN.size
        end = at + size
        for _ in range(records):
            length, crc, kind, attribute_bytes, _, _, seq, time_ns, id = HEAD.unpack_from(data, at)
            record = data[at : at + length]
            seed = crc32c.crc32c(record[0:4] + segment.to_bytes(4, "little"))
            assert crc32c.crc32c(record[8:], seed) == crc
            assert kind in (PUBLISH, MOVED, STAGED)
            if kind != STAGED:
                found.append(Sent(segment, seq, time_ns, id, record[HEAD.size + attribute_bytes :]))
            at += (length + 7) // 8 * 8
        assert at == end
    return found


def read(view: DataView, topic: str, first: int, until: int | None, max_bytes: int) -> tuple[list[Sent], int]:
    """The records of one answer, and the seq to go on with."""
    found = view.records(topic, first, until, max_bytes)
    assert found is not None
    with found.runs as runs:
        data = b""
        for run in runs.runs:
            data += run.head
            for offset, length in zip(run.offsets, run.lengths, strict=True):
                data += os.pread(run.fd, length, offset)
        assert len(data) == runs.size
        return decode_runs(data), runs.next


def read_all(view: DataView, topic: str, max_bytes: int = 1 << 20) -> list[Sent]:
    known = view.topic(topic)
    assert known is not None
    sent: list[Sent] = []
    at = 0
    while at < known.latest:
        more, following = read(view, topic, at, None, max_bytes)
        assert following > at
        sent += more
        at = following
    return sent
