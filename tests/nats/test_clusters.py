"""Servers of a cluster, ours and real ones, are one to clients: everybody who listens once, one of each group."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.nats.clusters import NEW_REAL, OLD_REAL, OURS, OURS_3, Member, bodies, cluster, meshed, mixtures, settled
from tests.nats.wire import Wire

MESSAGES = 60
HEADERS = b"NATS/1.0\r\nn: 1\r\n\r\n"

MIXTURES = mixtures(
    (OURS, NEW_REAL), (OLD_REAL, OURS), (OURS, OURS_3), (NEW_REAL, OURS, OURS_3), (OURS_3, NEW_REAL, OLD_REAL)
)


@pytest.fixture(params=MIXTURES, scope="module")
def members(request: pytest.FixtureRequest) -> Iterator[list[Member]]:
    with cluster(request.param) as members:
        yield members


def clients(members: list[Member], said: bytes = b"", each: int = 3) -> list[Wire]:
    made = [member.client(said) for member in members for _ in range(each)]
    # What has been subscribed at one is known at the others soon; nobody says when.
    meshed(members)
    return made


def publish(members: list[Member], subject: bytes, count: int = MESSAGES) -> list[bytes]:
    """At each of them its own; every other with headers."""
    said = []
    for number, member in enumerate(members):
        mine = [b"%d-%d" % (number, n) for n in range(count)]
        lines = [
            b"HPUB %s %d %d\r\n%s%s\r\n" % (subject, len(HEADERS), len(HEADERS) + len(body), HEADERS, body)
            if n % 2
            else b"PUB %s %d\r\n%s\r\n" % (subject, len(body), body)
            for n, body in enumerate(mine)
        ]
        wire = member.client(b"".join(lines))
        wire.close()
        said += mine
    return said


def test_everybody_who_listens_has_all_once_and_in_order(members: list[Member]) -> None:
    listeners = clients(members, b"SUB news.* 1\r\n")
    said = publish(members, b"news.now")
    settled(members, listeners, len(said) * len(listeners))
    for wire in listeners:
        assert Counter(bodies(wire)) == Counter(said)
        for number in range(len(members)):
            mine = [body for body in bodies(wire) if body.startswith(b"%d-" % number)]
            assert mine == [body for body in said if body.startswith(b"%d-" % number)]
        wire.close()


def test_of_each_group_one_has_it_wherever_that_is(members: list[Member]) -> None:
    one = clients(members, b"SUB work.a one 1\r\n")
    other = clients(members, b"SUB work.* one 1\r\nSUB *.a two 2\r\n", each=1)
    alone = clients(members, b"SUB work.> 1\r\n", each=1)
    said = publish(members, b"work.a")
    settled(members, [*one, *other], 2 * len(said))
    heard = Counter(body for wire in [*one, *other] for body in bodies(wire))
    assert heard == Counter(said) + Counter(said)
    # In proportion: all members count, wherever they are.
    assert all(bodies(wire) for wire in one)
    settled(members, alone, len(alone) * len(said))
    assert all(Counter(bodies(wire)) == Counter(said) for wire in alone)
    for wire in [*one, *other, *alone]:
        wire.close()


def test_a_request_is_answered_from_any_server_and_nobody_there_is_said_at_once(members: list[Member]) -> None:
    for member in members:
        service = member.client(b"SUB double 1\r\n")
        meshed(members)
        for other in members:
            asking = other.client(b"SUB answers.1 7\r\nPUB double answers.1 2\r\nhi\r\n")
            settled(members, [service], 1)
            assert b"MSG double 1 answers.1 2\r\nhi\r\n" in service.heard.data
            service.heard.data = b""
            service.send(b"PUB answers.1 4\r\nhihi\r\n")
            settled(members, [asking], 1)
            assert bodies(asking) == [b"hihi"]
            asking.close()
        service.close()
    meshed(members)
    for member in members:
        asking = member.client(b"SUB answers.2 8\r\nPUB double answers.2 2\r\nhi\r\n")
        settled(members, [asking], 1)
        assert b"HMSG answers.2 8 40 40\r\nNATS/1.0 503\r\n" in asking.heard.data or b" 503\r\n" in asking.heard.data
        asking.close()


def test_what_is_unsubscribed_everywhere_comes_no_more(members: list[Member]) -> None:
    first, second = (members[0].client(b"SUB gone.> 1\r\n") for _ in range(2))
    meshed(members)
    first.send(b"UNSUB 1\r\n")
    first.barrier()
    said = publish(members, b"gone.a")
    settled(members, [second], len(said))
    assert bodies(first) == []
    second.send(b"UNSUB 1\r\n")
    second.barrier()
    meshed(members)
    publish(members, b"gone.b")
    meshed(members)
    second.barrier()
    assert len(bodies(second)) == len(said)
    for wire in (first, second):
        wire.close()


@pytest.mark.parametrize("kinds", mixtures((OURS, NEW_REAL, OURS_3), (OLD_REAL, OURS)))
def test_a_server_that_is_killed_comes_back_and_hears_what_is_wanted(kinds: tuple[str, ...]) -> None:
    with cluster(kinds) as members:
        listeners = [member.client(b"SUB late.* 1\r\nSUB late.q q 2\r\n") for member in members]
        for victim in members:
            others = [member for member in members if member is not victim]
            victim.stop(signal.SIGKILL)
            victim.start()
            victim.wait()
            meshed(members)
            place = members.index(victim)
            listeners[place] = victim.client(b"SUB late.* 1\r\nSUB late.q q 2\r\n")
            meshed(members)
            for wire in listeners:
                wire.heard.data = b""
            said = publish([victim, *others], b"late.q", 10)
            settled(members, listeners, len(said) * (len(members) + 1))
            heard = Counter(body for wire in listeners for body in bodies(wire))
            assert heard == Counter({body: len(members) + 1 for body in said})
