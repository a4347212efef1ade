"""Leaf nodes of one cluster at several servers of another: routes say which cluster wants something, and which has
sent a message, and so each comes once."""

from __future__ import annotations

import contextlib
import signal
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from tests.nats.clusters import NEW_REAL, OLD_REAL, OURS, OURS_3, Member, bodies, configured, mixtures, settled
from tests.nats.leaf_wire import LeafWire
from tests.nats.route_wire import CONNECT, INFO, TIMEOUT_S, RouteWire
from tests.nats.test_leaves import MEMBER, MESSAGES, client, joined, publish
from tests.nats.wire import Wire
from tests.servers import free_port, wait_until

EDGE = """
listen: "127.0.0.1:$PORT"
server_name: %(name)s
leafnodes { reconnect: 1, remotes [ { url: "nats-leaf://127.0.0.1:%(leaf)s" } ] }
cluster { name: edge, listen: "127.0.0.1:$ROUTE_PORT", routes: [%(routes)s] }
"""
KNOWS: dict[str, Any] = {"lnoc": True, "lnocu": True}
KINDS = mixtures((OURS,), (OURS_3,), (NEW_REAL,))
PROBE = b"probe"

# --- to the byte ------------------------------------------------------------------------------------------------------


@pytest.fixture(params=KINDS, scope="module")
def hub(request: pytest.FixtureRequest) -> Iterator[tuple[Member, int]]:
    """With the port for its leaf nodes."""
    port = free_port()
    with configured(request.param[0], MEMBER % {"name": "hub", "leaf": port, "routes": ""}) as member:
        yield member, port


def server(member: Member, **said: object) -> RouteWire:
    known = {**KNOWS, **said}
    return RouteWire.joined(member.route_port, {**INFO, **known}, {**CONNECT, **known})


def leaf(port: int, cluster: str | None) -> LeafWire:
    return LeafWire.joining(port, "", cluster=cluster)


def told(wire: RouteWire, subject: bytes) -> list[bytes]:
    return [one for one in wire.barrier() if subject in one.split()]


def until_told(wire: RouteWire, wanted: bytes) -> None:
    """And nothing else of its subject; perhaps twice, as a real server does where clients and leaf nodes want it."""
    words = wanted.split()
    subject = words[3] if words[0].startswith(b"LS") else words[2]
    heard: list[bytes] = []

    def has_come() -> bool:
        heard.extend(told(wire, subject))
        return bool(heard)

    wait_until(has_come, f"{wanted!r} comes")
    assert set(heard) == {wanted}


def until_heard(wire: RouteWire, body: bytes) -> list[bytes]:
    heard: list[bytes] = []

    def has_come() -> bool:
        heard.extend(wire.barrier())
        return body in heard

    wait_until(has_come, f"{body!r} comes")
    return heard


def test_what_is_wanted_is_said_for_each_cluster_of_leaf_nodes_by_itself(hub: tuple[Member, int]) -> None:
    member, port = hub
    wire = server(member)
    one, two, other, nameless = leaf(port, "X"), leaf(port, "X"), leaf(port, "Y"), leaf(port, None)
    one.wants(b"LS+ a\r\n")
    until_told(wire, b"LS+ X $G a")
    two.wants(b"LS+ a\r\nLS+ mark.two\r\n")
    until_told(wire, b"LS+ X $G mark.two")
    other.wants(b"LS+ a\r\n")
    until_told(wire, b"LS+ Y $G a")
    # One of no cluster is as a client is.
    nameless.wants(b"LS+ a\r\n")
    until_told(wire, b"RS+ $G a")
    here = client(member, b"SUB a 1\r\n")
    late = server(member)
    assert {each for each in late.told if each.endswith(b" a")} == {b"LS+ X $G a", b"LS+ Y $G a", b"RS+ $G a"}
    late.close()
    one.wants(b"LS- a\r\nLS+ mark.one\r\n")
    until_told(wire, b"LS+ X $G mark.one")
    two.wants(b"LS- a\r\n")
    until_told(wire, b"LS- X $G a")
    nameless.wants(b"LS- a\r\n")
    here.send(b"UNSUB 1\r\n")
    here.barrier()
    until_told(wire, b"RS- $G a")
    other.close()
    until_told(wire, b"LS- Y $G a")
    for each in (wire, one, two, nameless, here):
        each.close()


