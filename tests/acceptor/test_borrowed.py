"""Bodies that are sent from where they lie in a ring: whole, whatever the socket takes and whoever goes meanwhile."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Final

import pytest
from mq_shards.csrc._core import lib

from tests.acceptor.bench import OK, RESERVE, Bench, Client, Request

SIZES: Final = [0, 100, 8191, 8192, 8193, 20_000, 60_000, 300_000]  # the last is in fragments
RING: Final = 1 << 20


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench = Bench(workers=2, ring_bytes=RING)
    bench.acceptor.set("beanstalk.max-job-size", 1 << 20)
    yield bench
    bench.close()


def clients_of(bench: Bench, count: int) -> list[Client]:
    """Half of them ask the one worker, half the other."""
    return [bench.quiet_client(bench.name_at(i % 2, 1)) for i in range(count)]


def reserves(bench: Bench, worker: int) -> list[Request]:
    return [request for request in bench.take(worker) if request.kind == RESERVE]


def reply_of(id: int, body: bytes) -> bytes:
    return b"RESERVED %d %d\r\n" % (id, len(body)) + body + b"\r\n"


def lies_in_rings(bench: Bench) -> int:
    return sum(int(lib.channel_counters(worker._channel).out_bytes) for worker in bench.worker)


@pytest.mark.parametrize("seed", range(4))
def test_each_client_gets_its_bodies_whole_and_in_order_however_little_it_reads(bench: Bench, seed: int) -> None:
    rng = random.Random(seed)
    clients = clients_of(bench, 6)
    by_number = {client.number: client for client in clients}
    wanted = {client.number: bytearray() for client in clients}
    got = {client.number: bytearray() for client in clients}

    def serve() -> None:
        for worker in range(2):
            for request in reserves(bench, worker):
                body, id = rng.randbytes(rng.choice(SIZES)), bench.id_at(worker, rng.randint(1, 1 << 30))
                wanted[request.conn] += reply_of(id, body)
                bench.worker[worker].answer(request, OK, id=id, body=body)

    for _ in range(60):  # the rings go round several times, so that what lay there is soon something else
        for client in clients:
            client.socket.send(b"reserve\r\n" * rng.randint(0, 3))
        bench.turn(2)
        serve()
        bench.turn(rng.randint(1, 3))
        for client in rng.sample(clients, 2):
            got[client.number] += client.received()
    for _ in range(1000):
        serve()
        bench.turn(1)
        for number, client in by_number.items():
            got[number] += client.received()
    assert got == wanted
    assert lies_in_rings(bench) == 0
    assert bench.acceptor.buffered_bytes() == 0


def test_a_ring_is_given_back_in_the_turn_in_which_its_bodies_were_heard_though_nobody_reads(bench: Bench) -> None:
    (client,) = clients_of(bench, 1)
    client.socket.send(b"reserve\r\n" * 8)
    bench.turn()
    said = b""
    for request in reserves(bench, 0):
        said += reply_of(8, bytes([request.slot % 256]) * 60_000)
        bench.worker[0].answer(request, OK, id=8, body=bytes([request.slot % 256]) * 60_000)
    assert lies_in_rings(bench) > 8 * 60_000
    bench.turn(1)
    assert lies_in_rings(bench) == 0
    got = b""
    while len(got) < len(said):
        got += client.received()
        bench.turn(1)
    assert got == said


@pytest.mark.parametrize("goes", ["the client", "the worker"])
def test_what_was_lent_is_let_go_of_with_whoever_goes(bench: Bench, goes: str) -> None:
    client, other = clients_of(bench, 2)
    client.socket.send(b"reserve\r\n" * 9)
    other.socket.send(b"reserve\r\n")
    bench.turn()
    said = b""
    for n, request in enumerate(reserves(bench, 0)):
        said += reply_of(8, bytes([n]) * 50_000)
        bench.worker[0].answer(request, OK, id=8, body=bytes([n]) * 50_000)
    (theirs,) = reserves(bench, 1)
    bench.worker[1].answer(theirs, OK, id=9, body=b"x" * 30_000)
    if goes == "the client":
        client.socket.close()
    else:
        bench.worker[0].attach()  # before anything that it has said was heard
    bench.turn()
    assert other.received() == reply_of(9, b"x" * 30_000)
    if goes == "the worker":
        got = b""
        while len(got) < len(said):
            got += client.received()
            bench.turn(1)
        assert got == said
    else:
        assert bench.acceptor.buffered_bytes() == 0
