"""What a job reports of itself: its progress to Prometheus, its inputs and outputs to OpenLineage.

Both are optional, and neither may end a job: a report that cannot be made is a warning, once. What cannot be from the
beginning, as a file in a directory that is not there, is a wrong call.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from mq_shards.pipeline.client import Address
from mq_shards.pipeline.declarative.settings import PREFIX
from mq_shards.pipeline.lag import Lag
from mq_shards.pipeline.lineage import Dataset, Lineage
from mq_shards.pipeline.options import OptionError, names_of
from mq_shards.pipeline.project import Project, ProjectError
from mq_shards.pipeline.sink_log import local_path
from prometheus_client import CollectorRegistry, Counter, Gauge, start_http_server, write_to_textfile

MAX_TOPICS: Final = 1000  # most topics that have a lag of their own: those furthest behind
_DATASETS: Final = ("brokers", "topics", "topicPattern")

log = logging.getLogger(__name__)


class Metrics:
    """Served while the job runs, or written to a file, as node_exporter's textfile collector reads them."""

    def __init__(self, job: str, file: Path | None) -> None:
        self.registry = registry = CollectorRegistry()
        self._file = file
        of: Any = {"registry": registry, "labelnames": ("job_name",)}
        self._messages = Counter("mq_pipeline_messages", "Messages read or published", **of).labels(job)
        self._batches = Counter("mq_pipeline_batches", "Micro-batches or chunks done", **of).labels(job)
        self._running = Gauge("mq_pipeline_running", "1 while the job runs", **of).labels(job)
        self._status = Gauge("mq_pipeline_exit_status", "As the last run ended", **of).labels(job)
        self._ended = Gauge("mq_pipeline_end_timestamp_seconds", "When it ended", **of).labels(job)
        self._progress = Gauge("mq_pipeline_progress_timestamp_seconds", "When it got on last", **of).labels(job)
        self._behind = Gauge("mq_pipeline_lag_messages", "That are there and not read", **of).labels(job)
        labels = ("job_name", "broker", "topic")
        self._behind_of = Gauge("mq_pipeline_topic_lag_messages", "Of one topic", labels, registry=registry)
        self._job = job

    def begin(self) -> None:
        """Raises OSError."""
        self._running.set(1)
        self._write()

    def progress(self, messages: int, batches: int, lag: Lag | None) -> None:
        self._messages.inc(messages)
        self._batches.inc(batches)
        self._progress.set(time.time())
        if lag is not None:
            self._behind.set(lag.total)
            self._behind_of.clear()
            for key, count in sorted(lag.by_topic.items(), key=lambda of: -of[1])[:MAX_TOPICS]:
                self._behind_of.labels(self._job, key.broker, key.topic).set(count)
        self._write()

    def end(self, status: int) -> None:
        self._running.set(0)
        self._status.set(status)
        self._ended.set(time.time())
        self._write()

    def _write(self) -> None:
        if self._file is not None:
            write_to_textfile(str(self._file), self.registry)


class Telemetry:
    def __init__(self, metrics: Metrics | None = None, lineage: Lineage | None = None) -> None:
        self._metrics = metrics
        self._lineage = lineage
        self._messages = 0
        self._warned: set[str] = set()

    def begin(self, inputs: list[Dataset], outputs: list[Dataset]) -> None:
        """Raises OSError if the file of metrics cannot be written."""
        if self._metrics is not None:
            self._metrics.begin()
        if (lineage := self._lineage) is not None:
            self._tell("lineage", lambda: lineage.begin(inputs, outputs))

    @property
    def tells_lag(self) -> bool:
        return self._metrics is not None

    def progress(self, messages: int, batches: int = 1, lag: Lag | None = None) -> None:
        self._messages += messages
        if (metrics := self._metrics) is not None:
            self._tell("metrics", lambda: metrics.progress(messages, batches, lag))

    def end(self, status: int) -> None:
        if (metrics := self._metrics) is not None:
            self._tell("metrics", lambda: metrics.end(status))
        if (lineage := self._lineage) is not None:
            self._tell("lineage", lambda: lineage.end(status, self._messages))

    def _tell(self, what: str, tell: Callable[[], None]) -> None:
        try:
            tell()
        except (OSError, ValueError) as error:
            if what not in self._warned:
                self._warned.add(what)
                log.warning("%s cannot be told: %s", what, error)


