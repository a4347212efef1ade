"""`mq-pipeline replay`: publishes an archive, filtered by topic and time, into topics again, each message once.

A plan, which is kept in a file, cuts the messages by time into chunks. A chunk is a batch of one writer, and the broker
publishes no batch twice. So the next run goes on where a killed one ended, and a further run replays what has been
archived after the last chunk since. Messages are in the order of time; those of one time in a topic in the order of seq
and of place in their batch.
"""

from __future__ import annotations

import argparse
import hashlib
import math
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import orjson
from mq_shards.pipeline import telemetry
from mq_shards.pipeline.archive import check_place, local_directory
from mq_shards.pipeline.archive_folders import unfolded, where_topic
from mq_shards.pipeline.client import Client, check_brokers
from mq_shards.pipeline.options import OptionError, connection_of, names_of
from mq_shards.pipeline.session import open_session
from mq_shards.pipeline.sink_log import METADATA
from mq_shards.pipeline.stopping import Stopped, stopped_by_signals
from mq_shards.pipeline.write_options import WriteOptions
from mq_shards.shards import durable
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as sf

CHUNK_S: Final = 2.0  # length of a chunk at the rate that is asked for
CHUNK_MESSAGES: Final = 200_000  # most messages of a chunk, and its size without a rate
CUTS: Final = 5000  # most chunks that a run plans
TIMEOUT_S: Final = 120.0
_VERSION: Final = 1
_US: Final = "ts_us"
_SELECTION: Final = ("topics", "topic_pattern", "since", "until", "to_topic", "prefix")


@dataclass
class Plan:
    """Chunk n has the messages published from cuts[n] to before cuts[n + 1], in us since 1970."""

    writer: str
    cuts: list[int] = field(default_factory=list)

    @staticmethod
    def load(path: Path) -> Plan | None:
        """Raises OptionError."""
        try:
            found = orjson.loads(path.read_bytes())
            if found.pop("version") != _VERSION:
                raise ValueError("it is of another version")
            return Plan(**found)
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError) as error:
            raise OptionError(f"the plan {path} is damaged ({error}): --again makes a new one") from None

    def save(self, path: Path) -> None:
        """Durable when it returns: if a plan were lost, another one could publish its chunks again."""
        path.parent.mkdir(parents=True, exist_ok=True)
        durable.save(path, orjson.dumps({"version": _VERSION, **asdict(self)}))

    @property
    def chunks(self) -> int:
        return max(0, len(self.cuts) - 1)


@dataclass
class Tally:
    messages: int = 0
    chunks: int = 0
    began: float = field(default_factory=time.monotonic)

    def __str__(self) -> str:
        seconds = time.monotonic() - self.began
        rate = self.messages / max(seconds, 1e-3)
        return f"{self.messages} messages in {self.chunks} chunks, {seconds:.1f} s, {rate:.0f}/s"


def run(options: argparse.Namespace, master: str, connection: Mapping[str, str]) -> int:
    directory = local_directory(options.archive)
    files = [] if directory is None else check_place(directory).files
    path = plan_path(options)
    plan = None if options.again else Plan.load(path)
    plan = plan or Plan(f"replay-{secrets.token_hex(12)}")
    since, until = _time_us(options.since), _time_us(options.until)
    if directory is not None and not _is_archive(directory):
        raise OptionError(f"--from: there is no archive in {directory}")
    if directory is not None and (directory / METADATA).is_dir() and not files:
        print(f"nothing is archived in {directory} yet", flush=True)
        return 0
    tally = Tally()
    try:
        with stopped_by_signals():
            check_brokers(connection_of(connection))
            print(f"starting Spark ({master}) to replay {options.archive}", flush=True)
            spark = open_session(master, "mq-pipeline replay", nice=options.nice)
            messages = _messages(spark, options, since, until)
            done = _published(connection, plan.writer)
            if extend(plan, messages, options.rate):
                plan.save(path)
            options.again = False  # if Spark fails, the next try goes on with this plan
            tally = Tally()
            if done:
                print(f"{done} of {plan.chunks} chunks were replayed before", flush=True)
            for chunk in range(done, plan.chunks):
                before = tally.messages
                _replay(messages, plan, chunk, connection, tally)
                telemetry.of(options).progress(tally.messages - before)
                _keep_to(options.rate, tally)
            spark.stop()
    except Stopped as stopped:
        print(f"replayed {tally}; stopped by {stopped}: the next run goes on from here", flush=True)
        return stopped.exit_code
    print(f"replayed {tally}", flush=True)
    return 0


def _is_archive(directory: Path) -> bool:
    return (directory / METADATA).is_dir() or next(directory.rglob("*.parquet"), None) is not None


def plan_path(options: argparse.Namespace) -> Path:
    """Returns the file of the plan, one for each archive, selection and target. Raises OptionError."""
    archive = options.archive
    if options.state is None and "://" in archive:
        raise OptionError("--state: a directory on this machine is wanted, as the archive is not on it")
    state = Path(options.state) if options.state else Path(archive) / "_replay"
    # An archive that was moved, with a link in its old place, keeps the plans that it had there.
    named = [archive] if "://" in archive else [str(Path(archive).resolve()), str(Path(archive).absolute())]
    selection = [str(getattr(options, name)) for name in _SELECTION]
    hashes = [hashlib.sha256("\0".join([at, *selection]).encode()).hexdigest() for at in named]
    paths = [state / f"{found[:16]}.json" for found in hashes]
    return next((path for path in paths if path.exists()), paths[0])


