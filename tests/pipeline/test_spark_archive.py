"""The archive: every message once, whatever is killed."""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
import pyarrow.parquet as pq
import pytest
from mq_shards.pipeline import archive as archive_job
from mq_shards.pipeline import archive_manifest
from mq_shards.pipeline.archive import subscription_of
from mq_shards.pipeline.arguments import of_archive
from mq_shards.pipeline.compaction import compact
from mq_shards.pipeline.options import OptionError
from mq_shards.pipeline.sink_log import GRACE_S, SinkLog
from mq_shards.pipeline.stopping import Stopped
from mq_shards.pipeline.telemetry import Metrics, Telemetry
from pyspark.sql import SparkSession

from tests.pipeline.serving import Gateway
from tests.servers import ROOT, wait_until

DAY_NS = 86_400 * 10**9
T0_NS = int(datetime(2026, 3, 1, tzinfo=UTC).timestamp()) * 10**9


def archive(gateway: Gateway, to: Path, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "mq_shards.pipeline.command", "--master", "local[2]", "--nice", "0"]
    command += ["--brokers", gateway.address]
    command += ["archive", "--to", str(to), "--topic-pattern", ".*", *arguments]
    return subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )


def finish(process: subprocess.Popen[str]) -> str:
    said, _ = process.communicate(timeout=180)
    assert process.returncode == 0, said
    return said


