"""The report's figures are those of what was published."""

from __future__ import annotations

import argparse
import json
import socket
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from mq_shards.pipeline import arguments, report
from mq_shards.pipeline.backlog import Backlog, of_tubes
from mq_shards.pipeline.client import Address, BrokerError
from mq_shards.pipeline.demo.publishers import put_jobs
from mq_shards.pipeline.options import OptionError
from mq_shards.pipeline.plots import with_gaps
from mq_shards.pipeline.tables import text_table

from tests.nsq import api
from tests.pipeline.broker import Broker, broker_in, now_ms
from tests.servers import free_port, wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with broker_in(tmp_path / "data") as broker:
        yield broker


def options(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    arguments.of_report(parser)
    return parser.parse_args(words)


def computed(spark: SparkSession, broker: Broker, given: argparse.Namespace) -> dict[str, pa.Table]:
    topics = report.topics_of([Address.parse(broker.address)], given)
    return report.computed(spark, topics, {"brokers": broker.address}, given)


def made(spark: SparkSession, broker: Broker, given: argparse.Namespace) -> dict[str, list[dict[str, object]]]:
    address = Address.parse(broker.address)
    topics = report.topics_of([address], given)
    tables = computed(spark, broker, given)
    tables["backlog"] = report.backlog_of([address], topics, given)
    report.write(given.to, tables, datetime.now(UTC))
    return {name: table.to_pylist() for name, table in tables.items()}


def test_a_report_has_what_was_published_and_what_waits(broker: Broker, tmp_path: Path, spark: SparkSession) -> None:
    def event(number: int, delay_s: float) -> bytes:
        user = "loud" if number % 4 else f"quiet-{number}"
        return json.dumps({"time": time.time() - delay_s, "user": user}).encode()

    api.post(broker.nsq_http_port, "/topic/create?topic=orders")
    api.post(broker.nsq_http_port, "/channel/create?topic=orders&channel=billing")
    early = [event(number, 100.0) for number in range(100)]
    broker.publish("orders", early)
    put_jobs(broker.running.port, "other", [b"x" * 10] * 30)
    broker.publish("left-out", [b"x"])
    strange = "a,b\r\nquit"  # as Pulsar's clients may call one: beanstalkd is not asked for it
    assert list(of_tubes(Address("127.0.0.1", broker.running.port), [strange, "a b"])) == []
    wait_until(lambda: broker.topic("orders").get("records") == 100, "the first are there", 10)
    # A time is a whole number of milliseconds, and those before are older.
    since_ms = now_ms() + 2
    wait_until(lambda: now_ms() > since_ms, "the clock goes on", 10)
    late = [event(number, 5.0) for number in range(40)]
    broker.publish("orders", late)
    api.call(broker.http_port, "PUT", "/v1/readers/slow", json.dumps({"orders": 10}).encode())

    beanstalk = f"127.0.0.1:{broker.running.port}"
    asked = ("--nsq-http", f"127.0.0.1:{broker.nsq_http_port}", "--beanstalk", beanstalk)
    whole = made(spark, broker, options("--to", str(tmp_path / "all"), "--topic-pattern", "orders|other", *asked))
    assert [(row["topic"], row["messages"], row["bytes"]) for row in whole["topics"]] == [
        ("orders", 140, sum(map(len, early + late))), ("other", 30, 300),
    ]  # fmt: skip
    orders, other = whole["topics"]
    assert 100_000 <= orders["p50_delay_ms"] <= orders["p99_delay_ms"] < 110_000  # type: ignore[operator]
    assert (other["p50_delay_ms"], other["max_bytes"], other["mean_bytes"]) == (None, 10, 10.0)
    assert sum(row["messages"] for row in whole["minutes"]) == 170  # type: ignore[misc]
    assert [(row["rank"], row["source"], row["messages"]) for row in whole["talkers"]][:1] == [(1, "loud", 105)]
    assert len(whole["talkers"]) == 10
    waiting = {(row["topic"], row["kind"], row["name"]): row["waiting"] for row in whole["backlog"]}
    assert waiting["orders", "reader", "slow"] == 130
    assert waiting["orders", "channel", "billing"] == 140
    assert waiting["other", "tube", "other"] == 30
    said = (tmp_path / "all" / "report.html").read_text()
    assert "<td>orders</td>" in said
    assert said.count("<svg") == 6
    assert "http" not in said.replace("http://www.w3.org/", "").replace("http://purl.org/", "").replace(
        "http://creativecommons.org/", ""
    )
    for name in ("rates", "sizes", "delay", "delay_p50", "talkers", "backlog"):
        assert (tmp_path / "all" / f"{name}.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    for name, rows in whole.items():
        assert pq.read_table(tmp_path / "all" / f"{name}.parquet").to_pylist() == rows
        assert pa_csv.read_csv(tmp_path / "all" / f"{name}.csv").num_rows == len(rows)
    assert not list((tmp_path / "all").glob("*.new"))

    since = datetime.fromtimestamp(since_ms / 1000, UTC).isoformat()
    for way, count in (("--since", 40), ("--until", 100)):
        part = options("--to", str(tmp_path / "part"), "--topics", "orders", way, since)
        (found,) = computed(spark, broker, part)["topics"].to_pylist()
        assert found["messages"] == count, way


def test_a_report_on_nothing_is_empty(broker: Broker, tmp_path: Path, spark: SparkSession) -> None:
    broker.publish("orders", [b"1"])
    found = made(spark, broker, options("--to", str(tmp_path / "none"), "--since", "2100-01-01"))
    assert found["topics"] == found["minutes"] == []
    assert (tmp_path / "none" / "rates.png").exists()
    with pytest.raises(OptionError, match="no such topic"):
        report.topics_of([Address.parse(broker.address)], options("--to", "nowhere", "--topics", "nobody"))


def test_times_are_absolute_or_ago() -> None:
    assert arguments.time("2026-01-31T12:00") == datetime(2026, 1, 31, 12, tzinfo=UTC)
    assert arguments.time("2026-01-31T12:00+02:00") == datetime(2026, 1, 31, 10, tzinfo=UTC)
    ago = arguments.time("90m") - datetime.now(UTC)
    assert -timedelta(minutes=91) < ago <= -timedelta(minutes=90)
    with pytest.raises(ValueError, match="soon"):
        arguments.time("soon")


def test_a_broker_that_does_not_answer_is_an_error() -> None:
    with pytest.raises(BrokerError):
        list(of_tubes(Address("127.0.0.1", free_port()), ["orders"]))


def test_a_tube_says_in_which_state_its_jobs_are(broker: Broker) -> None:
    with socket.create_connection(("127.0.0.1", broker.running.port), timeout=60) as connection:
        stream = connection.makefile("rb")
        for command in (b"put 1 0 60 1\r\nx\r\n", b"put 1 100 60 1\r\nx\r\n", b"reserve\r\n"):
            connection.sendall(command)
            stream.readline()
        stream.readline()
        (found,) = of_tubes(Address("127.0.0.1", broker.running.port), ["default", "no-such"])
    assert found == Backlog(found.broker, "default", "tube", "default", waiting=0, in_flight=1, deferred=1, buried=0)


def test_where_nothing_was_published_a_line_falls_to_the_ground() -> None:
    def at(minute: int) -> datetime:
        return datetime(2026, 1, 31, 12, minute, tzinfo=UTC)

    points = [(at(0), 5.0), (at(1), 6.0), (at(9), 7.0)]
    found = with_gaps(points, timedelta(minutes=1), 0.0)
    assert found == [(at(0), 5.0), (at(1), 6.0), (at(2), 0.0), (at(8), 0.0), (at(9), 7.0)]


def test_a_table_aligns_numbers_to_the_right() -> None:
    assert text_table(["name", "count"], [("a", 5), ("long", None), ("b", 12.25)]).splitlines() == [
        "name  count", "----  -----", "a         5", "long", "b      12.2",
    ]  # fmt: skip
