"""beanstalkd's binlog: files binlog.N of records, each a change of one job. Source of the format: beanstalkd's file.c.

int32   bytes of the tube's name; 0: the record is about a job of an earlier record
name
struct  Jobrec, as a compiler for 64-bit machines lays it out
body    only if there is a name; it ends in CR LF
"""

from __future__ import annotations

import fcntl
import os
import struct
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from mq_shards.shards import durable
from mq_shards.supervisor.terminal.client import ClientError
from mq_shards.supervisor.terminal.importing.log_writer import BURIED, DELAYED, READY, LogWriter, State

LOCK: Final = "lock"
VERSION: Final = 7
MAX_NAME: Final = 201
HEAD: Final = struct.Struct("<i")
# id pri delay ttr body_size created_at deadline_at reserves timeouts releases buries kicks state
RECORD: Final = struct.Struct("<QI4xqqi4xqqIIIIIB3x")
GONE, AS_READY, RESERVED, AS_BURIED, AS_DELAYED = 0, 1, 2, 3, 4
assert RECORD.size == 80
Progress = Callable[[int], None]


class Job(NamedTuple):
    tube: bytes
    file: int
    offset: int  # of its body
    record: bytes  # the last record about the job


def files(directory: Path) -> list[Path]:
    found = [path for path in directory.glob("binlog.*") if path.suffix[1:].isdecimal()]
    return sorted(found, key=_number)


def _number(path: Path) -> int:
    return int(path.suffix[1:])


def _say_lost(what: str) -> None:
    print(f"mq-shards: {what}: jobs put there are missing, and jobs deleted there are back", file=sys.stderr)


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """No beanstalkd can use the directory meanwhile. Raises ClientError if one does."""
    try:
        lock = os.open(directory / LOCK, os.O_RDONLY)
    except FileNotFoundError:
        yield  # a copy
        return
    try:
        fcntl.lockf(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)  # a shared one, as the disk may be mounted read-only
    except (BlockingIOError, PermissionError):
        os.close(lock)
        raise ClientError(f"a beanstalkd uses {directory}: stop it first") from None
    try:
        yield
    finally:
        os.close(lock)


def read(directory: Path, progress: Progress) -> dict[int, Job]:
    """The jobs that exist, by their ids. Raises ClientError, OSError."""
    jobs: dict[int, Job] = {}
    paths = files(directory)
    for number, path in enumerate(paths):
        # beanstalkd removes the oldest ones only.
        if number > 0 and _number(path) != _number(paths[number - 1]) + 1:
            _say_lost(f"{directory} has nothing between {paths[number - 1].name} and {path.name}")
        data = durable.read(path)  # of the size that -s says, usually 10 MB
        if len(data) < HEAD.size:
            if path != paths[-1]:  # that one may have just been made
                _say_lost(f"{path} is empty")
            continue
        version = HEAD.unpack_from(data)[0]
        if version != VERSION:
            raise ClientError(f"{path} is of version {version}; {VERSION}, of beanstalkd 1.5 and later, can be read")
        at = HEAD.size
        while (following := _record(data, at, number, jobs)) > at:
            at = following
        if any(data[at:]):
            _say_lost(f"{path}: what follows byte {at} is no whole record")
        progress(len(data))
    return jobs


def _record(data: bytes, at: int, file: int, jobs: dict[int, Job]) -> int:
    """Reads a record into `jobs`; returns where the next one begins, `at` if there is no whole record."""
    if at + HEAD.size > len(data):
        return at
    name_bytes = int(HEAD.unpack_from(data, at)[0])
    begin = at + HEAD.size + name_bytes
    end = begin + RECORD.size
    if not 0 <= name_bytes < MAX_NAME or end > len(data):
        return at
    record = data[begin:end]
    identity, _, _, _, size, *_, state = map(int, RECORD.unpack(record))
    if identity == 0 or state > AS_DELAYED or size < 2:
        return at
    if name_bytes:
        if end + size > len(data):
            return at
        known = Job(data[at + HEAD.size : begin], file, end, record)
        end += size
    else:
        # The file with the job's first record is gone: then the job is gone too, or was written again later.
        earlier = jobs.get(identity)
        if earlier is None:
            return end
        known = earlier._replace(record=record)
    if state == GONE:
        jobs.pop(identity, None)
    else:
        jobs[identity] = known
    return end


def write(directory: Path, jobs: dict[int, Job], log: LogWriter, shards: int, progress: Progress) -> int:
    """Writes the jobs in the order of their ids, which they keep if there is one shard. Raises OSError."""
    opened = [path.open("rb") for path in files(directory)]
    try:
        for identity in sorted(jobs):
            job = jobs[identity]
            _, pri, delay_ns, ttr_ns, size, created_ns, deadline_ns, *counts, state = RECORD.unpack(job.record)
            file = opened[job.file]
            file.seek(job.offset)
            body = file.read(size)[:-2]
            reserves, timeouts, releases, buries, kicks = counts
            kept = {AS_BURIED: BURIED, AS_DELAYED: DELAYED}.get(state, READY)
            due_ns = deadline_ns if kept == DELAYED else 0
            about = State(kept, reserves, timeouts, releases, buries, kicks, max(0, delay_ns), due_ns)
            topic = log.topic(job.tube, created_ns, is_durable=False)
            log.publish(topic, body, created_ns, pri, ttr_ns, about, identity if shards == 1 else None)
            progress(size)
    finally:
        for one in opened:
            one.close()
    return len(jobs)
