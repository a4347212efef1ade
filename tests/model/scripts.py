"""Random scripts of beanstalk commands, run on the model and on a subject side by side.

`Session` holds the two together: it renders each command with the job ids of either side, sends it to both and
compares everything that comes out. The hypothesis machine draws what to do.

Two commands that are under way at the same moment may be executed in either order, so a script never has two that
could disturb each other: a connection is sent commands when it does not wait (or such that concern nobody else), a
command that may wait ends its chunk, and while somebody waits on tubes of several shards, jobs become ready one
command at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Protocol

from hypothesis import note
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from tests.beanstalk.replies import Comparison, take_replies
from tests.model.beanstalk import Model

MAX_CONNS = 5
SHORT_PRIS = (0, 1, 1023, 1024, 4294967295)


class Subject(Protocol):
    """What is compared with the model."""

    def connect(self) -> int: ...

    def send(self, conn: int, data: bytes) -> None: ...

    def received(self, conn: int, replies: int) -> bytes:
        """What came since the last call: at least so many replies, if they come at all."""

    def close(self, conn: int) -> None: ...

    def half_close(self, conn: int) -> None: ...

    def settle(self, model: Model) -> None:
        """Returns when everything sent and closed so far has had its effect."""


@dataclass(frozen=True)
class Command:
    """A command, with a hole for the id of a job that may be in it. `cuts` are where the bytes are split."""

    text: bytes
    job: int | None = None
    cuts: tuple[int, ...] = ()

    @property
    def sets_a_deadline(self) -> bool:
        return self.text.startswith((b"put ", b"reserve", b"release ", b"touch ", b"pause-tube "))

    def render(self, job: int | None) -> bytes:
        return self.text if job is None else self.text % job


@dataclass
class Session:
    model: Model
    subject: Subject
    comparison: Comparison
    conns: list[int] = field(default_factory=list)
    """The subject's number of each of the model's connections."""

    def connect(self) -> int:
        number = self.model.connect()
        assert number == len(self.conns)
        self.conns.append(self.subject.connect())
        return number

    def open_conns(self) -> list[int]:
        return [n for n in range(len(self.conns)) if self.model.is_open(n)]

    def run(self, conn: int, commands: Sequence[Command]) -> None:
        """Sends the commands in one go, except where one of them is cut."""
        pending = bytearray()
        note(f"{conn} sends {b''.join(c.render(c.job) for c in commands)[:500]!r}")
        for command in commands:
            self.model.send(conn, command.render(command.job))
            job = None if command.job is None else self.comparison.actual_id(command.job)
            data = command.render(job)
            cuts = sorted(cut % (len(data) + 1) for cut in command.cuts)
            for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True):
                pending += data[start:end]
                if end != len(data):
                    self.subject.send(self.conns[conn], bytes(pending))
                    pending.clear()
        if pending:
            self.subject.send(self.conns[conn], bytes(pending))
        self.compare(first=conn)

    def close(self, conn: int) -> None:
        note(f"{conn} closes")
        self.model.close(conn)
        self.subject.close(self.conns[conn])
        self.compare()

    def half_close(self, conn: int) -> None:
        note(f"{conn} half-closes")
        self.model.half_close(conn)
        self.subject.half_close(self.conns[conn])
        self.compare(first=conn)

    def compare(self, first: int | None = None) -> None:
        """All that came out, the sender's first: so that a job is known by its INSERTED before others reserve it."""
        order = [n for n in range(len(self.conns)) if n != first]
        for conn in [*([] if first is None else [first]), *order]:
            expected = take_replies(bytearray(self.model.received(conn)))
            if not self.model.is_open(conn) and not expected:
                continue
            left = bytearray(self.subject.received(self.conns[conn], len(expected)))
            actual = take_replies(left)
            for want, got in zip(expected, actual, strict=False):
                self.comparison.check(want, got)
            assert len(actual) == len(expected), f"connection {conn}: {actual} where {expected} belong"
            assert not left, f"connection {conn}: half a reply: {bytes(left)!r}"
        self.subject.settle(self.model)


# What a step does is drawn from a seed of its own: strategies that depend on what jobs there are would be made and
# checked for each command, which takes five times as long as all else, and scripts of this size are not shrunk.
SEEDS = st.integers(0, (1 << 64) - 1)


