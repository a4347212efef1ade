"""What servers of a cluster say to each other, to the byte: ours as the real ones, and with a peer of long ago."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.nats.clusters import NEW_REAL, OLD_REAL, OURS, OURS_3, Member, bodies, cluster, mixtures, settled
from tests.nats.route_wire import CONNECT, INFO, RouteWire, line

UNKNOWN = b"-ERR 'Unknown Protocol Operation'"

# What a server says to a line, and whether it closes then.
LINES: dict[bytes, tuple[bytes, bool]] = {
    b"RS+ $G\r\n": (b"", True),
    b"RS+ $G a b\r\n": (b"", True),
    b"RS+ $G a q x\r\n": (b"", False),
    b"RS+ $G a q 0\r\n": (b"", False),
    b"RS+ $G a..b\r\n": (b"-ERR 'Invalid Subscription'", False),
    b"RS+ $G a q 1 2\r\n": (b"", True),
    b"RS+ NOBODY a\r\n": (b"", False),
    b"RS- $G a\r\n": (b"", False),
    b"RS- $G\r\n": (b"", True),
    b"RS- $G a b c\r\n": (b"", True),
    b"RMSG $G a\r\n": (b"", True),
    b"RMSG $G a x\r\n": (b"", True),
    b"RMSG $G a 3\r\nxyzz\r\n": (UNKNOWN, True),
    b"RMSG $G a x r 3\r\nxyz\r\n": (b"", True),
    b"RMSG $G a ++ r q 3\r\nxyz\r\n": (b"", True),
    b"RMSG NOBODY a 3\r\nxyz\r\n": (b"", False),
    b"HMSG $G a 3\r\nxyz\r\n": (b"", True),
    b"HMSG $G a 16 15\r\nNATS/1.0\r\n\r\nxyz\r\n": (b"", True),
    b"LS+ o $G a\r\n": (b"", False),
    b"LS+ $G a\r\n": (b"", True),
    b"LS+ o $G a q 2\r\n": (b"", False),
    b"LS- o $G a\r\n": (b"", False),
    b"LS- $G a\r\n": (b"", False),
    b"LMSG o $G a 3\r\nxyz\r\n": (b"", True),
    b"SUB a 1\r\n": (b"", False),
    b"PUB a 3\r\nxyz\r\n": (b"", False),
    b"PUB a r 3\r\nxyz\r\n": (b"", False),
    b"PUB a\r\n": (b"", True),
    b"PUB a r q 3\r\nxyz\r\n": (b"", True),
    b"HPUB a 12 15\r\nNATS/1.0\r\n\r\nxyz\r\n": (b"", False),
    b"UNSUB 1\r\n": (b"", True),
    b"A+ x\r\n": (b"", False),
    b"MSG a 1 3\r\nxyz\r\n": (UNKNOWN, True),
    b"FOO\r\n": (UNKNOWN, True),
    b"RSX\r\n": (UNKNOWN, True),
    b"RS+\r\n": (UNKNOWN, True),
    b"+OK\r\n": (b"", False),
    b"-ERR 'x'\r\n": (b"", True),
    b"-ERR\r\n": (UNKNOWN, True),
    b"INFO {\r\n": (b"", True),
    b"CONNECT {\r\n": (b"", True),
    b"rs+ $G a\r\n": (b"", False),
    b"RS+\t$G\ta\n": (b"", False),
    b"RS+ $G %s\r\n" % (b"a" * 5000): (b"", False),
    b"RS+ $G %s\r\n" % (b"a" * 70000): (b"-ERR 'maximum control line exceeded'", True),
    b"PONG\r\n": (b"", False),
    b"PINGx\r\n": (b"", False),
    b"\r\n": (UNKNOWN, True),
    b"GET / HTTP/1.0\r\n\r\n": (UNKNOWN, True),
}  # fmt: skip
# What clients with SUB a 1 and SUB a q 2 hear of a message.
MESSAGES: dict[bytes, bytes] = {
    b"RMSG $G a 3\r\nxyz\r\n": b"MSG a 1 3\r\nxyz\r\n",
    b"RMSG $G a 003\r\nxyz\r\n": b"MSG a 1 003\r\nxyz\r\n",
    b"RMSG $G a r 3\r\nxyz\r\n": b"MSG a 1 r 3\r\nxyz\r\n",
    b"RMSG $G a + r 3\r\nxyz\r\n": b"MSG a 1 r 3\r\nxyz\r\n",
    b"RMSG $G a + r q 3\r\nxyz\r\n": b"MSG a 1 r 3\r\nxyz\r\nMSG a 2 r 3\r\nxyz\r\n",
    b"RMSG $G a | q 3\r\nxyz\r\n": b"MSG a 1 3\r\nxyz\r\nMSG a 2 3\r\nxyz\r\n",
    b"RMSG $G a | other 3\r\nxyz\r\n": b"MSG a 1 3\r\nxyz\r\n",
    b"RMSG $G a | 3\r\nxyz\r\n": b"MSG a 1 | 3\r\nxyz\r\n",
    b"rmsg\t$G a 3\r\nxyz\r\n": b"MSG a 1 3\r\nxyz\r\n",
    b"HMSG $G a 12 15\r\nNATS/1.0\r\n\r\nxyz\r\n": b"HMSG a 1 12 15\r\nNATS/1.0\r\n\r\nxyz\r\n",
    b"HMSG $G a | q 12 12\r\nNATS/1.0\r\n\r\n\r\n": (
        b"HMSG a 1 12 12\r\nNATS/1.0\r\n\r\n\r\nHMSG a 2 12 12\r\nNATS/1.0\r\n\r\n\r\n"
    ),
    b"LMSG o $G a 12 15\r\nNATS/1.0\r\n\r\nxyz\r\n": b"HMSG a 1 12 15\r\nNATS/1.0\r\n\r\nxyz\r\n",
    b"LMSG o $G a 0 3\r\nxyz\r\n": b"MSG a 1 3\r\nxyz\r\n",
    b"RMSG NOBODY a 3\r\nxyz\r\n": b"",
}


@pytest.fixture(params=mixtures((NEW_REAL,), (OURS,), (OURS_3,)), scope="module")
def member(request: pytest.FixtureRequest) -> Iterator[Member]:
    with cluster(request.param) as (member,):
        yield member


@pytest.mark.parametrize("said", LINES, ids=lambda said: repr(said[:40]))
def test_a_line_is_answered_as_a_real_server_does(member: Member, said: bytes) -> None:
    wire = RouteWire.joined(member.route_port)
    wire.send(said)
    heard = wire.barrier()
    assert (b"".join(heard), wire.closed) == LINES[said]
    wire.close()


@pytest.mark.parametrize("said", MESSAGES, ids=lambda said: repr(said[:40]))
def test_a_message_reaches_those_that_it_is_for(member: Member, said: bytes) -> None:
    client = member.client(b"SUB a 1\r\nSUB a q 2\r\n")
    client.heard.data = b""
    wire = RouteWire.joined(member.route_port)
    wire.send(said)
    wire.barrier()
    client.asked = 0
    client.barrier()
    assert client.heard.data.replace(b"PONG\r\n", b"") == MESSAGES[said]
    wire.close()
    client.close()


GREETINGS: dict[str, tuple[dict[str, Any], dict[str, Any], bytes]] = {
    "another cluster": (
        {"cluster": "abc"}, {}, b'-ERR \'Rejecting connection, cluster name "abc" does not match "xyz"\'\r\n',
    ),
    "another cluster, said by INFO alone": ({}, {"cluster": "abc"}, b""),
    "a client": ({"lang": "go"}, {}, b"-ERR 'attempted to connect to route port'\r\n"),
    "a gateway": ({"gateway": "A"}, {}, b"-ERR 'Rejecting connection from gateway \"A\" on the Route port'\r\n"),
    "a place beyond the pool": (
        {}, {"route_pool_size": 3, "route_pool_idx": 5}, b"-ERR 'Invalid route pool index: 5 - pool size is 3'\r\n",
    ),
    "an account's own connection, without a pool": (
        {}, {"route_account": "$G"},
        b"-ERR 'Not possible to have a dedicated route for account \"$G\" between those servers'\r\n",
    ),
    "an account that has no connection of its own": (
        {}, {"route_account": "$G", "route_pool_size": 3}, b"-ERR 'No route for account \"$G\"'\r\n",
    ),
}  # fmt: skip


@pytest.mark.parametrize("who", GREETINGS)
def test_who_may_not_join_is_told_why(member: Member, who: str) -> None:
    connect, info, said = GREETINGS[who]
    wire = RouteWire(member.route_port)
    wire.send(line("CONNECT", {**CONNECT, **connect}) + line("INFO", {**INFO, **info}))
    assert wire.rest() == said
    wire.close()


def test_a_server_that_is_this_one_or_has_its_name_is_closed_without_a_word(member: Member) -> None:
    for same in ("server_id", "server_name"):
        wire = RouteWire(member.route_port)
        wire.send(line("CONNECT", CONNECT) + line("INFO", {**INFO, same: wire.info[same]}))
        assert wire.rest() == b""
        wire.close()


def test_a_second_connection_of_a_server_without_a_pool_is_closed(member: Member) -> None:
    first = RouteWire.joined(member.route_port)
    second = RouteWire(member.route_port)
    second.send(line("CONNECT", CONNECT) + line("INFO", {**INFO, "server_id": first.server_id}))
    assert second.rest() == b""
    assert first.barrier() == [] and not first.closed
    first.close()
    second.close()


def test_nothing_is_taken_before_connect(member: Member) -> None:
    wire = RouteWire(member.route_port)
    wire.send(b"PING\r\n")
    assert wire.rest() == b"-ERR 'Authorization Violation'\r\n"
    wire.close()


# --- interest ---------------------------------------------------------------------------------------------------------


def interest(wire: RouteWire) -> list[bytes]:
    """RS+ and RS- of $G that came since the last look."""
    return [said for said in wire.barrier() if re.match(rb"RS[+-] \$G ", said)]


def test_interest_goes_out_with_the_first_and_the_last_and_with_each_member_of_a_group(member: Member) -> None:
    before = member.client(b"SUB early 1\r\nSUB early 2\r\nSUB early.q q 3\r\nSUB early.q q 4\r\n")
    wire = RouteWire.joined(member.route_port)
    assert sorted(said for said in wire.told if b" $G " in said) == [b"RS+ $G early", b"RS+ $G early.q q 2"]
    clients = [member.client() for _ in range(6)]
    for client in clients:
        client.send(b"SUB a.* 1\r\nSUB a.* q 2\r\n")
        client.barrier()
    assert interest(wire) == [b"RS+ $G a.*", *(b"RS+ $G a.* q %d" % n for n in range(1, 7))]
    for client in clients:
        client.send(b"UNSUB 1\r\nUNSUB 2\r\n")
        client.barrier()
    gone = interest(wire)
    assert [said for said in gone if b" q" in said] == [
        *(b"RS+ $G a.* q %d" % n for n in range(5, 0, -1)), b"RS- $G a.* q",
    ]  # fmt: skip
    assert [said for said in gone if b" q" not in said] == [b"RS- $G a.*"]
    before.close()


def test_unsubscribing_after_so_many_is_told_when_they_have_come(member: Member) -> None:
    wire = RouteWire.joined(member.route_port)
    client = member.client(b"SUB m 1\r\nUNSUB 1 2\r\n")
    assert interest(wire) == [b"RS+ $G m"]
    wire.send(b"RMSG $G m 1\r\nx\r\n")
    assert interest(wire) == []
    wire.send(b"RMSG $G m 1\r\ny\r\n")
    settled([member], [client], 2)
    assert interest(wire) == [b"RS- $G m"]
    client.close()
    wire.close()


def test_a_message_goes_once_to_a_server_with_the_groups_it_is_for(member: Member) -> None:
    wire = RouteWire.joined(member.route_port)
    wire.send(b"RS+ $G a.*\r\nRS+ $G a.>\r\nRS+ $G a.b q1 2\r\nRS+ $G a.* q2 1\r\n")
    wire.barrier()
    clients = [member.client() for _ in range(4)]
    for client in clients:
        client.send(b"PUB a.b r 1\r\nx\r\nHPUB a.b 12 13\r\nNATS/1.0\r\n\r\ny\r\nPUB a.c 1\r\nz\r\n")
        client.barrier()
    heard = b"\r\n".join(wire.barrier())
    for said in (
        rb"RMSG \$G a\.b \+ r (q1 q2|q2 q1) 1",
        rb"HMSG \$G a\.b \| (q1 q2|q2 q1) 12 13",
        rb"RMSG \$G a\.c \| q2 1",
    ):
        assert len(re.findall(said, heard)) == len(clients)
    assert heard.count(b"MSG") == 3 * len(clients)
    wire.close()


# --- a server of long ago ---------------------------------------------------------------------------------------------

SEED_INFO = {
    "server_id": "wt0vffeQyoDGMVBC2aKX0b", "version": "2.0.0", "go": "go1.12", "host": "127.0.0.1", "port": 4,
    "auth_required": False, "tls_required": False, "max_payload": 1048576,
}  # fmt: skip
SEED_CONNECT = {"tls_required": False, "name": "wt0vffeQyoDGMVBC2aKX0b"}


def test_a_server_that_knows_no_headers_pools_or_names_of_clusters_is_one_of_it(member: Member) -> None:
    if member.kind == NEW_REAL:
        pytest.skip("a real one of today refuses a server that says no cluster's name")
    wire = RouteWire(member.route_port)
    wire.send(line("CONNECT", SEED_CONNECT) + line("INFO", SEED_INFO))
    wire.send(b"RS+ $G from.clients\r\nRS+ $G from.clients workers 2\r\n")
    wire.barrier()
    client = member.client(b"SUB to.clients 1\r\nPUB from.clients 2\r\nhi\r\n")
    client.send(b"HPUB from.clients 12 14\r\nNATS/1.0\r\n\r\nho\r\n")
    client.barrier()
    assert wire.barrier() == [
        b"RS+ $G to.clients",
        b"RMSG $G from.clients | workers 2", b"hi", b"RMSG $G from.clients | workers 2", b"ho",
    ]  # fmt: skip
    wire.send(b"RMSG $G to.clients answers 5\r\nhello\r\n")
    wire.barrier()
    settled([member], [client], 1)
    assert bodies(client) == [b"hello"]
    client.close()
    wire.close()


# --- what is said of a server -----------------------------------------------------------------------------------------


@pytest.mark.skipif(not mixtures((NEW_REAL,)), reason="no nats-server")
@pytest.mark.parametrize("kinds", mixtures((NEW_REAL, OURS), (OLD_REAL, OURS)))
def test_info_says_what_a_real_one_does(kinds: tuple[str, ...]) -> None:
    said = []
    for kind in kinds:
        with cluster((kind,)) as (member,):
            wire = RouteWire(member.route_port)
            said.append(wire.info)
            wire.close()
    real, ours = said
    # The old one knows neither pools nor compression, and tells leaf nodes apart by half.
    assert set(real) <= set(ours)
    assert set(ours) - set(real) <= {"compression", "route_pool_size", "lnocu", "ln"}
    own = {"server_id", "server_name", "version", "go", "host", "port", "nonce", "connect_urls", "proto", "compression"}
    assert {name: value for name, value in ours.items() if name in real and name not in own} == {
        name: value for name, value in real.items() if name not in own
    }
    assert list(ours) == [name for name in ours if name in real] or set(ours) > set(real)


@pytest.mark.parametrize("kinds", mixtures((OURS,), (OURS_3,)))
def test_a_server_that_comes_is_told_a_great_deal_in_pieces_and_knows_the_truth_in_the_end(
    kinds: tuple[str], count: int = 12_000
) -> None:
    subject = b"%%d.%s" % (b"x" * 500)
    with cluster(kinds) as (member,):
        client = member.client()
        client.socket.settimeout(30)
        client.send(b"".join(b"SUB %s %d\r\n" % (subject % n, n) for n in range(count)))
        client.barrier()
        wire = RouteWire.joined(member.route_port)
        # It does not listen yet, and others need not wait for that.
        client.send(b"".join(b"UNSUB %d\r\n" % n for n in range(0, count, 3)))
        client.send(b"".join(b"SUB new.%d %d\r\n" % (n, count + n) for n in range(count // 3)))
        client.barrier()
        wanted = {subject % n for n in range(count) if n % 3} | {b"new.%d" % n for n in range(count // 3)}
        known: set[bytes] = set()
        heard, rest = wire.told, wire.said
        while heard or known != wanted:
            for said in heard:
                if said.startswith((b"RS+ $G", b"RS- $G")):
                    (known.add if said[2:3] == b"+" else known.discard)(said.split()[2])
            if known == wanted:
                break
            *heard, rest = (rest + wire.socket.recv(1 << 20)).split(b"\r\n")
        wire.close()
        client.close()
