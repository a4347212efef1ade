"""Scenarios of the data pipeline: Spark reading topics, beside a source that makes the same Arrow batches out of
nothing; Spark writing; and what Spark's reading costs the broker's other clients.

The broker and Spark (local[2]) share the machine. One Spark session runs all rounds of a scenario, as a warm one would.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from perf.brokers import DISK, Broker, BrokerError, MqShards, free_port
from perf.figures import RATIO, Figure, Figures, Name, ratio
from perf.nsq import generator
from perf.scenarios import BODY_BYTES as LIVE_BODY_BYTES
from perf.scenarios import Plan, Scenario, window

BODY_BYTES: Final = 100
TOPIC: Final = "topic"  # the one in perf/spark/queries.py
BATCH: Final = 200
LIMIT_S: Final = 900.0
FILL: Final = ("--mode", "publish", "--producers", "4", "--batch", str(BATCH), "--depth", "4", "--topic", TOPIC)
LIVE: Final = ("--producers", "4", "--consumers", "4", "--batch", "20", "--depth", "4", "--topic", "live")
# A share of the rate over the empty source; messages a second, twice; a share of the rate without Spark.
READ_SHARE, COUNT_RATE, WRITE_RATE, LIVE_SHARE = 0.7, 1e6, 2e5, 0.5


def missing() -> str | None:
    """Returns what is not installed of what Spark needs, or None."""
    absent = [name for name in ("pyspark", "pyarrow") if importlib.util.find_spec(name) is None]
    absent += [name for name in ("java",) if shutil.which(name) is None]
    return " and ".join(absent) or None


def measure_read(plan: Plan) -> Figures:
    plan.say(f"spark-read, {plan.spark_messages:,} messages of {BODY_BYTES} bytes")
    found: dict[tuple[str, str], list[float]] = {}
    with _broker(plan) as (_, http), _queries(plan, http, "read", plan.spark_messages, plan.rounds) as lines:
        for line in lines:
            plan.say(f"  {line['query']:<8}{line['source']:<12}{line['rate']:>12,.0f} messages/s")
            found.setdefault((line["query"], line["source"]), []).append(line["rate"])
    figures: Figures = {}
    for query, target in (("count", COUNT_RATE), ("parquet", None)):
        ours, theirs = (_figure(found[query, source]) for source in ("mq-shards", "empty"))
        figures[Name("spark-read", query, "mq-shards", "rate")] = replace(ours, target=target)
        figures[Name("spark-read", query, "empty", "rate")] = replace(theirs, judged=False)
        figures[Name("spark-read", query, RATIO, "rate")] = ratio(ours, theirs, READ_SHARE)
    return figures


def measure_write(plan: Plan) -> Figures:
    messages = plan.spark_messages // 5
    plan.say(f"spark-write, {messages:,} messages of {BODY_BYTES} bytes")
    with _broker(plan, fill=False) as (_, http), _queries(plan, http, "write", messages, plan.rounds) as lines:
        rates = [line["rate"] for line in lines]
    plan.say("  " + ", ".join(f"{rate:,.0f}" for rate in rates) + " messages/s")
    return {Name("spark-write", "batch", "mq-shards", "rate"): replace(_figure(rates), target=WRITE_RATE)}


def measure_live(plan: Plan) -> Figures:
    """Measures producers and consumers of NSQ's, alone and while Spark counts the messages of another topic."""
    live = (*LIVE, *window(plan), "--body", str(LIVE_BODY_BYTES))
    plan.say("spark-live, NSQ clients alone and beside a query")
    rates: dict[str, list[float]] = {"beside Spark": [], "alone": []}
    with _broker(plan) as (broker, http):
        for _ in range(plan.rounds):
            rates["alone"].append(generator.run(broker.port, live).rate)
            with _queries(plan, http, "read-on", plan.spark_messages, 1) as lines:
                next(lines)
                rates["beside Spark"].append(generator.run(broker.port, live).rate)
            plan.say("  " + ", ".join(f"{who} {found[-1]:,.0f} messages/s" for who, found in rates.items()))
    figures = {who: _figure(found) for who, found in rates.items()}
    shown: Figures = {Name("spark-live", "nsq", who, "rate"): figure for who, figure in figures.items()}
    share = ratio(figures["beside Spark"], figures["alone"], LIVE_SHARE)
    return shown | {Name("spark-live", "nsq", RATIO, "rate"): share}


def _figure(rates: list[float]) -> Figure:
    return Figure(tuple(rates), "messages/s", "higher")


@contextmanager
def _broker(plan: Plan, *, fill: bool = True) -> Iterator[tuple[Broker, str]]:
    """Runs our broker with an http listener; yields the broker and the listener's address."""
    (ours,) = plan.products
    assert isinstance(ours, MqShards)
    http = f"127.0.0.1:{free_port()}"
    with Broker(replace(ours, more=("--listen", f"http://{http}")), DISK, plan.base) as broker:
        if fill:
            messages = ("--messages", str(plan.spark_messages), "--body", str(BODY_BYTES))
            generator.run(broker.port, (*FILL, *messages))
        yield broker, http


@contextmanager
def _queries(plan: Plan, http: str, what: str, messages: int, rounds: int) -> Iterator[Iterator[dict[str, Any]]]:
    """Runs perf/spark/queries.py, and yields the lines that it prints."""
    command = [sys.executable, "-m", "perf.spark.queries", what, http, "--messages", str(messages)]
    command += ["--body", str(BODY_BYTES), "--rounds", str(rounds)]
    if plan.base is not None:
        command += ["--dir", str(plan.base)]
    environment = os.environ | {"PYSPARK_PYTHON": sys.executable}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment, start_new_session=True)
    ended = False
    try:
        yield _lines(process)
        ended = True
    finally:
        if not ended or what == "read-on":
            _kill(process.pid)
        status = process.wait(LIMIT_S)
    if status != 0 and what != "read-on":
        raise BrokerError(f"Spark ended with status {status}")


def _kill(pid: int) -> None:
    """Kills the process, and its JVM, which has a session of its own."""
    begun = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    os.killpg(pid, signal.SIGKILL)
    for child in begun:
        with suppress(ProcessLookupError):
            os.kill(int(child), signal.SIGKILL)


def _lines(process: subprocess.Popen[str]) -> Iterator[dict[str, Any]]:
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("{"):
            yield json.loads(line)


SCENARIOS: Final[dict[str, Scenario]] = {
    "spark-read": measure_read,
    "spark-write": measure_write,
    "spark-live": measure_live,
}
