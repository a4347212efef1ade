"""A disk without room: puts are refused, all else goes on, and puts go on when there is room again."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.beanstalk.wire import Wire
from tests.nsq.api import post, stats
from tests.servers import MANY, SINGLE, Shape, free_port, running, shapes, wait_until

DISK_BYTES = 150 << 20
BODY = os.urandom(60_000)
FULL = "mq-worker-0: the disk is full: publishes are refused"
# What is done with makes room at once instead of being kept for batch readers.
OPTIONS = ("--shards", "1", "--set", "log.retention-bytes=0", "--set", "log.retention-hours=0")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small file system")
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(disk)], capture_output=True
    )
    if mounted.returncode:
        pytest.skip(f"cannot mount: {mounted.stderr.decode().strip()}")
    try:
        yield disk
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


def put_until_full(wire: Wire, most: int) -> list[int]:
    """Puts jobs, many at a time, until one is refused; the ids of those that were taken."""
    jobs: list[int] = []
    while len(jobs) < most:
        wire.send(b"".join(b"put 5 0 600 %d\r\n%s\r\n" % (len(BODY), BODY) for _ in range(20)))
        replies = wire.replies(20, 30)
        jobs += [r.number for r in replies if r.word == b"INSERTED"]
        refused = [r for r in replies if r.word != b"INSERTED"]
        assert {r.line for r in refused} <= {b"OUT_OF_MEMORY"}, refused
        if refused:
            return jobs
    raise AssertionError("the disk is never full")


@pytest.mark.parametrize("shape", shapes(SINGLE))
def test_a_full_disk_refuses_puts_and_serves_all_else(shape: Shape, small_disk: Path) -> None:
    most = 2 * DISK_BYTES // len(BODY)
    names = {f"empty-{n}" for n in range(200)}
    http_port = free_port()
    http = ("--listen", f"nsq-http://127.0.0.1:{http_port}")
    with running(shape, data_dir=small_disk, options=(*OPTIONS, *http)) as server, Wire(server) as wire:
        for name in names:  # which have to be written again before a segment goes
            post(http_port, f"/topic/create?topic={name}")
        jobs = put_until_full(wire, most)
        assert len(jobs) * len(BODY) > DISK_BYTES // 2, "most of the disk was used"
        wait_until(lambda: FULL in server.said(), "the journal says so")
        for job in (wire.reserve()[0] for _ in range(10)):
            assert wire.exchange(f"peek {job}").body == BODY
            assert wire.ask(f"release {job} 3 0") == b"RELEASED"
        for job in (wire.reserve()[0] for _ in range(10)):
            assert wire.ask(f"bury {job} 2") == b"BURIED"
        assert wire.ask("kick 5") == b"KICKED 5"
        assert wire.ask("pause-tube default 0") == b"PAUSED"
        rest = jobs[::-1]
        kept, gone = rest[:20], rest[20:]
        for job in gone:
            assert wire.ask(f"delete {job}") == b"DELETED"
        taken: list[int] = []

        def there_is_room() -> bool:
            taken.extend(put_until_full(wire, most))
            return len(taken) * len(BODY) > DISK_BYTES // 4

        wait_until(there_is_room, "there is room again", 20)
        present = {*kept, *taken}
        server.kill()
    with running(shape, data_dir=small_disk, options=(*OPTIONS[2:], *http)) as server, Wire(server) as wire:
        assert len(present) == sum(int(wire.stats()[f"current-jobs-{s}"]) for s in ("ready", "buried"))
        for job in present:
            assert wire.exchange(f"peek {job}").body == BODY
        for job in present:
            assert wire.ask(f"delete {job}") == b"DELETED"
        assert wire.ask("peek-ready") == b"NOT_FOUND"
        assert names <= {topic["topic_name"] for topic in stats(http_port, include_clients="false")["topics"]}


@pytest.mark.parametrize("shape", shapes(MANY))
def test_a_disk_that_others_filled_is_used_again_when_they_made_room(shape: Shape, small_disk: Path) -> None:
    with running(shape, data_dir=small_disk, options=("--shards", "3")) as server, Wire(server) as wire:
        tubes = [f"disk-{n}" for n in range(12)]
        before = []
        for tube in tubes:
            wire.use(tube)
            before.append(wire.put(BODY))
        ballast = small_disk / "ballast"
        with ballast.open("wb", buffering=0) as file, pytest.raises(OSError, match="No space"):
            while True:
                file.write(bytes(1 << 16))
        for tube in tubes:
            wire.use(tube)
            refused = False
            for _ in range(DISK_BYTES // len(BODY)):
                wire.send(b"put 0 0 60 %d\r\n%s\r\n" % (len(BODY), BODY))
                reply = wire.reply()
                if reply.word != b"INSERTED":
                    assert reply.line == b"OUT_OF_MEMORY"
                    refused = True
                    break
                before.append(reply.number)
            assert refused
        for job in before:
            assert wire.exchange(f"peek {job}").body == BODY
        ballast.unlink()

        def accepted() -> bool:
            taken = []
            for tube in tubes:
                wire.use(tube)
                wire.send(b"put 0 0 60 2\r\nok\r\n")
                taken.append(wire.reply().word == b"INSERTED")
            return all(taken)

        wait_until(accepted, "all shards take puts again", 20)
        for job in before:
            assert wire.ask(f"delete {job}") == b"DELETED"


def test_a_directory_that_was_moved_away_is_not_called_a_full_disk(tmp_path: Path) -> None:
    data, moved = tmp_path / "data", tmp_path / "moved"
    with running(SINGLE, data_dir=data, options=OPTIONS) as server, Wire(server) as wire:
        data.rename(moved)
        put_until_full(wire, 3 * (64 << 20) // len(BODY))
        why = f"mq-worker-0: {data}/shard-0000 cannot be read: No such file or directory: publishes are refused"
        wait_until(lambda: why in server.said(), "the journal says why")
        assert "full" not in server.said()
        moved.rename(data)

        def is_taken() -> bool:
            wire.send(b"put 0 0 60 %d\r\n%s\r\n" % (len(BODY), BODY))
            return wire.reply().word == b"INSERTED"

        wait_until(is_taken, "puts go on")
