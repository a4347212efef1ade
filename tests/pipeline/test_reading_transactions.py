"""What Pulsar's clients publish in transactions, as Spark's streams read it: once if it is committed, else never."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.nsq.servers import HOST
from tests.nsq.wire import Wire as NsqWire
from tests.pipeline.broker import Broker, broker_in
from tests.pipeline.stream_driver import Checkpoint, Rows, run
from tests.pulsar.test_transactions import ABORT, begin, end, join, send
from tests.pulsar.wire import Wire
from tests.servers import free_port, wait_until


@pytest.fixture(scope="module")
def port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory, port: int) -> Iterator[Broker]:
    data_dir = tmp_path_factory.mktemp("broker") / "data"
    with broker_in(data_dir, f"--listen=pulsar://{HOST}:{port}") as broker:
        yield broker


@pytest.fixture
def wire(broker: Broker, port: int) -> Iterator[Wire]:
    with Wire(port) as wire:
        yield wire.connect()


def opened(wire: Wire, topic: str, timeout_ms: int = 60_000) -> int:
    txn = begin(wire, timeout_ms)
    join(wire, txn, topic)
    return txn


def seqs(topic: str, *of: int) -> Rows:
    return [(topic, seq) for seq in of]


def test_a_stream_waits_for_an_open_transaction_and_misses_nothing(broker: Broker, wire: Wire) -> None:
    wire.producer("open")
    checkpoint = Checkpoint()

    def read() -> Rows:
        return run(checkpoint, brokers=broker.address, topic="open")

    send(wire, b"0")
    first, second = opened(wire, "open"), opened(wire, "open")
    for n, txn in enumerate((first, None, second, None, first, second, None), 1):
        assert send(wire, b"%d" % n, txn)[1] == n
    assert read() == seqs("open", 0)
    assert broker.topic("open")["latest"] == 1
    with NsqWire(broker.nsq_port) as nsq:
        nsq.publish("open", b"8")
    assert read() == []
    assert end(wire, second) == 0
    assert read() == []
    assert end(wire, first) == 0
    assert read() == seqs("open", *range(1, 9))
    assert broker.topic("open")["records"] == 9
    assert run(Checkpoint(), brokers=broker.address, topic="open") == seqs("open", *range(9))


def test_what_is_aborted_is_no_row_and_no_gap(broker: Broker, wire: Wire) -> None:
    wire.producer("aborted")
    checkpoint = Checkpoint()

    def read() -> Rows:
        return run(checkpoint, brokers=broker.address, topic="aborted")

    txn = opened(wire, "aborted")
    for n in range(3):
        send(wire, b"%d" % n, txn)
    assert read() == []
    assert end(wire, txn, ABORT) == 0
    assert read() == []
    txn, kept = opened(wire, "aborted"), opened(wire, "aborted")
    for of in (None, txn, txn, kept, txn, None, txn):
        send(wire, b"x", of)
    assert read() == seqs("aborted", 3)
    assert end(wire, txn, ABORT) == 0
    assert read() == []
    assert end(wire, kept) == 0
    assert read() == seqs("aborted", 6, 8)
    assert run(Checkpoint(), brokers=broker.address, topic="aborted") == seqs("aborted", 3, 6, 8)


def test_a_topic_that_is_deleted_with_an_open_transaction_begins_again(broker: Broker, wire: Wire) -> None:
    wire.producer("deleted")
    checkpoint = Checkpoint()
    txn = opened(wire, "deleted")
    for of in (None, txn, None):
        send(wire, b"x", of)
    assert run(checkpoint, brokers=broker.address, topic="deleted") == seqs("deleted", 0)
    broker.delete("deleted")
    with NsqWire(broker.nsq_port) as nsq:
        nsq.publish("deleted", b"new")
    last = broker.topic("deleted")["latest"] - 1
    assert run(checkpoint, brokers=broker.address, topic="deleted")[-1] == ("deleted", last)
    assert run(Checkpoint(), brokers=broker.address, topic="deleted")[-1] == ("deleted", last)


@pytest.mark.long
def test_who_dies_with_an_open_transaction_holds_nobody_up(tmp_path: Path) -> None:
    port = free_port()
    with broker_in(tmp_path / "data", f"--listen=pulsar://{HOST}:{port}") as broker:
        checkpoint = Checkpoint()
        with Wire(port) as wire:
            wire.connect().producer("died")
            done, txn = opened(wire, "died"), opened(wire, "died", 10_000)
            for of in (done, None, txn, None):
                send(wire, b"x", of)
            assert end(wire, done) == 0
            assert run(checkpoint, brokers=broker.address, topic="died") == seqs("died", 0, 1)
        broker.kill()
        broker.start()
        wait_until(lambda: broker.topic("died")["latest"] == 4, "the transaction's time is up", 60)
        assert run(checkpoint, brokers=broker.address, topic="died") == seqs("died", 3)
        with Wire(port) as wire:
            wire.connect().producer("died")
            place = send(wire, b"x", txn := opened(wire, "died"))[1]
            assert run(checkpoint, brokers=broker.address, topic="died") == []
            assert end(wire, txn) == 0
        assert run(checkpoint, brokers=broker.address, topic="died") == seqs("died", place)
