"""`mq-pipeline report`: rates, sizes, delay and backlog of topics, from what the brokers still have.

Spark reads and aggregates; only a row for each topic and minute reaches Python. Everything is computed anew and each
file replaced whole, so a report may be stopped at any time and made again.
"""

from __future__ import annotations

import argparse
import math
import re
import tempfile
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
from mq_shards.pipeline import anomalies, plots, rates, telemetry
from mq_shards.pipeline.backlog import Backlog, of_channels, of_readers, of_tubes
from mq_shards.pipeline.client import Address, Client, Topic, check_brokers
from mq_shards.pipeline.events import decoded
from mq_shards.pipeline.fields import Fields
from mq_shards.pipeline.options import OptionError, connection_of, names_of
from mq_shards.pipeline.report_page import page
from mq_shards.pipeline.session import open_session
from mq_shards.pipeline.stopping import Stopped, stopped_by_signals
from mq_shards.pipeline.tables import text_table
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

TIMEOUT_S: Final = 10.0
ROWS_SHOWN: Final = 40
TOPICS_PLOTTED: Final = 12
PROGRESS_S: Final = 2.0
MINUTE: Final = timedelta(minutes=1)
# The tables on the page, and their headings there.
HEADINGS: Final = {"topics": "Topics", "talkers": "Top talkers", "backlog": "Backlog"}
_AGO: Final = re.compile(r"(\d+)\s*([smhd])")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_BACKLOG: Final = pa.schema(
    [(name, pa.string()) for name in ("broker", "topic", "kind", "name")]
    + [(name, pa.int64()) for name in ("waiting", "in_flight", "deferred", "buried")]
)


def run(options: argparse.Namespace, master: str, connection: Mapping[str, str]) -> int:
    began, began_at = time.monotonic(), datetime.now(UTC)
    try:
        with stopped_by_signals():
            addresses = connection_of(connection)
            check_brokers(addresses)
            options.to.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=options.to):  # raises OSError before Spark has worked for nothing
                pass
            topics = topics_of(addresses, options)
            backlog = backlog_of(addresses, topics, options)
            kept = sum(topic.records for topic in topics)
            print(f"reading {len(topics)} topics, which have {kept} messages; starting Spark ({master})", flush=True)
            spark = open_session(master, "mq-pipeline report", nice=options.nice)
            try:
                tables = computed(spark, topics, connection, options) | {"backlog": backlog}
            finally:
                spark.stop()
            write(options.to, tables, min(options.until or began_at, began_at))
    except Stopped as stopped:
        print(f"stopped by {stopped}; the report is not finished", flush=True)
        return stopped.exit_code
    _show(tables)
    messages = sum(tables["topics"]["messages"].to_pylist())
    telemetry.of(options).progress(messages)
    print(f"\nreport on {messages} messages in {options.to}/report.html, {time.monotonic() - began:.1f} s", flush=True)
    return 0


def topics_of(brokers: Iterable[Address], options: argparse.Namespace) -> list[Topic]:
    """Raises OptionError if there is none."""
    names = names_of("--topics", options.topics) if options.topics else None
    pattern = re.compile(options.topic_pattern) if options.topic_pattern else None
    found = []
    for broker in brokers:
        with Client(broker, TIMEOUT_S) as client:
            found += client.topics()
    chosen = [
        topic
        for topic in found
        if (names is None or topic.topic in names) and (pattern is None or pattern.fullmatch(topic.topic))
    ]
    if not chosen:
        raise OptionError(f"there is no such topic; there are {len(found)} topics")
    return chosen


def backlog_of(brokers: Sequence[Address], topics: list[Topic], options: argparse.Namespace) -> pa.Table:
    names = sorted({topic.topic for topic in topics})
    found: list[Backlog] = []
    for broker in brokers:
        found += of_readers(broker)
    for nsq_http in options.nsq_http:
        found += of_channels(replace(nsq_http, token=brokers[0].token))
    for beanstalk in options.beanstalk:
        found += of_tubes(beanstalk, names)
    rows = [asdict(backlog) for backlog in found if backlog.topic in set(names)]
    return pa.Table.from_pylist(rows, schema=_BACKLOG)


