"""Segments that are not needed any more and cannot be removed: they take room, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.beanstalk.wire import Wire
from tests.preload import compiled
from tests.servers import SINGLE, Server, running, wait_until

LARGE = bytes(14_000_000)
OPTIONS = (
    "--shards", "1", "--set", f"beanstalk.max-job-size={len(LARGE)}",
    "--set", "log.retention-hours=0", "--set", "log.retention-bytes=0",
)  # fmt: skip


def fill_a_segment(server: Server) -> None:
    """With jobs that are done with at once."""
    with Wire(server) as wire:
        for _ in range((64 << 20) // len(LARGE) + 1):
            assert wire.ask(f"delete {wire.put(LARGE)}") == b"DELETED"


def test_segments_that_cannot_be_removed_do_not_end_the_worker_and_go_when_they_can(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    flag, shard = tmp_path / "unremoved", tmp_path / "data" / "shard-0000"
    shim = compiled(Path(__file__).with_name("unremoved.c"), tmp_path_factory.mktemp("shim"))
    env = {"LD_PRELOAD": str(shim), "UNREMOVED_IF": str(flag)}

    def left() -> list[str]:
        return sorted(path.name for path in shard.glob("*.log"))

    flag.touch()
    with running(SINGLE, data_dir=tmp_path / "data", options=OPTIONS, env=env) as server:
        with Wire(server) as wire:
            job = wire.put(b"kept")
        fill_a_segment(server)
        said = "0000000001.log in {} cannot be removed: Input/output error; it is tried again with the next one"
        wait_until(lambda: said.format(shard) in server.said(), "it is said")
        assert server.said().count("cannot be removed") == 1 and "Traceback" not in server.said()
        assert server.terminate() == 0
    with running(SINGLE, data_dir=tmp_path / "data", options=OPTIONS, env=env) as server:
        assert "what is not needed any more cannot be removed: Input/output error" in server.said()
        assert not list(shard.glob("*.odd")), "it is known that it is going"
        with Wire(server) as wire:
            assert wire.exchange(f"peek {job}").body == b"kept"
        flag.unlink()
        fill_a_segment(server)
        wait_until(lambda: len(left()) <= 2, "all that was to go is gone")
        with Wire(server) as wire:
            assert wire.exchange(f"peek {job}").body == b"kept"
        assert server.terminate() == 0
