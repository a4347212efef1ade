"""Servers and clients that go and had very much: it is forgotten in pieces, and nobody's from the beginning."""

from __future__ import annotations

import pytest

from tests.nats.clusters import OURS, OURS_3, Member, bodies, cluster, mixtures
from tests.nats.route_wire import RouteWire
from tests.nats.wire import Wire
from tests.servers import wait_until

MUCH = 30_000  # many pieces


def nobody_wants(client: Wire, subject: bytes) -> bool:
    client.heard.data, client.asked = b"", 0
    client.send(b"PUB %s answers 0\r\n\r\n" % subject)
    client.barrier()
    return b"NATS/1.0 503" in client.heard.data


def asking(member: Member) -> Wire:
    return member.client(b"SUB answers 1\r\n")


@pytest.mark.parametrize("kinds", mixtures((OURS,), (OURS_3,)))
def test_what_a_server_wanted_is_nobodys_from_the_moment_that_it_is_gone(kinds: tuple[str, ...]) -> None:
    with cluster(kinds) as (member,):
        leaving, staying = RouteWire.joined(member.route_port), RouteWire.joined(member.route_port)
        leaving.send(b"RS+ $G jobs workers 1000\r\n" + b"".join(b"RS+ $G much.%d\r\n" % n for n in range(MUCH)))
        leaving.barrier()
        staying.send(b"RS+ $G jobs workers 1\r\n")
        staying.barrier()
        client = asking(member)
        wait_until(lambda: not nobody_wants(client, b"much.%d" % (MUCH - 1)), "it is wanted")
        leaving.close()
        wait_until(lambda: nobody_wants(client, b"much.%d" % (MUCH - 1)), "it is gone")
        assert nobody_wants(client, b"much.0") and nobody_wants(client, b"much.%d" % (MUCH // 2))
        # Its thousand members of a group weigh nothing any more.
        client.send(b"PUB jobs 1\r\nx\r\n" * 300)
        client.barrier()
        heard: list[bytes] = []

        def all_are_there() -> bool:
            heard.extend(line for line in staying.barrier() if line.startswith(b"RMSG $G jobs"))
            return len(heard) >= 300

        wait_until(all_are_there, "who stays has all of them")
        assert heard == [b"RMSG $G jobs | workers 1"] * 300
        # Whoever comes next has the place, and only what it wants itself.
        coming = RouteWire.joined(member.route_port)
        coming.send(b"RS+ $G much.7\r\n")
        coming.barrier()
        wait_until(lambda: not nobody_wants(client, b"much.7"), "it is wanted again")
        assert nobody_wants(client, b"much.8")
        assert b"RMSG $G much.7 answers 0" in coming.barrier()
        for wire in (staying, coming, client):
            wire.close()


@pytest.mark.parametrize("kinds", mixtures((OURS,), (OURS_3,)))
def test_what_a_client_wanted_goes_but_for_what_another_wants_meanwhile(kinds: tuple[str, ...]) -> None:
    with cluster(kinds) as (member,):
        wire = RouteWire.joined(member.route_port)
        wanted: set[bytes] = set()

        def listen() -> set[bytes]:
            for line in wire.barrier():
                if line.startswith(b"RS+ $G much."):
                    wanted.add(line.split()[2])
                elif line.startswith(b"RS- $G much."):
                    wanted.discard(line.split()[2])
            return wanted

        every = [b"much.%d" % n for n in range(MUCH)]
        leaving, staying, client = member.client(), member.client(), asking(member)
        leaving.send(b"".join(b"SUB %s %d\r\n" % (subject, n) for n, subject in enumerate(every)))
        leaving.barrier()
        wait_until(lambda: len(listen()) == MUCH, "the other server knows all")
        leaving.close()
        staying.send(b"".join(b"SUB %s %d\r\n" % (subject, n) for n, subject in enumerate(every[::2])))
        staying.barrier()
        wait_until(lambda: listen() == set(every[::2]), "the other server knows what is wanted still")
        assert nobody_wants(client, every[1]) and not nobody_wants(client, every[2])
        wire.send(b"RMSG $G %s 3\r\nyes\r\nRMSG $G %s 2\r\nno\r\n" % (every[-2], every[-1]))
        wire.barrier()
        wait_until(lambda: staying.barrier() is None and b"yes" in bodies(staying), "it has come")
        assert b"no" not in bodies(staying)
        for one in (wire, staying, client):
            one.close()