def computed(
    spark: SparkSession, topics: list[Topic], connection: Mapping[str, str], options: argparse.Namespace
) -> dict[str, pa.Table]:
    messages = _messages(spark, topics, connection, options)
    fields = Fields(time=options.time_fields.split(","), source=options.source_fields.split(","))
    events = decoded(messages, fields, keep=("topic", "timestamp"))
    with _Progress(spark, "rates, sizes and delays"):
        found = rates.by_minute_and_topic(events).toArrow()
    minutes = found.filter(pc.is_valid(found["minute"])).drop_columns(["first", "last"])
    with _Progress(spark, "top talkers"):
        talkers = rates.top_talkers(events, options.top).toArrow()
    totals = found.filter(pc.is_null(found["minute"])).drop_columns(["minute"])
    return {
        "topics": _with_rates(totals.sort_by("topic")),
        "minutes": minutes.sort_by([("topic", "ascending"), ("minute", "ascending")]),
        "talkers": talkers.sort_by([("topic", "ascending"), ("rank", "ascending")]),
    }


def _messages(
    spark: SparkSession, topics: list[Topic], connection: Mapping[str, str], options: argparse.Namespace
) -> DataFrame:
    source = {**connection, "failOnDataLoss": "false"}
    # Only topics that are there now: one that appears meanwhile would be in one table and not in another. As JSON,
    # since a name may have a comma in it.
    source["topics"] = orjson.dumps(sorted({topic.topic for topic in topics})).decode()
    if options.since is not None:
        source["startingTimestamp"] = str(int(options.since.timestamp() * 1000))
        source["startingOffsetsByTimestampStrategy"] = "latest"
    if options.until is not None:
        source["endingTimestamp"] = str(int(options.until.timestamp() * 1000) + 1)
    messages = spark.read.format("mqshards").options(**source).load()
    # Where a clock was set back, times are not in the order of messages.
    if options.since is not None:
        messages = messages.where(sf.col("timestamp") >= sf.lit(options.since))
    if options.until is not None:
        messages = messages.where(sf.col("timestamp") < sf.lit(options.until))
    return messages


def _with_rates(totals: pa.Table) -> pa.Table:
    """Adds the column `messages_per_s`, the rate from the first message to the last."""
    rate = []
    for count, first, last in zip(*(totals[name].to_pylist() for name in ("messages", "first", "last")), strict=True):
        seconds = (last - first).total_seconds()
        rate.append((count - 1) / seconds if seconds > 0 else None)
    return totals.append_column("messages_per_s", pa.array(rate, pa.float64()))