def cuts(random: Random) -> tuple[int, ...]:
    return tuple(random.randint(0, 60) for _ in range(random.choice((0, 0, 0, 1, 2, 3))))


ODD_LINES = (
    b"", b"put", b"put 1 2 3", b"put -1 0 0 0", b"put 4294967296 0 0 0", b"put 0 0 0 0 ", b"delete", b"delete x",
    b"delete 18446744073709551616", b"delete 18446744073709551615", b"delete 1 ", b"release 1 1", b"bury 1",
    b"bury 1 x",
    b"kick", b"kick x", b"kick 0", b"kick-job", b"touch", b"touch -1", b"reserve ", b"reserved", b"reserve-job",
    b"reserve-with-timeout", b"peek", b"peek x",
    b"peek-ready ", b"peek-delayed x", b"peek-buriedx", b"stats-job", b"stats-job x", b"stats-tube ", b"stats-tube -x",
    b"stats x", b"use ", b"use -a", b"use a b", b"use " + b"n" * 201, b"watch ", b"watch \xc3\xa9", b"ignore ",
    b"ignore " + b"n" * 201, b"ignore never-watched", b"list-tubes ", b"list-tube", b"list-tube-usedx", b"pause-tube",
    b"pause-tube default", b"pause-tube default x", b"pause-tube " + b"n" * 201 + b" 0", b"USE a", b"nul\0nul",
    b"x" * 222, b"x" * 300, b"stats-tube no-such-tube",
)  # fmt: skip


