"""A worker that dies in the middle of a turn, between two writes to its log."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.nsq import frames
from tests.nsq.wire import Wire
from tests.preload import compiled
from tests.servers import SINGLE, free_port, running, wait_until

SOURCE = Path(__file__).with_name("lastwrite.c")
AT_ONCE = 20  # more than a turn answers together with their deliveries (FEW_MESSAGES, csrc/shards/worker.c)


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(SOURCE, tmp_path_factory.mktemp("shim"))


def test_what_was_done_before_an_answer_is_not_refused_after_it(shim: Path, tmp_path: Path) -> None:
    """A turn writes what was finished, answers, delivers more, and writes that: the worker dies before the last."""
    port, die = free_port(), tmp_path / "die"
    env = {"LD_PRELOAD": str(shim), "DIE_IF": str(die)}
    options = ["--listen", f"nsq://127.0.0.1:{port}"]
    with running(SINGLE, data_dir=tmp_path / "data", options=options, env=env) as server, Wire(port) as wire:
        wire.publish_many("t", [b"%d" % n for n in range(3 * AT_ONCE)])
        wire.subscribe("t", "channel", rdy=AT_ONCE)
        done = wire.messages(AT_ONCE)
        worker = server.pid_of("mq-worker-0")
        os.kill(worker, signal.SIGSTOP)
        wire.send(b"".join(frames.fin(message.id) for message in done) + frames.touch(done[0].id))
        wire.is_quiet()  # all of that waits in the worker's ring
        die.touch()
        os.kill(worker, signal.SIGCONT)
        assert wire.frame().data == b"E_TOUCH_FAILED TOUCH %s failed ID not in flight" % done[0].id
        wait_until(lambda: not die.exists(), "the worker was killed")
        more = wire.messages(AT_ONCE)
        assert [int(message.body) for message in more] == list(range(AT_ONCE, 2 * AT_ONCE))