def write(directory: Path, tables: dict[str, pa.Table], until: datetime) -> None:
    """Writes tables, plots, and the page that has them all. `until`: the time up to which messages are known."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, table in tables.items():
        for suffix, write in ((".parquet", pq.write_table), (".csv", pa_csv.write_csv)):
            new = directory / f"{name}{suffix}.new"
            write(table, str(new))
            new.replace(directory / f"{name}{suffix}")
    rows = {name: table.to_pylist() for name, table in tables.items()}
    drawn = _plots(rows)
    for name, plot in drawn.items():
        plot.save(directory / f"{name}.png")
    odd = anomalies.found(rows["minutes"], rows["backlog"], until)
    headed = {heading: rows[name] for name, heading in HEADINGS.items()}
    text = page("Topics of mq-shards", datetime.now(UTC), _totals(rows, until), odd, drawn.values(), headed)
    new = directory / "report.html.new"
    new.write_text(text, encoding="utf-8")
    new.replace(directory / "report.html")


def _plots(rows: Mapping[str, list[dict[str, Any]]]) -> dict[str, plots.Plot]:
    most = sorted(rows["topics"], key=lambda row: -row["messages"])
    names = [row["topic"] for row in most[:TOPICS_PLOTTED]]
    of = f" (the {TOPICS_PLOTTED} topics with most messages of {len(most)})" if len(most) > TOPICS_PLOTTED else ""

    def lines(column: str, factor: float = 1.0, between: float = math.nan) -> plots.Lines:
        by_topic: dict[str, list[tuple[datetime, float]]] = {name: [] for name in names}
        for row in rows["minutes"]:
            if row["topic"] in by_topic and row[column] is not None:
                by_topic[row["topic"]].append((row["minute"], row[column] * factor))
        return {name: plots.with_gaps(points, MINUTE, between) for name, points in by_topic.items()}

    bars = [(_consumer(row), row["waiting"]) for row in rows["backlog"] if row["waiting"]]
    talkers = [(f"{row['source']} in {row['topic']}", row["messages"]) for row in rows["talkers"]]
    return {
        "rates": plots.plot_lines(f"Messages published{of}", "messages a second", lines("messages", 1 / 60, 0.0)),
        "sizes": plots.plot_lines(f"Mean size of a message{of}", "bytes", lines("mean_bytes")),
        "delay_p50": plots.plot_lines(f"From event to publication, median{of}", "ms", lines("p50_delay_ms")),
        "delay": plots.plot_lines(f"From event to publication, 99th percentile{of}", "ms", lines("p99_delay_ms")),
        "talkers": plots.plot_bars("Who publishes most", "messages", talkers),
        "backlog": plots.plot_bars("What waits", "messages", bars),
    }


def _consumer(row: Mapping[str, Any]) -> str:
    """Names who is waited for. A tube is called as its topic: twice the name would leave no room for anything else."""
    return f"tube {row['name']}" if row["kind"] == "tube" else f"{row['topic']} / {row['kind']} {row['name']}"


def _totals(rows: Mapping[str, list[dict[str, Any]]], until: datetime) -> list[tuple[str, str]]:
    messages = sum(row["messages"] for row in rows["topics"])
    size = sum(row["bytes"] for row in rows["topics"])
    first = min((row["minute"] for row in rows["minutes"]), default=None)
    return [
        ("messages", f"{messages:,}"),
        ("MB", f"{size / 1e6:,.1f}"),
        ("topics with messages", f"{len(rows['topics']):,}"),
        ("waiting for the slowest consumer", f"{max((row['waiting'] for row in rows['backlog']), default=0):,}"),
        ("from (UTC)", f"{first:%Y-%m-%d %H:%M}" if first else "none"),
        ("to (UTC)", f"{until:%Y-%m-%d %H:%M}"),
    ]


def _show(tables: dict[str, pa.Table]) -> None:
    for name, table in tables.items():
        shown = table.slice(0, ROWS_SHOWN)
        more = f" (the first {ROWS_SHOWN} of {table.num_rows})" if table.num_rows > ROWS_SHOWN else ""
        print(f"\n{name}{more}")
        print(text_table(table.column_names, [tuple(row.values()) for row in shown.to_pylist()]))


class _Progress:
    """Prints how many tasks are done, from time to time, while something is computed."""

    def __init__(self, spark: SparkSession, what: str) -> None:
        self._tracker = spark.sparkContext.statusTracker()
        self._what = what
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._began = time.monotonic()

    def __enter__(self) -> _Progress:
        print(f"{self._what} ...", flush=True)
        self._thread.start()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._over.set()
        self._thread.join()
        if kind is None:
            print(f"{self._what}: {time.monotonic() - self._began:.1f} s", flush=True)

    def _watch(self) -> None:
        while not self._over.wait(PROGRESS_S):
            for stage in self._tracker.getActiveStageIds():
                if (told := self._tracker.getStageInfo(stage)) is not None:
                    print(f"  {told.numCompletedTasks} of {told.numTasks} tasks", flush=True)
