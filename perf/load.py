"""Builds and runs the load generators (load_beanstalk.c, load_nsq.c, load_http.c, load_nats.c, load_pulsar.c), and
builds the bare server (bare.c).

Each program is compiled when first needed and kept in the user's cache directory under a hash of its sources and flags,
so that a measurement never runs an old build.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

HERE: Final = Path(__file__).parent
CHECKSUM: Final = "../csrc/base/crc32c.c"
CHECKSUM_HEADER: Final = "../csrc/base/crc32c.h"
PROGRAMS: Final[Mapping[str, tuple[str, ...]]] = {
    "load_beanstalk": ("load_beanstalk.c", "measure.c", "stream.c"),
    "load_nsq": ("load_nsq.c", "measure.c", "stream.c"),
    "load_http": ("load_http.c", "loop.c", "measure.c", "stream.c"),
    "load_nats": ("load_nats.c", "measure.c", "stream.c"),
    "load_pulsar": ("load_pulsar.c", "pulsar_block.c", "pulsar_frames.c", "loop.c", "measure.c", "stream.c", CHECKSUM),
    "bare": (
        "bare.c",
        "bare_beanstalk.c",
        "bare_nsq.c",
        "bare_nats.c",
        "bare_pulsar.c",
        "pulsar_frames.c",
        "measure.c",
    ),
}
HEADERS: Final = ("measure.h", "stream.h", "loop.h", "bare.h", "pulsar_block.h", "pulsar_frames.h", CHECKSUM_HEADER)
INCLUDED: Final = f"-I{HERE.parent / 'csrc'}"
FLAGS: Final = ("-std=c11", "-O3", "-g", "-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Wvla", "-Werror")
# A run that takes so long beyond its own window hangs: a generator itself gives up after 20 s without a reply.
GRACE_S: Final = 60.0


class LoadError(Exception):
    """The load generator could not be built, or ended with a message instead of a result."""


@dataclass(frozen=True, slots=True)
class Latency:
    """Quantiles in microseconds."""

    p50: float
    p99: float
    p999: float
    max: float
    samples: int


@dataclass(frozen=True, slots=True)
class Beanstalk:
    """What one run of load_beanstalk measured in its window. A job is one cycle of put, reserve, delete, or one put
    without consumers."""

    jobs: int
    seconds: float
    rate: float
    server_cpu_us_per_job: float | None  # None if no processes were named
    own_cpu_us_per_job: float
    puts: int
    reserves: int
    deletes: int
    put: Latency | None  # put sent to INSERTED
    job: Latency | None  # put sent to RESERVED


@dataclass(frozen=True, slots=True)
class Nsq:
    """What one run of load_nsq measured in its window. A message is one delivery that was finished, or one message
    published without consumers."""

    messages: int
    seconds: float
    rate: float
    server_cpu_us_per_message: float | None  # None if no processes were named
    own_cpu_us_per_message: float
    published: int
    finished: int
    redelivered: int
    publish: Latency | None  # from a command's sending to OK
    message: Latency | None  # message sent, or due in an open loop, to delivery


@dataclass(frozen=True, slots=True)
class Http:
    """What one run of load_http measured in its window. A message is one that was answered OK."""

    messages: int
    seconds: float
    rate: float
    server_cpu_us_per_message: float | None  # None if no processes were named
    own_cpu_us_per_message: float
    publish: Latency | None  # from a request's sending to its answer


@dataclass(frozen=True, slots=True)
class Nats:
    """What one run of load_nats measured in its window. A message is one delivery, one request that was
    answered, or one message published that nobody wants."""

    messages: int
    seconds: float
    rate: float
    server_cpu_us_per_message: float | None  # None if no processes were named
    own_cpu_us_per_message: float
    published: int
    delivered: int
    latency: Latency | None  # from sending (in an open loop: from when it is due) to delivery, or to the answer


@dataclass(frozen=True, slots=True)
class Pulsar:
    """What one run of load_pulsar measured in its window. A message is one that was delivered and acknowledged, or
    one that got a receipt without consumers."""

    messages: int
    seconds: float
    rate: float
    server_cpu_us_per_message: float | None  # None if no processes were named
    own_cpu_us_per_message: float
    published: int
    consumed: int
    redelivered: int
    publish: Latency | None  # from SEND to its receipt
    message: Latency | None  # message sent, or due in an open loop, to delivery


def cache_dir() -> Path:
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "mq-shards"


def build(name: str = "load_beanstalk") -> Path:
    """Returns the compiled program. Raises LoadError with the compiler's words if it does not compile."""
    compiler = os.environ.get("CC", "cc")
    sources = [HERE / source for source in PROGRAMS[name]]
    content = b"".join(path.read_bytes() for path in (*sources, *(HERE / header for header in HEADERS)))
    mark = hashlib.sha256(content + " ".join((compiler, *FLAGS)).encode()).hexdigest()[:16]
    target = cache_dir() / f"{name}-{mark}"
    if target.exists():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f"{target.name}.{os.getpid()}")
    try:
        done = subprocess.run(
            [compiler, *FLAGS, INCLUDED, *map(str, sources), "-o", str(partial)], capture_output=True, text=True
        )
    except OSError as error:
        raise LoadError(f"{compiler}: {error.strerror}") from None
    if done.returncode != 0:
        raise LoadError(done.stderr)
    partial.rename(target)
    return target


