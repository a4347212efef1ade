"""The load generator counts what the real beanstalkd counts; the comparison sees regressions and overlooks noise."""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from perf import brokers, compare, load, memory_in_use
from perf.beanstalk import generator, peer
from perf.beanstalk.peer import Beanstalkd
from perf.beanstalk.wire import stats, with_ready
from perf.brokers import DISK, MEMORY, Broker
from perf.figures import RATIO, Better, Figure, Figures, Name, Report, ratio, table
from tests.servers import ROOT, wait_until

BEANSTALKD = peer.installed()
needs_beanstalkd = pytest.mark.skipif(BEANSTALKD is None, reason="beanstalkd is not installed")


@pytest.fixture
def beanstalkd() -> Iterator[Broker]:
    with Broker(BEANSTALKD or Beanstalkd(), MEMORY) as broker:
        yield broker


def counted(broker: Broker) -> dict[str, int]:
    return {name: int(value) for name, value in stats(broker.port).items() if value.isdigit()}


@needs_beanstalkd
@pytest.mark.parametrize(
    "arguments",
    [
        ("--producers", "5", "--consumers", "4", "--depth", "32"),
        ("--producers", "3", "--consumers", "3", "--depth", "1"),
        ("--producers", "1", "--consumers", "1", "--depth", "1", "--max-ready", "1"),
        ("--producers", "8", "--consumers", "3", "--depth", "7", "--tubes", "5", "--tube", "mail"),
        ("--producers", "3", "--consumers", "8", "--depth", "7", "--tubes", "3", "--max-ready", "10"),
        ("--producers", "3", "--consumers", "2", "--tubes", "3", "--watch-all"),
        ("--producers", "2", "--consumers", "2", "--body", "0"),
        ("--producers", "2", "--consumers", "2", "--body", "65535"),
    ],
    ids=" ".join,
)
def test_every_job_of_a_run_by_number_is_put_reserved_and_deleted_once(
    beanstalkd: Broker, arguments: tuple[str, ...]
) -> None:
    result = generator.run(beanstalkd.port, (*arguments, "--jobs", "2003"))
    assert (result.jobs, result.puts, result.reserves, result.deletes) == (2003, 2003, 2003, 2003)
    server = counted(beanstalkd)
    assert (server["cmd-put"], server["cmd-reserve"], server["cmd-delete"]) == (2003, 2003, 2003)
    assert (server["total-jobs"], server["current-jobs-ready"], server["current-jobs-reserved"]) == (2003, 0, 0)


@needs_beanstalkd
def test_what_put_only_leaves_drain_takes(beanstalkd: Broker) -> None:
    tubes = ("--tubes", "3", "--tube", "t", "--jobs", "1000")
    assert generator.run(beanstalkd.port, ("--mode", "put-only", *tubes)).puts == 1000
    assert counted(beanstalkd)["current-jobs-ready"] == 1000
    assert generator.run(beanstalkd.port, ("--mode", "drain", "--consumers", "2", *tubes)).deletes == 1000
    assert counted(beanstalkd)["current-jobs-ready"] == 0


@needs_beanstalkd
def test_a_timed_run_counts_no_more_than_the_server_did_and_holds_the_queue_down(beanstalkd: Broker) -> None:
    arguments = ("--seconds", "0.3", "--warmup", "0", "--depth", "4", "--max-ready", "500")
    result = generator.run(beanstalkd.port, arguments, beanstalkd.pids())
    server = counted(beanstalkd)
    assert 0 < result.deletes <= server["cmd-delete"]
    # The replies to what was sent at the end of the window were not waited for.
    assert server["cmd-put"] - 20 * 4 <= result.puts <= server["cmd-put"]
    # What was reserved and not yet deleted when the connections closed is ready again.
    assert server["current-jobs-ready"] <= 500 + 20 * 4 + 20 * 4 * 2
    assert result.rate == pytest.approx(result.jobs / result.seconds, rel=0.01)


@needs_beanstalkd
def test_latencies_and_cpu_times_are_possible_ones(beanstalkd: Broker) -> None:
    before = brokers.cpu_ns(beanstalkd.pids())
    result = generator.run(beanstalkd.port, ("--depth", "1", "--jobs", "3000"), beanstalkd.pids())
    used_us = (brokers.cpu_ns(beanstalkd.pids()) - before) / 1000
    assert result.put is not None and result.job is not None
    assert result.put.samples == result.job.samples == 3000
    for latency in (result.put, result.job):
        assert 1 < latency.p50 <= latency.p99 <= latency.p999 <= latency.max * 1.02 < result.seconds * 1e6 * 1.02
    assert result.server_cpu_us_per_job is not None
    assert 0 < result.server_cpu_us_per_job * 3000 <= used_us * 1.001
    assert used_us < result.seconds * 1e6 * 1.5 + 100_000  # it has one thread


