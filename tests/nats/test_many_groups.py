"""Very many queue groups on one subject: each has a message once, also at another server, whoever that is."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.nats.clusters import NEW_REAL, OURS, OURS_3, cluster, mixtures, settled
from tests.nats.route_wire import RouteWire
from tests.nats.wire import Wire
from tests.servers import wait_until

GROUPS = 3000
MESSAGES = 3
MOST = 1 << 16  # NATS_GROUPS, csrc/acceptor/protocols/nats/nats_pass.h


def sids(wire: Wire) -> Counter[bytes]:
    return Counter(line.split()[2] for line in wire.heard.data.split(b"\r\n") if line.startswith(b"MSG work "))


@pytest.mark.parametrize(
    "kinds", mixtures((OURS, OURS), (OURS_3, OURS_3), (OURS, NEW_REAL), (NEW_REAL, OURS), (NEW_REAL, OURS_3))
)
def test_each_group_at_another_server_has_each_message_once(kinds: tuple[str, str]) -> None:
    with cluster(kinds) as members:
        publisher, listener = (member.client() for member in members)
        said = b"".join(b"SUB work group-%d %d\r\n" % (n, n) for n in range(GROUPS))
        listener.send(said + b"SUB work alone\r\n")
        listener.barrier()

        def is_known() -> bool:
            listener.heard.data, listener.asked = b"", 0
            publisher.send(b"PUB work 1\r\nx\r\n")
            publisher.barrier()
            settled(members, [listener], 0)
            return len(sids(listener)) == GROUPS + 1

        wait_until(is_known, "all groups are known there")
        listener.heard.data, listener.asked = b"", 0
        publisher.send(b"PUB work 1\r\nx\r\n" * MESSAGES)
        publisher.barrier()
        settled(members, [listener], (GROUPS + 1) * MESSAGES)
        assert set(sids(listener).values()) == {MESSAGES} and len(sids(listener)) == GROUPS + 1
        for wire in (publisher, listener):
            wire.close()


def test_a_server_may_name_so_many_groups_and_no_more() -> None:
    with cluster((OURS,)) as (member,):
        listener = member.client(b"SUB work g 1\r\n")
        names = b"".join(b"g%d " % n for n in range(MOST - 1)) + b"g"
        for more, is_heard in ((b"", True), (b" x", False)):
            wire = RouteWire.joined(member.route_port)
            wire.send(b"RMSG $G work | %b%b 1\r\nx\r\n" % (names, more))
            if is_heard:
                wire.barrier()
            else:
                assert wire.rest() == b"-ERR 'maximum control line exceeded'\r\n"
            listener.barrier()
            assert sids(listener) == {b"1": 1}
            wire.close()
        listener.close()