def _time_us(text: str | None) -> int | None:
    if text is None:
        return None
    found = datetime.fromisoformat(text)
    return round((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() * 1e6)


def _messages(spark: SparkSession, options: argparse.Namespace, since: int | None, until: int | None) -> DataFrame:
    # A topic's name stays text, though it may look like a number.
    spark.conf.set("spark.sql.sources.partitionColumnTypeInference.enabled", "false")
    found = spark.read.parquet(options.archive)
    if "batch_index" not in found.columns:  # in an archive from before batches, newer files may have it
        found = spark.read.option("mergeSchema", True).parquet(options.archive)
    if options.topics:
        found = where_topic(found, sf.col("topic").isin([*names_of("--topics", options.topics)]))
    elif options.topic_pattern:
        found = where_topic(found, sf.col("topic").rlike(f"^(?:{options.topic_pattern})$"))
    else:
        found = unfolded(found)
    if since is not None:
        found = found.where(sf.col("timestamp") >= sf.timestamp_micros(sf.lit(since)))
    if until is not None:
        found = found.where(sf.col("timestamp") < sf.timestamp_micros(sf.lit(until)))
    target = sf.col("topic")
    if options.to_topic:
        target = sf.lit(options.to_topic)
    elif options.prefix:
        target = sf.concat(sf.lit(options.prefix), target)
    part = sf.col("batch_index") if "batch_index" in found.columns else sf.lit(-1)
    kept = found.columns
    attributes = sf.col("attributes") if "attributes" in kept else sf.lit(None).cast("map<string,string>")
    return found.select(
        "timestamp", sf.col("topic").alias("origin"), "seq", part.alias("part"), target.alias("topic"), "body",
        attributes.alias("attributes"),
    ).select(
        "*",
        sf.col("attributes")["key"].alias("key"),
        sf.col("attributes")["pri"].try_cast("bigint").alias("priority"),
        sf.col("attributes")["delay_ms"].try_cast("double").cast("bigint").alias("delay_ms"),
    )  # fmt: skip


def extend(plan: Plan, messages: DataFrame, rate: float | None) -> bool:
    """Plans chunks for messages after the last chunk; False if there are none."""
    if plan.cuts:
        messages = messages.where(sf.col("timestamp") >= sf.timestamp_micros(sf.lit(plan.cuts[-1])))
    times = messages.select(sf.unix_micros("timestamp").alias(_US))
    count, first, last = times.agg(sf.count("*"), sf.min(_US), sf.max(_US)).collect()[0]
    if not count:
        return False
    size = min(CHUNK_MESSAGES, max(1, round(rate * CHUNK_S))) if rate else CHUNK_MESSAGES
    parts = min(CUTS, math.ceil(count / size))
    inner: Sequence[int] = []
    if parts > 1:
        shares = [n / parts for n in range(1, parts)]
        (inner,) = times.agg(sf.percentile_approx(_US, shares, 100 * parts)).collect()[0]
    plan.cuts = sorted({*(plan.cuts or [first]), *inner, last + 1})
    return True


def _published(connection: Mapping[str, str], writer: str) -> int:
    """Returns how many chunks all brokers have published."""
    batches = []
    for broker in WriteOptions.parse(connection, streaming=False).brokers:
        with Client(broker, TIMEOUT_S) as client:
            state = client.writer(writer)
        batches.append(-1 if state is None else state.batch)
    return min(batches) + 1


def _replay(messages: DataFrame, plan: Plan, chunk: int, connection: Mapping[str, str], tally: Tally) -> None:
    begin, end = (sf.timestamp_micros(sf.lit(plan.cuts[n])) for n in (chunk, chunk + 1))
    seen = Observation()
    (
        messages.where((sf.col("timestamp") >= begin) & (sf.col("timestamp") < end))
        .observe(seen, sf.count(sf.lit(1)).alias("messages"))
        .orderBy("timestamp", "origin", "seq", "part")
        .select("topic", "body", "attributes", "key", "priority", "delay_ms")
        .write.format("mqshards")
        .options(**connection, writer=plan.writer, batch=str(chunk), pollTimeoutMs=str(round(TIMEOUT_S * 1000)))
        .mode("append")
        .save()
    )
    tally.messages += int(seen.get["messages"])
    tally.chunks += 1
    until = datetime.fromtimestamp(plan.cuts[chunk + 1] / 1e6, UTC)
    print(f"chunk {chunk + 1} of {plan.chunks}, to {until:%Y-%m-%d %H:%M:%S}: {tally}", flush=True)


def _keep_to(rate: float | None, tally: Tally) -> None:
    if rate:
        time.sleep(max(0.0, tally.began + tally.messages / rate - time.monotonic()))
