"""`mq-pipeline run`: runs the declarative project, in a directory of its own, as `spark-pipelines run` would.

Spark Connect's server, which pipelines need, runs in this application's JVM, on a free port of 127.0.0.1 with a token.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import re
import sys
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final

import orjson
import pyspark
from mq_shards.pipeline import table_checkpoints, telemetry
from mq_shards.pipeline.arrivals import Arrivals
from mq_shards.pipeline.client import BrokerError, check_brokers
from mq_shards.pipeline.declarative.early import IS_EARLY, make_raw_messages
from mq_shards.pipeline.declarative.settings import PREFIX
from mq_shards.pipeline.failure import without_plan_and_stack
from mq_shards.pipeline.lag import unread
from mq_shards.pipeline.options import TLS, ReadOptions
from mq_shards.pipeline.project import OF_RAW, STREAMING, VIEWS, Project, ProjectError, Refresh, bare_name, emptied_with
from mq_shards.pipeline.sink_log import SinkLogError
from mq_shards.pipeline.spark_pipelines import Application, PipelineError, application
from mq_shards.pipeline.stopping import Stopped, stopped_by_signals
from mq_shards.pipeline.table_formats import PARQUET, TableFormatError, settings_of
from mq_shards.pipeline.tables import text_table
from mq_shards.pipeline.topics import told_missing
from mq_shards.pipeline.upkeep import has_dropped, look_after
from pyspark.sql import SparkSession

ROWS_SHOWN: Final = 40
_FLOW: Final = re.compile(r"Flow '?(?:\w+\.)*(\w+)'? (?:is|has) (RUNNING|COMPLETED)\b")
_UNIMPORTANT: Final = re.compile(
    r"Flow \S+ (?:is|has) (?:QUEUED|EXCLUDED|PLANNING|STARTING|RUNNING|COMPLETED)|Run is |"
    r"(?:Loading|Creating|Registering|Starting|Found|Importing) "
)

log = logging.getLogger(__name__)


def run(options: argparse.Namespace, master: str, connection: Mapping[str, str]) -> int:
    if options.full_refresh_all and (options.refresh or options.full_refresh):
        raise ProjectError("--full-refresh-all is for all tables: --refresh and --full-refresh are for some")
    project = project_of(options, connection)
    if not project.exists:
        project.write()
    _check_refresh(project, options.full_refresh)
    began = time.monotonic()
    try:
        with project.lock(), stopped_by_signals():
            project.remove_unborn()
            if not options.dry_run:
                read = ReadOptions.parse(project.source_options(), streaming=True)
                check_brokers(read.brokers)
                if text := told_missing(read):
                    print(text, file=sys.stderr)
            print(f"starting Spark ({master}) for {project.directory}", flush=True)
            settings = project.running_settings()
            with application(master, "mq-pipeline run", settings, options.nice) as spark:
                _rounds(spark, project, options, began)
    except Stopped as stopped:
        print(f"stopped by {stopped}; the next run goes on from here", flush=True)
        return stopped.exit_code
    return 0


def _check_refresh(project: Project, tables: Iterable[str]) -> None:
    """Raises ProjectError if these tables would be made of raw messages that are gone, or may be."""
    named = {bare_name(table) for table in tables}
    lost = named.intersection(OF_RAW)
    if not lost or "raw_messages" in named:
        return
    try:
        warehouse = project.warehouse()
        dropped = warehouse is not None and has_dropped(warehouse)
    except SinkLogError as error:
        raise ProjectError(str(error)) from None
    if dropped or project.bronze_retention_s() is not None:
        raise ProjectError(
            f"--full-refresh {','.join(sorted(lost))}: --bronze-retention lets raw messages go that these tables still "
            "have, and would not get again; refresh raw_messages too to begin all of them anew, with what brokers have"
        )


def _rounds(spark: Application, project: Project, options: argparse.Namespace, began: float) -> None:
    _use_catalog(spark.session, project)
    there = {table.name for table in spark.session.catalog.listTables()}
    project.remove_dropped(there)
    refresh = options.refresh
    emptied = emptied_with(options.full_refresh, there)
    # No table can be both: one that is emptied with others is thereby brought up to date, too.
    derived = {bare_name(table) for table in emptied} - {bare_name(table) for table in options.full_refresh}
    options.refresh = [table for table in refresh if bare_name(table) not in derived]
    options.full_refresh = emptied
    with contextlib.ExitStack() as closed:
        arrivals = Arrivals(project.source_options(), options.every) if options.continuous else None
        if arrivals is not None:
            closed.callback(arrivals.close)
        if not options.dry_run:
            _finish_refresh(spark, project, options, began)
            _check_checkpoints(project, options)
            _begin_refresh(project, options, there)
        if IS_EARLY:
            make_raw_messages(spark.session, project.spec()["configuration"].get("spark.sql.sources.default", PARQUET))
        _round(spark, project, options, began)
        if options.dry_run:
            print("the project is sound; nothing was run", flush=True)
            return
        project.end_refresh()
        _summary(spark.session, began, show=options.show)
        _tell_lag(telemetry.of(options), project)
        _look_after(project, options)
        # The refresh is done: the following runs are usual ones.
        options.full_refresh_all, options.full_refresh, options.refresh = False, [], refresh
        while arrivals is not None:
            arrivals.wait()
            began = time.monotonic()
            _round(spark, project, options, began)
            if options.show:
                _summary(spark.session, began, show=True)
            else:
                print(f"up to date after {time.monotonic() - began:.1f} s", flush=True)
            _tell_lag(telemetry.of(options), project)
            _look_after(project, options)


def _finish_refresh(spark: Application, project: Project, options: argparse.Namespace, began: float) -> None:
    """Finishes the refresh of a killed run: checkpoints may be new while tables still have their rows, or none."""
    found = project.unfinished_refresh()
    if found is None or options.full_refresh_all:
        return
    asked = {bare_name(table) for table in options.full_refresh}
    if not found.everything and asked.issuperset(map(bare_name, found.tables)):
        return
    what = "all tables" if found.everything else ", ".join(found.tables)
    print(f"a run began {what} anew and did not finish: this one does, first", flush=True)
    again = argparse.Namespace(**vars(options))
    again.full_refresh_all, again.full_refresh, again.refresh = found.everything, found.tables, []
    try:
        _round(spark, project, again, began)
    except PipelineError as error:
        hint = f"{error} (what was to be begun anew is in {project.directory}/.full-refresh)"
        raise PipelineError(hint, error.said) from error
    project.end_refresh()


def _begin_refresh(project: Project, options: argparse.Namespace, there: Collection[str]) -> None:
    """Notes what is refreshed, should this run be killed; a table that does not exist has nothing to lose."""
    tables = [table for table in options.full_refresh if bare_name(table) in there]
    if options.full_refresh_all or tables:
        project.begin_refresh(Refresh(tables, everything=options.full_refresh_all))


def _look_after(project: Project, options: argparse.Namespace) -> None:
    """Raises ProjectError."""
    retention_s, warehouse = project.bronze_retention_s(), project.warehouse()
    if options.refresh or options.full_refresh:
        return  # some table may not have read yet what would go
    try:
        if warehouse is None and retention_s is not None:
            raise SinkLogError("--bronze-retention: the tables are not on a file system of this machine")
        if gone := look_after(warehouse, retention_s) if warehouse is not None else 0:
            print(f"{gone} files of raw_messages were read long enough ago, and are gone", flush=True)
    except SinkLogError as error:
        raise ProjectError(str(error)) from None


def _check_checkpoints(project: Project, options: argparse.Namespace) -> None:
    """Raises ProjectError if Spark would leave out, or has left out, rows of a table; OptionError."""
    storage, warehouse = project.storage(), project.warehouse()
    if options.full_refresh_all or storage is None or warehouse is None:
        return
    anew = {bare_name(table) for table in options.full_refresh}
    if (said := table_checkpoints.wrong(storage, warehouse, anew)) is not None:
        raise ProjectError(said)


def _use_catalog(spark: SparkSession, project: Project) -> None:
    """Makes the catalog and the database of the project's tables the current ones."""
    spec = project.spec()
    if catalog := spec.get("catalog"):
        spark.catalog.setCurrentCatalog(catalog)
    if database := spec.get("database") or spec.get("schema"):
        spark.catalog.setCurrentDatabase(database)


