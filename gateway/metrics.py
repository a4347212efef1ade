"""/metrics: the broker's figures in Prometheus's text format.

A counter restarts from 0 with the process that counts, as Prometheus expects. Counters of several processes are never
added up, unless they outlive these processes: such a sum would fall at a restart, but not to 0. The figures of topics
are in metrics_topics.py.
"""

from __future__ import annotations

import asyncio
import os
import resource
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from mq_shards.acceptor import certificate_times, named_files
from mq_shards.acceptor.engine import Durations, Engine, protocol_names
from mq_shards.gateway.broker import Broker, Ring
from mq_shards.gateway.catalog import Topic
from mq_shards.gateway.http_answers import Answer
from mq_shards.gateway.http_server import Request
from mq_shards.gateway.metrics_topics import Shown, choose, families, look_at_ages
from mq_shards.gateway.processes import processes
from mq_shards.gateway.shared import Shared

if TYPE_CHECKING:
    from prometheus_client import Metric

CATALOG_S: Final = 2.0
RINGS_S: Final = 1.0

# The board's totals: field, whether it only rises (not in _COUNTED, where all do), name, and help text.
_COUNTED: Final = (  # by each worker
    ("timeouts", "timeouts", "Messages whose time to be finished was over."),
    ("published", "published", "Messages that were published, to whatever topic or tube."),
    ("records_written", "log_records_written", "Records that were written to logs."),
    ("records_migrated", "log_records_moved", "Records that compaction has moved."),
    ("unreadable", "messages_unreadable", "Messages left out because the medium under their log has failed."),
)
_TOTALS: Final = (
    ("connections", False, "connections_open", "Connections that are open."),
    ("total_connections", True, "connections", "Connections that were accepted."),
    ("gave_way", True, "connections_gave_way", "Connections that had said nothing and were closed for new ones."),
    ("ready", False, "jobs_ready", "Jobs of tubes that can be reserved."),
    ("reserved", False, "jobs_reserved", "Jobs of tubes that clients have reserved."),
    ("delayed", False, "jobs_delayed", "Jobs of tubes whose delay is not over."),
    ("buried", False, "jobs_buried", "Jobs of tubes that are buried."),
    ("topics", False, "topics", 'Topics and tubes; the tube "default" is always one.'),
)
_WAITS: Final = (
    "Times that a connection of an acceptor had to wait for a worker that is gone or behind, for another acceptor, "
    "for its own client to take replies, or for room in memory; or a request of a worker for a segment of its log."
)
# What protocols count as "in-..." and "out-..."; a protocol that does not is left out.
_OF_PROTOCOLS: Final = (
    ("messages", "protocol_messages", "Messages of a protocol, whether or not a topic keeps them."),
    ("bytes", "protocol_bytes", "Bytes of these messages' bodies."),
)
_DURATIONS: Final = (
    ("turn", "turn_seconds", "Turns of workers in which there was something to do."),
    ("publish", "publish_seconds", "From when a worker takes in what is published until it is answered."),
    ("sync", "sync_seconds", "Rounds of syncs of logs to disk."),
)
# Returns by process the refused logins and the refused actions, each by protocol.
Refused: TypeAlias = Callable[[], Awaitable[Mapping[str, tuple[Mapping[str, int], Mapping[str, int]]]]]
More: TypeAlias = Callable[[Sequence[Topic]], Awaitable[list["Metric"]]]


