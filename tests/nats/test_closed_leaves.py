"""Leaf nodes and hubs that have gone, as /connz?state=closed shows them: by ours as by a real server."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.nats.clusters import NEW_REAL, OURS, OURS_3, Member, configured, mixtures
from tests.nats.hub_wire import HubPort
from tests.nats.leaf_wire import LeafWire
from tests.nats.test_leaves import ask
from tests.nats.wire import Wire
from tests.servers import free_port, wait_until

HUB = """
listen: "127.0.0.1:$PORT"
server_name: hub
http: "127.0.0.1:%d"
leafnodes {
  listen: "127.0.0.1:$ROUTE_PORT"
  compression: off
  authorization {
    timeout: 2
    users = [ {user: a, password: a, account: A}, {user: g, password: g} ]
  }
}
accounts { A {}, SYS { users = [ {user: sys, password: sys} ] } }
system_account: SYS
"""
SPOKE = """
listen: "127.0.0.1:$PORT"
http: "127.0.0.1:%d"
accounts { A {} }
leafnodes { reconnect: 1, remotes [ { url: "nats-leaf://127.0.0.1:%d", account: A } ] }
"""
KINDS = [parameter for kind in (OURS, OURS_3, NEW_REAL) for parameter in mixtures((kind,))]
# What a leaf node of account A says, and why it is disconnected then.
SAID = {
    b"XYZ\r\n": "Protocol Violation",
    b"LMSG ok\r\n": "Protocol Violation",
    b"LMSG ok 3\r\nxyzz\r\n": "Protocol Violation",
    b"-ERR 'Loop detected for leafnode account=A'\r\n": "Protocol Violation",
}
# What is in its CONNECT.
CONNECTS: dict[str, dict[str, object]] = {
    "Incorrect Port": {"lang": "go"},
    "Protocol Violation": {"cluster": "a b"},
    "Wrong Gateway": {"gateway": "g"},
}


class Gone:
    """Looks for leaf nodes that have gone since it last looked. The one at port `apart` may go at any time."""

    def __init__(self, port: int, apart: int = 0) -> None:
        self._port = port
        self._apart = apart
        self._seen = {row["cid"] for row in self._rows()}

    def _rows(self) -> list[dict[str, Any]]:
        rows = ask(self._port, "/connz?state=closed&auth=1&subs=detail")["connections"]
        return [row for row in rows if row["kind"] == "Leafnode"]

    def next(self, *, apart: bool = False) -> dict[str, Any]:
        def fresh() -> list[dict[str, Any]]:
            rows = [row for row in self._rows() if row["cid"] not in self._seen]
            return [row for row in rows if (row["port"] == self._apart) == apart]

        wait_until(lambda: len(fresh()) == 1, "one has gone")
        (row,) = fresh()
        self._seen.add(row["cid"])
        return row

    def first(self, reason: str) -> dict[str, Any]:
        """The first one that has gone for this reason. A connection that no hub has greeted in time goes as well."""

        def fresh() -> list[dict[str, Any]]:
            rows = [row for row in self._rows() if row["cid"] not in self._seen and row["reason"] == reason]
            return sorted(rows, key=lambda row: str(row["stop"]))

        wait_until(lambda: bool(fresh()), "one has gone")
        row = fresh()[0]
        self._seen.add(row["cid"])
        return row


@pytest.mark.parametrize("kinds", KINDS)
def test_a_leaf_node_that_has_gone_is_shown_with_the_reason(kinds: tuple[str]) -> None:
    port = free_port()
    with configured(kinds[0], HUB % port) as hub:
        stranger = LeafWire(hub.route_port)  # which has to log in in time
        gone = Gone(port, apart=stranger.socket.getsockname()[1])

        def ends(wire: LeafWire, reason: str) -> dict[str, Any]:
            row = gone.next(apart=wire is stranger)
            wire.close()
            assert row["reason"] == reason, row
            return row

        def one_that(says: Callable[[LeafWire], bytes], reason: str) -> None:
            wire = LeafWire.joining(hub.route_port)
            wire.send(says(wire))
            row = ends(wire, reason)
            assert (row["authorized_user"], row["account"], row["name_tag"]) == ("a", "A", "A")

        seen = LeafWire.joining(hub.route_port, "g", name="seen", cluster="seen")
        seen.wants(b"LS+ y\r\nLS+ z q 2\r\n")
        seen.send(b"LMSG x 2\r\nhi\r\n")
        seen.barrier()
        seen.close()
        row = ends(seen, "Client Closed")
        assert (row["name"], row["version"], row["authorized_user"]) == ("seen", "2.15.2", "g")
        assert not {"account", "name_tag", "type"} & set(row) and row["start"] < row["stop"]
        assert [row["in_msgs"], row["in_bytes"], row["out_msgs"], row["subscriptions"]] == [1, 2, 0, 2]
        subs = [(one["subject"], one["sid"], one["cid"]) for one in row["subscriptions_list_detail"]]
        assert sorted(subs) == [("y", "y", row["cid"]), ("z", "z q", row["cid"])]
        row = ends(LeafWire.joining(hub.route_port, "nobody"), "Authentication Failure")
        assert row["authorized_user"] == "nobody" and not {"account", "name_tag"} & set(row)
        for said, reason in SAID.items():
            one_that(lambda _, said=said: said, reason)  # type: ignore[misc]
        one_that(lambda wire: b"LS+ " + wire.loop + b"\r\n", "Protocol Violation")
        for reason, connect in CONNECTS.items():
            ends(LeafWire.joining(hub.route_port, **connect), reason)
        twins = [LeafWire.joining(hub.route_port, name="twin", cluster="twin") for _ in range(2)]
        ends(twins[0], "Duplicate Remote LeafNode Connection")
        kick(hub, port)
        assert ends(twins[1], "Kicked")["name"] == "twin"
        assert "authorized_user" not in ends(stranger, "Authentication Timeout")
        found = ask(port, "/connz?state=closed&acc=A")
        assert found["total"] == found["num_connections"] == len(SAID) + len(CONNECTS) + 3
        assert ask(port, "/connz?state=closed&user=g")["num_connections"] == 1


def kick(hub: Member, port: int) -> None:
    """Kicks the one leaf node."""
    (cid,) = [row["cid"] for row in ask(port, "/connz")["connections"] if row["kind"] == "Leafnode"]
    asker = Wire(hub.port)
    asker.send(b'CONNECT {"user":"sys","pass":"sys"}\r\n')
    asker.barrier()
    server = json.loads(asker.info[len("INFO ") :])["server_id"]
    asked = b'{"cid":%d}' % cid
    asker.send(b"PUB $SYS.REQ.SERVER.%b.KICK none %d\r\n%b\r\n" % (server.encode(), len(asked), asked))
    asker.barrier()
    asker.close()


@pytest.mark.parametrize("kinds", KINDS)
def test_a_hub_that_has_gone_is_shown_with_the_reason(kinds: tuple[str]) -> None:
    port, hub = free_port(), HubPort()
    try:
        with configured(kinds[0], SPOKE % (port, hub.port)):
            first = hub.joins()
            gone = Gone(port)
            first.send(b"LS+ y\r\n")
            first.barrier()
            first.close()
            row = gone.first("Client Closed")
            assert (row["ip"], row["port"]) == ("127.0.0.1", hub.port)
            assert (row["account"], row["name_tag"], row["subscriptions"]) == ("A", "A", 1)
            assert [one["sid"] for one in row["subscriptions_list_detail"]] == ["y"]
            assert not {"name", "version", "authorized_user"} & set(row)
            second = hub.joins()
            second.send(b"LS+ " + second.loop + b"\r\n")
            gone.first("Protocol Violation")
            second.close()
    finally:
        hub.close()
