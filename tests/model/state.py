"""What a model of beanstalkd consists of: tubes, jobs and connections, and how they are written out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

FOREVER = 1 << 63
CRLF = b"\r\n"


class Waiters:
    """The connections that wait on one tube, and which of them gets the next job.

    `fifo` is first come, first served. beanstalkd means to do that, but keeps a bag in which a hole is filled from
    the end and a cursor runs around; the order that results is reproduced when `fifo` is false.
    """

    def __init__(self, fifo: bool) -> None:
        self.fifo = fifo
        self.conns: list[Conn] = []
        self._cursor = 0

    def add(self, conn: Conn) -> None:
        self.conns.append(conn)

    def remove(self, conn: Conn) -> None:
        if conn in self.conns:
            self._remove_at(self.conns.index(conn))

    def take(self) -> Conn:
        if self.fifo:
            return self.conns.pop(0)
        self._cursor %= len(self.conns)
        conn = self.conns[self._cursor]
        self._remove_at(self._cursor)
        self._cursor += 1
        return conn

    def _remove_at(self, at: int) -> None:
        if self.fifo:
            del self.conns[at]
            return
        last = self.conns.pop()
        if at < len(self.conns):
            self.conns[at] = last


@dataclass(eq=False)
class Tube:
    name: bytes
    waiters: Waiters
    buried: list[Job] = field(default_factory=list)
    using: int = 0
    watching: int = 0
    total_jobs: int = 0
    deletes: int = 0
    pauses: int = 0
    pause_ns: int = 0
    unpause_at: int = 0


@dataclass
class Saved:
    """What the log knows of a job: it comes back like this after a crash."""

    state: str
    pri: int
    delay: int
    deadline: int
    at: int
    counts: tuple[int, int, int, int, int]


@dataclass(eq=False)
class Job:
    id: int
    pri: int
    delay: int
    ttr: int
    body: bytes
    tube: Tube
    created: int
    state: str = "invalid"
    deadline: int = 0
    holder: Conn | None = None
    reserves: int = 0
    timeouts: int = 0
    releases: int = 0
    buries: int = 0
    kicks: int = 0
    saved: Saved | None = None

    def save(self, now: int) -> None:
        counts = (self.reserves, self.timeouts, self.releases, self.buries, self.kicks)
        self.saved = Saved(self.state, self.pri, self.delay, self.deadline, now, counts)


@dataclass(eq=False)
class Conn:
    number: int
    use: Tube
    watch: list[Tube]
    input: bytearray = field(default_factory=bytearray)
    output: bytearray = field(default_factory=bytearray)
    open: bool = True
    half_closed: bool = False
    in_long_line: bool = False
    incoming: Job | None = None
    body_bytes: int = 0
    discard_bytes: int = 0
    waiting: bool = False
    wait_until: int = FOREVER
    reserved: list[Job] = field(default_factory=list)
    is_producer: bool = False
    is_worker: bool = False

    def reply(self, line: bytes) -> None:
        self.output += line + CRLF

    def reply_job(self, word: bytes, job: Job) -> None:
        self.output += b"%s %d %d\r\n%s\r\n" % (word, job.id, len(job.body), job.body)

    def reply_text(self, text: str) -> None:
        data = text.encode()
        self.output += b"OK %d\r\n%s\r\n" % (len(data), data)

    def soonest(self) -> Job | None:
        return min(self.reserved, key=lambda j: j.deadline, default=None)


def urgency(job: Job) -> tuple[int, int]:
    return job.pri, job.id


def soonness(job: Job) -> tuple[int, int]:
    return job.deadline, job.id


def yaml_dict(fields: Mapping[str, object]) -> str:
    return "---\n" + "".join(f"{name}: {value}\n" for name, value in fields.items())


def yaml_list(tubes: Iterable[Tube]) -> str:
    return "---\n" + "".join(f"- {t.name.decode()}\n" for t in tubes)
