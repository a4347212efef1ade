"""A disk that has no room, and whose files cannot be cut: what was written of a large job stays until they can, and the
worker does not spin."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.beanstalk.wire import Wire
from tests.preload import compiled
from tests.servers import SINGLE, running, wait_until

LARGE = bytes(14_000_000)
WATCHED_S = 1.0
MOST_TRIES = 5 * 10  # ten a second


def test_a_cut_that_fails_is_tried_again_now_and_then_and_others_are_served(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    flag = tmp_path / "uncut"
    shim = compiled(Path(__file__).with_name("uncut.c"), tmp_path_factory.mktemp("shim"))
    options = ("--shards", "1", "--set", f"beanstalk.max-job-size={len(LARGE)}")
    env = {"LD_PRELOAD": str(shim), "UNCUT_IF": str(flag)}
    with running(SINGLE, data_dir=tmp_path / "data", options=options, env=env) as server:
        with Wire(server) as wire, Wire(server) as other:
            job = other.put(b"small")
            flag.touch()
            wire.send(b"put 0 0 60 %d\r\n%s\r\n" % (len(LARGE), LARGE))
            wait_until(lambda: flag.stat().st_size, "a cut has failed")
            before = flag.stat().st_size
            time.sleep(WATCHED_S)
            assert flag.stat().st_size - before < MOST_TRIES
            assert other.exchange(f"peek {job}").body == b"small"
            flag.unlink()
            assert wire.reply().line == b"OUT_OF_MEMORY"
            wire.send(b"put 0 0 60 %d\r\n%s\r\n" % (len(LARGE), LARGE))
            assert wire.reply().word == b"INSERTED"
        assert "Traceback" not in server.said()
        assert server.terminate() == 0