def test_leaf_nodes_of_no_cluster_are_told_apart_from_clients(hub: tuple[Member, int]) -> None:
    """To a server that understands it, by a name that no cluster may have."""
    member, port = hub
    wire, nameless, here = server(member, ln=True), leaf(port, None), client(member)
    for said, known in ((b"LS+ a\r\n", b"LS+ _ $G a"), (b"LS+ b q 2\r\n", b"LS+ _ $G b q 2")):
        nameless.wants(said)
        until_told(wire, known)
    for said, known in ((b"SUB a 1\r\n", b"RS+ $G a"), (b"SUB b q 2\r\n", b"RS+ $G b q 1")):
        here.send(said)
        until_told(wire, known)
    late = server(member, ln=True)
    assert {each for each in late.told if each.endswith(b" a")} == {b"LS+ _ $G a", b"RS+ $G a"}
    assert {each for each in late.told if b" b q" in each} == {b"LS+ _ $G b q 2", b"RS+ $G b q 1"}
    # A member here is preferred to one behind that server, which is outside of the cluster.
    late.send(b"LS+ _ $G c q 5\r\nLS+ _ $G d\r\n")
    here.send(b"SUB c q 3\r\n")
    heard: list[bytes] = []

    def is_known() -> bool:
        here.send(b"PUB d 1\r\nd\r\n")
        here.barrier()
        heard.extend(late.barrier())
        return b"RMSG $G d 1" in heard

    wait_until(is_known, "what it wants is known")
    here.send(b"PUB c 2\r\nno\r\n" * 20 + b"PUB d 3\r\nyes\r\n")
    assert b"no" not in until_heard(late, b"yes")
    here.send(b"UNSUB 3\r\nPUB c 1\r\nx\r\n")
    assert b"RMSG $G c | q 1" in until_heard(late, b"x")
    for said, known in ((b"LS- a\r\n", b"LS- _ $G a"), (b"LS- b q\r\n", b"LS- _ $G b q")):
        nameless.wants(said)
        until_told(wire, known)
    for each in (wire, late, nameless, here):
        each.close()


def test_of_a_group_each_cluster_has_its_members(hub: tuple[Member, int]) -> None:
    member, port = hub
    wire = server(member)
    one, two, other = leaf(port, "X"), leaf(port, "X"), leaf(port, "Y")
    one.wants(b"LS+ b q 2\r\n")
    until_told(wire, b"LS+ X $G b q 2")
    two.wants(b"LS+ b q 3\r\n")
    until_told(wire, b"LS+ X $G b q 5")
    other.wants(b"LS+ b q 1\r\n")
    until_told(wire, b"LS+ Y $G b q 1")
    here = client(member, b"SUB b q 1\r\n")
    until_told(wire, b"RS+ $G b q 1")
    late = server(member)
    assert sorted(each for each in late.told if b" b " in each) == [
        b"LS+ X $G b q 5", b"LS+ Y $G b q 1", b"RS+ $G b q 1",
    ]  # fmt: skip
    late.close()
    two.close()
    until_told(wire, b"LS+ X $G b q 2")
    one.wants(b"LS- b q\r\n")
    until_told(wire, b"LS- X $G b q")
    for each in (wire, one, other, here):
        each.close()


def test_a_message_says_which_cluster_has_it_already(hub: tuple[Member, int]) -> None:
    member, port = hub
    wire = server(member)
    wire.send(b"RS+ $G m\r\nRS+ $G m q 1\r\n")
    wire.barrier()
    one, nameless = leaf(port, "X"), leaf(port, None)
    one.send(b"LMSG m 2\r\nxy\r\nLMSG m r 2\r\nxy\r\nHMSG m 12 14\r\nNATS/1.0\r\n\r\nxy\r\nLMSG m | q 3\r\nend\r\n")
    heads = [each for each in until_heard(wire, b"end") if b"MSG" in each]
    assert heads == [b"LMSG X $G m 0 2", b"LMSG X $G m r 0 2", b"LMSG X $G m 12 14", b"LMSG X $G m | q 0 3"]
    nameless.send(b"LMSG m 2\r\nno\r\n")
    assert [each for each in until_heard(wire, b"no") if b"MSG" in each] == [b"RMSG $G m 2"]
    for each in (wire, one, nameless):
        each.close()


