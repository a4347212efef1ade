"""What clients know of their jobs while the broker may die at any moment, and whether it kept its word.

Each job is known by its body. Of each the ledger keeps the states in which it may be found: a command that was sent
adds what it may lead to, its answer leaves only that. So after a crash a job whose INSERTED was read must be there, one
whose DELETED was read must not, and only what was under way may be either.
"""

from __future__ import annotations

import itertools
import random
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from tests.beanstalk.replies import Reply, parse_dict
from tests.beanstalk.wire import Wire
from tests.servers import Server

ABSENT, READY, DELAYED, BURIED = "absent", "ready", "delayed", "buried"
DELAY_SECONDS = 100_000
IN_FLIGHT = 40


@dataclass
class Known:
    tube: str
    body: bytes
    id: int | None = None
    may_be: set[str] = field(default_factory=lambda: {ABSENT})


@dataclass
class Ledger:
    tubes: list[str] = field(default_factory=lambda: [f"ledger-{n}" for n in range(12)])
    jobs: dict[bytes, Known] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)
    acknowledged: int = 0
    _bodies: Iterator[int] = field(default_factory=itertools.count)

    def new_body(self, draw: random.Random) -> bytes:
        """Unique, of a random length, and of bytes that a log could take for its own."""
        with self.lock:
            number = next(self._bodies)
        return b"%d:%s" % (number, draw.randbytes(draw.choice([0, 1, 50, 700])) + b"\0" * draw.randrange(9))

    def may_become(self, job: Known, state: str) -> None:
        with self.lock:
            job.may_be.add(state)

    def has_become(self, job: Known, state: str) -> None:
        with self.lock:
            self.acknowledged += 1
            if job.may_be != {ABSENT}:  # a delete that was answered is the last word
                job.may_be = {state}

    def exists(self, job: Known, job_id: int) -> None:
        """Its INSERTED was read, or somebody has reserved it even before that."""
        with self.lock:
            assert job.id in (None, job_id), f"job {job.id} has become {job_id}"
            if job.id is None:
                job.id = job_id
                job.may_be.discard(ABSENT)

    def find_by_body(self, reply: Reply) -> Known:
        assert reply.body is not None
        job = self.jobs.get(reply.body)
        assert job is not None, f"{reply.line!r} is nobody's job"
        self.exists(job, reply.number)
        return job

    def check(self, server: Server) -> None:
        """The broker was started again: everything that was promised holds, and nothing is there twice."""
        with Wire(server) as wire:
            known = [job for job in self.jobs.values() if job.id is not None]
            for some in batches(known, 500):
                wire.send(b"".join(b"stats-job %d\r\n" % (job.id or 0) for job in some))
                for job in some:
                    self._check_job(job, wire.reply(30))
            self._check_tubes(wire)

    def _check_job(self, job: Known, stats: Reply) -> None:
        """Its body is looked at when it is drained."""
        if stats.body is None:
            assert stats.line == b"NOT_FOUND"
            found = ABSENT
        else:
            fields = parse_dict(stats.body)
            assert fields["tube"] == job.tube
            found = fields["state"]
        assert found in job.may_be, f"job {job.id} in {job.tube} is {found} where it may be {sorted(job.may_be)}"
        job.may_be = {found}

    def _check_tubes(self, wire: Wire) -> None:
        """As many ready, delayed and buried jobs as are known, and such whose put was not answered."""
        for tube in self.tubes:
            reply = wire.exchange(f"stats-tube {tube}")
            fields = parse_dict(reply.body) if reply.body else {}
            jobs = [job for job in self.jobs.values() if job.tube == tube]
            counts = Counter(next(iter(job.may_be)) for job in jobs if job.id is not None)
            unsure = sum(job.id is None and job.may_be != {ABSENT} for job in jobs)
            for state in (READY, DELAYED, BURIED):
                there = int(fields.get(f"current-jobs-{state}", "0"))
                assert counts[state] <= there <= counts[state] + unsure, f"{tube}: {there} jobs are {state}"
            assert fields.get("current-jobs-reserved", "0") == "0"

    def drain(self, server: Server) -> None:
        """Takes all jobs out: each is known, comes once, and those that must be there are among them."""
        with Wire(server) as wire:
            wire.watch_only(*self.tubes)
            for tube in self.tubes:
                wire.send(b"use %s\r\nkick 1000000\r\nkick 1000000\r\n" % tube.encode())
                wire.replies(3)
            while True:
                wire.send(b"reserve-with-timeout 0\r\n" * 200)
                replies = wire.replies(200)
                taken = [self.find_by_body(reply) for reply in replies if reply.word == b"RESERVED"]
                assert replies[len(taken) :] == [Reply(b"TIMED_OUT")] * (200 - len(taken))
                for job in taken:
                    assert job.may_be != {ABSENT}, f"job {job.id} came twice"
                    job.may_be = {ABSENT}
                wire.send(b"".join(b"delete %d\r\n" % (job.id or 0) for job in taken))
                assert wire.replies(len(taken)) == [Reply(b"DELETED")] * len(taken)
                if len(taken) < 200:
                    break
        left = [job.id for job in self.jobs.values() if ABSENT not in job.may_be]
        assert not left, f"lost: {left[:10]}"


