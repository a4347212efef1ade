"""A worker that dies while its answers wait for a sync: who was refused something is told."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.nsq import frames
from tests.nsq.frames import ERROR
from tests.nsq.wire import Wire, consumer
from tests.preload import compiled
from tests.servers import SINGLE, free_port, running, wait_until

SOURCE = Path(__file__).with_name("heldsync.c")


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(SOURCE, tmp_path_factory.mktemp("shim"))


def is_written(data: Path, body: bytes) -> bool:
    return any(body in segment.read_bytes() for segment in data.glob("shard-*/*.log"))


def test_a_finish_that_was_refused_gets_its_error_though_the_worker_dies_before_a_sync(
    shim: Path, tmp_path: Path
) -> None:
    port, held, data = free_port(), tmp_path / "held", tmp_path / "data"
    options = ("--sync", "always", "--shards", "1", f"--listen=nsq://127.0.0.1:{port}")
    env = {"LD_PRELOAD": str(shim), "HELD_IF": str(held)}
    with (
        running(SINGLE, data_dir=data, options=options, env=env) as server,
        consumer(port, "t", rdy=1) as wire,
        Wire(port) as other,
    ):
        other.publish("t", b"to be finished")
        message = wire.message()
        wire.fin(message)
        other.publish("elsewhere", b"the finish is done")
        held.touch()
        other.send(frames.pub("elsewhere", b"not synced"))
        # Its answers wait with the one above; that both were carried out is seen in the log.
        wire.fin(message)
        wire.send(frames.pub("elsewhere", b"behind the finish"))
        wait_until(lambda: is_written(data, b"behind the finish"), "it is written")
        os.kill(server.pid_of("mq-worker-0"), signal.SIGKILL)
        held.unlink()
        first, second = wire.frames(2)
        failed = b"E_FIN_FAILED FIN %s failed ID not in flight" % message.id
        assert (first.kind, first.data) == (ERROR, failed)
        assert (second.kind, second.data) == (ERROR, b"E_PUB_FAILED PUB failed outcome unknown")
        assert other.frame().data == b"E_PUB_FAILED PUB failed outcome unknown"
