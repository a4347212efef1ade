"""The two ends of a channel (csrc/ringbuf/channel.h), both played by a test."""

from __future__ import annotations

import mmap
import os
from dataclasses import dataclass, field
from typing import Any

from mq_shards.csrc._core import ffi, lib
from mq_shards.ringbuf import create

DATA_BYTES = 4096
MOST = 1 << 20
HEADER_BYTES = 48
RECORD_BYTES = 8  # before a message in the ring
FIRST, LAST = 1, 2
# The largest body that travels in one record of such a ring.
WHOLE_BODY = DATA_BYTES // 4 - 8 - HEADER_BYTES


def header(number: int, body_bytes: int, conn: int = 0, kind: int = 32) -> Any:  # noqa: ANN401
    fields = {"kind": kind, "conn": conn, "id": number, "pri": 7, "body_bytes": body_bytes}
    return ffi.new("struct message *", fields)


def raw_message(number: int, body: bytes, body_bytes: int | None = None) -> bytes:
    return bytes(ffi.buffer(header(number, len(body) if body_bytes is None else body_bytes))) + body


@dataclass
class End:
    """One side of a channel, with the eventfd that it sleeps on."""

    channel: Any
    wake_fd: int
    given_back: list[int] = field(default_factory=list)  # of what was lent
    lent: list[Any] = field(default_factory=list)

    def send(self, number: int, body: bytes = b"", conn: int = 0, kind: int = 32) -> None:
        lib.channel_send(self.channel, header(number, len(body), conn, kind), body, len(body))

    def lend(self, number: int, body: bytes, conn: int = 0) -> None:
        memory = mmap.mmap(-1, len(body))
        memory[:] = body
        at = ffi.from_buffer("uint8_t[]", memory)
        give_back = ffi.callback("void(void *, void *, size_t)", lambda *_: self.given_back.append(number))
        lent = ffi.new("struct lent *", {"at": at, "bytes": len(body), "give_back": give_back})
        self.lent.append((memory, at, give_back))
        assert lib.channel_lend(self.channel, header(number, len(body), conn), at, len(body), lent)

    def move(self) -> None:
        lib.channel_move(self.channel)

    def send_in_place(self, number: int, body: bytes = b"") -> Any:  # noqa: ANN401
        """The struct growing of it; None: it was not sent."""
        place = self.tail()
        message = lib.channel_reserve(self.channel, len(body))
        if message == ffi.NULL:
            return None
        assert int(ffi.cast("uintptr_t", message)) % 8 == 0
        message[0] = header(number, len(body))[0]
        ffi.memmove(message + 1, body, len(body))
        lib.channel_sent(self.channel)
        return ffi.new("struct growing *", [message, place, self.tail()])

    def receive(self) -> tuple[int, bytes] | None:
        message = lib.channel_receive(self.channel)
        if message == ffi.NULL:
            return None
        assert int(ffi.cast("uintptr_t", message)) % 8 == 0
        return int(message.id), bytes(ffi.buffer(message + 1, message.body_bytes))

    def receive_all(self) -> list[tuple[int, bytes]]:
        received = []
        while (message := self.receive()) is not None:
            received.append(message)
        lib.channel_release(self.channel)
        return received

    def publish(self, tail: int | None = None) -> bool:
        return bool(lib.channel_publish(self.channel) if tail is None else lib.channel_publish_to(self.channel, tail))

    def backlogged(self) -> bool:
        return bool(lib.channel_backlogged(self.channel))

    def tail(self) -> int:
        return int(lib.channel_tail(self.channel))

    def may_sleep(self) -> bool:
        return bool(lib.channel_may_sleep(self.channel))

    def may_sleep_deaf(self) -> bool:
        return bool(lib.channel_may_sleep_deaf(self.channel))

    def awake(self) -> None:
        lib.channel_awake(self.channel)

    def broken(self) -> bool:
        return bool(lib.channel_broken(self.channel))

    def wake_ups(self) -> int:
        try:
            return os.eventfd_read(self.wake_fd)
        except BlockingIOError:
            return 0

    def close(self) -> None:
        lib.channel_close(self.channel)
        os.close(self.wake_fd)


def connect(data_bytes: int = DATA_BYTES, most: int = MOST) -> tuple[End, End]:
    rings = [create(data_bytes, epoch=5) for _ in range(2)]
    wakes = [os.eventfd(0, os.EFD_NONBLOCK) for _ in range(2)]
    ends = [
        End(lib.channel_open(rings[side], rings[1 - side], wakes[1 - side], most), wakes[side]) for side in range(2)
    ]
    for fd in rings:
        os.close(fd)
    assert all(end.channel != ffi.NULL for end in ends)
    return ends[0], ends[1]
