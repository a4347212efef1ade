"""Published client libraries, unchanged: greenstalk and pystalkd."""

# ruff: noqa: ANN401 -- the clients may not be installed, so their types are not known
from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.beanstalk.wire import unique_tube
from tests.servers import Server

greenstalk = pytest.importorskip("greenstalk")
pystalkd = pytest.importorskip("pystalkd.Beanstalkd")


@pytest.fixture
def tube() -> str:
    return unique_tube("clients")


@pytest.fixture
def green(server: Server, tube: str) -> Iterator[Any]:
    with greenstalk.Client(("127.0.0.1", server.port), use=tube, watch=tube) as client:
        yield client


@pytest.fixture
def pysta(server: Server, tube: str) -> Iterator[Any]:
    client = pystalkd.Connection("127.0.0.1", server.port, parse_yaml=False)
    client.use(tube)
    client.watch(tube)
    client.ignore("default")
    yield client
    client.close()


class TestGreenstalk:
    def test_a_job_through_its_life(self, green: Any, tube: str) -> None:
        first = green.put("hello \u2603", priority=10, delay=0, ttr=30)
        job = green.reserve(timeout=0)
        assert (job.id, job.body) == (first, "hello \u2603")
        green.touch(job)
        green.release(job, priority=5, delay=0)
        job = green.reserve_job(first)
        green.bury(job, priority=6)
        assert green.peek_buried().id == first
        assert green.kick(10) == 1
        assert green.peek_ready().id == first
        stats = green.stats_job(job)
        assert stats["tube"].strip('"') == tube
        assert {k: stats[k] for k in ("state", "pri", "reserves", "releases", "buries", "kicks")} == {
            "state": "ready", "pri": 6, "reserves": 2, "releases": 1, "buries": 1, "kicks": 1,
        }  # fmt: skip
        green.delete(job)
        with pytest.raises(greenstalk.NotFoundError):
            green.peek(first)

    def test_delayed_jobs_are_kicked_by_id(self, green: Any) -> None:
        job = green.put("later", delay=1000)
        assert green.peek_delayed().id == job
        with pytest.raises(greenstalk.TimedOutError):
            green.reserve(timeout=0)
        green.kick_job(greenstalk.Job(job, ""))
        green.delete(green.reserve(timeout=0))

    def test_errors_are_the_ones_that_it_knows(self, green: Any, tube: str) -> None:
        with pytest.raises(greenstalk.JobTooBigError):
            green.put("x" * 65536)
        with pytest.raises(greenstalk.NotIgnoredError):
            green.ignore(tube)
        with pytest.raises(greenstalk.NotFoundError):
            green.delete(greenstalk.Job(1 << 60, ""))
        with pytest.raises(greenstalk.BadFormatError):
            green.use("-")
        green.delete(greenstalk.Job(green.put("after all that"), ""))

    def test_tubes(self, green: Any, tube: str) -> None:
        other = unique_tube("clients")
        assert green.watch(other) == 2
        assert sorted(green.watching()) == sorted([tube, other])
        assert green.ignore(other) == 1
        assert green.using() == tube
        assert {"default", tube} <= set(green.tubes())
        green.pause_tube(tube, 1000)
        assert green.stats_tube(tube)["pause"] == 1000
        green.pause_tube(tube, 0)
        assert green.stats()["max-job-size"] == 65535

    def test_binary_bodies(self, server: Server, tube: str) -> None:
        body = bytes(range(256)) * 200
        with greenstalk.Client(("127.0.0.1", server.port), encoding=None, use=tube, watch=tube) as client:
            client.put(body)
            job = client.reserve(timeout=0)
            assert job.body == body
            client.delete(job)

    def test_producers_and_consumers_at_once_lose_and_double_nothing(self, server: Server, tube: str) -> None:
        """Consumers end on a body that says so: one such job for each, less urgent than all others."""
        jobs, consumers, producers = 1500, 4, 3
        got: list[list[str]] = [[] for _ in range(consumers)]

        def produce(number: int) -> None:
            with greenstalk.Client(("127.0.0.1", server.port), use=tube) as client:
                for n in range(jobs // producers):
                    client.put(f"{number}-{n}")

        def consume(number: int) -> None:
            with greenstalk.Client(("127.0.0.1", server.port), watch=tube) as client:
                while True:
                    job = client.reserve(timeout=20)
                    client.delete(job)
                    if job.body == "end":
                        return
                    got[number].append(job.body)

        makers = [threading.Thread(target=produce, args=(n,)) for n in range(producers)]
        takers = [threading.Thread(target=consume, args=(n,)) for n in range(consumers)]
        for thread in makers + takers:
            thread.start()
        for thread in makers:
            thread.join(60)
        with greenstalk.Client(("127.0.0.1", server.port), use=tube) as client:
            for _ in takers:
                client.put("end", priority=4294967295)
        for thread in takers:
            thread.join(60)
        wanted = sorted(f"{p}-{n}" for p in range(producers) for n in range(jobs // producers))
        assert sorted(body for bodies in got for body in bodies) == wanted


class TestPystalkd:
    def test_a_job_through_its_life(self, pysta: Any) -> None:
        first = pysta.put("hello", priority=10, delay=0, ttr=30)
        job = pysta.reserve(timeout=0)
        assert (job.job_id, job.body) == (first, "hello")
        pysta.touch(first)
        pysta.release(first, priority=5, delay=1000)
        assert pysta.peek_delayed().job_id == first
        assert pysta.reserve(timeout=0) is None
        pysta.kick_job(first)
        assert pysta.reserve(timeout=0).job_id == first
        pysta.bury(first, priority=6)
        assert pysta.peek_buried().job_id == first
        assert pysta.kick(10) == 1
        assert pysta.peek_ready().job_id == first
        assert f"id: {first}\n" in pysta.stats_job(first)
        pysta.delete(first)
        assert pysta.peek(first) is None

    def test_tubes(self, pysta: Any, tube: str) -> None:
        assert pysta.using() == tube
        assert tube in pysta.tubes()
        assert tube in pysta.watching()
        with pysta.temporary_watch("clients-passing"):
            assert "clients-passing" in pysta.watching()
        pysta.pause_tube(tube, 0)
        assert "cmd-pause-tube: 1\n" in pysta.stats_tube(tube)
        with pytest.raises(pystalkd.CommandFailed):
            pysta.ignore(tube)

    def test_bytes(self, pysta: Any) -> None:
        job = pysta.put_bytes(b"\x00\xff raw")
        got = pysta.reserve_bytes(timeout=0)
        assert (got.job_id, got.body) == (job, b"\x00\xff raw")
        pysta.delete(job)
