"""What waits for the disk is done beside what serves, in the order in which somebody waits for it."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from mq_shards.csrc._core import lib
from mq_shards.shards.data_directory import DataDirectory
from mq_shards.shards.errands import Errands
from mq_shards.shards.housekeeping import READ_AHEAD_BYTES, Housekeeping
from mq_shards.shards.made import Made
from mq_shards.shards.paths import segment_name
from mq_shards.shards.retention import Retention
from mq_shards.shards.shard_files import ShardFiles
from mq_shards.shards.store import ShardStore
from mq_shards.shards.worker import Worker

from tests.ready import readable
from tests.shards.bench import SHARDS
from tests.shards.subscriptions import Channels


@pytest.fixture()
def errands() -> Iterator[Errands]:
    e = Errands()
    yield e
    e.close()


def settle(errands: Errands) -> None:
    assert readable([errands], 60)
    errands.settle()


def test_what_somebody_waits_for_comes_before_all_that_has_not_begun(errands: Errands) -> None:
    begun, go_on = threading.Event(), threading.Event()
    done: list[object] = []

    def hold() -> str:
        begun.set()
        assert go_on.wait(60)
        return "held"

    errands.run(hold, done.append)
    assert begun.wait(60)
    for n in range(3):
        errands.run(partial(int, n), done.append)
    for name in ("first", "second"):
        errands.run_first(partial(str, name), done.append)
    errands.run_first(partial(os.stat, "/nothing/there"), lambda error: done.append(type(error)))
    go_on.set()
    while len(done) < 7:
        settle(errands)
    assert done == ["held", "first", "second", FileNotFoundError, 0, 1, 2]


class Shards(Worker):
    """A worker with files and no log of its own, that notes which segments it was given."""

    def __init__(self, data: DataDirectory, worker: Any, errands: Errands) -> None:  # noqa: ANN401
        self._worker, self._errands = worker, errands
        self._files = {shard: ShardFiles(data.shard(shard)) for shard in range(SHARDS)}
        own = range(SHARDS)
        self.housekeeping = Housekeeping(own, SHARDS, self._files, Retention(0.0, 0), None, 1, background_sync=True)
        self.housekeeping.errands = errands
        self.given: list[int] = []

    def close(self) -> None:
        for files in self._files.values():
            files.store.close()

    def _made(self, shard: int, number: int, size: int, made: Made | Exception) -> None:
        assert isinstance(made, Made), made
        for fd in (made.fd, made.copies):
            os.close(fd)
        self.given.append(shard)

    def warmed(self) -> list[int]:
        return [shard for shard, files in self._files.items() if files.warmed == 1]


def test_a_new_segment_does_not_wait_for_others_that_are_read_ahead(
    errands: Errands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is read into the page cache is read to its end, and no errand of that is more than a piece."""
    data, bench = DataDirectory.open_or_create(tmp_path / "data", SHARDS), Channels()
    worker = Shards(data, bench.worker, errands)
    pieces: list[int] = []
    begun, go_on = threading.Event(), threading.Event()
    read = os.preadv

    def slow_read(fd: int, buffers: list[bytearray], offset: int) -> int:
        begun.set()
        assert go_on.wait(60)
        pieces.append(sum(map(len, buffers)))
        return read(fd, buffers, offset)

    monkeypatch.setattr(os, "preadv", slow_read)
    for shard in range(SHARDS):
        with (tmp_path / "data" / f"shard-{shard:04d}" / segment_name(1)).open("wb") as file:
            file.truncate(lib.SEGMENT_BYTES - shard)
        assert not worker.housekeeping._is_warm(shard, 1)
    assert begun.wait(60)
    create = ShardStore.create

    def noted(store: ShardStore, segment: int) -> int:
        assert len(pieces) == 1, "but for the one that had begun"
        return create(store, segment)

    monkeypatch.setattr(ShardStore, "create", noted)
    worker._add_segment(1, 2, lib.SEGMENT_BYTES)
    go_on.set()
    while not worker.given:
        settle(errands)
    while len(worker.warmed()) < SHARDS:
        settle(errands)
    assert len(pieces) == sum(1 + (lib.SEGMENT_BYTES - shard) // READ_AHEAD_BYTES for shard in range(SHARDS))
    assert set(pieces) == {READ_AHEAD_BYTES}
    assert worker.housekeeping._is_warm(0, 1)
    worker.close()
    bench.dispose()
    data.close()
