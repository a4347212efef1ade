"""Reserves over many tubes: these lie on many shards, on several workers, and must look like one queue."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.beanstalk.wire import Wire, unique_tube
from tests.servers import Server

TUBES = 40


@pytest.fixture
def tubes() -> list[str]:
    return [unique_tube("many") for _ in range(TUBES)]


@pytest.fixture
def wire(server: Server) -> Iterator[Wire]:
    with Wire(server) as wire:
        yield wire


def put_in(wire: Wire, tube: str, body: bytes, pri: int, ttr: int = 60) -> int:
    wire.use(tube)
    return wire.put(body, pri=pri, ttr=ttr)


def test_the_most_urgent_of_all_tubes_comes_first_then_the_oldest(wire: Wire, tubes: list[str]) -> None:
    draw = random.Random(1)
    wire.watch_only(*tubes)
    jobs = [
        (pri, put_in(wire, draw.choice(tubes), b"", pri))
        for pri in (draw.choice([0, 1, 7, 4294967295]) for _ in range(300))
    ]
    assert [wire.reserve()[0] for _ in jobs] == [job for _, job in sorted(jobs)]
    assert wire.ask("reserve-with-timeout 0") == b"TIMED_OUT"
    for _, job in jobs:
        assert wire.ask(f"delete {job}") == b"DELETED"


def test_what_was_asked_for_but_not_chosen_is_untouched(wire: Wire, tubes: list[str]) -> None:
    wire.watch_only(*tubes)
    jobs = [put_in(wire, tube, b"", n) for n, tube in enumerate(tubes)]
    assert wire.reserve()[0] == jobs[0]
    for job in jobs[1:]:
        stats = wire.stats_job(job)
        assert (stats["state"], stats["reserves"], stats["releases"]) == ("ready", "0", "0")
    for job in jobs:
        wire.ask(f"delete {job}")


def test_only_watched_tubes_count(wire: Wire, tubes: list[str]) -> None:
    wire.watch_only(*tubes[1:])
    unwatched = put_in(wire, tubes[0], b"", 0)
    watched = put_in(wire, tubes[-1], b"", 9)
    assert wire.reserve()[0] == watched
    assert wire.ask("reserve-with-timeout 0") == b"TIMED_OUT"
    wire.ask(f"watch {tubes[0]}")
    assert wire.reserve()[0] == unwatched
    wire.ask(f"ignore {tubes[0]}")
    wire.ask(f"release {unwatched} 0 0")
    assert wire.ask("reserve-with-timeout 0") == b"TIMED_OUT"
    for job in (unwatched, watched):
        assert wire.ask(f"delete {job}") == b"DELETED"


def test_a_job_in_any_of_the_tubes_answers_a_waiting_reserve(server: Server, wire: Wire, tubes: list[str]) -> None:
    with Wire(server) as producer:
        wire.watch_only(*tubes)
        for tube in tubes:
            wire.send(b"reserve\r\n")
            producer.use(tube)
            for other in tubes[:3]:
                producer.wait_for_stats_tube(other, current_waiting=1)
            job = producer.put(tube.encode())
            reply = wire.reply()
            assert (reply.number, reply.body) == (job, tube.encode())
            assert wire.ask(f"delete {job}") == b"DELETED"
        for tube in tubes[:3]:
            producer.wait_for_stats_tube(tube, current_waiting=0)


def test_each_waiting_connection_gets_one_job_and_no_job_goes_astray(server: Server, tubes: list[str]) -> None:
    """Jobs come to many tubes at the same moment while each of many connections waits for just one of them."""
    waiting = [Wire(server) for _ in range(20)]
    with Wire(server) as control:
        for wire in waiting:
            wire.watch_only(*tubes)
            wire.send(b"reserve\r\n")
        for tube in tubes:
            control.wait_for_stats_tube(tube, current_waiting=len(waiting))
        script = b"".join(b"use %s\r\nput 0 0 60 0\r\n\r\n" % tube.encode() for tube in tubes)
        control.send(script)
        jobs = [r.number for r in control.replies(2 * len(tubes)) if r.word == b"INSERTED"]
        taken = [wire.reply().number for wire in waiting]
        assert len(set(taken)) == len(taken) and set(taken) <= set(jobs)
        for wire in waiting:
            assert wire.is_quiet(0.01)
        left = set(jobs) - set(taken)
        control.watch_only(*tubes)
        assert {control.reserve()[0] for _ in left} == left
        assert control.ask("reserve-with-timeout 0") == b"TIMED_OUT"
        for wire, job in zip(waiting, taken, strict=True):
            assert wire.ask(f"delete {job}") == b"DELETED"
            wire.close()
        for job in left:
            assert control.ask(f"delete {job}") == b"DELETED"


def test_a_connection_that_closes_while_jobs_come_loses_none(server: Server, tubes: list[str]) -> None:
    with Wire(server) as control:
        control.watch_only(*tubes)
        for _ in range(15):
            gone = Wire(server)
            gone.watch_only(*tubes)
            gone.send(b"reserve\r\n" * 3)
            control.send(b"".join(b"use %s\r\nput 0 0 60 0\r\n\r\n" % t.encode() for t in tubes[:10]))
            gone.close()
            jobs = {r.number for r in control.replies(20) if r.word == b"INSERTED"}
            assert {control.reserve(timeout=5)[0] for _ in jobs} == jobs
            for job in jobs:
                assert control.ask(f"delete {job}") == b"DELETED"


def test_consumers_over_many_tubes_take_every_job_once(server: Server, tubes: list[str]) -> None:
    jobs, consumers = 1200, 4
    taken: list[list[int]] = [[] for _ in range(consumers)]

    def consume(number: int) -> None:
        with Wire(server) as wire:
            wire.watch_only(*tubes)
            while True:
                job, body = wire.reserve(timeout=20)
                assert wire.ask(f"delete {job}") == b"DELETED"
                if body == b"end":
                    return
                taken[number].append(job)

    threads = [threading.Thread(target=consume, args=(n,)) for n in range(consumers)]
    for thread in threads:
        thread.start()
    with Wire(server) as producer:
        put = [put_in(producer, tubes[n % TUBES], b"%d" % n, n % 5) for n in range(jobs)]
        for n in range(consumers):
            put_in(producer, tubes[n], b"end", 4294967295)
    for thread in threads:
        thread.join(60)
    counts = Counter(job for jobs_of_one in taken for job in jobs_of_one)
    assert sorted(counts) == sorted(put)
    assert set(counts.values()) == {1}