def _tell_lag(told: telemetry.Telemetry, project: Project) -> None:
    """Tells how far the project is behind the brokers that it knows, which may have changed in this run."""
    known = project.spec()["configuration"]
    connection = {name: known[PREFIX + name] for name in ("brokers", *TLS, "tokenFile") if PREFIX + name in known}
    try:
        lag = unread(connection, known.get(PREFIX + "subscription", project.subscription)) if told.tells_lag else None
    except BrokerError as error:
        log.warning("how far this is behind cannot be told: %s", error)
        return
    told.progress(0, lag=lag)


def project_of(options: argparse.Namespace, connection: Mapping[str, str]) -> Project:
    """Returns the project with the settings that it is given now. Raises ProjectError."""
    directory = options.dir.resolve()
    found = Project(directory)
    # To a project that exists only options that are given apply; to a new one defaults, too.
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
        settings[PREFIX + "formats"] = orjson.dumps(dict(options.format)).decode()
    if is_new or options.allow_data_loss:
        settings[PREFIX + "failOnDataLoss"] = str(not options.allow_data_loss).lower()
    if is_new:
        settings[PREFIX + "subscription"] = found.subscription
    if options.bronze_retention:
        settings[PREFIX + "bronze.retention"] = options.bronze_retention
    if options.max_messages:
        settings[PREFIX + "maxOffsetsPerTrigger"] = str(options.max_messages)
    settings |= dict(options.conf)
    if options.table_format is None:
        return Project(directory, settings)
    if not is_new:
        raise ProjectError(f"--table-format: the tables of {directory} are what they are")
    try:
        return Project(directory, settings_of(options.table_format, settings, pyspark.__version__) | settings)
    except TableFormatError as error:
        raise ProjectError(str(error)) from None


