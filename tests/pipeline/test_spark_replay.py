"""Replay: an archive back into topics, each message once, whatever is killed."""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from mq_shards.pipeline import archive as archive_job
from mq_shards.pipeline import replay as replay_job
from mq_shards.pipeline.arguments import of_replay
from mq_shards.pipeline.command import main
from mq_shards.pipeline.stopping import Stopped
from pyspark.sql import SparkSession

from tests.pipeline.broker import Broker, broker_in
from tests.servers import ROOT

BEGIN = datetime(2026, 3, 1, 23, 59, tzinfo=UTC)
TOPICS = ("a", "7")


def archived(spark: SparkSession, to: Path, start: int, count: int) -> list[tuple[str, int, datetime, bytearray]]:
    """As `mq-pipeline archive` leaves it: messages of both topics, in turn, 100 a second."""
    rows = [
        (TOPICS[n % 2], n // 2, BEGIN + timedelta(milliseconds=10 * n), bytearray(b"%d" % n))
        for n in range(start, start + count)
    ]
    frame = spark.createDataFrame(rows, "topic string, seq long, timestamp timestamp, body binary")
    frame = frame.selectExpr("*", "date(timestamp) date")
    frame.write.mode("append").partitionBy("topic", "date").parquet(str(to))
    return rows


def replay(broker: Broker, archive: Path, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "mq_shards.pipeline.command", "--master", "local[2]", "--nice", "0"]
    command += ["--brokers", broker.address]
    return subprocess.Popen(
        [*command, "replay", "--from", str(archive), *arguments],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
    )  # fmt: skip


def finish(process: subprocess.Popen[str]) -> str:
    said, _ = process.communicate(timeout=120)
    assert process.returncode == 0, said
    return said


def until_said(process: subprocess.Popen[str], text: str) -> None:
    assert process.stdout is not None
    said = []
    for line in process.stdout:
        said.append(line)
        if line.startswith(text):
            return
    raise AssertionError("".join(said))


def bodies(spark: SparkSession, broker: Broker, topic: str) -> list[int]:
    frame = spark.read.format("mqshards").options(brokers=broker.address, topic=topic).load()
    return [int(row.body) for row in frame.orderBy("seq").select("body").collect()]


def run(broker: Broker, archive: Path, *arguments: str) -> int:
    parser = argparse.ArgumentParser()
    parser.set_defaults(nice=0)
    of_replay(parser)
    return replay_job.run(parser.parse_args(["--from", str(archive), *arguments]), "local", {"brokers": broker.address})


def test_a_run_that_is_stopped_is_gone_on_with_and_each_message_is_replayed_once(
    spark: SparkSession, jobs_share: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = tmp_path / "archive"
    archived(spark, archive, 0, 600)

    def stop(rate: float | None, tally: replay_job.Tally) -> None:
        """Between chunks: in the midst of a call a signal would cut off what the session of all tests has to say."""
        if tally.chunks == 2:
            raise Stopped(signal.SIGTERM)

    with broker_in(tmp_path / "data") as broker:
        with monkeypatch.context() as patch:
            patch.setattr(replay_job, "_keep_to", stop)
            assert run(broker, archive, "--prefix", "again-", "--rate", "100") == 128 + signal.SIGTERM
        assert broker.topic("again-a")["latest"] < 300
        archived(spark, archive, 600, 100)
        assert run(broker, archive, "--prefix", "again-") == 0
        for which, topic in enumerate(TOPICS):
            assert bodies(spark, broker, f"again-{topic}") == list(range(which, 700, 2))


@pytest.mark.long
@pytest.mark.timeout(300)
def test_runs_that_are_killed_and_further_runs_replay_each_message_once(spark: SparkSession, tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    archived(spark, archive, 0, 2000)
    with broker_in(tmp_path / "data") as broker:
        process = replay(broker, archive, "--prefix", "again-", "--rate", "200")
        until_said(process, "chunk 2 of 5")
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        process = replay(broker, archive, "--prefix", "again-", "--rate", "200")
        until_said(process, "chunk ")
        broker.kill()
        broker.start()
        until_said(process, "chunk ")
        os.killpg(process.pid, signal.SIGTERM)  # as schedulers do: the JVM hears it too
        said, _ = process.communicate(timeout=60)
        assert process.returncode == 128 + signal.SIGTERM and "Traceback" not in said, said
        archived(spark, archive, 2000, 100)
        assert "replayed" in finish(replay(broker, archive, "--prefix", "again-"))
        for which, topic in enumerate(TOPICS):
            assert bodies(spark, broker, f"again-{topic}") == list(range(which, 2100, 2))


def test_topics_and_times_are_chosen_and_the_rate_is_kept(
    spark: SparkSession, jobs_share: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    archive = tmp_path / "archive"
    archived(spark, archive, 0, 2000)
    times = ["--since", (BEGIN + timedelta(seconds=2)).isoformat(), "--until", "2026-03-01T23:59:12"]
    with broker_in(tmp_path / "data") as broker:
        assert run(broker, archive, "--topics", "7", *times, "--to-topic", "one", "--rate", "100") == 0
        said = capsys.readouterr().out
        summary = re.search(r"^replayed 500 messages in 3 chunks, ([\d.]+) s", said, re.MULTILINE)
        assert summary is not None
        assert float(summary[1]) >= 5
        assert bodies(spark, broker, "one") == list(range(201, 1200, 2))


def test_an_archive_that_was_moved_is_replayed_by_way_of_a_link_and_goes_on_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    path = old / "topic=a" / "part-0.parquet"
    said = {"path": path.as_uri(), "size": 1, "isDir": False, "modificationTime": 1, "action": "add"}
    (old / "_spark_metadata").mkdir(parents=True)
    (old / "_spark_metadata" / "0").write_text(f"v1\n{json.dumps(said)}")
    options = argparse.Namespace(archive=str(old), state=None, **dict.fromkeys(replay_job._SELECTION))
    plan = replay_job.plan_path(options)
    plan.parent.mkdir()
    plan.touch()
    old.rename(new)
    for job in (["replay", "--from"], ["archive", "--topics", "a", "--to"]):
        assert main([*job, str(new)]) == 1
        assert f"names {path}, where Spark would look for it. If {new} was moved, put a link" in capsys.readouterr().err
    old.symlink_to(new)
    archive_job.check_place(old)
    assert replay_job.plan_path(options) == plan
