"""What clients that only listen, or have gone, cost: measured with many, with bounds that other machines keep too."""

from __future__ import annotations

import contextlib
import dataclasses
import random
import resource
from pathlib import Path

import pytest

from perf.brokers import MEMORY, Broker, this_mq_shards
from perf.nats.generator import idle_connections
from perf.nats.wire import WIRE
from tests.nats.test_operating import until
from tests.nats.wire import Wire
from tests.servers import wait_until

# What was measured is in docs/nats-internals.md; this is for what is forgotten to be given back, or grows with each.
MOST_OF_A_CONNECTION = 1000  # measured are 920 to 980
MOST_OF_A_SUBSCRIPTION = 150  # measured are 137
MOST_OF_AN_ACCOUNT = 16_000
MOST_OF_ONE_THAT_ENDED = 2000  # which monitoring shows, 10,000 of each acceptor


def held(connections: int, subscriptions: int) -> int:
    """How much more memory the broker holds with them than without, beside what the first connections load."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with Broker(this_mq_shards(WIRE), MEMORY) as broker, idle_connections(broker.port, 2000, 0):
        before = broker.memory().held
        with idle_connections(broker.port, connections, subscriptions):
            return broker.memory().held - before


@pytest.mark.long
def test_an_idle_connection_is_small() -> None:
    # On a busy machine more of them are greeted at once, and the buffers for that stay.
    assert min(held(10_000, 0) for _ in range(2)) / 10_000 < MOST_OF_A_CONNECTION


@pytest.mark.long
def test_a_million_subscriptions_are_small() -> None:
    assert held(4, 1_000_000) / 1_000_000 < MOST_OF_A_SUBSCRIPTION


def test_a_connection_that_ended_is_small() -> None:
    ended = 1200
    with Broker(this_mq_shards(WIRE), MEMORY) as broker:
        for begun in range(300 + ended):
            if begun == 300:  # whatever the first of them load
                before = broker.memory().held
            with contextlib.closing(Wire(broker.port)) as wire:
                wire.send(b'CONNECT {"verbose":false,"name":"passer-by","lang":"raw","version":"1.2.3"}\r\nPING\r\n')
                until(wire, b"PONG")
        assert (broker.memory().held - before) / ended < MOST_OF_ONE_THAT_ENDED


def test_an_account_in_which_little_happens_is_small(tmp_path: Path) -> None:
    accounts = 400
    users = (f"A{n} {{ users [ {{user: u{n}, password: p}} ] }}" for n in range(accounts))
    path = tmp_path / "nats.conf"
    path.write_text(f"accounts {{ {', '.join(users)} }}")
    configured = dataclasses.replace(WIRE, options=("--nats-config", str(path)))
    with Broker(this_mq_shards(configured), MEMORY) as broker:
        for number in range(accounts):
            if number == accounts // 4:  # whatever the first of them load
                before = broker.memory().held
            with contextlib.closing(Wire(broker.port)) as wire:
                wire.send(b'CONNECT {"verbose":false,"user":"u%d","pass":"p"}\r\nSUB a 1\r\nPUB a 1\r\nx\r\n' % number)
                until(wire, b"MSG a 1 1\r\nx\r\n")
        assert (broker.memory().held - before) / (accounts * 3 // 4) < MOST_OF_AN_ACCOUNT


def test_a_large_message_that_is_not_to_be_traced_any_more_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLIBC_TUNABLES", "glibc.malloc.mmap_threshold=131072")  # what is freed is given back at once
    body = bytes(16_000_000)  # much more than the buffers that a message finds in use by chance
    large = dataclasses.replace(WIRE, options=("--set", "nats.max-payload=16777216"))
    traced = b"NATS/1.0\r\nNats-Trace-Dest: t\r\nNats-Trace-Origin-Account: A\r\n\r\n"
    plain = traced.replace(b"Trace", b"Other")

    def publish(wire: Wire, head: bytes) -> None:
        wire.send(b"HPUB a %d %d\r\n%b%b\r\nPING\r\n" % (len(head), len(head) + len(body), head, body))
        until(wire, b"PONG")

    with Broker(this_mq_shards(large), MEMORY) as broker, contextlib.closing(Wire(broker.port)) as wire:
        wire.send(b'CONNECT {"verbose":false,"headers":true}\r\n')
        before = []
        for _ in range(6):  # its buffers come from pools, which fill
            publish(wire, plain)
            before.append(broker.memory().held)
        publish(wire, traced)
        most = min(before[3:]) + len(body) // 2
        # That may come after the PONG.
        wait_until(lambda: broker.memory().held < most, "the room for the message is given back", 20)


@pytest.mark.parametrize("closes", [False, True])
def test_memory_of_subscriptions_that_are_gone_goes_back(closes: bool) -> None:
    """But for what the acceptor keeps in its pools."""
    many = 100_000
    numbers = list(range(many))
    random.Random(1).shuffle(numbers)
    with Broker(this_mq_shards(WIRE), MEMORY) as broker, contextlib.closing(Wire(broker.port)) as wire:
        wire.send(b'CONNECT {"verbose":false}\r\n')
        wire.barrier()
        before = broker.memory().held
        wire.send(b"".join(b"SUB many.%d.x %d\r\n" % (n, n) for n in range(many)))
        wire.barrier()
        assert broker.memory().held - before > 100 * many
        if closes:
            wire.close()
        else:
            wire.send(b"".join(b"UNSUB %d\r\n" % n for n in numbers))
            wire.barrier()
        wait_until(lambda: broker.memory().held - before < 30 * many, "the memory is back", pause=0.03)
