"""Who does not read: what waits for it comes whole and in order once it does, is held once for all, and goes back."""

from __future__ import annotations

import os
import random
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.nats.scenes import QUIET
from tests.nats.servers import NatsServer, running
from tests.nats.wire import Wire
from tests.servers import children, comm_of, wait_until

MIB = 1 << 20
LARGE = 512 << 10
SLOW = 40
LARGE_MESSAGES = 40  # 20 MiB for each; 800 if it were held for each


@pytest.fixture
def broker() -> Iterator[NatsServer]:
    with running(1) as server:
        yield server


def slow(server: NatsServer, said: bytes) -> Wire:
    """Reads when it is asked to, not before."""
    wire = Wire(server.port)
    wire.send(QUIET + said)
    wire.barrier()
    return wire


def acceptor_of(server: NatsServer) -> int:
    return next(pid for pid in children(server.process.pid) if "acceptor" in comm_of(pid))


def memory_of_acceptor(server: NatsServer) -> int:
    status = Path(f"/proc/{acceptor_of(server)}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in status if line.startswith("RssAnon"))


def all_of(wire: Wire, messages: int) -> list[tuple[bytes, bytes]]:
    """Header line and payload of each, whenever the server asks whether somebody is there."""
    reader = wire.socket.makefile("rb", MIB)
    heard = []
    for _ in range(messages):
        while (line := reader.readline()) == b"PING\r\n":
            pass
        payload = reader.read(int(line.split()[-1]) + 2)
        assert payload.endswith(b"\r\n")
        heard.append((line, payload[:-2]))
    return heard


def test_what_waits_is_whole_and_in_order_whatever_its_size(broker: NatsServer) -> None:
    readers = [slow(broker, b"SUB it 1\r\n") for _ in range(3)]
    chance = random.Random(7)
    sizes = [chance.choice((0, 3, 200, 3000, 8190, 8192, 20_000, 100_000)) for _ in range(600)]
    said = [b"%d " % n + chance.randbytes(size) for n, size in enumerate(sizes)]
    publisher = Wire(broker.port)
    publisher.send(QUIET + b"".join(b"PUB it %d\r\n%s\r\n" % (len(body), body) for body in said))
    publisher.barrier()
    for reader in readers:
        assert [payload for _, payload in all_of(reader, len(said))] == said


def test_a_large_payload_is_cut_where_a_reader_does_not_know_headers(broker: NatsServer) -> None:
    knows = Wire(broker.port)
    knows.send(b'CONNECT {"verbose":false,"pedantic":false,"headers":true}\r\nSUB it 1\r\n')
    knows.barrier()
    plain = Wire(broker.port)
    plain.send(b'CONNECT {"verbose":false,"pedantic":false,"headers":false}\r\nSUB it 1\r\n')
    plain.barrier()
    headers, body = b"NATS/1.0\r\nA: " + b"a" * 9000 + b"\r\n\r\n", b"b" * 9000
    both = b"HPUB it %d %d\r\n%s%s\r\n" % (len(headers), len(headers) + len(body), headers, body)
    alone = b"HPUB it %d %d\r\n%s\r\n" % (len(headers), len(headers), headers)
    knows.send(both + alone)
    assert [payload for _, payload in all_of(knows, 2)] == [headers + body, headers]
    assert [payload for _, payload in all_of(plain, 2)] == [body, b""]


def test_a_large_payload_is_held_once_for_all_who_do_not_read_and_given_back(broker: NatsServer) -> None:
    readers = [slow(broker, b"SUB it 1\r\n") for _ in range(SLOW)]
    before = memory_of_acceptor(broker)
    publisher = Wire(broker.port)
    publisher.send(QUIET + (b"PUB it %d\r\n%s\r\n" % (LARGE, b"x" * LARGE)) * LARGE_MESSAGES)
    publisher.barrier()
    assert memory_of_acceptor(broker) - before < 3 * LARGE * LARGE_MESSAGES
    heard = all_of(readers[0], LARGE_MESSAGES)
    assert all(payload == b"x" * LARGE for _, payload in heard)
    for reader in readers:
        reader.close()
    wait_until(lambda: memory_of_acceptor(broker) - before < 8 * MIB, "memory has gone back")


def test_who_waits_for_more_than_it_may_is_cut_and_others_have_all(broker: NatsServer) -> None:
    reader, fast = slow(broker, b"SUB it 1\r\n"), slow(broker, b"SUB end 1\r\n")
    publisher = Wire(broker.port)
    for _ in range(70):
        publisher.send((QUIET if not publisher.asked else b"") + (b"PUB it %d\r\n%s\r\n" % (MIB, b"y" * MIB)))
        publisher.barrier()
    publisher.send(b"PUB end 2\r\nok\r\n")
    assert all_of(fast, 1)[0][1] == b"ok"
    reader.socket.settimeout(5)
    received = 0
    try:
        while data := reader.socket.recv(MIB):
            received += len(data)
    except ConnectionResetError:
        pass
    assert received < 64 * MIB
    assert not re.search(rb"-ERR", reader.heard.data)


def test_who_reads_is_not_cut_because_more_came_at_once_than_may_wait() -> None:
    """A message of no bytes is longer to its subscriber; all are taken in before any is sent."""
    count = 4_000
    with running(1, ["nats.max-pending=40000", "nats.max-payload=40000"]) as server:
        reader, publisher = slow(server, b"SUB it 12345678\r\n"), Wire(server.port)
        publisher.send(QUIET + b"PUB it 0\r\n\r\n" * count)
        assert all_of(reader, count) == [(b"MSG it 12345678 0\r\n", b"")] * count


def test_who_reads_is_not_cut_because_many_others_are_sent_much_in_the_same_turn() -> None:
    """Of two messages that end in the same turn the second finds the first one unsent, and both are more than may wait
    even without the 64 KiB that a connection is sent after much was sent in a turn."""
    payload = b"x" * 99_000
    message = b"PUB it 99000\r\n%s\r\n" % payload
    with running(1, ["nats.max-pending=100000", "nats.max-payload=99000"]) as server:
        readers = [slow(server, b"SUB it 1\r\n") for _ in range(60)]
        publishers = [Wire(server.port) for _ in range(2)]
        for publisher in publishers:
            publisher.send(QUIET + message[:50_000])
        slow(server, b"")  # what came before has been taken in
        acceptor = acceptor_of(server)
        os.kill(acceptor, signal.SIGSTOP)
        for publisher in publishers:
            publisher.send(message[50_000:])
        os.kill(acceptor, signal.SIGCONT)
        for reader in readers:
            assert all_of(reader, 2) == [(b"MSG it 1 99000\r\n", payload)] * 2


@pytest.mark.parametrize("size", [100, 900_000])
def test_who_publishes_much_to_itself_may_read_afterwards(size: int) -> None:
    """As with a nats-server it may be nearly as much as may wait, whatever the kernel holds of it."""
    count = 40 * MIB // size
    with running(1) as server:
        client = slow(server, b"SUB it 1\r\n")
        client.send(b"PUB it %d\r\n%s\r\n" % (size, b"z" * size) * count)
        message = b"MSG it 1 %d\r\n%s\r\n" % (size, b"z" * size)
        with client.socket.makefile("rb", MIB) as reader:
            said = reader.read(len(message) * count)
            while pings := said.count(b"PING\r\n"):  # a server asks, too, now and then
                said = said.replace(b"PING\r\n", b"") + reader.read(pings * len(b"PING\r\n"))
            assert said == message * count
