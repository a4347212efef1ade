"""Transactions that are open when the gateway or the whole broker dies go on afterwards, until their time is up."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.pulsar.servers import PulsarServer, running
from tests.pulsar.test_transactions import (
    ABORT,
    COMMIT,
    INVALID_STATUS,
    NOT_FOUND,
    begin,
    connected,
    deliver,
    end,
    ids,
    join,
    join_subscription,
    kill,
    read_all,
    received,
    send,
)
from tests.pulsar.wire import Wire
from tests.servers import SINGLE, free_port, wait_until
from tests.servers import running as broker_of

HOUR_MS = 3_600_000
COORDINATOR_NOT_FOUND = 20


class Restarting:
    """A broker on a data directory that starts anew with as many workers as asked."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        self._stack = ExitStack()
        self.server = self._start(1)

    def _start(self, workers: int) -> PulsarServer:
        return self._stack.enter_context(running(workers=workers, data_dir=self._data_dir))

    def kill_all(self, workers: int) -> None:
        if self.server.process.poll() is None:
            self.server.kill()
        self.close()
        self.server = self._start(workers)

    def close(self) -> None:
        self._stack.close()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Restarting]:
    broker = Restarting(tmp_path_factory.mktemp("data"))
    yield broker
    broker.close()


def opened(wire: Wire, topic: str, timeout_ms: int = HOUR_MS) -> int:
    """A transaction that has a message of its own and has acknowledged the first of two others."""
    wire.subscribe(topic, initialPosition=1)
    wire.producer(topic)
    wire.flow(1000)
    first, _ = deliver(wire, 2)
    txn = begin(wire, timeout_ms)
    join(wire, txn, topic)
    join_subscription(wire, txn, topic)
    assert not wire.ack(first, **ids(txn)).HasField("error")
    send(wire, b"new", txn)
    return txn


def left(server: PulsarServer, topic: str, count: int) -> list[bytes]:
    with connected(server) as wire:
        wire.subscribe(topic)
        wire.flow(100)
        return sorted(received(wire, count))


@pytest.mark.parametrize("action", [COMMIT, ABORT])
@pytest.mark.parametrize("whole", [False, True])
def test_what_was_open_is_open_when_its_coordinator_is_back(
    broker: Restarting, topic: str, action: int, whole: bool
) -> None:
    with connected(broker.server) as wire:
        txn = opened(wire, topic)
    if whole:
        broker.kill_all(workers=3 if action == COMMIT else 1)
    else:
        kill(broker.server, "mq-gateway")
    with connected(broker.server) as wire:
        join(wire, txn, topic + "-other")
        wire.producer(topic + "-other")
        send(wire, b"there too", txn)
        assert end(wire, txn, action) == 0
        assert end(wire, txn, action) == NOT_FOUND, "it is over"
        assert begin(wire) > txn
    expected = [b"1", b"new"] if action == COMMIT else [b"0", b"1"]
    assert left(broker.server, topic, 2) == expected
    assert read_all(broker.server, topic + "-other") == ([b"there too"] if action == COMMIT else [])


def test_its_time_runs_while_nobody_is_there(broker: Restarting, topic: str) -> None:
    with connected(broker.server) as wire:
        txn = opened(wire, topic, timeout_ms=700)
        broker.server.kill()
    broker.kill_all(workers=1)
    assert left(broker.server, topic, 2) == [b"0", b"1"]

    def is_over() -> bool:
        """It is aborted for its clients before who decided it has heard so from all."""
        error = end(wire, txn)
        assert error in (INVALID_STATUS, NOT_FOUND)
        return error == NOT_FOUND

    with connected(broker.server) as wire:
        wait_until(is_over, "the transaction is over")


def test_who_lost_the_connection_before_it_was_answered_asks_again(broker: Restarting, topic: str) -> None:
    with connected(broker.server) as wire:
        txn = opened(wire, topic)
        wire.say("endTxn", request_id=77, txn_action=COMMIT, **ids(txn))
    with connected(broker.server) as wire:
        assert end(wire, txn, COMMIT) == 0
        assert end(wire, txn, COMMIT) == NOT_FOUND
    with connected(broker.server) as wire:
        assert end(wire, txn, ABORT) == NOT_FOUND
    assert left(broker.server, topic, 2) == [b"1", b"new"]


@pytest.mark.long
@pytest.mark.parametrize("action", [COMMIT, ABORT])
def test_who_was_not_answered_in_time_asks_again(broker: Restarting, topic: str, action: int) -> None:
    """It was done meanwhile; but nobody has told it so."""
    with connected(broker.server) as wire:
        txn = opened(wire, topic)
        gateway = broker.server.pid_of("mq-gateway")
        os.kill(gateway, signal.SIGSTOP)
        try:
            assert end(wire, txn, action) == COORDINATOR_NOT_FOUND
        finally:
            os.kill(gateway, signal.SIGCONT)
        for _ in range(2):  # what was asked first is done before this is
            wire.quiet()
        assert end(wire, txn, action) == 0
        assert end(wire, txn, action) == NOT_FOUND, "it has been told"
    assert left(broker.server, topic, 2) == ([b"1", b"new"] if action == COMMIT else [b"0", b"1"])


@pytest.mark.parametrize("pulsar", [True, False], ids=["listening", "not-listening"])
def test_what_waits_for_an_open_transaction_comes_though_nobody_of_pulsars_comes_after_a_crash(
    tmp_path: Path, pulsar: bool
) -> None:
    with running(data_dir=tmp_path) as server, connected(server) as wire:
        subscribed(server.other_port).close()
        wire.producer("t")
        txn = begin(wire, 1000)
        join(wire, txn, "t")
        send(wire, b"never", txn)
        send(wire, b"behind")
        server.kill()
    ports = [free_port() for _ in range(2)]
    options = ["--listen", f"nsq://127.0.0.1:{ports[1]}"]
    if pulsar:
        options += ["--listen", f"pulsar://127.0.0.1:{ports[0]}"]
    with broker_of(SINGLE, data_dir=tmp_path, options=options), subscribed(ports[1]) as sock:
        found = b""
        while b"behind" not in found:
            found += sock.recv(1 << 16)
        assert b"never" not in found


def test_no_transaction_has_the_id_of_one_that_a_gateway_without_a_log_knew(topic: str) -> None:
    """With --memory the next gateway knows nothing of it, and workers have what was done in it."""
    with running() as server, connected(server) as wire:
        wire.producer(topic)
        before = begin(wire)
        join(wire, before, topic)
        send(wire, b"never", before)
        kill(server, "mq-gateway")
        wire.quiet()
        assert begin(wire) > before


def subscribed(port: int) -> socket.socket:
    """A consumer of NSQ's, of the channel c of t."""
    sock = socket.create_connection(("127.0.0.1", port), timeout=60)
    sock.sendall(b"  V2SUB t c\nRDY 10\n")
    assert b"OK" in sock.recv(6)[4:] + sock.recv(4)
    return sock
