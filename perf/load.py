"""Builds and runs load generators, programs in C, and reads what they have measured.

Each program is compiled when first needed and kept in the user's cache directory under a hash of its sources and flags,
so that a measurement never runs an old build.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final, TypeVar

HERE: Final = Path(__file__).resolve().parent
CORE: Final = HERE.parent / "csrc"
# What each load generator is built with.
GENERATOR: Final = ("commands.c", "loop.c", "measure.c", "options.c", "run.c", "stream.c")
FLAGS: Final = ("-std=c11", "-O3", "-g", "-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Wvla", "-Werror")
INCLUDED: Final = (f"-I{HERE}", f"-I{CORE}")
# A run that takes so long beyond its own window hangs: a generator itself gives up after 20 s without a reply.
GRACE_S: Final = 60.0


class LoadError(Exception):
    """The load generator could not be built, or ended with a message instead of a result."""


@dataclass(frozen=True, slots=True)
class Program:
    """A program in C. Its sources are named relative to this folder."""

    name: str
    sources: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Latency:
    """Quantiles in microseconds."""

    p50: float
    p99: float
    p999: float
    max: float
    samples: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Messages:
    """What one run of a load generator measured in its window. What counts as a message is the protocol's to say."""

    messages: int
    seconds: float
    rate: float
    server_cpu_us_per_message: float | None = None  # None if no processes were named
    own_cpu_us_per_message: float
    publish: Latency | None = None  # from sending to the answer

    @property
    def own_share(self) -> float:
        """How much of one core the load generator used."""
        return self.own_cpu_us_per_message * self.messages / self.seconds / 1e6


Result = TypeVar("Result")


def cache_dir() -> Path:
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "mq-shards"


def build(program: Program) -> Path:
    """Returns the compiled program. Raises LoadError with the compiler's words if it does not compile."""
    compiler = os.environ.get("CC", "cc")
    sources = [HERE / source for source in program.sources]
    headers = sorted((*HERE.glob("**/*.h"), *CORE.glob("base/*.h")))
    content = b"".join(path.read_bytes() for path in (*sources, *headers))
    mark = hashlib.sha256(content + " ".join((compiler, *FLAGS)).encode()).hexdigest()[:16]
    target = cache_dir() / f"{program.name}-{mark}"
    if target.exists():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f"{target.name}.{os.getpid()}")
    try:
        done = subprocess.run(
            [compiler, *FLAGS, *INCLUDED, *map(str, sources), "-o", str(partial)], capture_output=True, text=True
        )
    except OSError as error:
        raise LoadError(f"{compiler}: {error.strerror}") from None
    if done.returncode != 0:
        raise LoadError(done.stderr)
    partial.rename(target)
    return target


def run(
    program: Program,
    result: type[Result],
    port: int,
    arguments: Sequence[str] = (),
    pids: Sequence[int] = (),
    limit_s: float = GRACE_S,
) -> Result:
    """Runs one load to its end, and returns the line of JSON that the generator prints as a `result`, a dataclass with
    fields of the same names. Raises LoadError for a wrong reply, a lost connection, no progress, or `limit_s`."""
    command = [str(build(program)), "--port", str(port), *arguments]
    if pids:
        command += ["--pids", ",".join(map(str, pids))]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit_s)
    except subprocess.TimeoutExpired:
        raise LoadError(f"no end after {limit_s:g} s: {' '.join(command)}") from None
    if done.returncode != 0:
        raise LoadError(done.stderr.strip() or f"ended with status {done.returncode}")
    return _read(result, json.loads(done.stdout))


def _read(result: type[Result], told: Mapping[str, Any]) -> Result:
    names = [field.name for field in fields(result)]  # type: ignore[arg-type]
    measured = {name: told[name] for name in names if name in told}
    latencies = {name: _latency(told[f"{name}_us"]) for name in names if f"{name}_us" in told}
    return result(**measured, **latencies)


def _latency(quantiles: Mapping[str, Any] | None) -> Latency | None:
    if quantiles is None:
        return None
    return Latency(quantiles["p50"], quantiles["p99"], quantiles["p99.9"], quantiles["max"], quantiles["samples"])


class IdleConnections:
    """Holds idle connections for as long as the context lasts. The generator's arguments say how many, and what they
    do before they are idle."""

    def __init__(self, program: Program, port: int, arguments: Sequence[str]) -> None:
        self._command = [str(build(program)), "--port", str(port), *arguments]

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
