"""A data directory that is new is served before its shards are on the disk, and a crash meanwhile costs nothing."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from mq_shards.shards.meta import Meta

from tests.beanstalk.wire import Wire
from tests.preload import compiled
from tests.servers import MANY, SINGLE, Shape, running, shapes, wait_until

SOURCE = Path(__file__).with_name("heldsync.c")


@pytest.fixture
def held(tmp_path: Path) -> Path:
    """While this file exists nothing of a shard's folder is synced, by a broker with `environment`."""
    (tmp_path / "held").touch()
    return tmp_path / "held"


@pytest.fixture
def environment(held: Path, tmp_path: Path) -> dict[str, str]:
    return {"LD_PRELOAD": str(compiled(SOURCE, tmp_path)), "HELD_FOLDERS_IF": str(held)}


@pytest.mark.parametrize("shape", shapes(SINGLE, MANY))
def test_it_is_served_meanwhile_and_new_no_more_when_that_is_done(
    shape: Shape, tmp_path: Path, held: Path, environment: dict[str, str]
) -> None:
    data = tmp_path / "data"
    with running(shape, data_dir=data, env=environment) as server, Wire(server) as wire:
        job = wire.put(b"meanwhile")
        assert Meta.load(data).new
        assert wire.exchange(f"peek {job}").body == b"meanwhile"
        held.unlink()
        wait_until(lambda: not Meta.load(data).new, "it is on the disk")


@pytest.mark.parametrize("shape", shapes(SINGLE, MANY))
def test_what_a_crash_leaves_is_taken_over_without_a_word(
    shape: Shape, tmp_path: Path, held: Path, environment: dict[str, str]
) -> None:
    data = tmp_path / "data"
    with running(shape, data_dir=data, env=environment) as server, Wire(server) as wire:
        job = wire.put(b"before")
        server.kill()
    assert held.exists()
    used = {log.parent for log in data.glob("shard-*/*.log") if log.stat().st_size}
    empty = sorted(set(data.glob("shard-*")) - used)
    shutil.rmtree(empty[0])
    (empty[1] / "manifest.json").write_bytes(b"")
    with running(shape, data_dir=data, options=("--damage", "refuse")) as server, Wire(server) as wire:
        assert wire.exchange(f"peek {job}").body == b"before"
        wait_until(lambda: not Meta.load(data).new, "it is on the disk")
        assert " error " not in server.said()
        assert "shard" not in server.said().replace("shards", "")


def test_with_every_message_synced_it_is_synced_before_it_is_served(tmp_path: Path) -> None:
    with running(SINGLE, data_dir=tmp_path / "data", options=("--sync", "always")):
        assert not Meta.load(tmp_path / "data").new


def test_a_disk_that_refuses_to_sync_it_then_is_said_in_a_line(tmp_path: Path) -> None:
    env = {"LD_PRELOAD": str(compiled(SOURCE, tmp_path)), "FAILED_FOLDERS": "yes"}
    options = ("--sync", "always")
    wanted = pytest.raises(RuntimeError, match=r"new shards in \S+ cannot be synced: Input/output error")
    with wanted as raised, running(SINGLE, data_dir=tmp_path / "data", options=options, env=env):
        pass
    assert "Traceback" not in str(raised.value)
