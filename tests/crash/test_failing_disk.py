"""A disk that refuses what is written to it: its worker is replaced, with a line, and goes on when the disk does."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.beanstalk.wire import Wire
from tests.preload import compiled
from tests.servers import SINGLE, running, wait_until


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(Path(__file__).with_name("unsynced.c"), tmp_path_factory.mktemp("shim"))


def test_a_stop_says_in_a_line_which_file_could_not_be_synced(tmp_path: Path, shim: Path) -> None:
    flag = tmp_path / "unsynced"
    env = {"LD_PRELOAD": str(shim), "UNSYNCED_IF": str(flag)}
    options = ("--shards", "1", "--sync", "never")
    with running(SINGLE, data_dir=tmp_path / "data", options=options, env=env) as server, Wire(server) as wire:
        wire.put(b"x")
        flag.touch()
        assert server.terminate() == 1
        line = "mq-worker-0: a log cannot be written (shard-0000/0000000001.log: Input/output error): what came last"
        assert line in server.said()
        assert "Traceback" not in server.said()


@pytest.mark.long  # a worker waits for 5 s
def test_a_worker_whose_disk_fails_for_long_is_replaced_with_a_line(tmp_path: Path, shim: Path) -> None:
    flag = tmp_path / "unsynced"
    env = {"LD_PRELOAD": str(shim), "UNSYNCED_IF": str(flag)}
    options = ("--shards", "1", "--sync", "always")
    with running(SINGLE, data_dir=tmp_path / "data", options=options, env=env) as server, Wire(server) as wire:
        job = wire.put(b"before")
        flag.touch()
        wire.send(b"put 0 0 60 5\r\nafter\r\n")
        what = "shard-0000/0000000001.log: Input/output error"
        wait_until(lambda: f"mq-worker-0: the disk refuses writes: {what}\n" in server.said(), "it says where")
        line = f"mq-worker-0: a log cannot be written ({what}): a new process goes on"
        wait_until(lambda: line in server.said(), "it gives up")
        flag.unlink()
        assert wire.reply().word in (b"INSERTED", b"INTERNAL_ERROR")
        wait_until(lambda: "mq-worker-0 is back" in server.said(), "it is back")
        assert wire.exchange(f"peek {job}").body == b"before"
        assert wire.put(b"again") > job
        assert "Traceback" not in server.said()
        assert server.terminate() == 0