class Metrics:
    def __init__(
        self, engine: Engine, broker: Broker, supervisor: int, acceptors: int, data_dir: Path | None, most_topics: int,
        refused: Refused,
    ) -> None:  # fmt: skip
        self._engine = engine
        self._broker = broker
        self._supervisor = supervisor
        self._acceptors = acceptors
        self._data_dir = data_dir
        self.most_topics = most_topics
        self._refused = refused
        self._ages_from: dict[int, tuple[str, ...]] = {}  # by worker: the name to begin with, see ages.py
        self._one_at_a_time = asyncio.Lock()  # a scrape costs time for each name
        self._shared: Shared[Answer] = Shared()

    async def answer(self, request: Request, fields: dict[str, str]) -> Answer:
        return await self.scrape()

    async def scrape(self, more: More | None = None) -> Answer:
        """Makes the answer, one for all who ask for the same meanwhile. `more`: makes further figures of the topics,
        under a protocol's own names."""
        return await self._shared.get(more, lambda: self._scrape(more))

    async def _scrape(self, more: More | None) -> Answer:
        async with self._one_at_a_time:
            survey = await self._broker.survey(CATALOG_S)
            beside = await more(survey.topics) if more is not None else []
            totals = self._engine.totals()
            up = [worker not in survey.silent for worker in range(self._engine.workers)]
            figures = {name: float(getattr(totals, name)) for name, *_ in _TOTALS}
            refused = await self._refused()
            found = await asyncio.to_thread(choose, survey.topics, self.most_topics)
            await look_at_ages(self._broker, found, self._ages_from)
            others = [
                *self._of_broker(figures, totals.draining, up), *self._of_protocols(), *self._of_loops(up),
                *self._of_rings(await self._rings(up)), *_of_refused(refused), _of_certificates(), *beside,
            ]  # fmt: skip
            return await asyncio.to_thread(self._written, found, others)

    async def _rings(self, up: Sequence[bool]) -> dict[int, list[Ring]]:
        """The rings by worker, without workers that do not answer."""

        async def rings(worker: int) -> list[Ring]:
            async with asyncio.timeout(RINGS_S):
                return await self._broker.rings(worker)

        asked = [worker for worker, is_up in enumerate(up) if is_up]
        found = await asyncio.gather(*map(rings, asked), return_exceptions=True)
        return {worker: of for worker, of in zip(asked, found, strict=True) if not isinstance(of, BaseException)}

    async def topics(self) -> list[Topic] | None:
        """None when a worker is gone or does not answer."""
        survey = await self._broker.survey(CATALOG_S)
        return None if survey.silent else survey.topics

    def _written(self, found: Shown, others: Sequence[Metric]) -> Answer:
        # Imported late, since it takes time and memory that a broker without Prometheus does not need.
        from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest

        written = [*others, *self._of_processes(), *families(found, _metric)]

        class Collected:
            def collect(self) -> Iterable[Metric]:
                return written

        return Answer(200, generate_latest(Collected()), {"Content-Type": CONTENT_TYPE_PLAIN_0_0_4})

    def _of_broker(self, totals: dict[str, float], draining: bool, up: Sequence[bool]) -> Iterator[Metric]:
        for figure, rises, name, help_text in _TOTALS:
            yield _metric(rises, name, help_text, (), [((), totals[figure])])
        yield _metric(False, "draining", "1: no new messages are taken.", (), [((), float(draining))])
        rows = [((str(worker),), float(is_up)) for worker, is_up in enumerate(up)]
        yield _metric(False, "worker_up", "1: the worker is there, and answers.", ("worker",), rows)
        rows = [((str(worker),), float(worker in self._broker.refusing)) for worker in range(len(up))]
        yield _metric(False, "worker_refuses", "1: it refuses publishes, its disk is full or fails.", ("worker",), rows)
        of_workers = [self._engine.worker_totals(worker) for worker in range(self._engine.workers)]
        for figure, name, help_text in _COUNTED:
            counted = [((str(n),), float(getattr(one, figure))) for n, one in enumerate(of_workers)]
            yield _metric(True, name, help_text, ("worker",), counted)
        for what, name, help_text in _DURATIONS:
            yield _histogram(name, help_text, [self._engine.durations(n, what) for n in range(self._engine.workers)])
        if self._data_dir is not None:
            disk = os.statvfs(self._data_dir)
            sizes = [
                (("free",), float(disk.f_bavail * disk.f_frsize)),
                (("all",), float(disk.f_blocks * disk.f_frsize)),
            ]
            yield _metric(False, "disk_bytes", "Of the file system of the data directory.", ("which",), sizes)

    def _of_protocols(self) -> Iterator[Metric]:
        """An acceptor that is started again goes on counting, so these sums over all of them only rise."""
        counted = {name: self._engine.counters(number) for number, name in protocol_names().items()}
        for what, metric, help_text in _OF_PROTOCOLS:
            rows = [
                ((name, way), float(of[f"{way}-{what}"]))
                for name, of in counted.items() for way in ("in", "out") if f"{way}-{what}" in of
            ]  # fmt: skip
            yield _metric(True, metric, help_text, ("protocol", "direction"), rows)
        slow = [((name,), float(of["slow-consumers"])) for name, of in counted.items() if "slow-consumers" in of]
        yield _metric(True, "protocol_slow_consumers", "Connections cut off because they did not take their messages.",
                      ("protocol",), slow)  # fmt: skip

    def _of_loops(self, up: Sequence[bool]) -> Iterator[Metric]:
        loops = [(f"mq-acceptor-{n}", self._engine.loop(n, of_worker=False)) for n in range(self._acceptors)]
        loops += [(f"mq-worker-{n}", self._engine.loop(n, of_worker=True)) for n in range(len(up))]
        yield _metric(True, "loop_busy_seconds", "Time that the process's loop did not wait.", ("process",),
                      [((name,), loop.busy_s) for name, loop in loops])  # fmt: skip
        yield _metric(True, "loop_long_turns", "Turns of the loop that took longer than 16 ms.", ("process",),
                      [((name,), float(loop.long_turns)) for name, loop in loops])  # fmt: skip
        yield _metric(True, "waits", _WAITS, ("process", "for"),
                      [((name, what), float(n)) for name, loop in loops for what, n in loop.waits.items()
                       if (what == "segment") == name.startswith("mq-worker")])  # fmt: skip

    def _of_rings(self, found: Mapping[int, Sequence[Ring]]) -> Iterator[Metric]:
        rings = [(str(worker), self._name(ring.acceptor), ring) for worker, of in found.items() for ring in of]
        ways = ("worker", "process", "direction")
        waiting = [((w, p, "to_worker"), float(ring.in_bytes)) for w, p, ring in rings]
        waiting += [((w, p, "from_worker"), float(ring.out_bytes)) for w, p, ring in rings]
        yield _metric(False, "ring_bytes", "Bytes that wait in the ring between a worker and a process.", ways, waiting)
        room = max((ring.in_room for *_, ring in rings), default=0)  # all rings have one size
        yield _metric(False, "ring_room_bytes", "How many bytes such a ring has.", (), [((), float(room))])
        yield _metric(False, "ring_overflow_bytes", "Bytes of a worker's answers that wait for room in that ring.",
                      ways[:2], [((w, p), float(ring.overflow_bytes)) for w, p, ring in rings])  # fmt: skip

    def _name(self, acceptor: int) -> str:
        return "mq-gateway" if acceptor == self._acceptors else f"mq-acceptor-{acceptor}"

    def _of_processes(self) -> Iterator[Metric]:
        found = list(processes(self._supervisor))
        yield _metric(True, "process_cpu_seconds", "CPU time, of the user and the kernel.", ("process",),
                      [((one.name,), one.cpu_s) for one in found])  # fmt: skip
        yield _metric(False, "process_resident_bytes", "Memory that is resident, with what is shared.", ("process",),
                      [((one.name,), float(one.resident_bytes)) for one in found])  # fmt: skip
        yield _metric(False, "process_open_files", "Descriptors that are open.", ("process",),
                      [((one.name,), float(one.open_files)) for one in found])  # fmt: skip
        yield _metric(True, "process_hangs", "How often it has not answered the supervisor for 3 s.", ("process",),
                      [((title,), float(count)) for title, count in self._broker.hangs.items()])  # fmt: skip
        # All processes have the limit of the supervisor, which raises it as far as it may.
        most = float(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        yield _metric(False, "process_max_files", "Descriptors that each process may have open.", (), [((), most)])


def _of_refused(refused: Mapping[str, tuple[Mapping[str, int], Mapping[str, int]]]) -> Iterator[Metric]:
    for place, name, help_text in (
        (0, "refused_logins", "Logins that were wrong."),
        (1, "refused_actions", "What users asked for that they may not."),
    ):
        rows = [
            ((protocol, process), float(count))
            for process, counts in refused.items() for protocol, count in sorted(counts[place].items())
        ]  # fmt: skip
        yield _metric(True, name, help_text, ("protocol", "process"), rows)


def _of_certificates() -> Metric:
    rows = [((path,), end_s) for path, end_s in certificate_times.all_ends(named_files.all_kept())]
    return _metric(False, "certificate_expiry_timestamp_seconds", "When the first certificate of a file is over.",
                   ("file",), rows)  # fmt: skip


def _metric(
    rises: bool, name: str, help_text: str, labels: Sequence[str], rows: Iterable[tuple[Sequence[str], float]]
) -> Metric:
    from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily

    family = (CounterMetricFamily if rises else GaugeMetricFamily)(f"mq_shards_{name}", help_text, labels=labels)
    for values, value in rows:
        family.add_metric(list(values), value)
    return family


def _histogram(name: str, help_text: str, of_workers: Sequence[Durations]) -> Metric:
    from prometheus_client.metrics_core import HistogramMetricFamily

    family = HistogramMetricFamily(f"mq_shards_{name}", help_text, labels=("worker",))
    for worker, found in enumerate(of_workers):
        ends = [*(f"{end:.9g}" for end in found.ends_s), "+Inf"]
        counts = [float(count) for count in accumulate(found.counts)]
        family.add_metric([str(worker)], list(zip(ends, counts, strict=True)), found.sum_s)
    return family