class Machine(RuleBasedStateMachine):
    """Draws commands. Subclasses give the subject, and more to do if it can have its clock moved."""

    durations: tuple[int, ...] = (0,)
    ttrs: tuple[int, ...] = (60, 1000)
    tubes: tuple[bytes, ...] = (b"a", b"b", b"c", b"d")
    next_body = 0

    def make(self) -> Session:
        raise NotImplementedError

    @initialize()
    def begin(self) -> None:
        self.session = self.make()
        self.past_jobs: list[int] = []
        for _ in range(2):
            self.connect()

    @precondition(lambda self: len(self.session.open_conns()) < MAX_CONNS)
    @rule()
    def connect(self) -> None:
        self.session.connect()

    @precondition(lambda self: len(self.session.open_conns()) > 1 and self.closable())
    @rule(seed=SEEDS)
    def close(self, seed: int) -> None:
        self.session.close(Random(seed).choice(self.closable()))

    @precondition(lambda self: len(self.session.open_conns()) > 1)
    @rule(seed=SEEDS)
    def half_close(self, seed: int) -> None:
        self.session.half_close(Random(seed).choice(self.session.open_conns()))

    @precondition(lambda self: len(self.idle()) > 1)
    @rule(seed=SEEDS)
    def quit(self, seed: int) -> None:
        random = Random(seed)
        conn = random.choice(self.idle())
        command = self.command(conn, random)
        self.before_sending()
        self.session.run(conn, [command, Command(b"quit\r\nlist-tube-used\r\n")])

    @precondition(lambda self: self.idle())
    @rule(seed=SEEDS)
    def send(self, seed: int) -> None:
        random = Random(seed)
        conn = random.choice(self.idle())
        count = 1 if self.somebody_waits_widely() else random.randint(1, 6)
        commands = [self.command(conn, random) for _ in range(count - 1)]
        waits = random.randrange(3) == 0
        commands.append(self.waiting_command(random) if waits else self.command(conn, random))
        for part in self.parts(commands):
            self.before_sending()
            self.session.run(conn, part)
        self.past_jobs = sorted({*self.past_jobs, *self.session.comparison.actual_of})

    @precondition(lambda self: self.waiting())
    @rule(seed=SEEDS)
    def send_behind_a_wait(self, seed: int) -> None:
        """Commands that have to be kept until the reserve is answered."""
        random = Random(seed)
        conn = random.choice(self.waiting())
        lines = random.choices([b"list-tube-used", b"list-tubes-watched", b"nonsense"], k=random.randint(0, 3))
        self.session.run(conn, [Command(line + b"\r\n") for line in lines])

    def before_sending(self) -> None:
        """Where a subclass lets a little time pass, so that no two deadlines are equal."""

    def parts(self, commands: list[Command]) -> list[list[Command]]:
        """What is sent at one moment."""
        return [commands]

    def idle(self) -> list[int]:
        return [n for n in self.session.open_conns() if not self.session.model.is_waiting(n)]

    def waiting(self) -> list[int]:
        return [n for n in self.session.open_conns() if self.session.model.is_waiting(n)]

    def closable(self) -> list[int]:
        """Not those with commands behind a wait: how many of them are executed depends on when the close is seen."""
        return [n for n in self.session.open_conns() if not self.session.model.conns[n].input]

    def somebody_waits_widely(self) -> bool:
        return any(len(self.session.model.conns[n].watch) > 1 for n in self.waiting())

    # What is drawn.

    def command(self, conn: int, random: Random) -> Command:
        drawn: Callable[[], Command] = random.choice(
            [
                *2 * [partial(self.put, random)],
                *2 * [partial(Command, b"reserve-with-timeout 0\r\n")],
                partial(self.with_job, conn, random),
                partial(self.release, conn, random),
                partial(self.bury, conn, random),
                partial(self.kick, random),
                partial(self.with_tube, random),
                partial(self.pause_tube, random),
                partial(self.simple, random),
                partial(self.odd, random),
                partial(self.bad_put, random),
            ]
        )
        return drawn()

    def with_job(self, conn: int, random: Random) -> Command:
        text = random.choice(
            (b"delete %d", b"touch %d", b"peek %d", b"kick-job %d", b"stats-job %d", b"reserve-job %d")
        )
        return Command(text + b"\r\n", self.job(conn, random))

    def release(self, conn: int, random: Random) -> Command:
        pri, delay = random.choice(SHORT_PRIS), random.choice(self.durations)
        return Command(b"release %%d %d %d\r\n" % (pri, delay), self.job(conn, random))

    def bury(self, conn: int, random: Random) -> Command:
        return Command(b"bury %%d %d\r\n" % random.choice(SHORT_PRIS), self.job(conn, random))

    def kick(self, random: Random) -> Command:
        return Command(b"kick %d\r\n" % random.choice((0, 1, 2, 100)))

    def with_tube(self, random: Random) -> Command:
        word = random.choice((b"use", b"watch", b"watch", b"ignore", b"stats-tube"))
        return Command(word + b" " + random.choice(self.tubes) + b"\r\n", None, cuts(random))

    def pause_tube(self, random: Random) -> Command:
        return Command(b"pause-tube %s %d\r\n" % (random.choice(self.tubes), random.choice(self.durations)))

    def simple(self, random: Random) -> Command:
        texts = [b"peek-ready", b"peek-delayed", b"peek-buried", b"list-tube-used", b"list-tubes-watched"]
        return Command(random.choice([*texts, *self.summaries()]) + b"\r\n", None, cuts(random))

    def odd(self, random: Random) -> Command:
        return Command(random.choice(ODD_LINES) + b"\r\n", None, cuts(random))

    def waiting_command(self, random: Random) -> Command:
        seconds = [d for d in self.durations if d]
        texts = [b"reserve", b"reserve-with-timeout 100000", *(b"reserve-with-timeout %d" % d for d in seconds)]
        return Command(random.choice(texts) + b"\r\n")

    def summaries(self) -> list[bytes]:
        """Commands about the whole server."""
        return [b"stats", b"list-tubes"]

    def job(self, conn: int, random: Random) -> int:
        held = [j.id for j in self.session.model.conns[conn].reserved]
        return random.choice(held if held and random.randrange(2) else [*self.past_jobs, 999999])

    def put(self, random: Random) -> Command:
        pri, delay, ttr = random.choice(SHORT_PRIS), random.choice(self.durations), random.choice(self.ttrs)
        body = b"job\r\n%%d%d" % self.next_body if self.next_body % 3 else b"%d" % self.next_body
        body = body.replace(b"%", b"#")
        self.next_body += 1
        return Command(b"put %d %d %d %d\r\n%s\r\n" % (pri, delay, ttr, len(body), body), None, cuts(random))

    def bad_put(self, random: Random) -> Command:
        limit = self.session.model.max_job_bytes
        texts = (
            b"put 0 0 1 3\r\nabcde",
            b"put 0 0 1 %d\r\n%s\r\n" % (limit + 1, b"B" * (limit + 1)),
            b"put 0 0 1 0\r\nxy",
            b"put 0 0 1 5 trailing\r\n",
        )
        return Command(random.choice(texts), None, cuts(random))
