"""A header that cannot be read at a start, and can be at the next, is the same then: it says when the log was begun."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.beanstalk.wire import Wire
from tests.log.log import HEADER
from tests.preload import compiled
from tests.servers import SINGLE, running, wait_until


def test_a_header_that_the_medium_does_not_give_is_left_as_it_is(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    data, flag = tmp_path / "data", tmp_path / "unread"
    shim = compiled(Path(__file__).with_name("unread.c"), tmp_path_factory.mktemp("shim"))
    env = {"LD_PRELOAD": str(shim), "UNREAD_IF": str(flag)}
    with running(SINGLE, data_dir=data, options=("--shards", "1"), env=env) as server, Wire(server) as wire:
        job = wire.put(b"x")
        (log,) = data.glob("shard-*/*.log")
        before = log.read_bytes()[:HEADER]
        flag.touch()
        os.kill(server.pid_of("mq-worker-0"), 9)
        wait_until(lambda: "segment 1, offset 0: the header is damaged" in server.said(), "its next has looked at it")
        flag.unlink()
        assert wire.exchange(f"peek {job}").body == b"x"
        assert log.read_bytes()[:HEADER] == before
        assert server.terminate() == 0
