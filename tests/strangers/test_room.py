"""What all connections of an acceptor together hold: it has a limit, at which small commands go on, those that were
begun come to an end one after the other, and whoever holds much and does nothing has to go."""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Iterator

import pytest
from mq_shards.acceptor.filters.chunks import masked_checksum

from tests.acceptor.bench import PUBLISH, Bench, Client
from tests.nats.s2 import FAST, IDENTIFIER_CHUNK, uncompress
from tests.nsq import frames
from tests.nsq.frames import size
from tests.nsq.process_memory import anonymous_bytes, own_bytes
from tests.nsq.servers import SHARDS, NsqServer, running
from tests.nsq.wire import Wire
from tests.servers import SINGLE, wait_until
from tests.servers import running as running_shards

SECOND = 1_000_000_000
MIB = 1 << 20
JOB_BYTES = 200_000
COMMAND = b"put 0 0 60 %d\r\n" % JOB_BYTES + b"x" * JOB_BYTES + b"\r\n"
HALF = len(COMMAND) // 2
SWEEPS = 10  # CROWDED_SWEEPS, csrc/acceptor/bounds.h
CLIENTS = 40


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench = Bench()
    bench.acceptor.set("beanstalk.max-job-size", JOB_BYTES)
    bench.acceptor.set("max-buffered-bytes", 2 * MIB)
    bench.acceptor.turn(1000 * SECOND)
    yield bench
    bench.close()


def send_some(client: Client, data: bytes) -> int:
    """Bytes that were taken without a turn."""
    sent = 0
    with contextlib.suppress(BlockingIOError):
        while sent < len(data):
            sent += client.socket.send(data[sent : sent + 16_384])
    return sent


def answer_all(bench: Bench) -> int:
    puts = [request for request in bench.take() if request.kind == PUBLISH]
    for request in puts:
        bench.worker[0].answer(request)
    return len(puts)


def halves(bench: Bench) -> dict[Client, bytes]:
    """Clients that have sent half of a large put each, as far as it was taken; with what they have not sent."""
    clients = [bench.client() for _ in range(CLIENTS)]
    left = {client: COMMAND[client.flood(COMMAND[:HALF]) :] for client in clients}
    bench.turn(10)
    return left


def finish(bench: Bench, left: dict[Client, bytes]) -> bool:
    """They send the rest, as fast as it is taken; whether all are answered."""
    put = 0
    for _ in range(3000):
        for client, data in left.items():
            left[client] = data[send_some(client, data) :]
        bench.turn(1)
        put += answer_all(bench)
        if put == len(left):
            break
    bench.turn()
    return all(client.received().startswith(b"INSERTED ") for client in left)


def test_halves_of_commands_hold_no_more_than_the_limit(bench: Bench) -> None:
    halves(bench)
    # Of each there may be a block, and one may go beyond.
    assert bench.acceptor.buffered_bytes() <= 2 * MIB + CLIENTS * (32 << 10) + 2 * JOB_BYTES
    assert CLIENTS * HALF > 3 * MIB


def test_small_commands_go_on_at_the_limit(bench: Bench) -> None:
    halves(bench)
    bench.take()
    other = bench.client()
    for _ in range(100):
        other.send(b"put 0 0 60 5\r\nhello\r\n")
        assert answer_all(bench) == 1
        bench.turn()
        assert other.received().startswith(b"INSERTED ")


def test_all_that_were_begun_come_to_an_end(bench: Bench) -> None:
    """Those that wait are taken from one after the other, and nothing of what they sent is lost."""
    assert finish(bench, halves(bench))
    assert bench.acceptor.buffered_bytes() < MIB


def test_who_holds_much_and_sends_no_more_is_told_and_closed_when_others_wait(bench: Bench) -> None:
    clients = halves(bench)
    for second in range(SWEEPS * 4):
        bench.acceptor.turn((1001 + second) * SECOND)
        bench.turn()
    closed = [client for client in clients if client.received() == b"OUT_OF_MEMORY\r\n" and client.is_closed]
    assert len(closed) >= CLIENTS // 4
    assert bench.acceptor.buffered_bytes() <= 2 * MIB
    # And those for whom there is room now go on; how idle they were long ago does not count.
    bench.acceptor.turn(1100 * SECOND)
    left = {client: data for client, data in clients.items() if client not in closed}
    assert left
    assert finish(bench, left)


def test_nobody_is_closed_while_there_is_room(bench: Bench) -> None:
    client = bench.client()
    client.flood(COMMAND[:HALF])
    for second in range(SWEEPS * 4):
        bench.acceptor.turn((1001 + second) * SECOND)
    bench.turn()
    client.flood(COMMAND[HALF:])
    assert answer_all(bench) == 1


