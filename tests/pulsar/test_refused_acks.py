"""A disk that has no room for an acknowledgement: whoever asked for a receipt is told, and is not told otherwise."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.beanstalk.wire import Wire as BeanstalkWire
from tests.preload import compiled
from tests.pulsar.consuming import EARLIEST, SHARED, entries, place, publish
from tests.pulsar.servers import running
from tests.pulsar.wire import Wire
from tests.servers import children, comm_of, wait_until

MANY = 20
PERSISTENCE_ERROR = 2


def use_up(port: int) -> None:
    """Releases take the room that publishes leave for acknowledgements."""
    with BeanstalkWire(port) as jobs:
        assert jobs.ask("put 0 0 60 1\r\nx").startswith(b"INSERTED")
        job = jobs.exchange("reserve").line.split()[1].decode()
        while jobs.ask(f"release {job} 0 0") == b"RELEASED":
            jobs.exchange("reserve")


def test_what_a_receipt_says_is_acknowledged_is_so_after_a_crash(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    flag = tmp_path / "full"
    shim = compiled(Path(__file__).parents[1] / "crash" / "nospace.c", tmp_path_factory.mktemp("shim"))
    env = {"LD_PRELOAD": str(shim), "NOSPACE_IF": str(flag)}
    with running(shards=1, data_dir=tmp_path / "data", env=env) as server:
        with Wire(server.port) as wire:
            wire.connect()
            wire.subscribe("t", kind=SHARED, initialPosition=EARLIEST)
            wire.flow(MANY)
            publish(wire, "t", MANY)
            messages = wire.messages(MANY)
            flag.touch()
            use_up(server.beanstalk_port)
            answers = [wire.ack(place(message)) for message in messages]
            (worker,) = (pid for pid in children(server.process.pid) if comm_of(pid) == "mq-worker-0")
            os.kill(worker, 9)
            flag.unlink()
        said = [int(answer.error) if answer.HasField("error") else 0 for answer in answers]
        assert set(said) == {0, PERSISTENCE_ERROR} or set(said) == {PERSISTENCE_ERROR}
        wait_until(lambda: "mq-worker-0 is back" in server.stderr.read_text(), "it is back")
        with Wire(server.port) as wire:
            wire.connect()
            wire.subscribe("t", kind=SHARED)
            wire.flow(MANY)
            left = [entry for entry, error in enumerate(said) if error]
            assert entries(wire.messages(len(left))) == left
            wire.quiet()
            assert not wire.pending("message")
