"""A scan of a segment takes no more memory for a large record than for small ones."""

from __future__ import annotations

import os
import tracemalloc
from pathlib import Path

import pytest
from mq_shards.shards.layout import RECORD_BYTES, SEGMENT_HEADER_BYTES
from mq_shards.shards.reader import scan
from mq_shards.shards.reader.scan import Batch, Columns, FileScan

from tests.reader.disk import Disk

WINDOW = 4096
BODIES = [b"first", b"x" * 30_000, b"y" * 300_000, b"z" * 200_001, b"last"]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    disk = Disk(tmp_path_factory.mktemp("large") / "data")
    try:
        disk.publish("t", BODIES)
        found = max(disk.directory.glob("shard-*/*.log"), key=lambda one: one.read_bytes().count(b"y"))
        return found.rename(found.with_name(f"{found.stem}.kept"))
    finally:
        disk.dispose()


def messages(path: Path, window: int) -> tuple[list[Batch], int]:
    """And why the scan stopped."""
    fd = os.open(path, os.O_RDONLY)
    try:
        reader = FileScan(fd, int(path.stem), SEGMENT_HEADER_BYTES, path.stat().st_size, Columns(64), window)
        found = []
        while (batch := reader.next()) is not None:
            found += [batch.take(batch.kind == scan.PUBLISH)]
        assert reader.stop is not None
        return found, reader.stop
    finally:
        os.close(fd)


def columns(batches: list[Batch]) -> list[list[int]]:
    return [column.tolist() for column in (getattr(scan.join(batches), name) for name in scan.FIELDS)]


def test_large_records_are_found_as_with_a_window_that_holds_them(path: Path) -> None:
    tracemalloc.start()
    found, stop = messages(path, WINDOW)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    whole = messages(path, 8 << 20)
    assert (columns(found), stop) == (columns(whole[0]), whole[1])
    assert len(columns(found)[0]) == len(BODIES)
    assert peak < 100_000


@pytest.mark.parametrize("at", [8, RECORD_BYTES, WINDOW, 299_999])
def test_a_large_record_with_a_wrong_byte_is_none(path: Path, tmp_path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[data.index(b"y" * 1000) - RECORD_BYTES - 8 + at] ^= 1
    spoilt = tmp_path / path.name
    spoilt.write_bytes(data)
    found, stop = messages(spoilt, WINDOW)
    assert (sum(map(len, found)), stop) == (2, scan.BAD)