def test_who_takes_no_replies_is_closed_when_others_wait(bench: Bench) -> None:
    """Replies count too, and a client that does not read them is not waiting for us."""
    bench.acceptor.set("max-outstanding-output", 16 * MIB)
    lazy = [bench.client() for _ in range(8)]
    bench.take()
    for client in lazy:
        client.send(b"reserve\r\n" * 4)
        for request in bench.take():
            bench.worker[0].answer(request, id=8, body=b"x" * JOB_BYTES)
            bench.turn(2)
    assert bench.acceptor.buffered_bytes() > 2 * MIB
    for second in range(SWEEPS + 2):
        bench.acceptor.turn((1001 + second) * SECOND)
        bench.turn()
    assert bench.acceptor.totals().connections == 0
    assert bench.acceptor.buffered_bytes() < MIB


def packed_lines(mib: int) -> bytes:
    """A stream of S2 with one block of so many MiB, of few bytes."""
    line = b"list-tube-used\r\n"
    plain = line * (mib * MIB // len(line))
    rest = len(plain) - len(line)
    size = bytes([len(plain) & 127 | 128, len(plain) >> 7 & 127 | 128, len(plain) >> 14])
    copies = [64] * (rest // 64) + [rest % 64] * bool(rest % 64)
    block = size + bytes([(len(line) - 1) << 2]) + line
    block += b"".join(bytes([(count - 1) << 2 | 2, len(line), 0]) for count in copies)
    assert uncompress(block) == plain
    return IDENTIFIER_CHUNK + struct.pack("<II", (4 + len(block)) << 8, masked_checksum(plain)) + block


def test_who_needs_much_room_is_not_asked_again_as_long_as_there_is_little(bench: Bench) -> None:
    """What a block of a compressed connection needs is more than its input says."""
    holders = [bench.client() for _ in range(18)]  # the last may exceed the limit
    for client in holders:
        client.flood(COMMAND[:HALF])
    bench.turn(10)
    for client in holders[:4]:
        client.socket.close()
    bench.turn(10)
    assert MIB < bench.acceptor.buffered_bytes() < 2 * MIB
    packed = bench.client()
    assert bench.acceptor.compress(packed.number, FAST)
    packed.flood(packed_lines(1))
    stalled = bench.acceptor.loop(0, of_worker=False).waits["room"]
    bench.turn(50)
    assert bench.acceptor.loop(0, of_worker=False).waits["room"] == stalled
    assert packed.received() == b""
    for client in holders[4:]:
        client.socket.close()
    heard = b""
    for _ in range(100):
        bench.turn(10)
        heard += packed.received()
    assert heard.startswith(IDENTIFIER_CHUNK)


# --- with real processes ----------------------------------------------------------------------------------------------

LIMIT = 64 * MIB


@pytest.fixture(scope="module")
def server() -> Iterator[NsqServer]:
    with running(SHARDS, arguments=["--set", f"broker.max-buffered-bytes={LIMIT}"]) as server:
        yield server


def test_two_hundred_unfinished_mpubs_stay_within_the_limit_and_the_memory_goes_back(server: NsqServer) -> None:
    before = own_bytes(server, "mq-acceptor")
    body = 5 * MIB - 4
    begun = b"MPUB room\n" + size(body) + size(5) + size(MIB - 1) + b"x" * (MIB - 1) + size(MIB - 1) + b"x" * 100_000
    most = 0
    wires = []
    for _ in range(200):
        wire = Wire(server)
        wire.socket.settimeout(0.0)
        with contextlib.suppress(BlockingIOError):
            sent = 0
            while sent < len(begun):
                sent += wire.socket.send(begun[sent : sent + 65536])
        wires.append(wire)
        most = max(most, own_bytes(server, "mq-acceptor") - before)
    with Wire(server) as good, socket.create_connection(("127.0.0.1", server.beanstalk_port)) as beanstalk:
        for _ in range(20):
            good.publish("room-good", b"small")
            beanstalk.sendall(b"put 0 0 60 5\r\nhello\r\n")
            assert beanstalk.recv(100).startswith(b"INSERTED")
        most = max(most, own_bytes(server, "mq-acceptor") - before)
        # Others than the one that may go beyond the limit hold a block.
        assert most < LIMIT + 200 * (64 << 10) + 16 * MIB
        for wire in wires:
            wire.close()
        wait_until(lambda: own_bytes(server, "mq-acceptor") - before < 24 * MIB, "the memory is given back")
        assert good.ask(frames.pub("room-good", b"x" * MIB)).data == b"OK"


def test_a_large_body_that_its_client_did_not_read_is_given_back() -> None:
    body = b"x" * (20 * MIB)
    with running_shards(SINGLE, max_job_bytes=len(body)) as broker:
        acceptor = broker.pid_of("mq-acceptor-0")
        with socket.create_connection(("127.0.0.1", broker.port)) as client:
            client.sendall(b"put 0 0 60 %d\r\n%s\r\n" % (len(body), body))
            assert client.recv(100).startswith(b"INSERTED")
        before = anonymous_bytes(acceptor)
        for _ in range(2):  # malloc keeps more once a large piece was freed
            with socket.create_connection(("127.0.0.1", broker.port)) as client:
                client.sendall(b"reserve\r\n")
                wait_until(lambda: anonymous_bytes(acceptor) > before + len(body) // 2, "the body has come")
            wait_until(lambda: anonymous_bytes(acceptor) < before + len(body) // 4, "its memory is given back", 5)
