"""The rare commands of beanstalkd's protocol: stats, the lists of tubes, and quit.

The codec, beanstalk.c, does the others. It hands over a line when everything before it on the connection has been
answered, and takes no more input of the connection until the line is done. Commands are accepted, and replies written
to the byte, as in beanstalkd 1.12: commands are matched as prefixes, in its order, and each decides what may follow its
name.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias

from mq_shards.acceptor import engine
from mq_shards.acceptor.access.rights import CONSUME, MANAGE, READ
from mq_shards.acceptor.engine import Answer, Engine, Totals, WorkerRequest
from mq_shards.acceptor.protocol import Broker, Settings
from mq_shards.acceptor.protocols.beanstalk.beanstalk import Beanstalk
from mq_shards.acceptor.protocols.beanstalk.guard import QUESTION, Guard
from mq_shards.acceptor.protocols.beanstalk.together import Together
from mq_shards.acceptor.protocols.beanstalk.tubes import TubeList
from mq_shards.csrc._core import ffi, lib
from mq_shards.ringbuf.time_units import SECOND_NS

BAD_FORMAT: Final = b"BAD_FORMAT\r\n"
UNKNOWN_COMMAND: Final = b"UNKNOWN_COMMAND\r\n"
FAILURES: Final = {
    engine.NO_SPACE: b"OUT_OF_MEMORY\r\n",
    engine.TOO_MANY: b"OUT_OF_MEMORY\r\n",
    engine.FAILED: b"INTERNAL_ERROR\r\n",
}

# The beanstalkd whose protocol this is to the byte: clients look at it.
BEANSTALKD_VERSION: Final = "1.12"
SEGMENT_BYTES: Final = 64 << 20

# The codec's gauges, which count current connections; its other counters count commands.
GAUGES: Final = ("producers", "workers", "waiting")

NO_MESSAGE: Final = 0  # an id that no message has
# Makes the reply of all workers' answers, which come in any order.
Compose: TypeAlias = Callable[[list[Answer]], bytes]

# Questions of the codec about a right to a tube, and to a job's tube (enum beanstalk_question).
RIGHTS_TO_TUBE: Final = {b"w": CONSUME, b"R": READ, b"M": MANAGE}
RIGHTS_TO_JOB: Final = {b"j": CONSUME, b"r": READ, b"m": MANAGE}


@dataclass(slots=True, eq=False, repr=False)
class Pending:
    """A command that waits for workers."""

    missing: int
    compose: Compose
    answers: list[Answer] = field(default_factory=list)
    together: Together | None = None  # set if it asks for all connections that wait there


class BeanstalkServing(Beanstalk):
    def __init__(
        self, engine: Engine, settings: Settings, broker: Broker, wall_ns: Callable[[], int] = time.time_ns
    ) -> None:
        super().__init__(engine, settings, broker)
        engine.set("beanstalk.max-job-size", settings["max-job-size"])
        self._wall_ns = wall_ns
        self._guard: Guard | None = None  # None: no users are configured
        self._pending: dict[int, Pending] = {}
        self._all_stats = Together(self._ask_stats)
        self._all_tubes = Together(self._ask_tubes)
        self._tubes: TubeList | None = None  # the list that workers are being asked for
        # In the order in which beanstalkd compares them; a name that is the beginning of another comes after it.
        self._commands: tuple[tuple[bytes, Callable[[int, bytes], None]], ...] = (
            (b"stats", self._stats),
            (b"list-tubes-watched", self._list_tubes_watched),
            (b"list-tube-used", self._list_tube_used),
            (b"list-tubes", self._list_tubes),
            (b"quit", self._quit),
        )

    # --- upcalls ----------------------------------------------------------------------------------------------------

    def command(self, conn: int, line: bytes) -> None:
        if line.startswith(QUESTION):
            self._answer_codec(conn, line[1:2], line[2:])
            return
        for prefix, handler in self._commands:
            if line.startswith(prefix):
                handler(conn, line[len(prefix) :])
                return
        self._done(conn, UNKNOWN_COMMAND)

    def answer(self, conn: int, answer: Answer) -> None:
        if self._tubes is not None and self._tubes.conn == conn:
            self._tubes.answer(answer)
            return
        pending = self._pending.get(conn)
        if pending is None:
            return
        pending.answers.append(answer)
        pending.missing -= 1
        if pending.missing == 0:
            del self._pending[conn]
            reply = pending.compose(pending.answers)
            if pending.together is None:
                self._done(conn, reply)
            else:
                pending.together.answered(partial(self._done, reply=reply))

    def closed(self, conn: int) -> None:
        self._pending.pop(conn, None)
        if self._tubes is not None and self._tubes.conn == conn:
            self._tubes.close()
            self._tubes = None
        self._all_stats.leave(conn)
        self._all_tubes.leave(conn)
        if self._guard is not None:
            self._guard.closed(conn)

    def failed(self, conn: int) -> None:
        """A command could not be handled because of a defect of ours."""
        self.closed(conn)
        self._done(conn, FAILURES[engine.FAILED])

    # --- rights of users --------------------------------------------------------------------------------------------

    def users_changed(self) -> None:
        access = self.access
        if self._guard is None and access is not None:
            self._guard = Guard(self._engine, self.name, access, self.certificate_names)
        elif self._guard is not None:
            self._guard.users_changed()

    def _answer_codec(self, conn: int, question: bytes, about: bytes) -> None:
        """Answers a question of the codec (enum beanstalk_question), which then goes on with its line."""
        guard = self._guard
        assert guard is not None
        if question == b"h" and not guard.introduce(conn):
            self._engine.reply(conn, UNKNOWN_COMMAND)
            self._engine.close_connection(conn)
            return
        if question == b"p":
            guard.say_may_put(conn)
        elif question in RIGHTS_TO_TUBE:
            guard.say_verdict(conn, allowed=guard.may(conn, RIGHTS_TO_TUBE[question], about))
        elif question in RIGHTS_TO_JOB:
            self._decide_job(conn, guard, RIGHTS_TO_JOB[question], int.from_bytes(about, "little"))
            return
        self._engine.resume(conn)

    def _decide_job(self, conn: int, guard: Guard, right: str, id: int) -> None:
        """Says whether the user has that right to the tube of a job; yes if there is no such job."""

        def decide(answers: list[Answer]) -> bytes:
            tube = answers[0].body[ffi.sizeof("struct job_stats") :]
            guard.say_verdict(conn, allowed=answers[0].status != engine.OK or guard.may(conn, right, tube))
            return b""

        self._pending[conn] = Pending(1, decide)
        self._engine.request(self._engine.worker_of_id(id), conn, WorkerRequest(lib.MSG_STATS_ID, id=id))

    # --- how a command ends or waits --------------------------------------------------------------------------------

    def _done(self, conn: int, reply: bytes) -> None:
        if reply:
            self._engine.reply(conn, reply)
        self._engine.resume(conn)

    def _count(self, command: str) -> None:
        self._engine.count(self._number, command)

    # --- commands: each is given what follows its name --------------------------------------------------------------

    def _stats(self, conn: int, rest: bytes) -> None:
        if rest:
            self._done(conn, BAD_FORMAT)
            return
        self._count("stats")
        self._all_stats.join(conn)

    def _ask_stats(self, conn: int) -> None:
        # The board has the figures. Each worker is asked something, no matter what, because with its answer it has
        # done everything that this connection and others told it before.
        self._pending[conn] = Pending(self._engine.workers, lambda _: self._totals(), together=self._all_stats)
        for worker in range(self._engine.workers):
            self._engine.request(worker, conn, WorkerRequest(lib.MSG_PEEK_ID, id=NO_MESSAGE))

    def _totals(self) -> bytes:
        uptime_ns = self._wall_ns() - self._broker.started_wall_ns
        counters = self._engine.counters(self._number)
        return broker_stats(self._engine.totals(), counters, self._broker, self._settings["max-job-size"], uptime_ns)

    def _list_tubes(self, conn: int, rest: bytes) -> None:
        if rest:
            self._done(conn, BAD_FORMAT)
            return
        self._count("list-tubes")
        self._all_tubes.join(conn)

    def _ask_tubes(self, conn: int) -> None:
        self._tubes = TubeList(self._engine, conn, self._tubes_listed)
        self._tubes.ask()

    def _tubes_listed(self, status: int) -> None:
        tubes, self._tubes = self._tubes, None
        assert tubes is not None

        def tell(conn: int) -> None:
            if status == engine.OK:
                tubes.tell(conn)
            self._done(conn, b"" if status == engine.OK else FAILURES.get(status, FAILURES[engine.FAILED]))

        self._all_tubes.answered(tell)
        tubes.close()

    def _list_tube_used(self, conn: int, rest: bytes) -> None:
        if rest:
            self._done(conn, BAD_FORMAT)
            return
        self._count("list-tube-used")
        self._done(conn, b"USING %s\r\n" % self._engine.topic_name(self._engine.call(conn, "used")))

    def _list_tubes_watched(self, conn: int, rest: bytes) -> None:
        if rest:
            self._done(conn, BAD_FORMAT)
            return
        self._count("list-tubes-watched")
        self._done(conn, listed(self._engine.topic_names(self._engine.call_for_list(conn, "watched"))))

    def _quit(self, conn: int, rest: bytes) -> None:
        self._engine.close_connection(conn)


# --- replies ----------------------------------------------------------------------------------------------------------


def ok(body: bytes) -> bytes:
    return b"OK %d\r\n%s\r\n" % (len(body), body)


def listed(names: list[bytes]) -> bytes:
    return ok(b"---\n- " + b"\n- ".join(names) + b"\n" if names else b"---\n")


def mapped(fields: dict[str, object]) -> bytes:
    return ok(("---\n" + "".join(f"{name}: {value}\n" for name, value in fields.items())).encode())


def broker_stats(totals: Totals, counters: dict[str, int], broker: Broker, max_job_bytes: int, uptime_ns: int) -> bytes:
    now = {name: counters.pop(name) for name in GAUGES}
    user, system = processor_seconds(os.getppid())
    system_name = os.uname()
    return mapped(
        {
            "current-jobs-urgent": totals.urgent,
            "current-jobs-ready": totals.ready,
            "current-jobs-reserved": totals.reserved,
            "current-jobs-delayed": totals.delayed,
            "current-jobs-buried": totals.buried,
            **{f"cmd-{name}": count for name, count in counters.items()},
            "job-timeouts": totals.timeouts,
            "total-jobs": totals.total_jobs,
            "max-job-size": max_job_bytes,
            "current-tubes": totals.topics,
            "current-connections": totals.connections,
            **{f"current-{name}": count for name, count in now.items()},
            "total-connections": totals.total_connections,
            "pid": os.getppid(),
            "version": f'"{BEANSTALKD_VERSION}"',
            "rusage-utime": f"{user:.6f}",
            "rusage-stime": f"{system:.6f}",
            "uptime": max(uptime_ns, 0) // SECOND_NS,
            "binlog-oldest-index": totals.oldest_segment,
            "binlog-current-index": totals.current_segment,
            "binlog-records-migrated": totals.records_migrated,
            "binlog-records-written": totals.records_written,
            "binlog-max-size": SEGMENT_BYTES,
            "draining": "true" if totals.draining else "false",
            "id": broker.instance,
            "hostname": system_name.nodename,
            "os": system_name.version,
            "platform": system_name.machine,
        }
    )


def processor_seconds(supervisor: int) -> tuple[float, float]:
    """CPU seconds in user and in system mode of all processes: the supervisor and its children."""
    user = system = 0
    for pid in (supervisor, *_children(supervisor)):
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
        except OSError:
            continue  # the process has ended meanwhile
        # The second field is a name in parentheses that may hold anything; proc(5) numbers utime 14 and stime 15.
        fields = stat[stat.rindex(")") + 2 :].split()
        user += int(fields[11])
        system += int(fields[12])
    tick = os.sysconf("SC_CLK_TCK")
    return user / tick, system / tick


def _children(pid: int) -> list[int]:
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return [os.getpid()]  # a kernel without that file


SERVING: Final = BeanstalkServing
