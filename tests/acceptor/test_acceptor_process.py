"""The acceptor's main loop: what Python has to do does not keep the engine waiting."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections import deque
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, cast

import pytest
from mq_shards.acceptor import process
from mq_shards.acceptor.access.access import Access
from mq_shards.acceptor.engine import COMMAND, Upcall
from mq_shards.acceptor.process import AcceptorProcess
from mq_shards.acceptor.watched import Watched
from mq_shards.ringbuf import board, listening
from mq_shards.ringbuf.calls import SECOND_NS, Calls
from mq_shards.ringbuf.control import Control
from mq_shards.supervisor.options.options import default_settings


class SlowEngine:
    """Has a queue of upcalls, as when a hundred clients ask for stats at once."""

    def __init__(self, upcalls: int) -> None:
        self.upcalls_left = deque(Upcall(COMMAND, n, 0, b"stats\r\n", None) for n in range(upcalls))
        self.runs: list[tuple[int, int]] = []  # how long each might wait, and how many upcalls were left

    def run(self, max_wait_ns: int) -> None:
        self.runs.append((max_wait_ns, len(self.upcalls_left)))

    def upcalls(self) -> Iterator[Upcall]:
        while self.upcalls_left:
            yield self.upcalls_left.popleft()


def loop_of(engine: object) -> AcceptorProcess:
    loop = AcceptorProcess.__new__(AcceptorProcess)
    loop._engine = cast(Any, engine)
    loop._protocols = {}
    loop._secure = {}
    loop._more, loop._timed, loop._touched = False, False, True
    loop._looked_ns = process.time.monotonic_ns()
    loop._calls = Calls(Watched(), process.time.monotonic_ns)
    loop._access = Access(lambda: None, lambda conn: 0, cast(Any, None))
    return loop


class Clock:
    def __init__(self) -> None:
        self.now_ns = 1000 * SECOND_NS

    def monotonic_ns(self) -> int:
        return self.now_ns


class StoppedEngine:
    """The process stands still for a while in its first run, which is interrupted. Each later one finds a part of what
    has come."""

    def __init__(self, clock: Clock, stopped_ns: int, upcalls: int) -> None:
        self._clock, self._stopped_ns, self._upcalls = clock, stopped_ns, upcalls
        self._there: deque[Upcall] = deque()

    def run(self, max_wait_ns: int) -> None:
        if self._stopped_ns > 0:
            self._clock.now_ns += self._stopped_ns
            self._stopped_ns = 0
        elif self._upcalls > 0:
            self._upcalls -= 1
            self._there.append(Upcall(COMMAND, self._upcalls, 0, b"CONNECT {}", None))

    def upcalls(self) -> Iterator[Upcall]:
        while self._there:
            yield self._there.popleft()


@pytest.mark.parametrize(
    ("stopped_ns", "takes_ns", "heard"), [(70 * SECOND_NS, 0, 700), (0, 0, 0), (70 * SECOND_NS, SECOND_NS // 10, 10)]
)
def test_what_has_come_while_the_process_stood_still_counts_before_timers(
    monkeypatch: pytest.MonkeyPatch, stopped_ns: int, takes_ns: int, heard: int
) -> None:
    """But only for a while: what never ends does not keep timers from running."""
    clock = Clock()
    monkeypatch.setattr(process, "time", clock)
    loop = loop_of(StoppedEngine(clock, stopped_ns, 700))
    handled, expired = list[int](), list[int]()

    def handle(upcall: Upcall) -> None:
        clock.now_ns += takes_ns
        handled.append(upcall.conn)

    loop._handle = handle  # type: ignore[method-assign]
    loop._expire = lambda: expired.append(len(handled))  # type: ignore[method-assign]
    loop._turns(10_000_000)
    assert expired == [heard]


def test_the_engine_runs_between_commands_that_take_long_and_none_is_lost() -> None:
    engine, handled = SlowEngine(100), list[int]()
    loop = loop_of(engine)

    def handle(upcall: Upcall) -> None:
        time.sleep(0.0004)
        handled.append(upcall.conn)

    loop._handle = handle  # type: ignore[method-assign]
    while engine.upcalls_left:
        loop._turns(10_000_000)
    loop._turns(10_000_000)
    assert handled == list(range(100))
    most = process.TURN_NS // 400_000 + 1
    lefts = [left for _, left in engine.runs]
    assert all(before - after <= most for before, after in pairwise(lefts)), lefts
    assert all(wait == 0 for wait, left in engine.runs if 0 < left < 100), "it does not wait while something is left"


@pytest.fixture
def acceptor() -> Iterator[Control]:
    """A process's main function, in a thread, without workers; its "start" has been sent."""
    ours, theirs = Control.pair()
    thread = threading.Thread(target=process.main, args=(theirs,), daemon=True)
    thread.start()
    fds = board.create(), os.eventfd(0, os.EFD_NONBLOCK)
    of_broker = {"started_wall_ns": 1, "instance": "0" * 16, "settings": default_settings(), "gateway": False}
    ours.send({"do": "start", "index": 0, "workers": 1, "acceptors": 1, "shards": 1, **of_broker}, fds)
    for fd in fds:
        os.close(fd)
    yield ours
    ours.send({"do": "stop"})
    thread.join(60)
    ours.close()
    theirs.close()
    assert not thread.is_alive()


def test_a_port_listens_only_when_the_process_serves(acceptor: Control) -> None:
    """Otherwise clients would get through, and wait while the modules and certificates of other ports are loaded."""
    with socket.socket() as sock:
        listening.hold(sock, ("127.0.0.1", 0))
        sock.setblocking(False)
        host, port = sock.getsockname()
        listen = {"protocol": "nats", "scheme": "nats", "secure": False, "host": host, "port": port, "backlog": 16}
        acceptor.send({"do": "listen", **listen}, [sock.fileno()])
        acceptor.send({"do": "ping"})
        assert acceptor.receive()[0] == {"did": "pong"}  # so the message before has been handled
        assert not sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
        acceptor.send({"do": "go"})
        assert acceptor.receive()[0] == {"did": "ready"}
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
        with socket.create_connection((host, port)) as client:
            client.settimeout(60)
            assert client.recv(5) == b"INFO "