def batches(jobs: list[Known], size: int) -> Iterator[list[Known]]:
    for start in range(0, len(jobs), size):
        yield jobs[start : start + size]


class Client:
    """Sends commands ahead of their answers, until stopped or cut off. Every answer goes into the ledger."""

    def __init__(self, server: Server, ledger: Ledger, seed: int, *, outages: bool = False, grow: bool = False) -> None:
        self.ledger = ledger
        self.draw = random.Random(seed)
        self.outages = outages
        self.grow = grow
        self.failure: BaseException | None = None
        self.was_cut_off = False
        self.refused = 0
        self._answers: deque[Callable[[Reply], None]] = deque()
        self._held: list[Known] = []
        self._gone: list[Known] = []  # deleted before we heard that they were ours
        self._stop = threading.Event()
        self._wire = Wire(server, reply_seconds=30)
        self._wire.watch_only(*ledger.tubes)
        self._used = "default"
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(60)
        assert not self._thread.is_alive(), "a client waits in vain for an answer"
        self._wire.close()
        if self.failure is not None:
            raise self.failure

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                script = b"".join(self._next_command() for _ in range(self.draw.randint(1, IN_FLIGHT)))
                self._wire.send(script)
                while len(self._answers) > IN_FLIGHT:
                    self._take_answer()
            while self._answers:
                self._take_answer()
                if self._gone:
                    self._wire.send(self._delete_again(self._gone.pop()))
        except (ConnectionError, BrokenPipeError):
            self.was_cut_off = True
        except BaseException as error:
            self.failure = error

    def _take_answer(self) -> None:
        reply = self._wire.reply()
        handle = self._answers.popleft()
        if reply.word == b"INTERNAL_ERROR" and self.outages:
            self.refused += 1
            return
        handle(reply)

    def _next_command(self) -> bytes:
        if self._gone:
            return self._delete_again(self._gone.pop())
        if self._held and self.draw.random() < (0.2 if self.grow else 0.5):
            return self._finish(self._held.pop(self.draw.randrange(len(self._held))))
        if self.draw.random() < (0.15 if self.grow else 0.4):
            self._answers.append(self._reserved)
            return b"reserve-with-timeout 0\r\n"
        return self._put()

    def _put(self) -> bytes:
        tube = self.draw.choice(self.ledger.tubes)
        job = Known(tube, self.ledger.new_body(self.draw))
        self.ledger.jobs[job.body] = job
        delayed = self.draw.random() < 0.1
        state = DELAYED if delayed else READY
        self.ledger.may_become(job, state)

        def inserted(reply: Reply) -> None:
            assert reply.word == b"INSERTED", reply
            self.ledger.exists(job, reply.number)
            self.ledger.acknowledged += 1

        self._answers.append(lambda reply: None)
        self._answers.append(inserted)
        return b"use %s\r\nput %d %d 1000 %d\r\n%s\r\n" % (
            tube.encode(), self.draw.randrange(3), DELAY_SECONDS if delayed else 0, len(job.body), job.body,
        )  # fmt: skip

    def _reserved(self, reply: Reply) -> None:
        if reply.word == b"RESERVED":
            job = self.ledger.find_by_body(reply)
            if job.may_be != {ABSENT}:
                self._held.append(job)
                return
            # That it was ours may be old news: its worker died since, it was given back, and somebody has deleted it.
            assert self.outages, f"job {job.id} was deleted and is back"
            self._gone.append(job)
        else:
            assert reply.line == b"TIMED_OUT", reply

    def _delete_again(self, job: Known) -> bytes:
        def deleted(reply: Reply) -> None:
            assert reply.word == b"NOT_FOUND", f"job {job.id} was deleted and is back: {reply}"

        self._answers.append(deleted)
        assert job.id is not None
        return b"delete %d\r\n" % job.id

    def _finish(self, job: Known) -> bytes:
        command, state, word = self.draw.choice(
            [
                (b"delete %d\r\n", ABSENT, b"DELETED"), (b"delete %d\r\n", ABSENT, b"DELETED"),
                (b"bury %d 5\r\n", BURIED, b"BURIED"), (b"release %d 7 0\r\n", READY, b"RELEASED"),
                (b"release %%d 7 %d\r\n" % DELAY_SECONDS, DELAYED, b"RELEASED"),
            ]
        )  # fmt: skip
        self.ledger.may_become(job, state)

        def finished(reply: Reply) -> None:
            if reply.word == b"NOT_FOUND" and self.outages:
                return  # its worker died, and it was given back
            assert reply.line == word, f"{reply} to {command!r}"
            # A released job may be anywhere by now; what others did to it they have noted.
            if state != READY:
                self.ledger.has_become(job, state)

        self._answers.append(finished)
        assert job.id is not None
        return command % job.id
