"""The memory that a scan of a segment needs for a large record is not kept for the records behind it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from mq_shards.shards.layout import SEGMENT_HEADER_BYTES
from mq_shards.shards.reader import scan
from mq_shards.shards.reader.scan import Columns, FileScan

from tests.reader.disk import Disk

WINDOW = 4096


def test_a_scan_gives_back_what_it_needed_for_a_large_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "LARGE_BYTES", 1 << 16)
    disk = Disk(tmp_path / "data")
    try:
        bodies = [b"first", b"x" * 30_000, b"y" * 300_000, b"z" * 200_000, b"last"]
        disk.publish("t", bodies)
        path = max(disk.directory.glob("shard-*/*.log"), key=lambda p: p.read_bytes().count(b"y"))
        fd = os.open(path, os.O_RDONLY)
        reader = FileScan(fd, int(path.stem), SEGMENT_HEADER_BYTES, path.stat().st_size, Columns(), WINDOW)
        sizes = []
        while (batch := reader.next()) is not None:
            assert len(reader._buffer) <= 1 << 16
            sizes += [int(n) for kind, n in zip(batch.kind, batch.bytes, strict=True) if kind == scan.PUBLISH]
        os.close(fd)
        assert [round(size, -3) for size in sizes] == [round(len(body), -3) for body in bodies]
        assert len(reader._buffer) == WINDOW
    finally:
        disk.dispose()
