"""What beanstalkd 1.12 does, in plain Python, with time passed in: the yardstick for the engine.

A `Model` is a server without sockets: bytes go in on a connection, bytes come out, `advance` moves its clock. It is
written for reading and for being right: every queue is a plain list, searched from end to end. It is itself checked
against the real beanstalkd (test_model.py), so that what it demands of the engine is what beanstalkd does.

It departs from beanstalkd on purpose in two places where beanstalkd's way is an accident of its buffers: a line ends
at the first CRLF, whatever lone CRs come before it, and a line that is too long ends at its CRLF wherever that falls.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from tests.model.arguments import NAME, Arguments, MalformedError
from tests.model.state import (
    CRLF,
    FOREVER,
    Conn,
    Job,
    Tube,
    Waiters,
    soonness,
    urgency,
    yaml_dict,
    yaml_list,
)

SECOND = 1_000_000_000
URGENT_BELOW = 1024
LINE_BYTES = 224
MAX_U32 = (1 << 32) - 1
MAX_U64 = (1 << 64) - 1

BAD_FORMAT = b"BAD_FORMAT"
NOT_FOUND = b"NOT_FOUND"


COUNTED = (
    "put", "peek", "peek-ready", "peek-delayed", "peek-buried", "reserve", "reserve-with-timeout", "delete", "release",
    "use", "watch", "ignore", "bury", "kick", "touch", "stats", "stats-job", "stats-tube", "list-tubes",
    "list-tube-used", "list-tubes-watched", "pause-tube",
)  # fmt: skip


STATES = ("ready", "reserved", "delayed", "buried")


class Model:
    def __init__(self, *, fifo: bool = True, max_job_bytes: int = 65535, command_ns: int = 0) -> None:
        """`command_ns` is how long each command takes: 0 when only `advance` may move the clock."""
        self.fifo = fifo
        self.command_ns = command_ns
        self.max_job_bytes = max_job_bytes
        self.now = 0
        self.draining = False
        self.conns: dict[int, Conn] = {}
        self.tubes: dict[bytes, Tube] = {}
        self.jobs: dict[int, Job] = {}
        self.next_id = 1
        self.next_conn = 0
        self._reset_counters()
        self._runnable: list[Conn] = []
        self._find_or_make(b"default")
        # In the order in which beanstalkd compares prefixes: the first that fits decides.
        self._commands: list[tuple[bytes, Callable[[Conn, Arguments], None]]] = [
            (b"put ", self._put), (b"peek ", self._peek), (b"peek-ready", self._peek_ready),
            (b"peek-delayed", self._peek_delayed), (b"peek-buried", self._peek_buried),
            (b"reserve-with-timeout ", self._reserve_with_timeout), (b"reserve-job ", self._reserve_job),
            (b"reserve", self._reserve), (b"delete ", self._delete), (b"release ", self._release),
            (b"bury ", self._bury), (b"kick ", self._kick), (b"kick-job ", self._kick_job), (b"touch ", self._touch),
            (b"stats-job ", self._stats_job), (b"stats-tube ", self._stats_tube), (b"stats", self._stats),
            (b"use ", self._use), (b"watch ", self._watch), (b"ignore ", self._ignore),
            (b"list-tubes-watched", self._list_tubes_watched), (b"list-tube-used", self._list_tube_used),
            (b"list-tubes", self._list_tubes), (b"quit", self._quit), (b"pause-tube", self._pause_tube),
        ]  # fmt: skip

    # What a test does with it.

    def connect(self) -> int:
        default = self._find_or_make(b"default")
        number = self.next_conn
        self.next_conn += 1
        self.conns[number] = Conn(number, default, [default])
        default.using += 1
        default.watching += 1
        self.total_connections += 1
        return number

    def send(self, number: int, data: bytes) -> None:
        conn = self.conns[number]
        if conn.open:
            conn.input += data
            self._run(conn)

    def received(self, number: int) -> bytes:
        """What came out since the last call."""
        conn = self.conns[number]
        data = bytes(conn.output)
        conn.output.clear()
        return data

    def is_open(self, number: int) -> bool:
        return self.conns[number].open

    def is_waiting(self, number: int) -> bool:
        return self.conns[number].waiting

    def half_close(self, number: int) -> None:
        """The client says that it will send no more: what it has sent is still answered, but nothing is waited for."""
        conn = self.conns[number]
        if not conn.open:
            return
        conn.half_closed = True
        if conn.waiting:
            self._stop_waiting(conn, b"TIMED_OUT")
        self._run(conn)
        if conn.open:
            self.close(number)

    def close(self, number: int) -> None:
        conn = self.conns[number]
        if not conn.open:
            return
        conn.open = False
        incoming, conn.incoming = conn.incoming, None
        if conn.waiting:
            self._stop_waiting(conn, None)
        while conn.reserved:
            job = conn.reserved.pop(0)
            self._make_ready(job)
        for tube in conn.watch:
            tube.watching -= 1
        conn.use.using -= 1
        for tube in [*conn.watch, conn.use, *([incoming.tube] if incoming else [])]:
            self._forget_if_unused(tube)
        self._run_woken()

    def advance(self, seconds: float) -> None:
        until = self.now + round(seconds * SECOND)
        while True:
            at = self._next_event()
            if at is None or at > until:
                break
            self.now = max(self.now, at)
            self._tick()
        self.now = until

    def restart(self) -> None:
        """Killed and started again with its log: connections are gone, jobs are as they were saved last.

        beanstalkd does not log a release without a delay; this does, so that the new priority is not forgotten.
        """
        for conn in self.conns.values():
            conn.open = False
        jobs = self.jobs
        self.jobs = {}
        self.tubes = {}
        self._reset_counters()
        self._find_or_make(b"default")
        for job in jobs.values():
            if job.saved is None:
                continue
            saved = job.saved
            counts = saved.counts
            back = replace(
                job, tube=self._find_or_make(job.tube.name), pri=saved.pri, delay=saved.delay, deadline=saved.deadline,
                state=saved.state, holder=None, reserves=counts[0], timeouts=counts[1], releases=counts[2],
                buries=counts[3], kicks=counts[4],
            )  # fmt: skip
            self.jobs[back.id] = back
            if back.state == "buried":
                back.tube.buried.append(back)
            elif back.state != "delayed" or back.deadline <= self.now:
                back.state = "ready"
        for tube in self.tubes.values():
            tube.buried.sort(key=lambda j: (j.saved.at if j.saved else 0, j.id))

    # Connections: from bytes to commands.

    def _run(self, conn: Conn) -> None:
        while conn.open and not conn.waiting and self._step(conn):
            pass
        self._run_woken()

    def _run_woken(self) -> None:
        while self._runnable:
            conn = self._runnable.pop(0)
            while conn.open and not conn.waiting and self._step(conn):
                pass
            if conn.open and conn.half_closed and not conn.waiting:
                self.close(conn.number)

    def _step(self, conn: Conn) -> bool:
        """Does one thing with the input; false when there is not enough of it."""
        if conn.discard_bytes:
            took = min(conn.discard_bytes, len(conn.input))
            del conn.input[:took]
            conn.discard_bytes -= took
            if conn.discard_bytes == 0:
                conn.reply(b"JOB_TOO_BIG")
            return took > 0
        if conn.incoming is not None:
            return self._take_body(conn, conn.incoming)
        end = conn.input.find(CRLF)
        if conn.in_long_line or end > LINE_BYTES - 2 or (end < 0 and len(conn.input) >= LINE_BYTES):
            return self._skip_long_line(conn, end)
        if end < 0:
            return False
        line = bytes(conn.input[:end])
        del conn.input[: end + 2]
        self._dispatch(conn, line)
        return True

    def _skip_long_line(self, conn: Conn, end: int) -> bool:
        if end >= 0:
            del conn.input[: end + 2]
            conn.in_long_line = False
            conn.reply(BAD_FORMAT)
            return True
        conn.in_long_line = True
        keep = 1 if conn.input.endswith(b"\r") else 0
        del conn.input[: len(conn.input) - keep]
        return False

    def _take_body(self, conn: Conn, job: Job) -> bool:
        if len(conn.input) < conn.body_bytes + 2:
            return False
        job.body = bytes(conn.input[: conn.body_bytes])
        trailer = conn.input[conn.body_bytes : conn.body_bytes + 2]
        del conn.input[: conn.body_bytes + 2]
        conn.incoming = None
        if trailer != CRLF:
            conn.reply(b"EXPECTED_CRLF")
        elif self.draining:
            conn.reply(b"DRAINING")
        else:
            self.total_jobs += 1
            job.tube.total_jobs += 1
            self.jobs[job.id] = job
            conn.reply(b"INSERTED %d" % job.id)
            if job.delay:
                self._make_delayed(job, job.delay)
                job.save(self.now)
            else:
                job.state = "ready"
                job.save(self.now)
                self._make_ready(job)
        self._forget_if_unused(job.tube)
        return True

    def _dispatch(self, conn: Conn, line: bytes) -> None:
        self.now += self.command_ns
        if b"\0" in line:
            conn.reply(BAD_FORMAT)
            return
        for prefix, handle in self._commands:
            if line.startswith(prefix):
                try:
                    handle(conn, Arguments(line[len(prefix) :]))
                except MalformedError:
                    conn.reply(BAD_FORMAT)
                return
        conn.reply(b"UNKNOWN_COMMAND")

    # Commands.

    def _put(self, conn: Conn, args: Arguments) -> None:
        pri = args.number(MAX_U32)
        delay = args.number(MAX_U32) * SECOND
        ttr = args.number(MAX_U32) * SECOND
        body_bytes = args.number(MAX_U32)
        self.counts["put"] += 1
        if body_bytes > self.max_job_bytes:
            conn.discard_bytes = body_bytes + 2
            return
        args.end()
        conn.is_producer = True
        conn.incoming = Job(self.next_id, pri, delay, max(ttr, SECOND), b"", conn.use, self.now)
        conn.body_bytes = body_bytes
        self.next_id += 1

    def _peek(self, conn: Conn, args: Arguments) -> None:
        job = self.jobs.get(args.last_number(MAX_U64))
        self.counts["peek"] += 1
        self._found(conn, job)

    def _peek_ready(self, conn: Conn, args: Arguments) -> None:
        args.end()
        self.counts["peek-ready"] += 1
        self._found(conn, min(self._in(conn.use, "ready"), key=urgency, default=None))

    def _peek_delayed(self, conn: Conn, args: Arguments) -> None:
        args.end()
        self.counts["peek-delayed"] += 1
        self._found(conn, min(self._in(conn.use, "delayed"), key=soonness, default=None))

    def _peek_buried(self, conn: Conn, args: Arguments) -> None:
        args.end()
        self.counts["peek-buried"] += 1
        self._found(conn, conn.use.buried[0] if conn.use.buried else None)

    def _found(self, conn: Conn, job: Job | None) -> None:
        if job is None:
            conn.reply(NOT_FOUND)
        else:
            conn.reply_job(b"FOUND", job)

    def _reserve_with_timeout(self, conn: Conn, args: Arguments) -> None:
        seconds = args.number((1 << 31) - 1)
        self.counts["reserve-with-timeout"] += 1
        self._wait(conn, self.now + seconds * SECOND)

    def _reserve(self, conn: Conn, args: Arguments) -> None:
        args.end()
        self.counts["reserve"] += 1
        self._wait(conn, FOREVER)

    def _wait(self, conn: Conn, until: int) -> None:
        conn.is_worker = True
        if self._deadline_soon(conn) and not any(self._in(t, "ready") for t in conn.watch):
            conn.reply(b"DEADLINE_SOON")
            return
        conn.waiting = True
        conn.wait_until = until
        for tube in conn.watch:
            tube.waiters.add(conn)
        self._serve()
        if conn.waiting and self._deadline_soon(conn):
            self._stop_waiting(conn, b"DEADLINE_SOON")
        if conn.waiting and (until <= self.now or conn.half_closed):
            self._stop_waiting(conn, b"TIMED_OUT")

    def _reserve_job(self, conn: Conn, args: Arguments) -> None:
        job = self.jobs.get(args.last_number(MAX_U64))
        if job is None or job.state == "reserved":
            conn.reply(NOT_FOUND)
            return
        self._remove(job)
        conn.is_worker = True
        self._hand_over(job, conn)

    def _delete(self, conn: Conn, args: Arguments) -> None:
        job = self.jobs.get(args.last_number(MAX_U64))
        self.counts["delete"] += 1
        if job is None or (job.state == "reserved" and job.holder is not conn):
            conn.reply(NOT_FOUND)
            return
        self._remove(job)
        del self.jobs[job.id]
        job.tube.deletes += 1
        conn.reply(b"DELETED")
        self._forget_if_unused(job.tube)

    def _release(self, conn: Conn, args: Arguments) -> None:
        job_id = args.number(MAX_U64)
        pri = args.number(MAX_U32)
        delay = args.last_number(MAX_U32) * SECOND
        self.counts["release"] += 1
        job = self._held(conn, job_id)
        if job is None:
            conn.reply(NOT_FOUND)
            return
        self._remove(job)
        job.pri = pri
        job.delay = delay
        job.releases += 1
        conn.reply(b"RELEASED")
        if delay:
            self._make_delayed(job, delay)
            job.save(self.now)
        else:
            job.state = "ready"
            job.save(self.now)
            self._make_ready(job)

    def _bury(self, conn: Conn, args: Arguments) -> None:
        job_id = args.number(MAX_U64)
        pri = args.last_number(MAX_U32)
        self.counts["bury"] += 1
        job = self._held(conn, job_id)
        if job is None:
            conn.reply(NOT_FOUND)
            return
        self._remove(job)
        job.pri = pri
        job.state = "buried"
        job.buries += 1
        job.tube.buried.append(job)
        job.save(self.now)
        conn.reply(b"BURIED")

    def _kick(self, conn: Conn, args: Arguments) -> None:
        match = re.match(rb"[ \t\n\v\f\r]*([+-]?)([0-9]+)", args.rest)
        if match is None or int(match[2]) > MAX_U64:
            raise MalformedError
        bound = int(match[1] + match[2]) & MAX_U32
        self.counts["kick"] += 1
        jobs = list(conn.use.buried) or sorted(self._in(conn.use, "delayed"), key=soonness)
        kicked = jobs[:bound]
        conn.reply(b"KICKED %d" % len(kicked))
        for job in kicked:
            self._kick_one(job)

    def _kick_job(self, conn: Conn, args: Arguments) -> None:
        job = self.jobs.get(args.last_number(MAX_U64))
        if job is None or job.state not in ("buried", "delayed"):
            conn.reply(NOT_FOUND)
            return
        conn.reply(b"KICKED")
        self._kick_one(job)

    def _kick_one(self, job: Job) -> None:
        self._remove(job)
        job.kicks += 1
        job.state = "ready"
        job.save(self.now)
        self._make_ready(job)

    def _touch(self, conn: Conn, args: Arguments) -> None:
        job_id = args.last_number(MAX_U64)
        self.counts["touch"] += 1
        job = self._held(conn, job_id)
        if job is None:
            conn.reply(NOT_FOUND)
            return
        job.deadline = self.now + job.ttr
        conn.reply(b"TOUCHED")

    def _use(self, conn: Conn, args: Arguments) -> None:
        name = args.name()
        self.counts["use"] += 1
        before = conn.use
        before.using -= 1
        conn.use = self._find_or_make(name)
        conn.use.using += 1
        self._forget_if_unused(before)
        conn.reply(b"USING " + name)

    def _watch(self, conn: Conn, args: Arguments) -> None:
        name = args.name()
        self.counts["watch"] += 1
        tube = self._find_or_make(name)
        if tube not in conn.watch:
            conn.watch.append(tube)
            tube.watching += 1
        conn.reply(b"WATCHING %d" % len(conn.watch))

    def _ignore(self, conn: Conn, args: Arguments) -> None:
        name = args.name()
        self.counts["ignore"] += 1
        tube = next((t for t in conn.watch if t.name == name), None)
        if tube and len(conn.watch) == 1:
            conn.reply(b"NOT_IGNORED")
            return
        if tube:
            conn.watch.remove(tube)
            tube.watching -= 1
            self._forget_if_unused(tube)
        conn.reply(b"WATCHING %d" % len(conn.watch))

    def _pause_tube(self, conn: Conn, args: Arguments) -> None:
        match = re.match(rb" *([-A-Za-z0-9+/;.$_()]+)", args.rest)
        if match is None:
            raise MalformedError
        rest = Arguments(args.rest[match.end() :])
        delay = rest.last_number(MAX_U32) * SECOND
        self.counts["pause-tube"] += 1
        name = Arguments(match[1]).name()
        tube = self.tubes.get(name)
        if tube is None:
            conn.reply(NOT_FOUND)
            return
        tube.pauses += 1
        tube.pause_ns = delay
        tube.unpause_at = self.now + delay
        conn.reply(b"PAUSED")
        if delay == 0:
            self._serve()

    def _quit(self, conn: Conn, args: Arguments) -> None:
        self.close(conn.number)

    def _list_tube_used(self, conn: Conn, args: Arguments) -> None:
        args.end()
        self.counts["list-tube-used"] += 1
        conn.reply(b"USING " + conn.use.name)

    def _list_tubes(self, conn: Conn, args: Arguments) -> None:
        args.end()
        self.counts["list-tubes"] += 1
        # Topics of other protocols may have names that no tube can have.
        conn.reply_text(yaml_list(tube for tube in self.tubes.values() if NAME.match(tube.name)))

    def _list_tubes_watched(self, conn: Conn, args: Arguments) -> None:
        args.end()
        self.counts["list-tubes-watched"] += 1
        conn.reply_text(yaml_list(conn.watch))

    def _stats_job(self, conn: Conn, args: Arguments) -> None:
        job = self.jobs.get(args.last_number(MAX_U64))
        self.counts["stats-job"] += 1
        if job is None:
            conn.reply(NOT_FOUND)
            return
        timed = job.state in ("reserved", "delayed")
        fields = {
            "id": job.id, "tube": f'"{job.tube.name.decode()}"', "state": job.state, "pri": job.pri,
            "age": (self.now - job.created) // SECOND, "delay": job.delay // SECOND, "ttr": job.ttr // SECOND,
            "time-left": (job.deadline - self.now) // SECOND if timed else 0, "file": 0, "reserves": job.reserves,
            "timeouts": job.timeouts, "releases": job.releases, "buries": job.buries, "kicks": job.kicks,
        }  # fmt: skip
        conn.reply_text(yaml_dict(fields))

    def _stats_tube(self, conn: Conn, args: Arguments) -> None:
        name = args.name()
        self.counts["stats-tube"] += 1
        tube = self.tubes.get(name)
        if tube is None:
            conn.reply(NOT_FOUND)
            return
        ready = self._in(tube, "ready")
        paused = tube.pause_ns > 0
        fields = {
            "name": f'"{tube.name.decode()}"', "current-jobs-urgent": sum(j.pri < URGENT_BELOW for j in ready),
            "current-jobs-ready": len(ready), "current-jobs-reserved": len(self._in(tube, "reserved")),
            "current-jobs-delayed": len(self._in(tube, "delayed")), "current-jobs-buried": len(tube.buried),
            "total-jobs": tube.total_jobs, "current-using": tube.using, "current-watching": tube.watching,
            "current-waiting": len(tube.waiters.conns), "cmd-delete": tube.deletes, "cmd-pause-tube": tube.pauses,
            "pause": tube.pause_ns // SECOND,
            "pause-time-left": (tube.unpause_at - self.now) // SECOND if paused else 0,
        }  # fmt: skip
        conn.reply_text(yaml_dict(fields))

    def _stats(self, conn: Conn, args: Arguments) -> None:
        """Only the fields that do not describe a process or a machine."""
        args.end()
        self.counts["stats"] += 1
        jobs = list(self.jobs.values())
        conns = [c for c in self.conns.values() if c.open]
        fields = {
            "current-jobs-urgent": sum(j.state == "ready" and j.pri < URGENT_BELOW for j in jobs),
            **{f"current-jobs-{state}": sum(j.state == state for j in jobs) for state in STATES},
            **{f"cmd-{name}": self.counts[name] for name in COUNTED},
            "job-timeouts": self.job_timeouts, "total-jobs": self.total_jobs, "max-job-size": self.max_job_bytes,
            "current-tubes": len(self.tubes), "current-connections": len(conns),
            "current-producers": sum(c.is_producer for c in conns), "current-workers": sum(c.is_worker for c in conns),
            "current-waiting": sum(c.waiting for c in conns), "total-connections": self.total_connections,
            "draining": "true" if self.draining else "false",
        }  # fmt: skip
        conn.reply_text(yaml_dict(fields))

    # Queues.

    def _in(self, tube: Tube, state: str) -> list[Job]:
        return [j for j in self.jobs.values() if j.tube is tube and j.state == state]

    def _held(self, conn: Conn, job_id: int) -> Job | None:
        job = self.jobs.get(job_id)
        return job if job is not None and job.holder is conn else None

    def _remove(self, job: Job) -> None:
        """Out of whatever queue it is in."""
        if job.state == "buried":
            job.tube.buried.remove(job)
        if job.holder is not None and job in job.holder.reserved:
            job.holder.reserved.remove(job)
        job.holder = None
        job.state = "invalid"

    def _make_delayed(self, job: Job, delay: int) -> None:
        job.state = "delayed"
        job.deadline = self.now + delay

    def _make_ready(self, job: Job) -> None:
        job.holder = None
        job.state = "ready"
        self._serve()

    def _hand_over(self, job: Job, conn: Conn) -> None:
        job.state = "reserved"
        job.holder = conn
        job.reserves += 1
        job.deadline = self.now + job.ttr
        conn.reserved.append(job)
        conn.reply_job(b"RESERVED", job)

    def _serve(self) -> None:
        """Gives ready jobs to waiting connections as long as there are both."""
        while True:
            tubes = [t for t in self.tubes.values() if t.waiters.conns and not self._is_paused(t)]
            job = min((j for t in tubes for j in self._in(t, "ready")), key=urgency, default=None)
            if job is None:
                return
            conn = job.tube.waiters.take()
            self._stop_waiting(conn, None)
            self._hand_over(job, conn)
            self._runnable.append(conn)

    def _stop_waiting(self, conn: Conn, answer: bytes | None) -> None:
        conn.waiting = False
        conn.wait_until = FOREVER
        for tube in conn.watch:
            tube.waiters.remove(conn)
        if answer is not None:
            conn.reply(answer)
            self._runnable.append(conn)

    def _is_paused(self, tube: Tube) -> bool:
        if tube.unpause_at <= self.now:
            tube.pause_ns = 0
        return tube.pause_ns > 0

    def _deadline_soon(self, conn: Conn) -> bool:
        job = conn.soonest()
        return job is not None and self.now >= job.deadline - SECOND

    def _find_or_make(self, name: bytes) -> Tube:
        if name not in self.tubes:
            self.tubes[name] = Tube(name, Waiters(self.fifo))
        return self.tubes[name]

    def _forget_if_unused(self, tube: Tube) -> None:
        if tube.using or tube.watching or tube.name == b"default" or tube.name not in self.tubes:
            return
        if any(j.tube is tube for j in self.jobs.values()):
            return
        if any(c.incoming is not None and c.incoming.tube is tube for c in self.conns.values()):
            return
        del self.tubes[tube.name]

    def _reset_counters(self) -> None:
        self.counts = dict.fromkeys(COUNTED, 0)
        self.job_timeouts = 0
        self.total_jobs = 0
        self.total_connections = 0

    # Time.

    def _next_event(self) -> int | None:
        times = [j.deadline for j in self.jobs.values() if j.state == "delayed"]
        times += [t.unpause_at for t in self.tubes.values() if t.pause_ns]
        times += [at for c in self.conns.values() if c.open and (at := self._tick_at(c)) < FOREVER]
        return min(times, default=None)

    def _tick_at(self, conn: Conn) -> int:
        job = conn.soonest()
        margin = SECOND if conn.waiting else 0
        return min(conn.wait_until, job.deadline - margin if job else FOREVER)

    def _tick(self) -> None:
        due = sorted((j for j in self.jobs.values() if j.state == "delayed" and j.deadline <= self.now), key=soonness)
        for job in due:
            self._make_ready(job)
        for tube in self.tubes.values():
            if tube.pause_ns and not self._is_paused(tube):
                self._serve()
        ticking = [(self._tick_at(c), c.number, c) for c in self.conns.values() if c.open]
        for at, _, conn in sorted(ticking):
            if at <= self.now:
                self._time_out(conn)
        self._run_woken()

    def _time_out(self, conn: Conn) -> None:
        soon = conn.waiting and self._deadline_soon(conn)
        while (job := conn.soonest()) is not None and job.deadline <= self.now:
            conn.reserved.remove(job)
            job.timeouts += 1
            self.job_timeouts += 1
            self._make_ready(job)
        if conn.waiting and soon:
            self._stop_waiting(conn, b"DEADLINE_SOON")
        elif conn.waiting and conn.wait_until <= self.now:
            self._stop_waiting(conn, b"TIMED_OUT")
