"""`mq-pipeline run`: the declarative project, in a directory of its own, as `spark-pipelines run` would run it.

Spark Connect's server, which pipelines need, runs in this application's JVM, on a free port of 127.0.0.1 with a token.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import logging
import os
import re
import time
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import orjson
from mq_shards.pipeline import telemetry
from mq_shards.pipeline.client import BrokerError
from mq_shards.pipeline.declarative.settings import PREFIX
from mq_shards.pipeline.events import FORMATS
from mq_shards.pipeline.lag import unread
from mq_shards.pipeline.options import TLS
from mq_shards.pipeline.project import STREAMING, VIEWS, Project, ProjectError
from mq_shards.pipeline.session import open_session
from mq_shards.pipeline.stopping import Stopped, stopped_by_signals
from mq_shards.pipeline.tables import text_table
from pyspark.sql import SparkSession

ROWS_SHOWN: Final = 40
_CONNECT_SERVICE: Final = "org.apache.spark.sql.connect.service.SparkConnectService$"
_FLOW: Final = re.compile(r"Flow '?(?:\w+\.)*(\w+)'? (?:is|has) (RUNNING|COMPLETED)\b")
_UNIMPORTANT: Final = re.compile(r"Flow \S+ (?:is|has) (?:QUEUED|PLANNING|STARTING|RUNNING|COMPLETED)|Run is ")

log = logging.getLogger(__name__)


def add_arguments(command: argparse.ArgumentParser) -> None:
    add_project_arguments(command)
    command.add_argument("--show", action="store_true", help="print the gold tables at the end")
    way = command.add_mutually_exclusive_group()
    way.add_argument("--dry-run", action="store_true", help="only see whether the project is sound")
    way.add_argument("--full-refresh-all", action="store_true", help="empty all tables and begin again at the earliest")


def add_project_arguments(command: argparse.ArgumentParser) -> None:
    """What is written into a project, or holds for one run."""
    topics = command.add_mutually_exclusive_group()
    topics.add_argument("--topics", metavar="T,...", help="these topics")
    topics.add_argument("--topic-pattern", metavar="REGEX", help="topics whose whole name matches, those to come too")
    command.add_argument("--dir", required=True, metavar="DIR", type=Path, help="where the project keeps everything")
    kinds = "what topics whose whole name matches hold: json, text, binary, or auto (default); others are bad messages"
    command.add_argument("--format", metavar="REGEX=FORMAT", action="append", default=[], help=kinds)
    command.add_argument("--max-messages", metavar="N", type=int, help="in a micro-batch at most (default: 1000000)")
    command.add_argument("--allow-data-loss", action="store_true", help="go on where messages are gone or corrupt")
    more = "a setting of Spark, or of the project (spark.mqshards...)"
    command.add_argument("--conf", metavar="KEY=VALUE", action="append", default=[], help=more)


def run(options: argparse.Namespace, master: str, connection: Mapping[str, str]) -> int:
    project = project_of(options, connection)
    if not project.exists:
        project.write()
    began = time.monotonic()
    with project.lock(), stopped_by_signals():
        project.remove_unborn()
        print(f"starting Spark ({master}) for {project.directory}", flush=True)
        try:
            with _pipelines_session(project, master, options.nice) as spark:
                project.remove_dropped({table.name for table in spark.catalog.listTables()})
                for line in _progress(_start(spark, project, options), began):
                    print(line, flush=True)
                if not options.dry_run:
                    _summary(spark, began, show=options.show)
                    _tell_lag(telemetry.of(options), project)
        except Stopped as stopped:
            print(f"stopped by {stopped}; the next run goes on from here", flush=True)
            return stopped.exit_code
    if options.dry_run:
        print("the project is sound; nothing was run", flush=True)
    return 0


def _tell_lag(told: telemetry.Telemetry, project: Project) -> None:
    """At the brokers that the project knows, which may have changed in this run."""
    known = project.spec()["configuration"]
    connection = {name: known[PREFIX + name] for name in ("brokers", *TLS, "tokenFile") if PREFIX + name in known}
    try:
        lag = unread(connection, known.get(PREFIX + "subscription", project.subscription)) if told.tells_lag else None
    except BrokerError as error:
        log.warning("how far this is behind cannot be told: %s", error)
        return
    told.progress(0, lag=lag)


def project_of(options: argparse.Namespace, connection: Mapping[str, str]) -> Project:
    """With what it is told now. Raises ProjectError."""
    directory = options.dir.resolve()
    found = Project(directory)
    # Of a project that is there only what is said counts; a new one is told all of it.
    is_new = not found.exists
    if is_new and not (options.topics or options.topic_pattern):
        raise ProjectError(f"there is no project in {directory}: --topics or --topic-pattern is wanted to make one")
    settings = {
        PREFIX + name: value for name, value in connection.items() if is_new or name != "brokers" or options.brokers
    }
    if options.topics or options.topic_pattern:
        settings[PREFIX + "topics"] = options.topics or ""
        settings[PREFIX + "topicPattern"] = options.topic_pattern or ""
    if is_new or options.format:
        settings[PREFIX + "formats"] = orjson.dumps(dict(_format(text) for text in options.format)).decode()
    if is_new or options.allow_data_loss:
        settings[PREFIX + "failOnDataLoss"] = str(not options.allow_data_loss).lower()
    if is_new:
        settings[PREFIX + "subscription"] = found.subscription
    if options.max_messages:
        settings[PREFIX + "maxOffsetsPerTrigger"] = str(options.max_messages)
    for text in options.conf:
        key, equals, value = text.partition("=")
        if not equals or not key.startswith("spark."):
            raise ProjectError(f"--conf {text}: spark.KEY=VALUE is wanted")
        settings[key] = value
    return Project(directory, settings)


def _format(text: str) -> tuple[str, str]:
    pattern, equals, name = text.rpartition("=")
    if not equals or name not in FORMATS:
        raise ProjectError(f"--format {text}: REGEX=FORMAT is wanted, with one of {', '.join(FORMATS)}")
    try:
        re.compile(pattern)
    except re.error as error:
        raise ProjectError(f"--format {text}: {error}") from None
    return pattern, name


@contextlib.contextmanager
def _pipelines_session(project: Project, master: str, nice: int) -> Iterator[SparkSession]:
    from pyspark.sql.connect.session import SparkSession as ConnectSession

    os.environ["SPARK_CONNECT_AUTHENTICATE_TOKEN"] = str(uuid.uuid4())
    settings = project.application_settings()
    logging = f"-Dlog4j2.configurationFile=file:{project.conf_dir}/log4j2.properties"
    java_options = f"{settings.get('spark.driver.extraJavaOptions', '')} {logging}".strip()
    server = open_session(
        master,
        "mq-pipeline run",
        settings
        | {
            "spark.driver.extraJavaOptions": java_options,
            "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": "0",
            "spark.sql.connect.serverStacktrace.enabled": "false",
        },
        nice,
    )
    try:
        jvm: Any = server.sparkContext._jvm
        port = getattr(getattr(jvm, _CONNECT_SERVICE), "MODULE$").localPort()
        # From here on functions and columns are those of Spark Connect.
        os.environ["SPARK_CONNECT_MODE_ENABLED"] = "1"
        builder: Any = ConnectSession.builder.remote(f"sc://localhost:{port}")
        client = builder.config(map=project.spec()["configuration"]).getOrCreate()
        try:
            yield client
        finally:
            # Before the server goes: it would ask that to tidy up, for ten minutes, while Python ends.
            client.client.close()
    finally:
        os.environ.pop("SPARK_CONNECT_MODE_ENABLED", None)
        server.stop()


def _start(spark: SparkSession, project: Project, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """What spark-pipelines does, which ends its session before anybody can ask what became of the tables."""
    from pyspark.pipelines.cli import load_pipeline_spec, register_definitions
    from pyspark.pipelines.spark_connect_graph_element_registry import SparkConnectGraphElementRegistry
    from pyspark.pipelines.spark_connect_pipeline import create_dataflow_graph, start_run

    spec = load_pipeline_spec(project.spec_path)
    settings = {**spec.configuration, **project.session_settings()}
    graph = create_dataflow_graph(
        spark, default_catalog=spec.catalog, default_database=spec.database, sql_conf=settings
    )  # fmt: skip
    registry = SparkConnectGraphElementRegistry(spark, graph)
    with contextlib.redirect_stdout(io.StringIO()):
        register_definitions(project.spec_path, registry, spec, spark, graph)
    return start_run(
        spark, graph, full_refresh=[], full_refresh_all=options.full_refresh_all, refresh=[], dry=options.dry_run,
        storage=spec.storage,
    )  # fmt: skip


def _progress(events: Iterator[dict[str, Any]], began: float) -> Iterator[str]:
    """A line for each flow that begins or ends, and whatever else is said of importance."""
    for event in events:
        if "pipeline_event_result" not in event:
            continue
        message = event["pipeline_event_result"].event.message
        seconds = time.monotonic() - began
        if (flow := _FLOW.match(message)) is not None:
            name, state = flow.groups()
            yield f"{seconds:6.1f} s  {name}: {'running' if state == 'RUNNING' else 'done'}"
        elif not _UNIMPORTANT.match(message):
            yield f"{seconds:6.1f} s  {message}"


def _summary(spark: SparkSession, began: float, *, show: bool) -> None:
    there = {table.name for table in spark.catalog.listTables() if not table.isTemporary}
    ours = [name for name in (*STREAMING, *VIEWS) if name in there]
    rows = [(name, spark.table(name).count()) for name in (*ours, *sorted(there.difference(ours)))]
    for name in there.intersection(VIEWS if show else ("topic_quality",)):
        frame = spark.table(name)
        found = frame.orderBy(*frame.columns[:2]).limit(ROWS_SHOWN + 1).collect()
        print(f"\n{name}" + (f" (the first {ROWS_SHOWN})" if len(found) > ROWS_SHOWN else ""))
        print(text_table(frame.columns, [tuple(row) for row in found[:ROWS_SHOWN]]))
    counted = ", ".join(f"{name} {count}" for name, count in rows)
    print(f"\nrun complete in {time.monotonic() - began:.1f} s; rows: {counted}", flush=True)
