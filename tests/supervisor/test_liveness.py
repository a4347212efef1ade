"""A process that hangs without dying: it is said, and it is replaced."""

from __future__ import annotations

import os
import signal
import socket
import time
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from mq_shards.supervisor.child import Child
from mq_shards.supervisor.liveness import ASK_S, HUNG_S, Liveness

from tests import spin
from tests.servers import Shape, children, comm_of, free_port, running, wait_until

LIMIT_S = 10.0
SHAPE = Shape("shards-2", "mq-shards", ("--workers", "2"))


@dataclass(eq=False)
class Silent:
    """A child that answers when the test says so."""

    title: str = "mq-worker-0"
    pid: int = 1
    has_to_answer: bool = True
    killed: bool = False
    told: list[Any] = field(default_factory=list)

    def send(self, message: Any) -> None:  # noqa: ANN401
        self.told.append(message)

    def kill(self) -> None:
        self.killed = True


class Clock:
    def __init__(self, child: Silent, limit_s: float = LIMIT_S) -> None:
        self.child = child
        self.now = 0.0
        self.liveness = Liveness(limit_s, self.now)

    def look(self, after_s: float = ASK_S) -> bool:
        self.now += after_s
        return self.liveness.look([cast(Child, self.child)], self.now)

    def answer(self) -> None:
        self.liveness.answered(cast(Child, self.child), self.now)


def test_who_answers_is_asked_again_and_left_alone() -> None:
    clock = Clock(child := Silent())
    for _ in range(100):
        clock.look()
        clock.answer()
    assert not child.killed and len(child.told) == 100


def test_who_does_not_is_named_in_time_and_killed_at_the_limit(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock(child := Silent())
    while not clock.liveness.hanging():
        clock.look()
    assert clock.now <= ASK_S + HUNG_S + ASK_S <= 5
    assert "has not answered" in caplog.text and len(child.told) == 1
    while not child.killed:
        clock.look()
    assert LIMIT_S <= clock.now <= LIMIT_S + 2 * ASK_S


def test_who_answers_late_is_said_to_be_back(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock(child := Silent())
    assert [clock.look() for _ in range(6)].count(True) == 1
    assert clock.liveness.hanging() == [child.title]
    clock.answer()
    assert clock.look() and not clock.look(), "that it answers again is news, once"
    assert not clock.liveness.hanging() and "answers again" in caplog.text and len(child.told) == 2


def test_nobody_is_late_after_the_machine_has_slept() -> None:
    clock = Clock(child := Silent())
    clock.look()
    clock.look(3600)
    assert not child.killed and not clock.liveness.hanging()
    clock.look()
    assert not child.killed


def test_who_hangs_is_found_also_where_the_supervisor_is_late_each_time() -> None:
    """On a machine that is very busy."""
    clock = Clock(child := Silent())
    for _ in range(round(LIMIT_S / ASK_S)):
        clock.look(3 * ASK_S)
    assert clock.liveness.hanging() and not child.killed
    clock.look(3 * ASK_S)
    assert child.killed


def test_with_no_limit_it_is_said_and_left() -> None:
    clock = Clock(child := Silent(), 0)
    for _ in range(1000):
        clock.look()
    assert clock.liveness.hanging() and not child.killed


def test_a_new_process_in_its_place_is_asked_anew() -> None:
    clock = Clock(child := Silent())
    for _ in range(6):
        clock.look()
    assert clock.liveness.hanging() and clock.liveness.times == {child.title: 1}
    child.pid, child.has_to_answer = 2, False
    assert not clock.liveness.hanging(), "at once, also to whoever is told before the next look"
    clock.look()
    child.has_to_answer = True
    clock.look()
    clock.answer()
    assert not clock.liveness.hanging()


@pytest.mark.parametrize("role", ["worker", "acceptor"])
def test_a_process_that_is_stopped_is_replaced_and_nothing_is_lost(role: str) -> None:
    with running(SHAPE, options=["--set", "broker.hang-timeout=2s"]) as server:
        with socket.create_connection(("127.0.0.1", server.port)) as client:
            client.sendall(b"".join(b"use t%d\r\nput 0 0 60 5\r\nhello\r\n" % n for n in range(20)))
            answer = b""
            while answer.count(b"INSERTED") < 20:
                answer += client.recv(4096)
        victim = next(pid for pid in children(server.process.pid) if role in comm_of(pid))
        os.kill(victim, signal.SIGSTOP)
        wait_until(lambda: victim not in children(server.process.pid), "it is gone")
        assert "hangs: killing it" in server.said()
        wait_until(lambda: "is back" in server.said(), "another is there")
        with socket.create_connection(("127.0.0.1", server.port), timeout=60) as client:
            client.sendall(b"".join(b"watch t%d\r\n" % n for n in range(20)) + b"reserve-with-timeout 5\r\n" * 20)
            heard = b""
            until = time.monotonic() + 60
            while heard.count(b"RESERVED") < 20 and time.monotonic() < until:
                heard += client.recv(65536)
        assert heard.count(b"RESERVED") == 20


@pytest.mark.skipif(not spin.can(), reason="no loop is known for this kind of processor")
def test_processes_that_loop_for_ever_are_named_and_replaced() -> None:
    """All kinds at once: each answers nobody, and is busy."""
    port = free_port()
    options = ["--set", "broker.hang-timeout=4s", "--listen", f"http://127.0.0.1:{port}"]
    with running(SHAPE, options=options) as server:
        with socket.create_connection(("127.0.0.1", port), timeout=60) as client:
            client.sendall(b"GET /ping HTTP/1.0\r\n\r\n")
            assert client.recv(100).startswith(b"HTTP/1.0 404 ")  # from the gateway, which it begins
        with socket.create_connection(("127.0.0.1", server.port), timeout=60) as client:
            client.sendall(b"put 0 0 60 5\r\nhello\r\n")
            assert client.recv(100).startswith(b"INSERTED")
        victims = {title: server.pid_of(title) for title in ("mq-worker-1", "mq-acceptor-0", "mq-gateway")}
        try:
            for pid in victims.values():
                spin.spin(pid)
        except PermissionError:
            pytest.skip("processes may not be traced here")
        for title, pid in victims.items():
            for line in (f"(pid {pid}) has not answered for", f"(pid {pid}) hangs: killing it", "is back"):
                wait_until(lambda line=f"{title} {line}": line in server.said(), f"{title} {line}")
            assert server.pid_of(title) != pid
        with socket.create_connection(("127.0.0.1", server.port), timeout=60) as client:
            client.sendall(b"reserve-with-timeout 30\r\n")
            assert client.recv(100).startswith(b"RESERVED")
