"""The Python surface of csrc/ringbuf/ring.h, where the layout and the protocol are described.

The supervisor creates rings and hands their descriptors to the two processes concerned. The message path itself is C
(csrc/ringbuf/channel.c) and never uses this module. `Producer` and `Consumer` drive a ring record by record:

    fd = create(1 << 20, epoch=1)
    with Producer(fd) as producer, Consumer(fd) as consumer:
        producer.produce(b"hello")
        producer.publish()
        record = consumer.consume()     # Record(payload=b"hello", flags=0)
        consumer.release()
"""

from __future__ import annotations

import os
from types import TracebackType
from typing import Any, NamedTuple, Self

from mq_shards.csrc._core import ffi, lib

# Passed to a producer or consumer instead of an eventfd if the other side never sleeps.
NO_WAKE = -1


class RingError(OSError):
    """A ring that cannot be created or mapped, or that is broken: its indexes are impossible."""


class Record(NamedTuple):
    payload: bytes
    flags: int


def create(data_bytes: int, epoch: int, name: str = "ring") -> int:
    """A new memfd (close-on-exec) that holds an empty ring; the caller closes it.

    `data_bytes` is a power of two from 4 KiB to 1 GiB. RingError if it is not.
    """
    fd = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        _check(lib.ring_format(fd, data_bytes, epoch), f"cannot make a ring of {data_bytes} bytes")
    except BaseException:
        os.close(fd)
        raise
    return fd


def _check(result: int, failed: str) -> None:
    if result != 0:
        raise RingError(ffi.errno, f"{failed}: {os.strerror(ffi.errno)}")


class Half:
    """What producer and consumer have in common: a mapping of the ring, and what this side knows of it."""

    _half: Any
    _may_sleep: Any
    _awake: Any
    _close: Any

    def may_sleep(self) -> bool:
        return bool(self._may_sleep(self._half))

    def awake(self) -> None:
        self._awake(self._half)

    @property
    def epoch(self) -> int:
        return int(lib.ring_epoch(self._half.shared))

    @property
    def wakes(self) -> int:
        """Wake-ups sent to the other side."""
        return int(self._half.wakes)

    @property
    def broken(self) -> bool:
        return bool(self._half.broken)

    def close(self) -> None:
        """Unmaps the ring. Everything but another close is an error afterwards."""
        if self._half is not None:
            self._close(self._half)
        self._half = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


class Producer(Half):
    """The one producer of the ring in `fd`, which may be closed afterwards; `wake_fd` must stay open."""

    _may_sleep, _awake, _close = lib.ring_producer_may_sleep, lib.ring_producer_awake, lib.ring_producer_close

    def __init__(self, fd: int, wake_fd: int = NO_WAKE) -> None:
        self._half: Any = ffi.new("struct ring_producer *")
        _check(lib.ring_producer_open(self._half, fd, wake_fd), "cannot map the ring to produce")

    def produce(self, payload: bytes, flags: int = 0) -> bool:
        """Writes one record, unseen until it is published. False if there is no room now.

        ValueError for a payload that is larger than `max_payload` and so would never fit.
        """
        if len(payload) > self.max_payload:
            raise ValueError(f"a record of {len(payload)} bytes: this ring takes at most {self.max_payload}")
        room = lib.ring_reserve(self._half, len(payload))
        if room == ffi.NULL:
            if self.broken:
                raise RingError(0, "the ring is broken: its consumer's index is not possible")
            return False
        ffi.memmove(room, payload, len(payload))
        lib.ring_commit(self._half, flags)
        return True

    def publish(self, tail: int | None = None) -> bool:
        """Lets the consumer see all records, or those before `tail`. False if there was nothing new.

        ValueError if `tail` is before what is published already, or beyond what was produced.
        """
        if tail is None:
            tail = self.tail
        if not self.published <= tail <= self.tail:
            raise ValueError(f"cannot publish to {tail}: it must be from {self.published} to {self.tail}")
        return bool(lib.ring_publish_to(self._half, tail))

    @property
    def tail(self) -> int:
        """Bytes produced since the ring was made, headers and padding included: a place for `publish`."""
        return int(self._half.tail)

    @property
    def published(self) -> int:
        return int(self._half.published)

    @property
    def max_payload(self) -> int:
        return int(lib.ring_max_payload(self._half.data_bytes))


class Consumer(Half):
    """The one consumer of the ring in `fd`, which may be closed afterwards; `wake_fd` must stay open."""

    _may_sleep, _awake, _close = lib.ring_consumer_may_sleep, lib.ring_consumer_awake, lib.ring_consumer_close

    def __init__(self, fd: int, wake_fd: int = NO_WAKE) -> None:
        self._half: Any = ffi.new("struct ring_consumer *")
        self._bytes: Any = ffi.new("uint32_t *")
        self._flags: Any = ffi.new("uint32_t *")
        _check(lib.ring_consumer_open(self._half, fd, wake_fd), "cannot map the ring to consume")

    def consume(self) -> Record | None:
        """The next record, copied out, or None if none is published (or the ring is broken)."""
        payload = lib.ring_peek(self._half, self._bytes, self._flags)
        if payload == ffi.NULL:
            return None
        record = Record(bytes(ffi.buffer(payload, self._bytes[0])), int(self._flags[0]))
        lib.ring_consume(self._half)
        return record

    def release(self) -> bool:
        """Gives the room of all consumed records back to the producer. False if there was nothing new."""
        return bool(lib.ring_release(self._half))
