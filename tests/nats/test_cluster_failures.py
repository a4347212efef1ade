"""Servers of a cluster that die, hang, are cut off or fall behind: the others go on, and it is one again afterwards."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable

import pytest

from tests.nats.clusters import (
    NEW_REAL,
    OURS,
    OURS_3,
    bodies,
    cluster,
    configured,
    meshed,
    mixtures,
    settled,
)
from tests.nats.route_wire import INFO, RouteWire, line
from tests.nats.test_mesh import all_children
from tests.nats.wire import Wire
from tests.servers import STOP_SECONDS, comm_of

QUICK = ("nats.cluster-ping-interval=300ms", "nats.cluster-ping-max=2")


def until(condition: Callable[[], bool], what: str, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def has_responder(wire: Wire, subject: bytes) -> bool:
    """Whether anybody in the cluster listens, as a publisher at that server knows."""
    wire.heard.data = b""
    wire.send(b"SUB answer 99\r\nPUB %s answer 1\r\nx\r\n" % subject)
    wire.asked = 0
    wire.barrier()
    return b" 503\r\n" not in wire.heard.data


@pytest.mark.parametrize("kinds", mixtures((OURS, NEW_REAL), (OURS_3, OURS)))
def test_a_server_that_hangs_is_found_out_and_forgotten_and_is_one_again_when_it_goes_on(
    kinds: tuple[str, ...],
) -> None:
    with cluster(kinds, QUICK) as members:
        ours, other = members
        listener = other.client(b"SUB there 1\r\n")
        meshed(members)
        asking = ours.client()
        assert has_responder(asking, b"there")
        other.kill(signal.SIGSTOP)
        until(lambda: not has_responder(asking, b"there"), "it is forgotten")
        other.kill(signal.SIGCONT)
        meshed(members)
        # Of ours, whoever has taken its processes for hung has replaced them, and its clients are gone.
        again = other.client(b"SUB there 1\r\n")
        meshed(members)
        assert has_responder(asking, b"there")
        again.close()
        listener.close()


@pytest.mark.parametrize("kinds", mixtures((OURS, NEW_REAL)))
def test_a_server_that_takes_nothing_is_cut_off_in_time_and_its_publishers_go_on(kinds: tuple[str, ...]) -> None:
    settings = ("nats.cluster-write-deadline=1s", "nats.max-pending=4000000")
    with cluster(kinds, settings) as members:
        ours, other = members
        listener = other.client(b"SUB flood 1\r\n")
        here = ours.client(b"SUB here 1\r\n")
        meshed(members)
        other.kill(signal.SIGSTOP)
        talker = ours.client()
        talker.socket.settimeout(20)
        payload = bytes(100_000)
        for _ in range(300):  # 30 MB, which is more than may wait for it and the kernel takes
            talker.send(b"PUB flood %d\r\n%s\r\n" % (len(payload), payload))
        talker.send(b"PUB here 1\r\nx\r\n")
        talker.barrier()
        settled([ours], [here], 1)
        assert not talker.heard.closed
        other.kill(signal.SIGCONT)
        meshed(members)
        listener.close()


@pytest.mark.parametrize("kinds", mixtures((OURS, NEW_REAL), (OURS, OURS_3)))
def test_two_servers_that_are_full_for_each_other_go_on(kinds: tuple[str, ...]) -> None:
    payload, count = bytes(64_000), 400
    with cluster(kinds, ("nats.max-pending=8000000",), ()) as members:
        listeners = [member.client(b"SUB to.%d 1\r\n" % number) for number, member in enumerate(members)]
        meshed(members)

        async def flood(number: int) -> None:
            reader, writer = await asyncio.open_connection("127.0.0.1", members[number].port)
            await reader.readline()
            writer.write(b'CONNECT {"verbose":false}\r\n')
            for _ in range(count):
                writer.write(b"PUB to.%d %d\r\n%s\r\n" % (1 - number, len(payload), payload))
                await writer.drain()
            writer.write(b"PING\r\n")
            while await reader.readline() != b"PONG\r\n":
                pass
            writer.close()

        async def take(wire: Wire) -> None:
            """All, or until it is cut off: it may be too slow for its server."""
            wire.socket.settimeout(20)
            left = count * len(payload)
            while left > 0 and (received := len(await asyncio.to_thread(wire.socket.recv, 1 << 20))) > 0:
                left -= received

        async def run() -> None:
            await asyncio.wait_for(asyncio.gather(*(flood(n) for n in (0, 1)), *(take(w) for w in listeners)), 40)

        asyncio.run(run())
        for wire in listeners:
            wire.close()
        late = [member.client(b"SUB late 1\r\n") for member in members]
        meshed(members)
        for member in members:
            member.client(b"PUB late 1\r\nx\r\n").close()
        settled(members, late, 2)
        assert all(bodies(wire) == [b"x", b"x"] for wire in late)


@pytest.mark.parametrize("kinds", mixtures((OURS, OURS_3, NEW_REAL)))
def test_an_acceptor_that_dies_takes_the_routes_with_it_and_they_come_back(kinds: tuple[str, ...]) -> None:
    with cluster(kinds) as members:
        listeners = [member.client(b"SUB all 1\r\n") for member in (members[0], members[2])]
        victim = members[1]
        assert victim.process is not None
        pid = next(pid for pid in all_children(victim.process.pid) if comm_of(pid) == "mq-acceptor-0")
        os.kill(pid, signal.SIGKILL)
        until(
            lambda: "mq-acceptor-0 is back" in victim.said() or victim.said().count("the cluster is") > 1, "it is back"
        )
        meshed(members)
        late = [victim.client(b"SUB all 1\r\n") for _ in range(6)]
        meshed(members)
        members[2].client(b"PUB all 1\r\nx\r\n").close()
        settled(members, [*listeners, *late], 8)
        assert all(bodies(wire) == [b"x"] for wire in [*listeners, *late])


def test_what_a_server_wanted_is_forgotten_with_it_and_asked_for_anew() -> None:
    with cluster((OURS, OURS)) as (first, second):
        listener = second.client(b"SUB mine 1\r\nSUB mine q 2\r\n")
        meshed([first, second])
        asking = first.client()
        assert has_responder(asking, b"mine")
        second.stop(signal.SIGKILL)
        until(lambda: not has_responder(asking, b"mine"), "it is forgotten")
        listener.close()


def test_members_find_each_other_through_one_and_lose_nobody_when_that_is_gone() -> None:
    with cluster((OURS, OURS_3, OURS)) as members:
        members[0].stop()
        meshed(members[1:])
        first, second = members[1:]
        listener = first.client(b"SUB left 1\r\n")
        meshed(members[1:])
        second.client(b"PUB left 1\r\nx\r\n").close()
        settled(members[1:], [listener], 1)


def test_what_servers_want_has_a_limit_over_all_of_them_and_who_goes_beyond_it_is_sent_away() -> None:
    with cluster((OURS,), ("nats.cluster-max-interest=1000",)) as (member,):
        first, second = (RouteWire.joined(member.route_port) for _ in range(2))
        first.send(b"".join(b"RS+ $G a.%d\r\n" % n for n in range(900)))
        first.barrier()
        second.send(b"".join(b"RS+ $G b.%d\r\n" % n for n in range(900)))
        assert second.rest().endswith(b"-ERR 'maximum subscriptions exceeded'\r\n")
        # What it had is given back, and the other has what it wants.
        third = RouteWire.joined(member.route_port)
        third.send(b"RS+ $G c\r\n")
        third.barrier()
        assert not third.closed
        third.send(b"RS+ $G %s\r\n" % (b"x" * 60_000) + b"RS+ $G %s\r\n" % (b"y" * 60_000))
        third.send(b"RS+ $G %s\r\n" % (b"z" * 60_000) + b"RS+ $G d\r\n")
        assert third.rest().endswith(b"-ERR 'maximum subscriptions exceeded'\r\n")
        talker = member.client(b"PUB a.1 1\r\nx\r\n")
        assert [said for said in first.barrier() if not said.startswith(b"INFO")] == [b"RMSG $G a.1 1", b"x"]
        for wire in (first, second, third, talker):
            wire.close()


def test_servers_that_are_told_of_without_end_do_not_keep_away_those_of_the_configuration() -> None:
    with cluster((OURS, OURS)) as (seed, member):
        wire = RouteWire.joined(member.route_port)
        for n in range(3000):
            told = {**INFO, "server_id": f"N{n:055}", "ip": f"nats-route://127.9.{n // 250}.{n % 250 + 1}:6222/"}
            wire.send(line("INFO", told))
        assert not wire.closed
        seed.stop(signal.SIGKILL)
        seed.start()
        seed.wait()
        meshed([seed, member])
        wire.close()


def test_a_server_that_stops_ends_its_routes_before_its_clients_have_heard_all() -> None:
    """Else others go on to choose its clients for groups until it has gone, and what they send is lost."""
    with configured(OURS, "cluster { name: xyz, listen: 127.0.0.1:$ROUTE_PORT }") as server:
        behind, publisher = server.client(b"SUB much 1\r\n"), server.client()
        publisher.send(b"PUB much 1048576\r\n%s\r\n" % bytes(1 << 20) * 32)
        publisher.barrier()
        route = RouteWire.joined(server.route_port)
        assert server.process is not None
        server.process.send_signal(signal.SIGTERM)
        while not route.closed:
            route.receive()
        route.close()
        server.process.wait(STOP_SECONDS)
        assert "the route is gone" in server.said()  # it was still there to say so
        behind.close()
