"""A worker with as many topics as it may have: what each protocol says to who wants one more."""

from __future__ import annotations

import http.client
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import BinaryIO, Final

import pytest

from tests.nsq import frames
from tests.nsq.wire import Wire as NsqWire
from tests.pulsar.wire import Wire as PulsarWire
from tests.servers import Server, Shape, free_port, running

pytestmark = pytest.mark.long  # a gigabyte

MOST: Final = 1 << 20
AT_ONCE: Final = 2000
STAY_BOUND: Final = 1024  # names that an acceptor keeps bound although nobody uses them
NOT_ALLOWED: Final = 22
SAID: Final = b"there are as many topics as there may be"


@contextmanager
def connected(port: int) -> Iterator[tuple[socket.socket, BinaryIO]]:
    with socket.create_connection(("127.0.0.1", port), 30) as sock, sock.makefile("rb") as file:
        yield sock, file


def put_in_each(server: Server, tubes: list[bytes]) -> list[bytes]:
    """What it is answered."""
    said = []
    with connected(server.port) as (sock, file):
        for at in range(0, len(tubes), AT_ONCE):
            some = tubes[at : at + AT_ONCE]
            sock.sendall(b"".join(b"use %s\r\nput 0 0 60 1\r\nx\r\n" % tube for tube in some))
            said += [(file.readline(), file.readline())[1].split()[0] for _ in some]
    return said


def empty(server: Server, tubes: list[bytes]) -> None:
    with connected(server.port) as (sock, file):
        for tube in tubes:
            sock.sendall(b"watch %s\r\nignore default\r\nreserve-with-timeout 0\r\n" % tube)
            file.readline(), file.readline()
            job = file.readline().split()[1]
            file.readline()
            sock.sendall(b"delete %s\r\nwatch default\r\nignore %s\r\n" % (job, tube))
            assert [file.readline() for _ in range(3)] == [b"DELETED\r\n", b"WATCHING 2\r\n", b"WATCHING 1\r\n"]


def pulsar_error(port: int, name: str, **fields: object) -> tuple[int, bytes]:
    with PulsarWire(port) as wire:
        error = wire.connect().ask(name, "error", **fields)
        return int(error.error), error.message.encode()


def test_every_protocol_says_that_there_are_too_many_topics_and_there_is_room_again() -> None:
    ports = {scheme: free_port() for scheme in ("nsq", "nsq-http", "nats", "pulsar")}
    options = [f"--listen={scheme}://127.0.0.1:{port}" for scheme, port in ports.items()]
    options += ["--insecure=nsq-http", "--set=nats.topics=bound.>"]
    with running(Shape("one", "mq-shards", ("--workers", "1")), options=options) as server:
        tubes = [b"t%d" % n for n in range(MOST)]
        said = put_in_each(server, tubes)
        made = said.count(b"INSERTED")
        assert MOST - 8 < made < MOST, "there are topics of the broker's own"
        assert said[made:] == [b"OUT_OF_MEMORY"] * (MOST - made)

        publishes = {
            b"PUB": frames.pub("n", b"x"),
            b"MPUB": frames.mpub("n", [b"x"]),
            b"DPUB": frames.dpub("n", 9, b"x"),
        }
        for name, command in publishes.items():
            with NsqWire(ports["nsq"]) as wire:
                assert wire.ask(command).data == b"E_%s_FAILED %s failed too many topics" % (name, name)
        with NsqWire(ports["nsq"]) as wire:
            assert wire.ask(b"SUB n ch\n").data == b"E_SUB_FAILED SUB failed too many topics"
        with closing(http.client.HTTPConnection("127.0.0.1", ports["nsq-http"], timeout=30)) as connection:
            connection.request("POST", "/pub?topic=n", b"x")
            answer = connection.getresponse()
            assert (answer.status, answer.read()) == (503, b'{"message":"TOO_MANY_TOPICS"}')
        with connected(ports["nats"]) as (sock, file):
            sock.sendall(b'CONNECT {"verbose":false}\r\nSUB in 1\r\nPUB bound.n in 1\r\nx\r\n')
            while not (line := file.readline()).startswith(b"MSG"):
                pass
            assert SAID in file.readline(), line
        code, text = pulsar_error(ports["pulsar"], "producer", topic="p", producer_id=1)
        assert (code, SAID in text.lower()) == (NOT_ALLOWED, True), text
        code, text = pulsar_error(ports["pulsar"], "subscribe", topic="p", subscription="s", subType=1, consumer_id=1)
        assert (code, b"topics" in text) == (NOT_ALLOWED, True), text

        empty(server, tubes[: STAY_BOUND + 8])
        assert put_in_each(server, [b"new"]) == [b"INSERTED"]
