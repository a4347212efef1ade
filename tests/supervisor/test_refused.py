"""A process whose start is refused while the broker serves: it is tried again until the cause is gone, and the others
go on. At the broker's own start it ends the broker."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from mq_shards.shards.checksum import crc32c
from mq_shards.supervisor import restarts
from mq_shards.supervisor.child import Child

from tests.beanstalk.wire import Wire
from tests.servers import Shape, running, wait_until
from tests.supervisor.small_broker import Start

TWO = Shape("shards-2x1", "mq-shards", ("--workers", "2", "--shards", "2", "--damage", "refuse"))
SERVED, MISSING = (next(t for t in "abcdefgh" if crc32c(t.encode()) % 2 == shard) for shard in (0, 1))


@pytest.fixture
def worker() -> Iterator[Child]:
    child = Child("worker", 1, "nothing.main")
    yield child
    child.close()


def test_a_worker_that_is_refused_is_tried_again_and_the_others_serve(tmp_path: Path) -> None:
    shard, away = tmp_path / "data" / "shard-0001", tmp_path / "away"
    with running(TWO, data_dir=tmp_path / "data") as server, Wire(server) as wire, Wire(server) as waiting:
        waiting.use(MISSING)
        job = waiting.put(b"before")
        shard.rename(away)
        os.kill(server.pid_of("mq-worker-1"), signal.SIGKILL)
        refusal = "mq-worker-1 cannot serve: shard 1 is refused: its folder is missing (--damage serve does without)"
        wait_until(lambda: server.said().count(refusal) > 1, "it is refused, and tried again")
        assert "mq-worker-1 is tried again in 0.1 s; the other processes serve" in server.said()
        waiting.send(b"peek %d\r\n" % job)
        wire.use(SERVED)
        assert wire.ask(f"delete {wire.put(b'meanwhile')}") == b"DELETED"
        away.rename(shard)
        assert waiting.reply().body == b"before"
        wait_until(lambda: "mq-worker-1 is back" in server.said(), "it is back")
        assert server.terminate() == 0


def test_a_broker_is_stopped_though_a_worker_is_refused_and_a_client_waits_for_it(tmp_path: Path) -> None:
    with running(TWO, data_dir=tmp_path / "data") as server, Wire(server) as waiting:
        waiting.use(MISSING)
        job = waiting.put(b"before")
        (tmp_path / "data" / "shard-0001").rename(tmp_path / "away")
        os.kill(server.pid_of("mq-worker-1"), signal.SIGKILL)
        wait_until(lambda: "mq-worker-1 cannot serve" in server.said(), "it is refused")
        waiting.send(b"peek %d\r\n" % job)
        assert server.terminate() == 0


def test_a_worker_that_is_refused_at_the_start_of_the_broker_ends_it(start: Start) -> None:
    broker = start("--workers", "2", does={"mq-worker-1": "refuse"}, ready=False)
    assert broker.ends(20) == 1
    assert "mq-worker-1 cannot serve: No space left on device" in broker.said()
    assert "tried again" not in broker.said()


def test_a_worker_that_has_recovered_and_is_refused_before_all_acceptors_serve_is_tried_again(start: Start) -> None:
    """Others may have been served by then."""
    broker = start("--workers", "2", does={"mq-acceptor-0": "hesitate"}, ready=False)
    wait_until(lambda: "go" in broker.what("mq-acceptor-0"), "the workers have recovered", 20)
    (broker.directory / "mq-worker-1.does").write_text("refuse")
    broker.kill("mq-worker-1")
    wait_until(lambda: "mq-worker-1 is tried again" in broker.said(), "it is refused, and tried again")
    for title in ("mq-worker-1", "mq-acceptor-0"):
        (broker.directory / f"{title}.does").unlink()
    broker.wait_until_ready()


def test_systemd_is_told_why_a_worker_does_not_serve(start: Start) -> None:
    broker = start("--workers", "2")
    (broker.directory / "mq-worker-1.does").write_text("refuse")
    broker.kill("mq-worker-1")
    refused = "STATUS=mq-worker-1 cannot serve: No space left on device"
    wait_until(lambda: broker.has_noticed(refused), "systemd is told")
    assert "ended unasked" not in broker.said()
    (broker.directory / "mq-worker-1.does").unlink()
    wait_until(lambda: broker.has_noticed("STATUS=") and broker.noticed[-1] == "STATUS=serving", "it serves")
    assert broker.ask()["mq-worker-1"] == broker.pids()["mq-worker-1"]


def test_a_worker_that_cannot_be_forked_is_tried_again_and_the_rest_is_served(start: Start) -> None:
    broker = start("--workers", "2")
    _, hard = resource.prlimit(broker.process.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(broker.process.pid, resource.RLIMIT_NOFILE, (8, hard))
    broker.kill("mq-worker-1")
    wait_until(lambda: "mq-worker-1 is tried again in 0.2 s" in broker.said(), "it fails, twice")
    assert "mq-worker-1 cannot be started: Too many open files" in broker.said()
    assert broker.ask()["mq-worker-0"] == broker.pids()["mq-worker-0"]
    resource.prlimit(broker.process.pid, resource.RLIMIT_NOFILE, (hard, hard))
    wait_until(lambda: "mq-worker-1 is back" in broker.said(), "it is back")


def test_a_worker_is_tried_as_long_as_it_is_refused_and_may_still_die_as_often_as_any(worker: Child) -> None:
    now = 1000.0
    assert restarts.plan(worker, now) == 0.0
    worker.refused = True
    waits = [restarts.plan(worker, now) for _ in range(2000)]
    assert waits[:5] == [0.1, 0.2, 0.4, 0.8, 1.6]
    assert waits[-1] == restarts.REFUSED_DELAY_S
    worker.refused = False
    assert [restarts.plan(worker, now) for _ in range(5)] == [0.1, 0.2, 0.4, 0.8, None]
