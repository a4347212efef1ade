"""Several acceptors are one server: what is said at one reaches whoever listens at any, once."""

from __future__ import annotations

import json
import os
import re
import signal
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.nats.scenes import QUIET
from tests.nats.servers import NatsServer, running
from tests.nats.wire import Wire
from tests.servers import children, comm_of, wait_until

CLIENTS = 12  # the kernel spreads them over the acceptors
MESSAGES = 400


@pytest.fixture(params=[1, 2, 3])
def broker(request: pytest.FixtureRequest) -> Iterator[NatsServer]:
    with running(request.param) as server:
        yield server


def clients(server: NatsServer, count: int, said: bytes = b"") -> list[Wire]:
    made = [Wire(server.port) for _ in range(count)]
    for wire in made:
        wire.send(QUIET + said)
        wire.barrier()
    return made


def bodies(wire: Wire) -> list[bytes]:
    return re.findall(rb"MSG [^\r]+\r\n([^\r]*)\r\n", wire.heard.data)


def heard_of(wires: list[Wire], messages: int) -> None:
    """Until that many messages have come, over all of them."""
    for wire in wires:
        wire.socket.settimeout(0.05)

    def all_there() -> bool:
        for wire in wires:
            try:
                wire.receive()
            except TimeoutError:
                continue
        return sum(len(bodies(wire)) for wire in wires) >= messages

    wait_until(all_there, f"{messages} messages have come")


def publish(wires: list[Wire], subject: bytes) -> list[bytes]:
    """Each its own numbers, all at once."""
    said = [[b"%d-%d" % (who, n) for n in range(MESSAGES)] for who in range(len(wires))]
    for wire, mine in zip(wires, said, strict=True):
        wire.send(b"".join(b"PUB %s %d\r\n%s\r\n" % (subject, len(body), body) for body in mine))
    return [body for mine in said for body in mine]


def test_everybody_who_listens_gets_all_once_and_in_order(broker: NatsServer) -> None:
    listeners = clients(broker, CLIENTS, b"SUB news.* 1\r\n")
    said = publish(publishers := clients(broker, 3), b"news.now")
    heard_of(listeners, len(said) * CLIENTS)
    for wire in listeners:
        assert Counter(bodies(wire)) == Counter(said)
        for who in range(len(publishers)):
            mine = [body for body in bodies(wire) if body.startswith(b"%d-" % who)]
            assert mine == [body for body in said if body.startswith(b"%d-" % who)]


def test_a_group_gets_each_message_once_wherever_its_members_are(broker: NatsServer) -> None:
    members = clients(broker, CLIENTS, b"SUB work group 1\r\n")
    said = publish(clients(broker, 3), b"work")
    heard_of(members, len(said))
    assert Counter(body for wire in members for body in bodies(wire)) == Counter(said)
    assert all(bodies(wire) for wire in members)  # 100 each, more or less


def test_every_group_has_its_message_however_many_there_are(broker: NatsServer) -> None:
    groups = 300
    said = b"".join(b"SUB many %s-%d %d\r\n" % (b"g" * 500, n, n) for n in range(groups))
    members = clients(broker, 4, said)
    (publisher,) = clients(broker, 1)
    publisher.send(b"PUB many 1\r\nx\r\n" * 3)
    heard_of(members, 3 * groups)
    sids = Counter(sid for wire in members for sid in re.findall(rb"MSG many (\d+) ", wire.heard.data))
    assert sids == Counter({b"%d" % n: 3 for n in range(groups)})


def test_a_group_over_several_patterns_is_one(broker: NatsServer) -> None:
    members = clients(broker, 4, b"SUB a.* g 1\r\n") + clients(broker, 4, b"SUB a.b g 1\r\n")
    said = publish(clients(broker, 2), b"a.b")
    heard_of(members, len(said))
    assert Counter(body for wire in members for body in bodies(wire)) == Counter(said)


def test_who_has_heard_pong_misses_nothing_that_is_said_afterwards(broker: NatsServer) -> None:
    publishers = clients(broker, 4)
    for n in range(100):
        (listener,) = clients(broker, 1, b"SUB t.%d 1\r\n" % n)
        publishers[n % 4].send(b"PUB t.%d 1\r\nx\r\n" % n)
        heard_of([listener], 1)
        listener.close()


def test_who_has_heard_ok_to_a_sub_misses_nothing_either_and_hears_it_at_once(broker: NatsServer) -> None:
    """A verbose client may wait for it before it says anything else."""
    publishers = clients(broker, 4)
    for n in range(20):
        listener = Wire(broker.port)
        listener.socket.settimeout(1)  # the first PING comes later
        for said, answers in ((b"CONNECT {}\r\n", 1), (b"SUB t.%d 1\r\n" % n, 2)):
            listener.send(said)
            while listener.heard.data.count(b"+OK\r\n") < answers:
                listener.receive()
        publishers[n % 4].send(b"PUB t.%d 1\r\nx\r\n" % n)
        heard_of([listener], 1)
        assert listener.heard.data == b"+OK\r\n" * 2 + b"MSG t.%d 1 1\r\nx\r\n" % n
        listener.close()


def test_a_request_finds_the_way_back(broker: NatsServer) -> None:
    (service,) = clients(broker, 1, b"SUB service 1\r\n")
    for n in range(50):
        (client,) = clients(broker, 1)
        client.send(b"SUB in.%d 1\r\nPUB service in.%d 1\r\nq\r\n" % (n, n))
        heard_of([service], n + 1)
        service.send(b"PUB in.%d 1\r\na\r\n" % n)
        heard_of([client], 1)
        client.close()


def test_an_acceptor_that_is_killed_takes_its_interest_with_it_and_comes_back() -> None:
    with running(3) as server:
        listeners = clients(server, 3 * CLIENTS, b"SUB news 1\r\n")  # else the victim may have had none of them
        victim = next(pid for pid in all_children(server.process.pid) if comm_of(pid) == "mq-acceptor-1")
        os.kill(victim, signal.SIGKILL)
        left = [wire for wire in listeners if not is_closed(wire)]
        assert 0 < len(left) < len(listeners)
        wait_until(lambda: is_running(server, "mq-acceptor-1", victim), "it is there again")
        back = clients(server, CLIENTS, b"SUB news 1\r\n")
        said = publish(clients(server, 3), b"news")
        heard_of(left + back, len(said) * (len(left) + len(back)))
        for wire in left + back:
            assert Counter(bodies(wire)) == Counter(said)


def test_an_acceptor_that_is_killed_leaves_no_id_of_a_client_to_those_who_come_later() -> None:
    with running(1) as server:
        before = {client_id(wire) for wire in clients(server, CLIENTS)}
        victim = next(pid for pid in all_children(server.process.pid) if comm_of(pid) == "mq-acceptor-0")
        os.kill(victim, signal.SIGKILL)
        wait_until(lambda: is_running(server, "mq-acceptor-0", victim), "it is there again")
        after = {client_id(wire) for wire in clients(server, CLIENTS)}
        assert len(before | after) == 2 * CLIENTS
        assert max(before) < min(after)


def client_id(wire: Wire) -> int:
    found: int = json.loads(wire.info[len("INFO ") :])["client_id"]
    return found


def is_closed(wire: Wire) -> bool:
    wire.barrier()
    return wire.heard.closed


def all_children(pid: int) -> list[int]:
    found = children(pid)
    return found + [grandchild for child in found for grandchild in all_children(child)]


def is_running(server: NatsServer, comm: str, but: int) -> bool:
    return any(comm_of(pid) == comm and pid != but for pid in all_children(server.process.pid))