@needs_beanstalkd
def test_idle_connections_are_open_and_then_gone(beanstalkd: Broker) -> None:
    before = counted(beanstalkd)["current-connections"]
    with generator.idle_connections(beanstalkd.port, 50):
        assert counted(beanstalkd)["current-connections"] == before + 50


@needs_beanstalkd
def test_jobs_on_disk_are_found_again_after_a_kill() -> None:
    broker = Broker(BEANSTALKD or Beanstalkd(), DISK)
    try:
        broker.start()
        broker.wait_until_served()
        generator.run(broker.port, ("--mode", "put-only", "--jobs", "500"))
        broker.kill()
        assert broker.pids() == []
        broker.start()
        broker.wait_until_served(with_ready(500))
        directory = broker.directory
        assert any((directory / "data").iterdir())
    finally:
        broker.stop()
    assert not directory.exists()


@needs_beanstalkd
def test_a_reply_that_is_an_error_ends_the_run(beanstalkd: Broker) -> None:
    with pytest.raises(load.LoadError, match="JOB_TOO_BIG"):
        generator.run(beanstalkd.port, ("--body", "70000", "--jobs", "10"))


def answering(replies: bytes) -> int:
    """The port of a server that accepts any number of connections and says the same to each, whatever it hears."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        kept = []
        for _ in range(2):
            connection, _ = listener.accept()
            kept.append(connection)  # closed by the garbage collector, when the thread ends
            connection.recv(1000)
            connection.sendall(b"USING x\r\n" if not kept[1:] else b"WATCHING 1\r\n")
            if kept[1:]:
                connection.recv(1000)
                connection.sendall(b"WATCHING 1\r\n")
                connection.recv(1000)
                connection.sendall(replies)
                while connection.recv(1000):
                    pass

    threading.Thread(target=serve, daemon=True).start()
    port: int = listener.getsockname()[1]
    return port


@pytest.mark.parametrize(
    ("reply", "complaint"),
    [
        (b"DEADLINE_SOON\r\n", "unexpected reply to a consumer: DEADLINE_SOON"),
        (b"RESERVED 7 19\r\n" + b"x" * 19 + b"\r\n", "unexpected reply to a consumer: RESERVED 7 19"),
        (b"RESERVED x 20\r\n", "unexpected reply to a consumer: RESERVED x 20"),
        (b"RESERVED 7 20\r\n" + b"x" * 20 + b"\r\n", "a body that was not put"),
        (b"RESERVED 7 20\r\n" + b"x" * 22, "a body that does not end where it should"),
    ],
)
def test_wrong_deliveries_end_the_run(reply: bytes, complaint: str) -> None:
    port = answering(reply)
    with pytest.raises(load.LoadError, match=complaint):
        generator.run(port, ("--producers", "1", "--consumers", "1", "--body", "20", "--tube", "x", "--jobs", "5"))


def test_the_process_tree_is_counted_with_its_descendants() -> None:
    with subprocess.Popen(["sh", "-c", "sleep 30 & echo started; wait"], stdout=subprocess.PIPE) as shell:
        assert shell.stdout is not None
        shell.stdout.readline()
        tree = brokers.process_tree(shell.pid)
        try:
            assert len(tree) == 2 and tree[0] == shell.pid
            wait_until(lambda: brokers.cpu_ns(tree[1:]) > 0, "the child has run")
            assert brokers.cpu_ns(tree) > brokers.cpu_ns(tree[1:]) > 0
            assert brokers.memory_of(tree).held > brokers.memory_of(tree[1:]).held > 0
        finally:
            for pid in tree:
                os.kill(pid, signal.SIGKILL)


RATE = Name("pipelined", "disk", "mq-shards", "rate")


def figure(*rounds: float, better: Better = "higher", judged: bool = True) -> Figure:
    return Figure(rounds, "jobs/s", better, judged=judged)


def verdict(old: Figure, new: Figure) -> str:
    (change,) = compare.compare({RATE: old}, {RATE: new}, threshold_percent=10)
    return change.verdict


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (figure(100, 101, 99), figure(70, 71, 69), "worse"),
        (figure(100, 101, 99), figure(140, 141, 139), "better"),
        (figure(100, 101, 99), figure(95, 96, 94), "same"),
        (figure(100, 140, 80), figure(85, 60, 120), "within noise"),
        (figure(100, 101, 99, better="lower"), figure(140, 141, 139, better="lower"), "worse"),
        (figure(100, 101, 99, better="lower"), figure(70, 71, 69, better="lower"), "better"),
        (figure(100), figure(85), "same"),  # one round says nothing about noise: twice the threshold
        (figure(100), figure(75), "worse"),
        (figure(100, 101, 99, judged=False), figure(10, 11, 9, judged=False), "not judged"),
        (figure(-1, better="lower"), figure(50, better="lower"), "worse"),
    ],
)
def test_only_what_is_worse_beyond_threshold_and_noise_is_a_regression(old: Figure, new: Figure, expected: str) -> None:
    assert verdict(old, new) == expected


def test_noise_alone_is_rarely_called_a_regression_and_a_halved_rate_always_is() -> None:
    chance = random.Random(1)

    def measured(rate: float) -> Figure:
        return figure(*(rate * chance.gauss(1, 0.08) for _ in range(3)))

    false_alarms = sum(verdict(measured(100), measured(100)) == "worse" for _ in range(1000))
    assert false_alarms < 60
    assert all(verdict(measured(100), measured(50)) == "worse" for _ in range(1000))


def report(rate: float, reference: float) -> Report:
    ours, theirs = figure(rate, rate * 1.01, rate * 0.99), figure(reference, reference, reference, judged=False)
    figures: Figures = {
        RATE: ours,
        Name("pipelined", "disk", "beanstalkd", "rate"): theirs,
        Name("pipelined", "disk", RATIO, "rate"): ratio(ours, theirs, target=8),
    }
    return Report(figures=figures)


@pytest.mark.parametrize(
    ("new", "status"),
    [
        (report(800, 100), 0),
        (report(400, 50), 0),  # the machine is slower, not we
        (report(600, 100), 1),
        (report(1200, 100), 0),
    ],
)
def test_the_command_fails_for_a_regression_and_not_for_a_slower_machine(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], new: Report, status: int
) -> None:
    old_path, new_path = tmp_path / "old.json", tmp_path / "new.json"
    report(800, 100).write(old_path)
    new.write(new_path)
    assert compare.main([str(old_path), str(new_path)]) == status
    shown = [line.split()[:2] for line in capsys.readouterr().out.splitlines()]
    assert (["worse", "pipelined.disk.ratio.rate"] in shown) is bool(status)


def test_a_measurement_that_fails_now_and_did_not_is_a_regression(tmp_path: Path) -> None:
    old_path, new_path = tmp_path / "old.json", tmp_path / "new.json"
    report(800, 100).write(old_path)
    broken = report(800, 100)
    broken.failures.append("recovery: mq-shards ended with status 1")
    broken.write(new_path)
    assert compare.main([str(old_path), str(new_path)]) == 1


def test_files_that_are_no_reports_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    for content in ("", "[]", "{}", '{"format": 99}'):
        path.write_text(content)
        assert compare.main([str(path), str(path)]) == 2


def test_a_report_is_read_as_it_was_written_and_shown_against_its_targets(tmp_path: Path) -> None:
    written = report(700, 100)
    written.write(tmp_path / "report.json")
    assert Report.read(tmp_path / "report.json") == written
    (line,) = [line for line in table(written.figures).splitlines() if "rate" in line]
    assert "700" in line and "x 7" in line and "MISSED" in line


def test_memory_is_in_use_until_it_is_free() -> None:
    with memory_in_use.MemoryInUse(seconds=1 / 512) as memory:
        assert memory.held_bytes == 3 << 20
        memory.free()
        assert memory.held_bytes == 0
        memory.hold()
        assert memory.held_bytes == 3 << 20
    assert memory.held_bytes == 0


def test_memory_that_is_held_leaves_most_of_what_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_in_use, "available_bytes", lambda: 8 << 20)
    with memory_in_use.MemoryInUse(seconds=2) as memory:
        assert memory.held_bytes == 2 << 20
    monkeypatch.setattr(memory_in_use, "available_bytes", lambda: 0)
    with memory_in_use.MemoryInUse(seconds=2) as memory:
        assert memory.held_bytes == 0


@pytest.mark.long
@pytest.mark.timeout(600)  # it compiles the core
@pytest.mark.skipif(shutil.which("valgrind") is None, reason="valgrind is not installed")
def test_instructions_are_counted_for_every_protocol() -> None:
    loads = ("pipelined", "nsq-pub", "nats-one", "pulsar-publish")
    done = subprocess.run(
        [sys.executable, "-m", "perf.instructions", *loads], cwd=ROOT, capture_output=True, text=True, check=True
    )
    counts = {line.split()[0]: line.split()[1:] for line in done.stdout.splitlines()[1:]}
    assert tuple(counts) == loads
    assert all(100 < int(both.replace(",", "")) < 50_000 for _, _, both in counts.values())
