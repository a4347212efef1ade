"""`mq-shards import beanstalkd|nsqd DIR`: makes a data directory of what a stopped server has left."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from mq_shards.shards.meta import MAX_SHARDS
from mq_shards.shards.store_error import StoreError
from mq_shards.shards.whole_directory import making
from mq_shards.supervisor.moving.beanstalkd import BINLOG
from mq_shards.supervisor.moving.nsqd import MESSAGES
from mq_shards.supervisor.moving.table import IMPORTS
from mq_shards.supervisor.moving.translation import DATA_DIR, IMPORTED, has_more
from mq_shards.supervisor.terminal.client import ClientError, reason
from mq_shards.supervisor.terminal.importing import beanstalkd, nsqd
from mq_shards.supervisor.terminal.importing.log_writer import LogWriter, has_messages, imported_note
from mq_shards.supervisor.terminal.show import counted

FAILED: Final = 1
BAD_OPTION: Final = 2
DEFAULT_SHARDS: Final = 64
LEFT: Final = {"beanstalkd": BINLOG, "nsqd": MESSAGES}  # the files in which a server keeps messages
BAR: Final = 30


class Bar:
    """A progress bar on the terminal."""

    def __init__(self, total: int, what: str) -> None:
        self._total = max(1, total)
        self._what = what
        self._done = 0
        self._shown_at = 0.0
        self._begun = time.monotonic()
        self._is_shown = sys.stderr.isatty()

    def __call__(self, size: int) -> None:
        self._done += size
        now = time.monotonic()
        if self._is_shown and now >= self._shown_at + 0.1:
            self._shown_at = now
            self._draw(now)

    def _draw(self, now: float) -> None:
        share = min(1.0, self._done / self._total)
        left = f"{(now - self._begun) * (1 - share) / share:.0f} s left" if share > 0.01 else ""
        bar = ("#" * round(BAR * share)).ljust(BAR, ".")
        text = f"\r{self._what:<8} [{bar}] {100 * share:3.0f} % {self._done >> 20} MiB {left:<14}"
        print(text, end="", file=sys.stderr)

    def end(self) -> None:
        if self._is_shown:
            self._done = self._total
            self._draw(time.monotonic())
            print(file=sys.stderr)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="mq-shards import",
        description="Makes a data directory of what a stopped beanstalkd or nsqd has left, which stays as it is.",
    )
    parser.add_argument("system", choices=IMPORTS, metavar="|".join(IMPORTS))
    parser.add_argument("source", type=Path, metavar="DIR", help="beanstalkd's -b, nsqd's -data-path")
    where = f"what is made (default: DIR/{DATA_DIR}, where `mq-shards as beanstalkd -b DIR` looks)"
    parser.add_argument("--data-dir", type=Path, metavar="TO", help=where)
    shards = f"fixed from then on (default: {DEFAULT_SHARDS}); with 1, jobs keep their ids"
    parser.add_argument("--shards", type=int, default=DEFAULT_SHARDS, metavar="N", help=shards)
    options = parser.parse_args(arguments)
    if not 1 <= options.shards <= MAX_SHARDS:
        print(f"mq-shards import: --shards is 1 to {MAX_SHARDS}", file=sys.stderr)
        return BAD_OPTION
    target: Path = options.data_dir or options.source / DATA_DIR
    try:
        return _import(options.system, options.source, target, options.shards)
    except (ClientError, StoreError) as error:
        print(f"mq-shards: {error}", file=sys.stderr)
    except OSError as error:
        print(f"mq-shards: {error.filename or target}: {reason(error)}", file=sys.stderr)
    return FAILED


def _import(system: str, source: Path, target: Path, shards: int) -> int:
    if not source.is_dir():
        raise ClientError(f"{source} is no directory")
    if has_messages(target):
        return _is_there(system, source, target)
    if target.exists() and any(target.iterdir()):
        raise ClientError(f"{target} is no data directory, and not empty")
    do: Callable[[Path, LogWriter, int], dict[str, int]] = _from_beanstalkd if system == "beanstalkd" else _from_nsqd
    left = beanstalkd if system == "beanstalkd" else nsqd
    with left.locked(source), making(target, ".importing") as made, LogWriter(made, shards) as log:
        counts = do(source, log, shards)
        note = {"from": system, "source": str(source.absolute()), "at_ns": time.time_ns(), **counts}
        log.finish(json.dumps(note).encode() + b"\n")
    print(", ".join(counted(count, what) for what, count in counts.items()), f"are in {target}")
    return 0


def _is_there(system: str, source: Path, target: Path) -> int:
    note = imported_note(target)
    if note is None:
        raise ClientError(f"{target} has messages of its own: name another directory with --data-dir")
    try:
        found = json.loads(note)
        whose, where = str(found["from"]), Path(found["source"])
    except (ValueError, KeyError, TypeError):
        raise ClientError(f"{target / IMPORTED} is damaged") from None
    is_inside = target.resolve().parent == source.resolve()  # the two may have moved together
    if whose != system or not (is_inside or where.resolve() == source.resolve()):
        raise ClientError(f"{target} was imported from {where}, of {whose}: name another directory with --data-dir")
    if has_more(source, LEFT[system], target):
        raise ClientError(
            f"{source} was written to after {target} was imported: to import it once more, also what is in {target}"
            " already, name another directory with --data-dir"
        )
    print(f"{target} was imported from {where} before: there is nothing to do")
    return 0


def _from_beanstalkd(source: Path, log: LogWriter, shards: int) -> dict[str, int]:
    paths = beanstalkd.files(source)
    if not paths:
        raise ClientError(f"{source} has no binlog of a beanstalkd")
    reading = Bar(sum(path.stat().st_size for path in paths), "reading")
    jobs = beanstalkd.read(source, reading)
    reading.end()
    writing = Bar(sum(beanstalkd.RECORD.unpack(job.record)[4] for job in jobs.values()), "writing")
    beanstalkd.write(source, jobs, log, shards, writing)
    writing.end()
    return {"tubes": len({job.tube for job in jobs.values()}), "jobs": len(jobs)}


def _from_nsqd(source: Path, log: LogWriter, shards: int) -> dict[str, int]:
    topics = nsqd.metadata(source)
    reading = Bar(sum(path.stat().st_size for path in source.glob("*.diskqueue.[0-9]*.dat")), "reading")
    found = [nsqd.Import(source, topic, reading) for topic in topics]
    reading.end()
    writing = Bar(sum(one.bytes for one in found), "writing")
    for one in found:
        try:
            one.write(log, writing)
        finally:
            one.close()
    writing.end()
    return {
        "topics": len(found), "channels": sum(len(one.channels) for one in found),
        "messages": sum(one.messages for one in found),
    }  # fmt: skip
