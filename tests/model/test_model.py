"""The model against the real beanstalkd, and the servers and the engine against the model."""

from __future__ import annotations

import itertools
import os
import socket

import pytest
from hypothesis import HealthCheck, Phase, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule, run_state_machine_as_test

from tests.beanstalk.replies import OWN_FIELDS, Comparison, parse_dict, take_reply
from tests.beanstalk.wire import Wire
from tests.model.beanstalk import COUNTED, Model
from tests.model.scripts import Command, Machine, Session
from tests.servers import Server, wait_until

QUICK = settings(
    max_examples=int(os.environ.get("EXAMPLES", "6")),
    stateful_step_count=40,
    deadline=None,
    derandomize="EXAMPLES" not in os.environ,
    database=None,
    phases=[Phase.generate],  # shrinking a script of this size takes minutes
    suppress_health_check=list(HealthCheck),
)
# The engine keeps its board over a restart, where a supervisor would make a new one.
COUNTED_SINCE_THE_START = frozenset(["total-connections", "job-timeouts", *(f"cmd-{name}" for name in COUNTED)])
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

    def half_close(self, conn: int) -> None:
        self.wires[conn].socket.shutdown(socket.SHUT_WR)

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


class InEngine:
    """The engine as a subject: everything has had its effect when a call comes back."""

    def __init__(self, workers: int, shards: int) -> None:
        from tests.engine import Engine  # needs the built core

        self.engine = Engine(workers, shards)

    def connect(self) -> int:
        return self.engine.connect()

    def send(self, conn: int, data: bytes) -> None:
        self.engine.send(conn, data)

    def received(self, conn: int, replies: int) -> bytes:
        return self.engine.received(conn)

    def close(self, conn: int) -> None:
        self.engine.close(conn)

    def half_close(self, conn: int) -> None:
        self.engine.half_close(conn)

    def settle(self, model: Model) -> None:
        pass


class EngineMachine(Machine):
    """Everything, with a clock that moves and crashes."""

    workers = 1
    shards = 4
    durations = (0, 1, 2, 5, 30)
    ttrs = (0, 1, 2, 3, 10, 60)

    def make(self) -> Session:
        self.subject = InEngine(self.workers, self.shards)
        return Session(Model(), self.subject, Comparison())

    def summaries(self) -> list[bytes]:
        return [b"list-tubes"]

    @precondition(lambda self: self.idle())
    @rule()
    def stats(self) -> None:
        """Alone: a `use` has no reply from a worker, so a `stats` right behind it may not know of the tube yet."""
        self.before_sending()
        self.session.run(self.idle()[0], [Command(b"stats\r\n")])

    @rule(seconds=st.sampled_from([0.5, 1.0, 1.0, 2.0, 5.0, 29.0]))
    def advance(self, seconds: float) -> None:
        self.let_pass(seconds)
        self.session.compare()

    @rule()
    def restart(self) -> None:
        note("restart")
        self.session.model.restart()
        self.subject.engine.restart()
        self.session.comparison.ignored_fields |= COUNTED_SINCE_THE_START
        for _ in range(2):
            self.session.connect()

    def before_sending(self) -> None:
        """Deadlines are whole seconds after this, so they differ as long as a script has less than 500 moments."""
        self.let_pass(0.001)

    def parts(self, commands: list[Command]) -> list[list[Command]]:
        """At most one command that sets a deadline at a time: of equal deadlines either may come first."""
        parts: list[list[Command]] = [[]]
        for command in commands:
            if command.sets_a_deadline and any(c.sets_a_deadline for c in parts[-1]):
                parts.append([])
            parts[-1].append(command)
        return parts

    def let_pass(self, seconds: float) -> None:
        note(f"{seconds} s pass")
        self.session.model.advance(seconds)
        self.subject.engine.advance(seconds)

    def teardown(self) -> None:
        if hasattr(self, "subject"):
            self.subject.engine.dispose()


@pytest.mark.parametrize(("workers", "shards"), [(1, 1), (1, 8), (3, 16)])
def test_the_engine_does_what_the_model_does(workers: int, shards: int) -> None:
    class WithThese(EngineMachine):
        pass

    WithThese.workers = workers
    WithThese.shards = shards
    run_state_machine_as_test(WithThese, settings=settings(QUICK, max_examples=2 * QUICK.max_examples))
