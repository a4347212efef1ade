"""Publishing and consuming as fast as Python can; each message is known by a number."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from tests.nsq import frames
from tests.nsq.frames import HEARTBEAT, MESSAGE, OK, RESPONSE
from tests.nsq.servers import NsqServer
from tests.nsq.wire import Wire, consumer

NUMBER = struct.Struct(">Q")
_HEADER = struct.Struct(">ii8xH16sQ")  # of a message's frame, and its number


def body(number: int, size: int) -> bytes:
    return NUMBER.pack(number) + bytes(size - NUMBER.size)


def publish_numbers(server: NsqServer, topic: str, numbers: Sequence[int], size: int, batch: int) -> None:
    """By MPUB, ten at once under way."""
    with Wire(server) as wire:
        under_way = 0
        for start in range(0, len(numbers), batch):
            wire.send(frames.mpub(topic, [body(number, size) for number in numbers[start : start + batch]]))
            under_way += 1
            if under_way == 10:
                assert wire.frame() == OK
                under_way -= 1
        for _ in range(under_way):
            assert wire.frame() == OK


@dataclass
class BulkConsumer:
    """Finishes all it gets; stops when all consumers of its group together have enough."""

    server: NsqServer
    topic: str
    channel: str
    rdy: int
    numbers: list[int] = field(default_factory=list)
    attempts: list[int] = field(default_factory=list)

    def consume(self, is_enough: Callable[[], bool], seconds: float) -> None:
        until = time.monotonic() + seconds
        with consumer(self.server, self.topic, self.channel, self.rdy) as wire:
            while not is_enough():
                assert time.monotonic() < until, f"only {len(self.numbers)} messages in {seconds} s"
                try:
                    assert wire.receive(time.monotonic() + 0.05), "closed"
                except TimeoutError:
                    continue
                self._take(wire)
            # The FINs before it have been done when this is answered.
            wire.send(frames.touch(b"0" * 16))
            while (frame := wire.frame()).kind != frames.ERROR:
                assert frame.kind == MESSAGE or frame.data == HEARTBEAT

    def _take(self, wire: Wire) -> None:
        data, at = wire.buffer, 0
        done = []
        while len(data) - at >= 8:
            size, kind = struct.unpack_from(">ii", data, at)
            if len(data) - at < 4 + size:
                break
            if kind == MESSAGE:
                _, _, attempts, message_id, number = _HEADER.unpack_from(data, at)
                self.numbers.append(number)
                self.attempts.append(attempts)
                done.append(b"FIN %s\n" % message_id)
            else:
                assert (kind, bytes(data[at + 8 : at + 4 + size])) == (RESPONSE, HEARTBEAT)
            at += 4 + size
        del data[:at]
        if done:
            wire.send(b"".join(done))


def consume_all(consumers: Iterable[BulkConsumer], count: int, seconds: float = 30.0) -> list[int]:
    """Until they have so many together; the numbers, in no order."""
    group = list(consumers)

    def is_enough() -> bool:
        return sum(len(one.numbers) for one in group) >= count

    with ThreadPoolExecutor(len(group)) as pool:
        for done in [pool.submit(one.consume, is_enough, seconds) for one in group]:
            done.result()
    return [number for one in group for number in one.numbers]
