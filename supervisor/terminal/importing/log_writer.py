"""Writes the segments of a data directory that no broker has opened yet: the records that a broker would have written
if all messages had been published and consumed here (csrc/log/records.h, docs/log.md)."""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from mq_shards.csrc._core import ffi, lib
from mq_shards.csrc.structs import packed
from mq_shards.shards import durable
from mq_shards.shards.checksum import crc32c
from mq_shards.shards.data_directory import DataDirectory
from mq_shards.shards.layout import RECORD_BYTES
from mq_shards.shards.manifest import Manifest
from mq_shards.shards.paths import META, segment_name, shard_path
from mq_shards.shards.segment_header import Header, encode_header
from mq_shards.supervisor.moving.translation import IMPORTED

SEGMENT_BYTES: Final = 64 << 20
BUFFER_BYTES: Final = 1 << 20
FINISHED_AT_ONCE: Final = 1024  # seqs in one FINISH record
READY: Final[int] = lib.JOB_READY
DELAYED: Final[int] = lib.JOB_DELAYED
BURIED: Final[int] = lib.JOB_BURIED


class State(NamedTuple):
    """The state of a job in a job queue: the fields of a struct state_attributes."""

    state: int = READY
    reserves: int = 0
    timeouts: int = 0
    releases: int = 0
    buries: int = 0
    kicks: int = 0
    delay_ns: int = 0
    deadline_wall_ns: int = 0


@dataclass(slots=True)
class Channel:
    name: str
    number: int  # in its shard
    paused: bool
    cursor: int


@dataclass(slots=True)
class Topic:
    name: bytes
    number: int  # in its shard
    flags: int
    shard: int
    next_seq: int = 0
    stopped_seq: int = 0
    channels: dict[str, Channel] = field(default_factory=dict)


class _Record(NamedTuple):
    kind: int
    topic: int
    seq: int
    id: int
    attributes: bytes = b""
    body: bytes = b""
    flags: int = 0

    def size(self) -> int:
        return RECORD_BYTES + len(self.attributes) + len(self.body)