def test_what_is_of_a_cluster_of_leaf_nodes_is_not_for_it(hub: tuple[Member, int]) -> None:
    member, port = hub
    wire = server(member)
    one, other = leaf(port, "X"), leaf(port, "Y")
    for each in (one, other):
        each.wants(b"LS+ n.>\r\n")
    # Of each other's they hear.
    one.hears(b"LS+ n.>")
    other.barrier()
    wire.send(b"LS+ X $G x.wants\r\nLS+ Y $G y.wants q 2\r\nRS+ $G all.want\r\n")
    wire.barrier()
    assert other.hears(b"LS+ all.want") == [b"LS+ x.wants", b"LS+ all.want"]
    assert one.hears(b"LS+ all.want") == [b"LS+ y.wants q 2", b"LS+ all.want"]
    wire.send(b"LMSG X $G n.1 0 1\r\na\r\nLMSG Y $G n.1 12 13\r\nNATS/1.0\r\n\r\nb\r\nRMSG $G n.2 1\r\nc\r\n")
    wire.barrier()
    assert other.hears(b"c") == [b"LMSG n.1 1", b"a", b"LMSG n.2 1", b"c"]
    assert one.hears(b"c") == [b"HMSG n.1 12 13", b"NATS/1.0", b"b", b"LMSG n.2 1", b"c"]
    wire.send(b"LS- X $G x.wants\r\nLS- Y $G y.wants q\r\nRS- $G all.want\r\n")
    assert other.hears(b"LS- all.want") == [b"LS- x.wants", b"LS- all.want"]
    assert one.hears(b"LS- all.want") == [b"LS- y.wants q", b"LS- all.want"]
    for wired in (wire, one, other):
        wired.close()


@pytest.mark.parametrize("kinds", mixtures((OURS,), (OURS_3,)))
def test_a_server_that_tells_clusters_apart_by_half_hears_of_all_as_of_clients(kinds: tuple[str]) -> None:
    port = free_port()
    with configured(kinds[0], MEMBER % {"name": "hub", "leaf": port, "routes": ""}) as member:
        wire = server(member, lnocu=False)
        one, two = leaf(port, "X"), leaf(port, "Y")
        one.wants(b"LS+ a\r\n")
        until_told(wire, b"RS+ $G a")
        two.wants(b"LS+ a\r\n")
        # It names the cluster of who wants something first, though others want it later; and none when that ends.
        wire.send(b"LS+ X $G w q 1\r\nRS+ $G w q 3\r\nLS+ X $G v\r\nRS+ $G a\r\n")
        one.hears(b"LS+ v")
        one.send(b"LMSG a 1\r\nx\r\n")
        assert b"LMSG X $G a 0 1" in until_heard(wire, b"x")
        wire.send(b"LS- $G w q\r\nLS- $G v\r\n")
        one.hears(b"LS- v")
        one.wants(b"LS- a\r\n")
        two.close()
        until_told(wire, b"RS- $G a")
        for each in (wire, one):
            each.close()


MOST_CLUSTERS = 8192


@pytest.mark.parametrize("kinds", mixtures((OURS_3,)))
def test_strangers_name_no_more_clusters_than_there_may_be_and_give_them_back(kinds: tuple[str]) -> None:
    port = free_port()
    with configured(kinds[0], MEMBER % {"name": "hub", "leaf": port, "routes": ""}) as member:
        for number in range(2):
            wire, listener = server(member), leaf(port, "X")
            # What is not wanted, or wanted again, takes no number; what is not wanted any more gives it back.
            lines = b"LS- U%d $G u\r\nLS+ G $G g\r\nLS+ G%d $G g\r\nLS- G%d $G g\r\n"
            wire.send(b"".join(lines % (n, n, n) for n in range(20_000)))
            assert not [one for one in wire.barrier() if one.startswith(b"-ERR")], number
            # Two are of the leaf node, and of what was wanted above.
            wire.send(b"".join(b"LS+ C%d $G c\r\n" % n for n in range(MOST_CLUSTERS - 2)))
            wire.barrier()
            assert not wire.closed
            wire.send(b"LS+ one.more $G c\r\n")
            assert wire.rest().removeprefix(b"PING\r\n") == b"-ERR 'maximum subscriptions exceeded'\r\n"
            heard = listener.hears(b"LS- c")
            if b"LS- g" not in heard:
                listener.hears(b"LS- g")
            wire.close()
            listener.close()
        long = LeafWire(port)
        long.connect(cluster="x" * 1025)
        assert long.rest().endswith(b"-ERR 'maximum connections exceeded'\r\n")
        long.close()
        again = leaf(port, "x" * 1024)
        assert again.connected
        again.close()


