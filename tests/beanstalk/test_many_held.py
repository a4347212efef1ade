"""What a connection holds costs the next reserve nothing, whatever the times to run are."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from tests.beanstalk.wire import Wire, unique_tube
from tests.servers import SINGLE, Server, running

JOBS = 10_000
AT_ONCE = 500


def worker_seconds(server: Server) -> float:
    """Processor time of the worker so far."""
    words = Path(f"/proc/{server.pid_of('mq-worker-0')}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def seconds_to_hold(server: Server, ttr_of: Callable[[int], int]) -> float:
    """Of the worker, to put so many jobs and have one connection reserve them all."""
    before, tube = worker_seconds(server), unique_tube()
    with Wire(server) as wire:
        wire.use(tube)
        wire.ask(f"watch {tube}")
        wire.ask("ignore default")
        for begin in range(0, JOBS, AT_ONCE):
            wire.send(b"".join(b"put 0 0 %d 1\r\nx\r\n" % ttr_of(n) for n in range(begin, begin + AT_ONCE)))
            assert {reply.word for reply in wire.replies(AT_ONCE)} == {b"INSERTED"}
        for _ in range(0, JOBS, AT_ONCE):
            wire.send(b"reserve\r\n" * AT_ONCE)
            assert {reply.word for reply in wire.replies(AT_ONCE)} == {b"RESERVED"}
        return worker_seconds(server) - before


def test_jobs_with_falling_times_to_run_are_reserved_as_quickly() -> None:
    """One that is due before all that are held was looked for among them: 5 s for so many."""
    with running(SINGLE) as server:
        equal = seconds_to_hold(server, lambda n: 100_000)
        falling = seconds_to_hold(server, lambda n: 100_000 - n)
    assert falling < 5 * equal + 0.3