class _Shard:
    def __init__(self, directory: Path, meta_id: str, shard: int, shards: int, begun_ns: int) -> None:
        self.topics: list[Topic] = []
        self.subscriptions = 0
        self._path = shard_path(directory, shard)
        self._meta_id = meta_id
        self._shard = shard
        self._shards = shards
        self._begun_ns = begun_ns  # when the log was begun
        self._last_ns = 0
        self._segments: dict[int, int] = {}
        self._file: int = -1
        self._buffer = bytearray()
        self._size = 0
        self._head = ffi.new("struct record *")
        self._head_bytes = ffi.buffer(self._head)

    def append(self, record: _Record, time_ns: int = 0) -> None:
        # Recovery reads the time from the records: it must not go back.
        self._last_ns = max(self._last_ns, time_ns)
        if self._file < 0 or (self._size + record.size() > SEGMENT_BYTES and self._size > SEGMENT_BYTES // 2):
            self._begin_segment()
        self._add(record)

    def _add(self, record: _Record) -> None:
        head, size, attributes, body = self._head, record.size(), record.attributes, record.body
        head.bytes, head.kind, head.attribute_bytes, head.flags = size, record.kind, len(attributes), record.flags
        head.topic, head.seq, head.time_ns, head.id = record.topic, record.seq, self._last_ns, record.id
        head.crc = max(self._segments)  # stands there while the CRC is computed
        head.crc = crc32c(body, crc32c(attributes, crc32c(self._head_bytes)))
        padding = bytes(-size % 8)
        self._buffer += self._head_bytes
        self._buffer += attributes
        self._buffer += body
        self._buffer += padding
        self._size += size + len(padding)
        if len(self._buffer) >= BUFFER_BYTES:
            self._flush()

    def _begin_segment(self) -> None:
        """Begins a segment, which names all topics and channels, so that it does not need the segments before it."""
        before, self._size = self._size, 0
        self.end_segment()
        number = max(self._segments, default=0) + 1
        begun = time.time_ns()
        self._segments[number] = begun
        self._file = os.open(self._path / segment_name(number), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o640)
        head = encode_header(
            Header(self._shard, self._shards, number, begun, previous_end=before, log_began_ns=self._begun_ns)
        )
        self._buffer += head
        self._size = len(head)
        for topic in self.topics:
            self.name(topic)
            for channel in topic.channels.values():
                self.name_channel(topic, channel)

    def name(self, topic: Topic) -> None:
        stopped = struct.pack("<Q", topic.stopped_seq) if topic.flags & lib.TOPIC_STOPPED else b""
        self._add(_Record(lib.RECORD_TOPIC, topic.number, topic.next_seq, 0, stopped, topic.name, topic.flags))

    def name_channel(self, topic: Topic, channel: Channel) -> None:
        flags, name = lib.SUBSCRIPTION_PAUSED if channel.paused else 0, channel.name.encode()
        self._add(_Record(lib.RECORD_SUBSCRIPTION, topic.number, channel.cursor, channel.number, b"", name, flags))

    @property
    def has_begun(self) -> bool:
        return self._file >= 0

    def begin(self, time_ns: int) -> None:
        if self._file < 0:
            self._last_ns = max(self._last_ns, time_ns)
            self._begin_segment()

    def _flush(self) -> None:
        view = memoryview(self._buffer)
        while view:
            view = view[os.write(self._file, view) :]
        view.release()
        self._buffer = bytearray()

    def end_segment(self) -> None:
        if self._file >= 0:
            self._flush()
            os.fsync(self._file)
            self.close()

    def close(self) -> None:
        """What has not been written, as on a full disk, is dropped."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def end(self) -> None:
        self.end_segment()
        if self._segments:
            Manifest(self._meta_id, self._shard, self._segments).save(self._path)


class LogWriter:
    """To be used in a `with`. Raises OSError, StoreError."""

    def __init__(self, directory: Path, shards: int) -> None:
        """`directory` is empty."""
        self._path = directory
        self._shards_count = shards
        self._topics: dict[bytes, Topic] = {}
        self._count = 0

    def __enter__(self) -> LogWriter:
        directory = DataDirectory.open_or_create(self._path, self._shards_count)
        begun = time.time_ns()
        self._shards = [
            _Shard(self._path, directory.id, shard, self._shards_count, begun) for shard in range(self._shards_count)
        ]
        self._directory = directory
        return self

    def __exit__(self, *_: object) -> None:
        for shard in self._shards:
            shard.close()
        self._directory.close()

    def finish(self, note: bytes) -> None:
        """Makes everything durable. imported_note() returns `note`."""
        for shard in self._shards:
            shard.end()
        durable.save(self._path / IMPORTED, note)

    def topic(self, name: bytes, time_ns: int, *, is_durable: bool) -> Topic:
        """The topic of that name, created if need be. `is_durable`: a topic of NSQ, not a tube."""
        found = self._topics.get(name)
        if found is None:
            number = crc32c(name) % self._shards_count
            shard = self._shards[number]
            found = Topic(name, len(shard.topics) + 1, lib.TOPIC_DURABLE if is_durable else 0, number)
            shard.begin(time_ns)
            shard.topics.append(found)
            shard.name(found)
            self._topics[name] = found
        return found

    def channel(self, topic: Topic, name: str, paused: bool) -> Channel:
        """Creates a channel, which gets messages published from now on; a topic's first also those that wait."""
        shard = self._shards[topic.shard]
        shard.subscriptions += 1
        channel = topic.channels[name] = Channel(name, shard.subscriptions, paused, topic.next_seq)
        shard.name_channel(topic, channel)
        return channel

    def stop(self, topic: Topic) -> None:
        """Pauses the topic: messages published from now on wait in it."""
        topic.flags |= lib.TOPIC_STOPPED
        topic.stopped_seq = topic.next_seq
        self._shards[topic.shard].name(topic)

    def publish(
        self, topic: Topic, body: bytes, time_ns: int, pri: int, ttr_ns: int, state: State | None = None,
        number: int | None = None,
    ) -> int:  # fmt: skip
        """Returns the seq. `number`: what the id is made of, which must rise; None: the next one."""
        self._count = self._count + 1 if number is None else number
        identity = self._count * self._shards_count + topic.shard
        shard, seq = self._shards[topic.shard], topic.next_seq
        attributes = packed("publish_attributes", pri=pri, ttr_ns=ttr_ns)
        shard.append(_Record(lib.RECORD_PUBLISH, topic.number, seq, identity, attributes, body), time_ns)
        topic.next_seq += 1
        if state is not None and state != State():
            attributes = packed("state_attributes", pri=pri, **state._asdict())
            shard.append(_Record(lib.RECORD_STATE, topic.number, seq, identity, attributes), time_ns)
        return seq

    def passed(self, topic: Topic, channel: Channel, cursor: int, finished: Iterable[int]) -> None:
        """Notes that all before `cursor` was delivered to the channel, of which it finished the seqs `finished`."""
        shard = self._shards[topic.shard]
        channel.cursor = cursor
        shard.append(_Record(lib.RECORD_CURSOR, topic.number, cursor, channel.number))
        some: list[int] = []
        for seq in finished:
            some.append(seq)
            if len(some) == FINISHED_AT_ONCE:
                self._finish(shard, topic, channel, some)
                some = []
        if some:
            self._finish(shard, topic, channel, some)

    @staticmethod
    def _finish(shard: _Shard, topic: Topic, channel: Channel, seqs: list[int]) -> None:
        body = b"".join(struct.pack("<i", seq - seqs[0]) for seq in seqs)
        shard.append(_Record(lib.RECORD_FINISH, topic.number, seqs[0], channel.number, body=body))


def imported_note(directory: Path) -> bytes | None:
    """The note of the import that made the directory; None: no import did. Raises OSError."""
    try:
        return (directory / IMPORTED).read_bytes()
    except FileNotFoundError:
        return None


def has_messages(directory: Path) -> bool:
    """Whether the directory is a data directory, so may have messages."""
    return (directory / META).exists()
