"""A real broker for the tests of the pipeline. Killed and started again, it has the same data directory and ports."""

from __future__ import annotations

import contextlib
import struct
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tests import servers
from tests.nsq import api, frames
from tests.nsq.servers import HOST
from tests.nsq.wire import Wire
from tests.servers import Server, Shape, wait_until

HEARTBEAT = frames.Frame(frames.RESPONSE, frames.HEARTBEAT)
OUTCOME_UNKNOWN = frames.Frame(frames.ERROR, b"E_MPUB_FAILED MPUB failed outcome unknown")
DIGITS = 12  # of a numbered message's body


class Broker:
    def __init__(self, data_dir: Path, *options: str) -> None:
        self.data_dir = data_dir
        self.nsq_port, self.nsq_http_port, self.http_port = (servers.free_port() for _ in range(3))
        self._options = [
            f"--listen=nsq://{HOST}:{self.nsq_port}", f"--listen=nsq-http://{HOST}:{self.nsq_http_port}",
            f"--listen=http://{HOST}:{self.http_port}", *options,
        ]  # fmt: skip
        self.server: Server | None = None

    @property
    def address(self) -> str:
        return f"{HOST}:{self.http_port}"

    @property
    def running(self) -> Server:
        assert self.server is not None
        return self.server

    def start(self, workers: int = 2) -> None:
        shape = Shape(f"shards-{workers}", "mq-shards", ("--workers", str(workers)))
        self.server = servers.start(shape, data_dir=self.data_dir, options=self._options)
        wait_until(self._answers, "the broker's HTTP API answers", 20)

    def _answers(self) -> bool:
        with contextlib.suppress(OSError):
            return api.call(self.http_port, "GET", "/v1/topics").status == 200
        return False

    def kill(self) -> None:
        """kill -9 of all its processes."""
        self.running.kill()
        self.dispose()

    def stop(self) -> None:
        assert self.running.terminate() == 0, self.running.said()
        self.dispose()

    def dispose(self) -> None:
        if self.server is not None:
            self.server.dispose()
            self.server = None

    def get(self, target: str) -> Any:  # noqa: ANN401
        reply = api.call(self.http_port, "GET", target)
        assert reply.status == 200, (target, reply)
        return reply.json

    def topic(self, name: str) -> dict[str, int]:
        return next((topic for topic in self.get("/v1/topics")["topics"] if topic["topic"] == name), {})

    def publish(self, topic: str, bodies: Sequence[bytes]) -> None:
        with Wire(self.nsq_port) as wire:
            wire.publish_many(topic, bodies)

    def publish_numbers(self, topic: str, count: int, batch: int = 10_000) -> None:
        """Messages whose bodies are the numbers 0, 1, 2, ...; as fast as they are taken."""
        with Wire(self.nsq_port) as wire:
            under_way = 0
            for start in range(0, count, batch):
                wire.send(_numbers(topic, start, min(count, start + batch)))
                under_way += 1
                if under_way == 10:
                    assert wire.frame() == frames.OK
                    under_way -= 1
            assert wire.frames(under_way) == [frames.OK] * under_way

    def finish_all(self, topic: str) -> None:
        """Nobody needs its messages any more, but for who reads the log."""
        api.post(self.nsq_http_port, f"/topic/empty?topic={topic}")

    def delete(self, topic: str) -> None:
        api.post(self.nsq_http_port, f"/topic/delete?topic={topic}")


def _numbers(topic: str, start: int, end: int) -> bytes:
    """An MPUB command."""
    numbers = np.arange(start, end, dtype=np.int64)
    messages = np.empty(end - start, [("size", ">u4"), ("body", "u1", (DIGITS,))])
    messages["size"] = DIGITS
    for digit in range(DIGITS):
        messages["body"][:, DIGITS - 1 - digit] = ord("0") + numbers // 10**digit % 10
    content = messages.tobytes()
    return f"MPUB {topic}\n".encode() + struct.pack(">II", 4 + len(content), end - start) + content


@contextlib.contextmanager
def broker_in(data_dir: Path, *options: str, workers: int = 2) -> Iterator[Broker]:
    broker = Broker(data_dir, *options)
    broker.start(workers)
    try:
        yield broker
    finally:
        broker.dispose()


@dataclass
class Publisher:
    """Publishes on and on, over the broker's deaths, by NSQ's MPUB; who publishes in another way overrides `_session`.
    What was not acknowledged may have been published or not, and is not tried again."""

    broker: Broker
    topics: Sequence[str]
    batch: int = 20
    pause_s: float = 0.02
    acknowledged: set[bytes] = field(default_factory=set)
    uncertain: set[bytes] = field(default_factory=set)
    _over: threading.Event = field(default_factory=threading.Event)
    _failures: list[BaseException] = field(default_factory=list)

    def __enter__(self) -> Publisher:
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(60)
        assert not self._failures, self._failures

    def _run(self) -> None:
        try:
            while not self._over.is_set():
                with contextlib.suppress(OSError):
                    self._session()
                self._over.wait(0.01)
        except BaseException as error:
            self._failures.append(error)

    def _session(self) -> None:
        """With one connection, until it ends."""
        with Wire(self.broker.nsq_port) as wire:
            for topic, bodies in self._batches():
                wire.send(frames.mpub(topic, bodies))
                while (frame := wire.frame()) == HEARTBEAT:
                    pass
                if frame == OUTCOME_UNKNOWN:  # the worker was killed before it answered
                    continue
                assert frame == frames.OK, frame
                self._acknowledge(bodies)

    def _batches(self) -> Iterator[tuple[str, list[bytes]]]:
        """Topic and bodies of each, all uncertain for now."""
        while not self._over.is_set():
            number = len(self.acknowledged) + len(self.uncertain)
            bodies = sorted(b"%d" % n for n in range(number, number + self.batch))
            self.uncertain.update(bodies)
            yield self.topics[number // self.batch % len(self.topics)], bodies

    def _acknowledge(self, bodies: Sequence[bytes]) -> None:
        self.uncertain.difference_update(bodies)
        self.acknowledged.update(bodies)
        self._over.wait(self.pause_s)


def flip(path: Path, at: int) -> None:
    """Changes a bit of a file."""
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)
        file.seek(at)
        file.write(bytes([byte[0] ^ 1]))


def now_ms() -> int:
    return time.time_ns() // 1_000_000