# --- from outside -----------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def both(kinds: tuple[str, ...], more: str = "") -> Iterator[list[Member]]:
    """Two hubs, which are a cluster, and two leaf nodes or three, which are one: by turns of one hub and the other.
    `more` is said of the hubs' cluster."""
    ports = [free_port(), free_port()]
    with contextlib.ExitStack() as stack:
        members: list[Member] = []
        for number, kind in enumerate(kinds):
            first = members[:1] if number < 2 else members[2:3]
            name, routes = f"server{number}", "".join(f'"{one.route_url}"' for one in first)
            text = MEMBER.replace("cluster {", "cluster { " + more) if number < 2 else EDGE
            conf = text % {"name": name, "leaf": ports[number % 2], "routes": routes}
            members.append(stack.enter_context(configured(kind, conf)))
        yield members


MIXTURES = mixtures(
    (OURS, OURS_3, NEW_REAL, NEW_REAL, NEW_REAL),
    (OURS_3, NEW_REAL, OURS, NEW_REAL),
    (NEW_REAL, OURS, OURS_3, OURS),
)
MORE = mixtures(
    (OURS_3, OURS_3, OURS, OURS_3, OURS),
    (NEW_REAL, NEW_REAL, OURS, OURS_3),
    (OURS, OLD_REAL, NEW_REAL, NEW_REAL),
    (OLD_REAL, OURS_3, OLD_REAL, OURS),
    (NEW_REAL, OLD_REAL, NEW_REAL, NEW_REAL),
    long=True,
)


@pytest.fixture(params=[*MIXTURES, *MORE], scope="module")
def servers(request: pytest.FixtureRequest) -> Iterator[list[Member]]:
    with both(request.param) as members:
        yield members


def clients_of(members: list[Member], said: bytes = b"") -> list[Wire]:
    wires = [client(member, said) for member in members]
    joined(*wires)
    return wires


def forget(wires: list[Wire]) -> None:
    for wire in wires:
        wire.heard.data, wire.asked = b"", 0
        wire.socket.settimeout(TIMEOUT_S)


def test_everybody_has_each_message_once(servers: list[Member]) -> None:
    wires = clients_of(servers, b"SUB news.* 1\r\n")
    said = [publish(wire, b"news.now", number) for number, wire in enumerate(wires)]
    settled(servers, wires, len(wires) ** 2 * MESSAGES)
    for wire in wires:
        assert Counter(bodies(wire)) == Counter(body for each in said for body in each)
        for number, each in enumerate(said):
            assert [body for body in bodies(wire) if body.startswith(b"%d-" % number)] == each
        wire.close()


def test_of_a_group_one_has_each_message_wherever_its_members_are(servers: list[Member]) -> None:
    wires = clients_of(servers)
    count = len(wires)
    # Everywhere; at the leaf nodes; at the last of these; at a hub.
    for number, places in enumerate((range(count), range(2, count), [count - 1], [1])):
        subject = b"work.%d" % number
        for place in places:
            wires[place].send(b"SUB %s q %d\r\n" % (subject, 100 + number))
            wires[place].barrier()
        until_reached(wires, wires, subject)
        said = [publish(wire, subject, place) for place, wire in enumerate(wires)]
        settled(servers, wires, count * MESSAGES)
        heard = Counter(body for wire in wires for body in bodies(wire) if body != PROBE)  # one may come late
        assert heard == Counter(body for each in said for body in each)
        forget(wires)
    for wire in wires:
        wire.close()