def _round(application: Application, project: Project, options: argparse.Namespace, began: float) -> None:
    """Raises PipelineError."""
    words = ["dry-run" if options.dry_run else "run", "--spec", str(project.write_run_spec())]
    words += ["--full-refresh-all"] if options.full_refresh_all else []
    for name in ("refresh", "full_refresh"):
        if tables := getattr(options, name):
            words += [f"--{name.replace('_', '-')}", ",".join(tables)]
    with contextlib.closing(application.run(words, project.directory)) as lines:
        for line in _progress(lines, began):
            print(line, flush=True)
    _check_checkpoints(project, options)


def _progress(lines: Iterable[str], began: float) -> Iterator[str]:
    """Yields a line for each flow that begins or ends, and all other lines of importance."""
    for line in without_plan_and_stack(lines):
        seconds = time.monotonic() - began
        if (flow := _FLOW.match(line)) is not None:
            name, state = flow.groups()
            # Spark calls a flow completed whose query has failed, too, and says so in its next line.
            yield f"{seconds:6.1f} s  {name}: {'running' if state == 'RUNNING' else 'ended'}"
        elif line and not _UNIMPORTANT.match(line):
            yield f"{seconds:6.1f} s  {line}"


def _summary(spark: SparkSession, began: float, *, show: bool) -> None:
    there = {table.name for table in spark.catalog.listTables() if not table.isTemporary}
    for name in there:
        spark.catalog.refreshTable(name)  # Spark remembers what it had when it was last read
    ours = [name for name in (*STREAMING, *VIEWS) if name in there]
    rows = [(name, spark.table(name).count()) for name in (*ours, *sorted(there.difference(ours)))]
    for name in there.intersection(VIEWS if show else ("topic_quality",)):
        frame = spark.table(name)
        found = frame.orderBy(*frame.columns[:2]).limit(ROWS_SHOWN + 1).collect()
        print(f"\n{name}" + (f" (the first {ROWS_SHOWN})" if len(found) > ROWS_SHOWN else ""))
        print(text_table(frame.columns, [tuple(row) for row in found[:ROWS_SHOWN]]))
    counted = ", ".join(f"{name} {count}" for name, count in rows)
    print(f"\nrun complete in {time.monotonic() - began:.1f} s; rows: {counted}", flush=True)
