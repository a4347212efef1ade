"""A message id never means two messages, though what was sent last is lost without a trace: a power failure, a backup
that is restored, a copy. And nothing is given away where nothing can be lost."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from mq_shards.shards.backup import make
from mq_shards.shards.last_run import NAME
from mq_shards.shards.manifest import NAME as MANIFEST
from mq_shards.shards.restore import restore

from tests.crash.test_power_cut import SOURCE, Disk
from tests.preload import compiled
from tests.pulsar.servers import PulsarServer, running
from tests.servers import wait_until

pulsar = pytest.importorskip("pulsar")

GONE = 2**32 - 1
QUIET = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)


def send(server: PulsarServer, count: int = 3) -> list[int]:
    """The entries of so many messages."""
    client = pulsar.Client(server.url, logger=QUIET)
    try:
        producer = client.create_producer("t")
        return [producer.send(b"x").entry_id() for _ in range(count)]
    finally:
        client.close()


def another_boot(data: Path) -> None:
    """As if the machine had been started since."""
    path = data / NAME
    said = json.loads(path.read_bytes())
    with path.open("r+b") as file:
        file.write(json.dumps(said | {"boot": "another"}).encode().ljust(511) + b"\n")


def copied(data: Path) -> None:
    shutil.copytree(data, data.with_name("copy"))
    shutil.rmtree(data)
    data.with_name("copy").rename(data)


def restored(data: Path) -> None:
    make(data, data.with_name("backup"))
    shutil.rmtree(data)
    restore(data.with_name("backup"), data)


def emptied(data: Path) -> None:
    (data / NAME).write_bytes(b"")


def nothing(data: Path) -> None:
    assert (data / NAME).exists()


@pytest.mark.parametrize(
    ("sync", "kill", "happens", "goes_on"),
    [
        ("interval", True, nothing, False),
        ("interval", False, another_boot, False),
        ("interval", True, another_boot, True),
        ("always", True, another_boot, False),
        ("always", False, copied, True),
        ("always", True, restored, True),
        ("interval", False, emptied, True),
        ("interval", False, lambda data: (data / NAME).unlink(), True),
    ],
)
def test_ids_go_on_once_where_something_may_be_lost(
    tmp_path: Path, sync: str, kill: bool, happens: Callable[[Path], None], goes_on: bool
) -> None:
    data = tmp_path / "data"
    with running(shards=2, data_dir=data, sync=sync) as server:
        assert send(server) == [0, 1, 2]
        server.kill() if kill else server.stop()
    happens(data)
    next_one = 3 + GONE if goes_on else 3
    for _ in range(2):
        with running(shards=2, data_dir=data, sync=sync) as server:
            assert ("go on far behind" in server.stderr.read_text()) == (goes_on and next_one == 3 + GONE)
            assert send(server, 1) == [next_one]
            server.stop()
        next_one += 1


def test_what_was_lost_before_it_could_be_made_up_for_is_made_up_for_later(tmp_path: Path) -> None:
    """A run that ends before its workers have recovered says nothing of how it ended."""
    data = tmp_path / "data"
    with running(shards=1, data_dir=data) as server:
        send(server)
        server.kill()
    another_boot(data)
    said = (data / NAME).read_bytes()
    shard = os.open(data / "shard-0000", os.O_RDONLY)
    fcntl.flock(shard, fcntl.LOCK_EX)  # a worker does not recover then
    with pytest.raises(AssertionError, match="in use by another worker"), running(shards=1, data_dir=data):
        pass
    os.close(shard)
    assert (data / NAME).read_bytes() == said
    with running(shards=1, data_dir=data) as server:
        assert send(server, 1) == [3 + GONE]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    disk = Disk(tmp_path / "data", tmp_path / "shadow")
    for path in (disk.data, disk.shadow):
        path.mkdir()
    yield disk


def test_over_a_real_power_cut_no_id_is_given_out_twice(disk: Disk, tmp_path: Path) -> None:
    shim = compiled(SOURCE, tmp_path)
    env: dict[str, Any] = {
        "LD_PRELOAD": str(shim), "POWERCUT_DIR": str(disk.data), "POWERCUT_SHADOW": str(disk.shadow),
    }  # fmt: skip
    with running(shards=1, data_dir=disk.data, sync="never", env=env) as server:
        # The worker syncs a segment once, soon after its first record, to list it as begun. What comes behind is lost:
        # all messages, where that record is the topic's own.
        before = send(server, 5)
        manifest = disk.data / "shard-0000" / MANIFEST
        wait_until(lambda: json.loads(manifest.read_bytes())["segments"]["1"], "the segment is listed as begun")
        before += send(server, 50)
        server.kill()
    left = disk.after_the_cut(tmp_path / "left")
    with running(shards=1, data_dir=left) as server:
        client = pulsar.Client(server.url, logger=QUIET)
        reader = client.create_reader("t", pulsar.MessageId.earliest)
        kept = []
        while reader.has_message_available():
            kept.append(reader.read_next(5000).message_id().entry_id())
        client.close()
        assert len(kept) < len(before), "the cut lost nothing, so this proves nothing"
        assert not set(send(server, 60)) & set(before)
