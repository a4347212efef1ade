"""The wall clock is set, while a broker runs or while it is stopped: what waits, waits no longer for it."""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.preload import compiled
from tests.servers import MANY, Server, free_port, running

SOURCE = Path(__file__).with_name("setclock.c")
HOST = "127.0.0.1"
HOUR_S = 3600
YEAR_S = 365 * 24 * HOUR_S
DELAY_S = 2
TIMEOUT_S = 120.0  # less than an hour
TOPICS = [f"delayed-{number}" for number in range(6)]  # on all workers


class Clock:
    """The broker's."""

    def __init__(self, path: Path, shim: Path) -> None:
        self._path = path
        self.set(0)
        self.env = {"LD_PRELOAD": str(shim), "CLOCK_OFF": str(path)}

    def set(self, off_s: int) -> None:
        self._off_ns = off_s * 1_000_000_000
        with self._path.open("r+b" if self._path.exists() else "wb") as file:
            file.write(struct.pack("=q", self._off_ns))

    def now_ns(self) -> int:
        return time.time_ns() + self._off_ns


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(SOURCE, tmp_path_factory.mktemp("shim"))


@pytest.fixture
def clock(tmp_path: Path, shim: Path) -> Clock:
    return Clock(tmp_path / "off", shim)


class Broker:
    def __init__(self, server: Server, nsq_port: int) -> None:
        self.server, self._nsq_port = server, nsq_port

    def talk(self, words: bytes, answers: int) -> list[bytes]:
        """To beanstalkd's side, of which each answer is a line."""
        with socket.create_connection((HOST, self.server.port), TIMEOUT_S) as sock:
            sock.sendall(words)
            data = b""
            while data.count(b"\r\n") < answers:
                received = sock.recv(1 << 16)
                assert received, data
                data += received
        return data.splitlines()

    def delay_jobs(self) -> None:
        words = b"".join(b"use %s\r\nput 0 %d 60 1\r\nx\r\n" % (name.encode(), DELAY_S) for name in TOPICS)
        answers = self.talk(words, 2 * len(TOPICS))
        assert sum(answer.startswith(b"INSERTED") for answer in answers) == len(TOPICS)

    def reserved(self) -> int:
        words = b"".join(b"watch %s\r\n" % name.encode() for name in TOPICS)
        words += b"reserve-with-timeout %d\r\n" % TIMEOUT_S * len(TOPICS)
        answers = self.talk(words, 3 * len(TOPICS))
        return sum(answer.startswith(b"RESERVED") for answer in answers)

    def published(self, topic: bytes) -> int:
        """The timestamp of a message that has been published and consumed."""
        with socket.create_connection((HOST, self._nsq_port), TIMEOUT_S) as sock, sock.makefile("rb") as file:
            sock.sendall(b"  V2SUB %s c\nRDY 1\nPUB %s\n\0\0\0\1x" % (topic, topic))
            while True:
                size, kind = struct.unpack(">II", file.read(8))
                data = file.read(size - 4)
                if kind == 2:
                    sock.sendall(b"FIN %s\n" % data[10:26])
                    return int(struct.unpack(">q", data[:8])[0])


@contextlib.contextmanager
def broker(place: Path, clock: Clock) -> Iterator[Broker]:
    port = free_port()
    options = ["--listen", f"nsq://{HOST}:{port}"]
    with running(MANY, data_dir=place / "data", options=options, env=clock.env) as server:
        yield Broker(server, port)


LONG = pytest.mark.long
ENDS = [
    ("stop", -HOUR_S), ("kill", -YEAR_S), pytest.param("stop", HOUR_S, marks=LONG),
    pytest.param("stop", -YEAR_S, marks=LONG), pytest.param("kill", -HOUR_S, marks=LONG),
    pytest.param("kill", HOUR_S, marks=LONG),
]  # fmt: skip


@pytest.mark.parametrize(("end", "off_s"), ENDS)
def test_a_delay_is_no_longer_after_a_start_at_another_time(tmp_path: Path, clock: Clock, end: str, off_s: int) -> None:
    with broker(tmp_path, clock) as before:
        before.delay_jobs()
        if end == "stop":
            assert before.server.terminate() == 0
        else:
            before.server.kill()
    clock.set(off_s)
    with broker(tmp_path, clock) as after:
        assert after.reserved() == len(TOPICS)
        assert "Traceback" not in after.server.said()


@pytest.mark.parametrize("off_s", [-HOUR_S, pytest.param(YEAR_S, marks=LONG)])
def test_a_broker_that_runs_goes_by_the_new_time_and_delays_are_what_they_were(
    tmp_path: Path, clock: Clock, off_s: int
) -> None:
    with broker(tmp_path, clock) as one:
        one.delay_jobs()
        assert one.published(b"now") <= clock.now_ns()
        clock.set(off_s)
        sent_ns = clock.now_ns()
        assert sent_ns <= one.published(b"then") <= clock.now_ns()
        one.server.replace("mq-worker-1")  # which reads at the new time what was written at the old
        assert one.reserved() == len(TOPICS)
        assert sent_ns <= one.published(b"then") <= clock.now_ns()
        assert "Traceback" not in one.server.said()
