"""Memory that connections have needed is kept for who needs it next, and given back when nobody has for a while."""

from __future__ import annotations

import resource

import pytest
from mq_shards.csrc._core import lib

from tests.acceptor.bench import SECOND, Bench, Client

BEGAN = 1000 * SECOND
LOOK = 5 * SECOND  # IDLE_TRIM_NS, csrc/acceptor/bounds.h
CLIENTS = 400  # a block of 32 KiB for each: more than the 8 MiB that are kept whatever happens, and no more than a pool
UNFINISHED = b"put 0 0 60 30000\r\n" + b"x" * 28_000


@pytest.fixture
def idle(bench: Bench) -> Bench:
    bench.acceptor.turn(BEGAN)
    lib.process_trim()  # what tests before have left
    return bench


def pages_of_a_burst(bench: Bench) -> int:
    """Each client needs its block while the others have theirs; how many pages the kernel had to clear for that."""
    clients = [Client(bench) for _ in range(CLIENTS)]
    bench.turn(10)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for client in clients:
        client.socket.send(UNFINISHED)
    bench.turn(10)
    assert bench.acceptor.buffered_bytes() > CLIENTS * len(UNFINISHED)
    pages = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
    for client in clients:
        client.socket.close()
    bench.turn(10)
    assert bench.acceptor.buffered_bytes() == 0
    return pages


def test_what_is_needed_again_and_again_is_kept(idle: Bench) -> None:
    first = pages_of_a_burst(idle)
    assert first > CLIENTS * len(UNFINISHED) // 4096
    for n in range(1, 4):
        idle.acceptor.turn(BEGAN + n * LOOK)
        assert pages_of_a_burst(idle) < first / 10


def test_what_nobody_needs_for_a_while_is_given_back(idle: Bench) -> None:
    first = pages_of_a_burst(idle)
    for n in range(1, 3):
        idle.acceptor.turn(BEGAN + n * LOOK)
    assert pages_of_a_burst(idle) > first / 2
