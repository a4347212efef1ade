"""What a reload changes for very many clients is done for some in each turn, and for all in the end."""

from __future__ import annotations

import os
import signal
from functools import partial
from pathlib import Path
from typing import cast

from mq_shards.acceptor.engine import FOREVER
from mq_shards.acceptor.protocols.nats.client import Client
from mq_shards.acceptor.protocols.nats.rounds import IN_A_TURN, Rounds

from tests.nats.servers import running
from tests.nats.test_operating import until_true
from tests.nats.wire import Wire

CONF = 'accounts { A { users: [{user: a, password: x}, {user: b, password: x, permissions: {publish: "%s"}}%s] } }\n'


def client() -> Client:
    return cast("Client", object())


def test_each_is_visited_once_the_newest_first_and_no_more_than_some_in_a_turn() -> None:
    clients = {conn: client() for conn in range(2 * IN_A_TURN + 1)}
    rounds, seen = Rounds(clients), list[int]()

    def visit(conn: int, _: Client) -> None:
        seen.append(conn)

    rounds.begin(visit)
    assert seen == list(range(2 * IN_A_TURN, IN_A_TURN, -1))
    assert rounds.wait_ns() == 0
    del clients[0]
    clients[1] = client()  # another client has the number of one that is gone
    rounds.expire()
    rounds.expire()
    assert seen == list(range(2 * IN_A_TURN, 1, -1))
    assert rounds.wait_ns() == FOREVER


def test_who_begins_again_begins_with_all() -> None:
    clients = {conn: client() for conn in range(IN_A_TURN + 2)}
    rounds, seen = Rounds(clients), list[int]()

    def visit(conn: int, _: Client) -> None:
        seen.append(conn)

    rounds.begin(visit)
    rounds.begin(visit, [(5, clients[5])])
    assert sorted(seen) == sorted([*range(IN_A_TURN + 2), 5])
    rounds.expire()
    assert len(seen) == IN_A_TURN + 3


def is_closed(wire: Wire) -> bool:
    wire.barrier()
    return wire.heard.closed


def is_denied(wire: Wire) -> bool:
    wire.send(b"PUB s 0\r\n\r\n")
    wire.barrier()
    return b'Permissions Violation for Publish to "s"' in wire.heard.data


def test_a_reload_reaches_all_of_very_many_clients(tmp_path: Path) -> None:
    file = tmp_path / "nats.conf"
    file.write_text(CONF % ("s", ", {user: c, password: x}"))
    with running(1, arguments=["--nats-config", str(file)]) as server:
        clients = list[Wire]()
        for number in range(IN_A_TURN + 100):  # each at once: who does not log in is sent away
            clients.append(one := Wire(server.port))
            one.send(b'CONNECT {"user":"%s","pass":"x","verbose":false}\r\n' % b"bc"[number % 2 :][:1])
            one.barrier()
        file.write_text(CONF % ("t", ""))
        os.kill(server.process.pid, signal.SIGHUP)
        for number, one in enumerate(clients):
            until_true(partial(is_closed if number % 2 else is_denied, one))
            one.close()
