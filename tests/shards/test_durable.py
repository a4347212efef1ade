"""Small files that are replaced whole. See shards/durable.py."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from mq_shards.shards import durable


def test_content_name_and_folder_are_synced_in_this_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    synced, replaced = os.fsync, Path.replace

    def fsync(fd: int) -> None:
        said.append("sync " + Path(f"/proc/self/fd/{fd}").readlink().name)
        synced(fd)

    def replace(self: Path, target: Path) -> Path:
        said.append(f"rename {self.name} {target.name}")
        return replaced(self, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(Path, "replace", replace)
    durable.save(tmp_path / "small.json", b"{}")
    assert said == ["sync small.json.new", "rename small.json.new small.json", f"sync {tmp_path.name}"]
    assert (tmp_path / "small.json").read_bytes() == b"{}"


def test_a_save_that_fails_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    durable.save(tmp_path / "small.json", b"before")

    def fails(_: int) -> None:
        raise OSError(5, "no")

    monkeypatch.setattr(os, "fsync", fails)
    with pytest.raises(OSError, match="no"):
        durable.save(tmp_path / "small.json", b"after")
    assert (tmp_path / "small.json").read_bytes() == b"before"