def fill(gateway: Gateway, count: int, topics: int) -> None:
    with gateway.lock:
        for i in range(count):
            kept = gateway.topic(f"t{i % topics}", i % topics)
            kept.add(f"{i % topics}/{kept.next_seq}".encode(), time_ns=T0_NS + kept.next_seq * DAY_NS // 100)


def found(spark: SparkSession, to: Path) -> Counter[tuple[str, int, str, bytes]]:
    rows = spark.read.parquet(str(to)).select("topic", "seq", "date", "body").collect()
    return Counter((row.topic, row.seq, str(row.date), bytes(row.body)) for row in rows)


def expected(gateway: Gateway) -> Counter[tuple[str, int, str, bytes]]:
    def date(seq: int) -> str:
        return str(datetime.fromtimestamp((T0_NS + seq * DAY_NS // 100) / 10**9, UTC).date())

    return Counter(
        (topic, seq, date(seq), f"{topic[1:]}/{seq}".encode())
        for topic, kept in gateway.topics.items()
        for seq in kept.messages
    )


def wait_for_records_asked(process: subprocess.Popen[str], gateway: Gateway, times: int) -> None:
    """A run that ends by itself before fails the test with what it said."""

    def due() -> bool:
        assert process.poll() is None, process.communicate()[0]
        return sum("/v1/records" in call for call in gateway.calls) >= times

    wait_until(due, f"records have been asked for {times} times", 300)


@pytest.fixture
def often_compacted(spark: SparkSession) -> Iterator[None]:
    """Spark's log of files every two micro-batches, not ten."""
    name = "spark.sql.streaming.fileSink.log.compactInterval"
    spark.conf.set(name, "2")
    yield
    spark.conf.unset(name)


def test_an_archive_has_each_message_once_and_goes_on_where_it_was_stopped(
    spark: SparkSession, jobs_share: None, often_compacted: None, gateway: Gateway, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    # By way of a link, which Spark's own log has then.
    (tmp_path / "real").mkdir()
    to = tmp_path / "archive"
    to.symlink_to(tmp_path / "real")
    fill(gateway, 300, 3)
    given = "--to", str(to), "--topic-pattern", ".*"
    with monkeypatch.context() as patch:
        patch.setattr(archive_job, "_stop_on_signal", lambda: stopped_after(gateway, 2))
        assert run(gateway, *given, "--every", "0.01", "--max-messages", "50") == 128 + signal.SIGTERM
    assert not (to / "_manifest.json").exists()
    fill(gateway, 100, 4)
    told = Metrics("archive", None)
    assert run(gateway, *given, "--max-messages", "100", "--compact-below", "0", telemetry=Telemetry(told)) == 0
    archived = int(capsys.readouterr().out.rpartition("archived ")[2].partition(" ")[0])
    assert told.registry.get_sample_value("mq_pipeline_messages_total", {"job_name": "archive"}) == archived > 0
    assert told.registry.get_sample_value("mq_pipeline_lag_messages", {"job_name": "archive"}) == 0
    assert found(spark, to) == expected(gateway)
    assert set(gateway.readers[subscription_of(str(to))]) == set(gateway.topics)
    assert_manifest_is_right(to, gateway)

    # Who has listed the files before goes on with them, who lists them then finds fewer.
    before, listed = found(spark, to), spark.read.parquet(str(to)).select("topic", "seq")
    files = {file["path"] for file in manifest_of(to)["files"]}
    small = SinkLog(to)
    assert compact(small) > 3
    archive_manifest.write(to, small.files)
    assert_manifest_is_right(to, gateway)
    left = files - {file["path"] for file in manifest_of(to)["files"]}
    assert left and all((to / path).exists() for path in left)
    assert listed.count() == before.total() and found(spark, to) == before
    # The next run goes on, and those that do not count any more go.
    fill(gateway, 50, 5)
    old = orjson.loads((to / "_left.json").read_bytes())
    (to / "_left.json").write_bytes(orjson.dumps({path: since - GRACE_S for path, since in old.items()}))
    assert run(gateway, *given) == 0
    assert not any((to / path).exists() for path in left)
    assert found(spark, to) == expected(gateway)
    assert_manifest_is_right(to, gateway)
    with archive_job.only_one(to), pytest.raises(OptionError, match="another job is at work"):
        run(gateway, *given)
    with pytest.raises(OptionError, match="Spark would leave out what it reads next"):
        run(gateway, *given, "--checkpoint", str(tmp_path / "new"))


def manifest_of(to: Path) -> dict[str, Any]:
    found: dict[str, Any] = orjson.loads((to / "_manifest.json").read_bytes())
    return found


def assert_manifest_is_right(to: Path, gateway: Gateway) -> None:
    """As one would check it who has neither Spark nor us."""
    manifest = manifest_of(to)
    seen: Counter[tuple[str, int, str, bytes]] = Counter()
    for file in manifest["files"]:
        path = to / file["path"]
        assert path.stat().st_size == file["bytes"]
        assert hashlib.sha256(path.read_bytes()).hexdigest() == file["sha256"]
        rows = pq.ParquetFile(path).read().to_pylist()
        (seqs,) = file["seqs"].values()
        assert (len(rows), [min(row["seq"] for row in rows), max(row["seq"] for row in rows)]) == (
            file["messages"], seqs,
        )  # fmt: skip
        seen.update((file["topic"], row["seq"], file["date"], row["body"]) for row in rows)
    assert seen == expected(gateway)
    topics = {topic: (said["messages"], *said["seqs"].values()) for topic, said in manifest["topics"].items()}
    assert topics == {
        topic: (len(kept.messages), [min(kept.messages), max(kept.messages)]) for topic, kept in gateway.topics.items()
    }


def run(gateway: Gateway, *arguments: str, telemetry: Telemetry | None = None) -> int:
    parser = argparse.ArgumentParser()
    parser.set_defaults(nice=0, telemetry=telemetry)
    of_archive(parser)
    return archive_job.run(parser.parse_args(arguments), "local", {"brokers": gateway.address})


@contextlib.contextmanager
def stopped_after(gateway: Gateway, times: int) -> Iterator[Asked]:
    yield Asked(gateway, times)
    raise Stopped(signal.SIGTERM)


class Asked:
    """True once records have been asked for so often: then the job is to stop. A signal would cut off what the session
    of all tests has to say."""

    def __init__(self, gateway: Gateway, times: int) -> None:
        self._gateway = gateway
        self._times = times

    def __bool__(self) -> bool:
        return sum("/v1/records" in call for call in self._gateway.calls) >= self._times


# The first time that Spark starts it for a stream's reader it is slower than Spark waits.
SLOW_PYTHON = """#!/bin/sh
case "$*" in *python_streaming_source_runner*) if mkdir {directory}/was-slow 2>/dev/null; then sleep 15; fi;; esac
exec {python} "$@"
"""


@pytest.mark.long
def test_a_job_whose_python_worker_did_not_start_in_time_is_tried_again(
    spark: SparkSession, gateway: Gateway, tmp_path: Path
) -> None:
    fill(gateway, 50, 1)
    python, to = tmp_path / "python", tmp_path / "archive"
    python.write_text(SLOW_PYTHON.format(directory=tmp_path, python=sys.executable))
    python.chmod(0o755)
    program = "import sys; sys.executable = sys.argv.pop(1)\n"
    program += "from mq_shards.pipeline.command import main; sys.exit(main())"
    command = [sys.executable, "-c", program, str(python), "--master", "local[2]", "--brokers", gateway.address]
    command += ["archive", "--to", str(to), "--topics", "t0"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert "could not start a Python worker in 10 s; trying again" in done.stderr
    assert found(spark, to) == expected(gateway)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_an_archive_has_each_message_once_though_its_runs_are_killed_or_told_to_stop(
    spark: SparkSession, gateway: Gateway, tmp_path: Path
) -> None:
    to, chance = tmp_path / "archive", random.Random(4)
    fill(gateway, 3000, 3)
    # In the middle of a micro-batch: which one, and where in it, is left to chance.
    process = archive(gateway, to, "--every", "0.01", "--max-messages", "200")
    try:
        wait_for_records_asked(process, gateway, chance.randrange(1, 15))
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    fill(gateway, 500, 4)
    process = archive(gateway, to, "--every", "0.01", "--max-messages", "100")
    assert process.stdout is not None
    while not process.stdout.readline().startswith("batch"):
        assert process.poll() is None
    # As a terminal does: Spark's processes hear it too.
    os.killpg(process.pid, signal.SIGINT)
    said, _ = process.communicate(timeout=120)
    assert process.returncode == 128 + signal.SIGINT, said
    assert "stopped by SIGINT; the next run goes on from here" in said
    assert not any(each in said for each in ("\tat ", "Traceback", " ERROR ", "log level")), said
    fill(gateway, 500, 5)
    assert "archived" in finish(archive(gateway, to))
    assert found(spark, to) == expected(gateway)
    held = gateway.readers[subscription_of(str(to))]
    assert set(held) == set(gateway.topics)
