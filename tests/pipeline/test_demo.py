"""The parts of `make pipeline-demo` that need no Spark; all of it takes more than a minute."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

import pyarrow as pa
import pyarrow.parquet as pq
from mq_shards.pipeline.demo.__main__ import differences
from mq_shards.pipeline.demo.events import Batch, orders, readings
from mq_shards.pipeline.demo.jobs import run_in_turn
from mq_shards.pipeline.demo.publishers import publish_messages, put_jobs

from tests.pipeline.broker import broker_in
from tests.servers import ROOT, wait_until


@pytest.mark.parametrize("make", [orders, readings])
def test_events_are_the_same_for_a_seed_and_of_all_kinds(make: type) -> None:
    batch = make(5, 500, 1e9)
    assert batch == make(5, 500, 1e9) != make(6, 500, 1e9)
    assert batch.distinct == 500 and batch.duplicates > 5 and batch.bad > 1
    ids = set()
    for body in batch.bodies:
        try:
            ids.add(json.loads(body)["id"])
        except ValueError:
            continue
    assert len(ids) == 500


def test_both_protocols_publish(tmp_path: Path) -> None:
    bodies = orders(1, 450, 1e9).bodies
    with broker_in(tmp_path / "data") as broker:
        publish_messages(broker.nsq_port, "orders", bodies)
        put_jobs(broker.running.port, "readings", bodies)
        assert [broker.topic(name)["records"] for name in ("orders", "readings")] == [len(bodies)] * 2
        with pytest.raises(RuntimeError, match="MPUB"):
            publish_messages(broker.nsq_port, "orders", [b""])


def test_a_count_that_is_wrong_is_named(tmp_path: Path) -> None:
    row = {"topic": "orders", "read": 5, "kept": 3, "duplicates": 1, "bad": 1}
    pq.write_table(pa.Table.from_pylist([row]), tmp_path / "part.parquet")
    batch = Batch([b""] * 5, distinct=3, bad=1)
    assert differences(tmp_path, {"orders": [batch]}) == []
    (problem,) = differences(tmp_path, {"orders": [batch, batch]})
    assert problem.startswith("orders: {'topic': 'orders', 'read': 5")


@pytest.mark.parametrize(
    ("statuses", "run", "ended"),
    [
        ([0, 0], 2, 0),
        ([128 + signal.SIGINT, 0], 2, 0),
        ([128 + signal.SIGTERM, 0], 1, 128 + signal.SIGTERM),
        ([1, 0], 1, 1),
        ([0, 1], 2, 1),
    ],
)
def test_a_job_that_was_interrupted_is_followed_by_the_next(statuses: list[int], run: int, ended: int) -> None:
    left = list(statuses)
    assert run_in_turn([["a"], ["b"]], lambda _: left.pop(0)) == ended
    assert len(left) == len(statuses) - run


def test_a_demo_that_is_stopped_leaves_nothing(tmp_path: Path) -> None:
    said = tmp_path / "said"
    with said.open("wb") as sink:
        demo = subprocess.Popen(
            [sys.executable, "-m", "mq_shards.pipeline.demo", "--master", "local[1]", "--events", "10"], cwd=ROOT,
            stdin=subprocess.DEVNULL, stdout=sink, stderr=sink, env={"TMPDIR": str(tmp_path), "PATH": "/usr/bin:/bin"},
        )  # fmt: skip
    wait_until(lambda: "mq-pipeline run" in said.read_text() or demo.poll() is not None, "the first run begins", 60)
    demo.send_signal(signal.SIGTERM)
    assert demo.wait(60) == 128 + signal.SIGTERM, said.read_text()
    assert [path.name for path in tmp_path.iterdir()] == ["said"]
    ours = [path for path in Path("/proc").glob("[0-9]*/cmdline") if str(tmp_path).encode() in _content(path)]
    assert ours == []


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