def run(port: int, arguments: Sequence[str] = (), pids: Sequence[int] = (), limit_s: float = GRACE_S) -> Beanstalk:
    """Runs one load to its end. Raises LoadError for a wrong reply, a lost connection, no progress, or `limit_s`."""
    fields = _execute("load_beanstalk", port, arguments, pids, limit_s)
    return Beanstalk(
        jobs=fields["cycles"],
        seconds=fields["seconds"],
        rate=fields["rate"],
        server_cpu_us_per_job=fields.get("server_cpu_us_per_job"),
        own_cpu_us_per_job=fields["own_cpu_us_per_job"],
        puts=fields["puts"],
        reserves=fields["reserves"],
        deletes=fields["deletes"],
        put=_latency(fields.get("put_us")),
        job=_latency(fields.get("job_us")),
    )


def run_nsq(port: int, arguments: Sequence[str] = (), pids: Sequence[int] = (), limit_s: float = GRACE_S) -> Nsq:
    """As run(), for the NSQ protocol."""
    fields = _execute("load_nsq", port, arguments, pids, limit_s)
    return Nsq(
        messages=fields["messages"],
        seconds=fields["seconds"],
        rate=fields["rate"],
        server_cpu_us_per_message=fields.get("server_cpu_us_per_message"),
        own_cpu_us_per_message=fields["own_cpu_us_per_message"],
        published=fields["published"],
        finished=fields["finished"],
        redelivered=fields["redelivered"],
        publish=_latency(fields.get("publish_us")),
        message=_latency(fields.get("message_us")),
    )


def run_http(port: int, arguments: Sequence[str] = (), pids: Sequence[int] = (), limit_s: float = GRACE_S) -> Http:
    """As run(), for NSQ's HTTP API."""
    fields = _execute("load_http", port, arguments, pids, limit_s)
    return Http(
        messages=fields["messages"],
        seconds=fields["seconds"],
        rate=fields["rate"],
        server_cpu_us_per_message=fields.get("server_cpu_us_per_message"),
        own_cpu_us_per_message=fields["own_cpu_us_per_message"],
        publish=_latency(fields.get("publish_us")),
    )


def run_nats(port: int, arguments: Sequence[str] = (), pids: Sequence[int] = (), limit_s: float = GRACE_S) -> Nats:
    """As run(), for the NATS protocol."""
    fields = _execute("load_nats", port, arguments, pids, limit_s)
    return Nats(
        messages=fields["messages"],
        seconds=fields["seconds"],
        rate=fields["rate"],
        server_cpu_us_per_message=fields.get("server_cpu_us_per_message"),
        own_cpu_us_per_message=fields["own_cpu_us_per_message"],
        published=fields["published"],
        delivered=fields["delivered"],
        latency=_latency(fields.get("latency_us")),
    )


def run_pulsar(port: int, arguments: Sequence[str] = (), pids: Sequence[int] = (), limit_s: float = GRACE_S) -> Pulsar:
    """As run(), for Pulsar's binary protocol."""
    fields = _execute("load_pulsar", port, arguments, pids, limit_s)
    return Pulsar(
        messages=fields["messages"],
        seconds=fields["seconds"],
        rate=fields["rate"],
        server_cpu_us_per_message=fields.get("server_cpu_us_per_message"),
        own_cpu_us_per_message=fields["own_cpu_us_per_message"],
        published=fields["published"],
        consumed=fields["consumed"],
        redelivered=fields["redelivered"],
        publish=_latency(fields.get("publish_us")),
        message=_latency(fields.get("message_us")),
    )


def _execute(name: str, port: int, arguments: Sequence[str], pids: Sequence[int], limit_s: float) -> dict[str, Any]:
    """Returns the line of JSON that a generator prints."""
    command = [str(build(name)), "--port", str(port), *arguments]
    if pids:
        command += ["--pids", ",".join(map(str, pids))]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit_s)
    except subprocess.TimeoutExpired:
        raise LoadError(f"no end after {limit_s:g} s: {' '.join(command)}") from None
    if done.returncode != 0:
        raise LoadError(done.stderr.strip() or f"ended with status {done.returncode}")
    fields: dict[str, Any] = json.loads(done.stdout)
    return fields


def _latency(fields: dict[str, Any] | None) -> Latency | None:
    if fields is None:
        return None
    return Latency(fields["p50"], fields["p99"], fields["p99.9"], fields["max"], fields["samples"])


class IdleConnections:
    """Holds `count` idle connections for as long as the context lasts. Those of NATS and Pulsar have introduced
    themselves. Those of NATS have subscribed to `subscriptions` subjects together; each of Pulsar's has a producer and
    a consumer on each of `topics` topics of its own."""

    def __init__(
        self, port: int, count: int, protocol: str = "beanstalk", subscriptions: int = 0, topics: int = 1
    ) -> None:
        self._command = [str(build()), "--port", str(port), "--idle", str(count)]
        if protocol == "nats":
            self._command = [str(build("load_nats")), "--port", str(port), "--mode", "idle"]
            self._command += ["--subscribers", str(count), "--subscriptions", str(subscriptions)]
        if protocol == "pulsar":
            self._command = [str(build("load_pulsar")), "--port", str(port), "--mode", "idle"]
            self._command += ["--producers", str(count), "--topics", str(topics)]

    def __enter__(self) -> IdleConnections:
        self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert self._process.stdout is not None and self._process.stderr is not None
        if self._process.stdout.readline() != "ready\n":
            self._process.kill()
            raise LoadError(self._process.communicate()[1].strip())
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()
