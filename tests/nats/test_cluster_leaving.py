"""Servers and clients that go and had very much: it is forgotten in pieces, and nobody's from the beginning."""

from __future__ import annotations

import os
import signal
from collections import Counter
from pathlib import Path

import pytest

from tests.nats.clusters import OURS, OURS_3, Member, bodies, cluster, mixtures
from tests.nats.leaf_wire import LeafWire
from tests.nats.route_wire import RouteWire
from tests.nats.wire import Wire
from tests.servers import comm_of, free_port, wait_until

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


@pytest.mark.parametrize("kinds", mixtures((OURS,), (OURS_3,)))
def test_a_server_that_comes_back_at_once_is_not_refused_for_what_it_wanted_before(kinds: tuple[str, ...]) -> None:
    much = b"".join(b"RS+ $G much.%d\r\n" % n for n in range(MUCH))
    with cluster(kinds, [f"nats.cluster-max-interest={MUCH}"]) as (member,):
        client = asking(member)
        for _ in range(4):
            wire = RouteWire.joined(member.route_port)
            wire.send(much)
            assert not [line for line in wire.barrier() if line.startswith(b"-ERR")]
            wait_until(lambda: not nobody_wants(client, b"much.%d" % (MUCH - 1)), "it is wanted")
            wire.send(b"RS+ $G more\r\nPING\r\n")
            assert wire.rest().endswith(b"-ERR 'maximum subscriptions exceeded'\r\n")
            wire.close()
        wait_until(lambda: nobody_wants(client, b"much.0"), "it is gone")
        client.close()


def test_what_a_leaf_node_wanted_goes_everywhere_though_a_server_takes_its_room_at_once(tmp_path: Path) -> None:
    port, much = free_port(), MUCH - 100
    options = ["--listen", f"nats-leaf://127.0.0.1:{port}"]
    member = Member(OURS, tmp_path, extra=[f"nats.cluster-max-interest={MUCH}"], options=options)
    member.start()
    try:
        member.wait()
        wire, leaf = RouteWire.joined(member.route_port), LeafWire.joining(port, "")
        wanted: set[bytes] = set()

        def listen() -> set[bytes]:
            for line in wire.barrier():
                words = line.split()
                if words[-1].startswith(b"leafy."):
                    (wanted.add if words[0].endswith(b"+") else wanted.discard)(words[-1])
            return wanted

        leaf.send(b"".join(b"LS+ leafy.%d\r\n" % n for n in range(much)))
        leaf.barrier()
        wait_until(lambda: len(listen()) == much, "the other server knows all")
        leaf.close()
        wire.send(b"".join(b"RS+ $G much.%d\r\n" % n for n in range(much)))
        wait_until(lambda: not listen(), "the other server knows that none is wanted any more")
        wire.close()
    finally:
        member.stop()


def test_what_clients_of_an_acceptor_wanted_goes_with_it_but_for_what_others_want() -> None:
    with cluster((OURS_3,)) as (member,):
        wire = RouteWire.joined(member.route_port)
        wanted: dict[bytes, bytes] = {}

        def listen() -> dict[bytes, bytes]:
            for line in wire.barrier():
                words = line.split()
                if words[0] == b"RS+" and words[1] == b"$G":
                    wanted[words[2]] = words[-1] if len(words) > 3 else b""
                elif words[0] == b"RS-" and words[1] == b"$G":
                    wanted.pop(words[2], None)
            return wanted

        clients = [member.client(b"SUB all a\r\nSUB jobs workers j\r\n") for _ in range(12)]
        each = MUCH // len(clients)
        for number, client in enumerate(clients):
            client.send(b"".join(b"SUB much.%d %d\r\n" % (n, n) for n in range(number * each, (number + 1) * each)))
        for client in clients:
            client.barrier()
        wait_until(lambda: len(listen()) == MUCH + 2 and wanted[b"jobs"] == b"12", "the other server knows all")
        victim = next(pid for pid in member.pids() if comm_of(pid) == "mq-acceptor-1")
        os.kill(victim, signal.SIGKILL)
        for client in clients:
            client.barrier()
        left = [number for number, client in enumerate(clients) if not client.heard.closed]
        assert 0 < len(left) < len(clients)
        every = {b"much.%d" % n for number in left for n in range(number * each, (number + 1) * each)}

        def knows_what_is_left() -> bool:
            return listen().keys() == every | {b"all", b"jobs"} and wanted[b"jobs"] == b"%d" % len(left)

        wait_until(knows_what_is_left, "the other server knows what is left")
        for one in (wire, *clients):
            one.close()


def test_what_is_passed_on_because_a_group_has_nobody_left_comes_to_no_other_twice() -> None:
    with cluster((OURS_3,)) as (member,):
        wire = RouteWire.joined(member.route_port)
        wire.send(b"RS+ $G jobs\r\nRS+ $G jobs workers 1\r\n")
        wire.barrier()
        publishers, workers = [member.client() for _ in range(3)], [member.client() for _ in range(9)]
        heard: Counter[bytes] = Counter()

        def all_are_there(said: set[bytes]) -> bool:
            heard.update(line for line in wire.barrier() if line.startswith(b"#"))
            return said <= heard.keys()

        for burst in range(30):
            for worker in workers:
                worker.send(b"SUB jobs workers 1\r\n")
            for worker in workers:
                worker.barrier()
            said = [b"#%d-%d" % (burst, n) for n in range(300)]
            jobs = [b"PUB jobs %d\r\n%s\r\n" % (len(body), body) for body in said]
            for n, publisher in enumerate(publishers):
                publisher.send(b"".join(jobs[n::3]))
            for worker in workers:
                worker.send(b"UNSUB 1\r\n")
            wait_until(lambda said=set(said): all_are_there(said), "all have come")
        assert set(heard.values()) == {1}
        for one in (wire, *publishers, *workers):
            one.close()