def until_reached(talkers: list[Wire], listeners: list[Wire], subject: bytes) -> None:
    """What each of those publishes is heard by one of these; and nothing that was tried comes later."""
    everybody = list({id(wire): wire for wire in (*talkers, *listeners)}.values())
    for talker in talkers:
        forget(everybody)

        def is_heard(talker: Wire = talker) -> bool:
            talker.send(b"PUB %s 5\r\n%s\r\n" % (subject, PROBE))
            for wire in everybody:
                wire.barrier()
            return any(PROBE in bodies(wire) for wire in listeners)

        wait_until(is_heard, "it is reached")
    wait_until(lambda: not any_comes(everybody), "nothing comes")
    forget(everybody)


def any_comes(wires: list[Wire]) -> bool:
    before = [len(bodies(wire)) for wire in wires]
    for _ in range(3):
        for wire in wires:
            wire.barrier()
    return before != [len(bodies(wire)) for wire in wires]


def body_comes(wire: Wire, body: bytes) -> None:
    def has_come() -> bool:
        wire.barrier()
        return body in bodies(wire)

    wait_until(has_come, f"{body!r} comes")


def test_a_request_has_one_answer(servers: list[Member]) -> None:
    wires = clients_of(servers)
    for turn, asked in enumerate(wires):
        service = b"help.%d" % turn  # that the one before is gone some servers may not have heard
        asked.send(b"SUB %s svc 9\r\n" % service)
        asked.barrier()
        for number, asker in enumerate(wires):
            until_reached([asker], [asked], service)
            asker.send(b"SUB _I.%d.* 8\r\nPUB %s _I.%d.x 1\r\n!\r\n" % (number, service, number))
            asker.barrier()
            body_comes(asked, b"!")
            asked.send(b"PUB _I.%d.x 6\r\nanswer\r\n" % number)
            asked.barrier()
            body_comes(asker, b"answer")
            assert bodies(asker).count(b"answer") == 1 and bodies(asked).count(b"!") == 1
            asker.send(b"UNSUB 8\r\n")
            asker.barrier()
        asked.send(b"UNSUB 9\r\n")
        asked.barrier()
    for wire in wires:
        wire.close()


@pytest.mark.parametrize("more", ['accounts: ["$G"],', "compression: s2_fast,", "pool_size: -1,"])
@pytest.mark.parametrize("kinds", mixtures((NEW_REAL, OURS_3, OURS, NEW_REAL)))
def test_each_message_comes_once_whatever_routes_are_like(kinds: tuple[str, ...], more: str) -> None:
    with both(kinds, more) as members:
        wires = clients_of(members, b"SUB news 1\r\n")
        said = [publish(wire, b"news", number) for number, wire in enumerate(wires)]
        settled(members, wires, len(wires) ** 2 * MESSAGES)
        for wire in wires:
            assert Counter(bodies(wire)) == Counter(body for each in said for body in each)
            wire.close()


@pytest.mark.long
@pytest.mark.parametrize(
    "kinds", mixtures((OURS, OURS_3, NEW_REAL, NEW_REAL), (NEW_REAL, OURS, OURS_3, OURS), (OURS, OURS, OURS, OURS))
)
@pytest.mark.parametrize("victim", [1, 2], ids=["a hub", "a leaf node"])
def test_each_message_comes_once_when_one_was_killed_and_is_back(kinds: tuple[str, ...], victim: int) -> None:
    with both(kinds) as members:
        wires = clients_of(members, b"SUB news 1\r\n")
        wires[victim].close()
        members[victim].stop(signal.SIGKILL)
        left = [wire for number, wire in enumerate(wires) if number != victim]
        publish(left[0], b"news", 7)
        members[victim].start()
        members[victim].wait()
        wires[victim] = client(members[victim], b"SUB news 1\r\n")
        joined(*wires)
        forget(wires)
        said = [publish(wire, b"news", number) for number, wire in enumerate(wires)]
        settled(members, wires, len(wires) ** 2 * MESSAGES)
        for wire in wires:
            assert Counter(bodies(wire)) == Counter(body for each in said for body in each)
            wire.close()
