"""Who comes to a gateway that is away for long is refused at once."""

from __future__ import annotations

import selectors
import socket

from mq_shards.ringbuf.handover import Handover
from mq_shards.supervisor.away import Away


def turn(selector: selectors.BaseSelector) -> None:
    for key, _ in selector.select(5):
        key.data()


def test_clients_and_what_acceptors_hand_over_are_refused_until_it_ends() -> None:
    giving, taking = Handover.pair()
    with selectors.DefaultSelector() as selector, socket.create_server(("127.0.0.1", 0)) as listening, giving, taking:
        listening.setblocking(False)
        away = Away(selector)
        with socket.socket() as silent:
            away.begin([listening, silent], [taking])
        with socket.create_connection(listening.getsockname(), 5) as client:
            turn(selector)
            assert client.recv(1) == b""
        ours, theirs = socket.socketpair()
        ours.settimeout(5)
        with theirs:
            assert Handover(giving).give(theirs.fileno(), b"GET /ping HTTP/1.1\r\n")
        turn(selector)
        assert ours.recv(1) == b""
        ours.close()
        away.end()
        assert not selector.get_map(), "the next gateway has them for itself"
        with socket.create_connection(listening.getsockname(), 5):
            assert not selector.select(0)
            listening.accept()[0].close()
