"""The model against the real beanstalkd, and the servers and the engine against the model."""

from __future__ import annotations

import importlib.util
import itertools
import os

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule, run_state_machine_as_test

from tests.beanstalk.replies import OWN_FIELDS, Comparison, parse_dict, take_reply
from tests.beanstalk.wire import Wire
from tests.model.beanstalk import Model
from tests.model.scripts import Machine, Session
from tests.servers import Server, wait_until

QUICK = settings(
    max_examples=int(os.environ.get("EXAMPLES", "20")),
    stateful_step_count=40,
    deadline=None,
    derandomize="EXAMPLES" not in os.environ,
    database=None,
    phases=[Phase.generate],  # shrinking a script of this size takes minutes
    suppress_health_check=list(HealthCheck),
)
_prefixes = itertools.count(1)


class OverSockets:
    """A running server as a subject. What it is asked costs no time, so nothing may depend on the clock."""

    def __init__(self, server: Server, tubes: tuple[bytes, ...]) -> None:
        self.server = server
        self.tubes = tubes
        self.wires: list[Wire] = []
        self.control = Wire(server)

    def connect(self) -> int:
        self.wires.append(Wire(self.server))
        return len(self.wires) - 1

    def send(self, conn: int, data: bytes) -> None:
        self.wires[conn].send(data)

    def received(self, conn: int, replies: int) -> bytes:
        wire = self.wires[conn]
        whole = bytearray()
        for _ in range(replies):
            reply = wire.reply()
            whole += reply.line + b"\r\n" + (b"" if reply.body is None else reply.body + b"\r\n")
        if take_reply(bytearray(wire.buffer)) is not None:
            whole += wire.buffer
        return bytes(whole)

    def close(self, conn: int) -> None:
        self.wires[conn].close()

    def settle(self, model: Model) -> None:
        """Waits for what no reply tells: a connection's close, and a reserve that has begun to wait."""
        for tube in (t for t in model.tubes.values() if t.name in self.tubes):
            wanted = {
                "current-waiting": len(tube.waiters.conns),
                "current-using": tube.using,
                "current-watching": tube.watching,
                "current-jobs-reserved": sum(j.tube is tube and j.state == "reserved" for j in model.jobs.values()),
            }
            wait_until(lambda name=tube.name, wanted=wanted: self._agrees(name, wanted), f"{tube.name!r} has {wanted}")

    def _agrees(self, tube: bytes, wanted: dict[str, int]) -> bool:
        body = self.control.exchange(b"stats-tube " + tube).body
        if body is None:
            return False
        fields = parse_dict(body)
        return all(fields[name] == str(value) for name, value in wanted.items())

    def dispose(self) -> None:
        for wire in self.wires:
            wire.close()
        for tube in self.tubes:
            self.control.use(tube.decode())
            self.control.ask("kick 100000")
            self.control.ask("kick 100000")
            while (ready := self.control.exchange("peek-ready")).word == b"FOUND":
                self.control.ask(f"delete {ready.number}")
        self.control.close()


class SocketMachine(Machine):
    """Time-free scripts on a running server. Other tests' tubes are on it too, so nothing is said of the whole."""

    server: Server

    def make(self) -> Session:
        prefix = b"m%d-" % next(_prefixes)
        self.tubes = tuple(prefix + name for name in (b"a", b"b", b"c", b"d"))
        self.subject = OverSockets(self.server, self.tubes)
        timed = frozenset(["age", "time-left", "pause-time-left"])
        model = Model(fifo=self.server.shape.is_shards, command_ns=1)
        return Session(model, self.subject, Comparison(ignored_fields=OWN_FIELDS | timed))

    durations = (0, 5000)
    ttrs = (2000, 5000)

    def summaries(self) -> list[bytes]:
        return []

    def connect(self) -> None:
        """Away from the default tube, which other tests share."""
        conn = self.session.connect()
        first = self.tubes[0]
        for line in (b"use " + first, b"watch " + first, b"ignore default"):
            self.session.model.send(conn, line + b"\r\n")
            self.subject.send(self.session.conns[conn], line + b"\r\n")
        self.session.compare(first=conn)

    def teardown(self) -> None:
        if hasattr(self, "subject"):
            self.subject.dispose()


def test_a_running_server_does_what_the_model_does(server: Server) -> None:
    class OnThisServer(SocketMachine):
        pass

    OnThisServer.server = server
    run_state_machine_as_test(OnThisServer, settings=QUICK)