def of(options: argparse.Namespace) -> Telemetry:
    """Returns the telemetry of a running job."""
    found: Telemetry = getattr(options, "telemetry", None) or Telemetry()
    return found


@contextlib.contextmanager
def telling(options: argparse.Namespace, connection: Mapping[str, str]) -> Iterator[Telemetry]:
    """Raises ValueError where an option is wrong, or what it names cannot be."""
    job = f"mq-pipeline {options.job}"
    file, address, lineage = (getattr(options, name, None) for name in ("metrics_file", "metrics", "lineage"))
    metrics = Metrics(job, file) if file or address else None
    with contextlib.ExitStack() as ends:
        with _named("--lineage", "" if "://" in str(lineage) else lineage):
            events = Lineage(lineage, job) if lineage else None
        if address and metrics is not None:
            host, _, port = address.rpartition(":")
            if not port.isdecimal() or not 0 < int(port) < 65536:
                raise ValueError(f"--metrics {address}: [HOST:]PORT is wanted")
            with _named("--metrics", address):
                server, _ = start_http_server(int(port), host or "127.0.0.1", metrics.registry)
            ends.callback(server.server_close)
            ends.callback(server.shutdown)
        telemetry = Telemetry(metrics, events)
        with _named("--metrics-file", file):
            telemetry.begin(*datasets(options, connection))
        yield telemetry


@contextlib.contextmanager
def _named(option: str, value: object) -> Iterator[None]:
    """Makes an error name the option; `value`: "" if it may have a password in it."""
    try:
        yield
    except (OSError, ValueError) as error:
        said = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise ValueError(f"{option} {value}".rstrip() + f": {said}") from None


def datasets(options: argparse.Namespace, connection: Mapping[str, str]) -> tuple[list[Dataset], list[Dataset]]:
    """Returns what a job reads and what it writes, as far as its options say."""
    said = vars(options)
    known = _known(said, connection)
    names: Sequence[str] = [known.get("topicPattern") or "*"]
    if known.get("topics"):
        with contextlib.suppress(OptionError):  # the job itself reports it
            names = names_of("topics", known["topics"])
    if said.get("to_topic"):
        names = [said["to_topic"]]
    topics = [Dataset(_namespace(known["brokers"]), (said.get("prefix") or "") + name) for name in names]
    if said.get("archive"):  # replay
        return [_directory(said["archive"])], topics
    made = said.get("to") or said.get("dir")
    return topics, [_directory(made)] if made else []


def _known(said: Mapping[str, Any], connection: Mapping[str, str]) -> dict[str, str]:
    """Returns brokers and topics, by their names as options of the source: what is given now, `--conf` last, and for
    the rest what an existing project says."""
    known = dict.fromkeys(_DATASETS, "")
    if said.get("job") == "run":
        try:
            project = Project(Path(said["dir"]).resolve())
            known |= project.source_options() if project.exists else {}
        except (ProjectError, OSError, ValueError):  # the job itself reports it
            pass
    if said.get("brokers") or not known["brokers"]:
        known["brokers"] = connection["brokers"]
    if said.get("topics") or said.get("topic_pattern"):
        known |= {"topics": said.get("topics") or "", "topicPattern": said.get("topic_pattern") or ""}
    for key, value in said.get("conf") or []:
        if key.startswith(PREFIX):
            known[key.removeprefix(PREFIX)] = value
    return known


def _namespace(brokers: str) -> str:
    """Names brokers by host and port, however they are spoken to: a topic has one name."""
    with contextlib.suppress(ValueError):  # the job itself reports it
        brokers = ",".join(str(Address.parse(text)) for text in brokers.split(",") if text.strip())
    return f"mqshards://{brokers}"


def _directory(path: str | Path) -> Dataset:
    """Names a place as OpenLineage's rules do (spec/Naming.md), and so as other programs do."""
    try:
        return Dataset("file", str(local_path(str(path)).resolve()))
    except ValueError:
        scheme, _, rest = str(path).partition("://")
        authority, _, name = rest.partition("/")
        return Dataset(f"{scheme}://{authority}", f"/{name}" if scheme == "hdfs" else name or "/")
