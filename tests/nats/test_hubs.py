"""Ours as a leaf node: what becomes of it when its hub, or one of its own processes, goes; what is seen of it; what may
be changed while it runs."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mq_shards.acceptor.protocols.nats.conf_keys import read_conf

from tests.nats.clusters import NEW_REAL, OLD_REAL, OURS, OURS_3, Member, configured, mixtures
from tests.nats.hub_wire import HubPort
from tests.nats.operators import A, accounts, conf
from tests.nats.test_cluster_topics import Keeper
from tests.nats.test_leaf_logins import ended
from tests.nats.test_leaves import HUB, LEAF, ask, client, joined, leaf_of
from tests.nats.test_mesh import all_children
from tests.nats.wire import Wire
from tests.servers import comm_of, free_port, wait_until


@contextlib.contextmanager
def hub_of(kind: str) -> Iterator[Member]:
    with configured(kind, HUB % {"http": free_port()}) as hub:
        yield hub


def process_of(member: Member, name: str) -> int:
    assert member.process is not None
    return next(pid for pid in all_children(member.process.pid) if comm_of(pid) == name)


@pytest.mark.parametrize("kinds", [*mixtures((NEW_REAL, OURS_3)), *mixtures((OURS_3, OURS), long=True)])
def test_a_hub_that_was_killed_has_its_leaf_node_again(kinds: tuple[str, str]) -> None:
    with hub_of(kinds[0]) as hub, leaf_of(hub.route_port, kinds[1], "leafy") as leaf:
        far = [client(leaf, b"SUB x 1\r\n") for _ in range(3)]
        near = client(hub, b"SUB x 1\r\n", "ca")
        joined(near, *far)
        hub.stop(signal.SIGKILL)
        near.close()
        # Those of the leaf node go on meanwhile.
        joined(*far)
        hub.start()
        hub.wait()
        again = client(hub, b"SUB x 1\r\n", "ca")
        joined(again, *far)
        for wire in (again, *far):
            wire.close()


@pytest.mark.parametrize("name", ["mq-acceptor-0", pytest.param("mq-gateway", marks=pytest.mark.long)])
@pytest.mark.parametrize("kinds", mixtures((NEW_REAL, OURS_3)))
def test_a_leaf_node_one_of_whose_processes_dies_is_one_again(kinds: tuple[str, str], name: str) -> None:
    # Its monitoring is the gateway's.
    port = free_port()
    text = LEAF % {"name": "leafy", "user": "a", "port": "%(port)s"} + f'http: "127.0.0.1:{port}"\n'
    with hub_of(kinds[0]) as hub, configured(kinds[1], text % {"port": hub.route_port}) as leaf:
        far = [client(leaf) for _ in range(6)]
        near = client(hub, b"", "ca")
        joined(near, *far)
        ask(port, "/varz")
        victim = process_of(leaf, name)
        os.kill(victim, signal.SIGKILL)
        wait_until(lambda: is_replaced(leaf, name, victim), "there is another")
        left = [wire for wire in far if not ended(wire)]
        assert len(left) == len(far) or name == "mq-acceptor-0"
        joined(near, client(leaf), *left)
        for wire in (near, *left):
            wire.close()


def is_replaced(member: Member, name: str, but: int) -> bool:
    assert member.process is not None
    return any(comm_of(pid) == name and pid != but for pid in all_children(member.process.pid))


@pytest.mark.parametrize("kinds", mixtures((NEW_REAL, OURS_3)))
def test_it_is_shown_on_both_sides(kinds: tuple[str, str]) -> None:
    ports = free_port(), free_port()
    with configured(kinds[0], HUB % {"http": ports[0]}) as hub:
        text = LEAF % {"name": "leafy", "user": "a", "port": hub.route_port} + f'http: "127.0.0.1:{ports[1]}"\n'
        with configured(kinds[1], text) as leaf:
            wait_until(lambda: all(leaf_cid(port) for port in ports), "each has the other as its first connection")
            near, far = client(hub, b"SUB y 1\r\n", "ca"), client(leaf, b"SUB x 1\r\n")
            joined(near, far)
            wait_until(lambda: counts_meet(ports), "both sides have counted the same messages")
            (row,), (other,) = (ask(port, "/leafz?subs=1")["leafs"] for port in ports)
            assert (row["name"], row["is_spoke"], row["account"]) == ("leafy", False, "A")
            assert (other["name"], other["is_spoke"], other["account"]) == ("hub", True, "$G")
            assert (other["ip"], other["port"]) == ("127.0.0.1", hub.route_port)
            # What the other says for itself is no one's of its clients.
            assert "x" in row["subscriptions_list"] and "y" in other["subscriptions_list"]
            varz = ask(ports[1], "/varz")
            assert varz["leafnodes"] == 1 and "name" not in varz["cluster"]
            # A leaf node without a cluster tells its clients its own name as that of one, once all acceptors know it.
            wait_until(lambda: cluster_named_at(leaf) == "leafy", "its clients are told")
            assert cluster_named_at(hub) is None
            assert varz["leaf"]["remotes"] == [{"local_account": "$G", "urls": [f"127.0.0.1:{hub.route_port}"]}]
            (account,) = [one for one in ask(ports[1], "/accstatz")["account_statz"] if one["acc"] == "$G"]
            assert account["leafnodes"] == 1
            one, other = (connections(port, port == ports[0]) for port in ports)
            assert (one["name"], one["version"], one["authorized_user"], one["account"]) == (
                "leafy", "2.15.2", "a", "A",
            )  # fmt: skip
            assert not {"name", "version", "authorized_user", "account"} & set(other)
            for row, subject in ((one, "x"), (other, "y")):
                assert row["subscriptions"] == len(row["subscriptions_list_detail"])
                (sub,) = [sub for sub in row["subscriptions_list_detail"] if sub["subject"] == subject]
                assert (sub["sid"], sub["cid"]) == (subject, row["cid"])
            for wire in (near, far):
                wire.close()


def counts_meet(ports: tuple[int, int]) -> bool:
    (one,), (other,) = (ask(port, "/leafz")["leafs"] for port in ports)
    return one["in_msgs"] == other["out_msgs"] > 0 and one["out_msgs"] == other["in_msgs"] > 0


def cluster_named_at(member: Member) -> object:
    with contextlib.closing(Wire(member.port)) as wire:
        return json.loads(wire.info[len(b"INFO ") :]).get("cluster")


def connections(port: int, is_hub: bool) -> dict[str, Any]:
    """The leaf node or the hub among a server's connections."""
    page = ask(port, "/connz?subs=detail&auth=1")
    assert page["total"] == page["num_connections"] == 2
    assert len({row["cid"] for row in page["connections"]}) == 2
    (row,) = [row for row in page["connections"] if row["kind"] == "Leafnode"]
    assert "type" not in row and row["ip"] == "127.0.0.1" and row["rtt"]
    assert row["in_msgs"] > 0 and row["out_bytes"] > 0
    account = "A" if is_hub else "$G"
    for query in (f"cid={row['cid']}", f"acc={account}&filter_subject={'x' if is_hub else 'y'}", "sort=start&limit=1"):
        (found,) = [one for one in ask(port, f"/connz?{query}")["connections"] if one["kind"] == "Leafnode"]
        assert found["cid"] == row["cid"]
    return row


@pytest.mark.parametrize("kinds", mixtures((NEW_REAL, OURS), (OURS_3, NEW_REAL)))
def test_a_leaf_node_and_a_hub_may_be_kicked(kinds: tuple[str, str]) -> None:
    ports = free_port(), free_port()
    system = "accounts { SYS { users = [ {user: sys, password: sys} ] } }\nsystem_account: SYS\n"
    hub_text = HUB[: HUB.index("accounts {")] + system.replace("accounts {", "accounts { A {},")
    with configured(kinds[0], hub_text % {"http": ports[0]}) as hub:
        text = LEAF % {"name": "leafy", "user": "a", "port": hub.route_port} + f'http: "127.0.0.1:{ports[1]}"\n'
        with configured(kinds[1], text + system) as leaf:
            for member, port in zip((hub, leaf), ports, strict=True):
                wait_until(lambda port=port: leaf_cid(port), "they know each other")
                cid, asker = leaf_cid(port), client(member, b"", "sys")
                server = json.loads(asker.info[len("INFO ") :])["server_id"]
                asked = b'{"cid":%d}' % cid
                asker.send(b"PUB $SYS.REQ.SERVER.%b.KICK none %d\r\n%b\r\n" % (server.encode(), len(asked), asked))
                wait_until(lambda port=port, cid=cid: leaf_cid(port) not in (0, cid), "it has come again")
                asker.close()


def leaf_cid(port: int) -> int:
    """The id of the one leaf node or hub; 0: there is none."""
    rows = ask(port, "/connz")["connections"]
    return next((row["cid"] for row in rows if row["kind"] == "Leafnode"), 0)


def reload(member: Member, text: str) -> None:
    member.conf_path.write_text(text)
    assert member.process is not None
    member.process.send_signal(signal.SIGHUP)


def test_hubs_may_be_added_and_taken_away_while_it_runs() -> None:
    one, other = HubPort(), HubPort()
    try:
        with configured(OURS_3, 'listen: "127.0.0.1:$PORT"\nserver_name: leafy\n') as leaf:
            plain = leaf.conf_path.read_text()
            clients = [client(leaf, b"SUB x 1\r\n") for _ in range(3)]
            rows = [f'{{ url: "nats-leaf://127.0.0.1:{port.port}" }}' for port in (one, other)]
            reload(leaf, f"{plain}leafnodes {{ remotes [ {rows[0]} ] }}\n")
            first = one.joins()
            assert b"LS+ x" in first.told
            reload(leaf, f"{plain}leafnodes {{ remotes [ {rows[0]}, {rows[1]} ] }}\n")
            second = other.joins()
            assert b"LS+ x" in second.told
            # Who is there still is the same connection.
            assert not first.closed and first.barrier() == []
            reload(leaf, f"{plain}leafnodes {{ remotes [ {rows[1]} ] }}\n")
            first.rest()
            assert second.barrier() == [] and not second.closed
            changed = rows[1].replace("}", ", deny_imports: x }")
            reload(leaf, f"{plain}leafnodes {{ remotes [ {changed} ] }}\n")
            second.rest()
            third = other.joins()
            assert third.said_who["deny_pub"] == ["x"] and b"LS+ x" not in third.told
            for wire in (*clients, third):
                wire.close()
    finally:
        one.close()
        other.close()


@pytest.mark.parametrize("kinds", [*mixtures((NEW_REAL, OURS)), *mixtures((OURS, OURS_3), long=True)])
def test_users_of_accounts_are_its_leaf_nodes_by_their_credentials(kinds: tuple[str, str], tmp_path: Path) -> None:
    key, jwt = A.user("leaf")
    path = tmp_path / "leaf.creds"
    path.write_text(
        f"-----BEGIN NATS USER JWT-----\n{jwt}\n------END NATS USER JWT------\n\n"
        f"-----BEGIN USER NKEY SEED-----\n{key.seed}\n------END USER NKEY SEED------\n"
    )
    listen = 'listen: "127.0.0.1:$PORT"\n'
    text = conf(f'{listen}server_name: hub\nleafnodes {{ listen: "127.0.0.1:$ROUTE_PORT" }}', preload=accounts())
    with configured(kinds[0], text) as hub:
        remote = f'url: "nats-leaf://127.0.0.1:{hub.route_port}", credentials: "{path}"'
        mine = f"{listen}server_name: leafy\nleafnodes {{ remotes [ {{ {remote} }} ] }}\n"
        port = free_port()
        with configured(kinds[1], f'{mine}http: "127.0.0.1:{port}"\n'):
            wait_until(lambda: ask(port, "/leafz")["leafnodes"] == 1, "it is a leaf node")


@pytest.mark.parametrize("kinds", mixtures((OLD_REAL,), long=True))
def test_what_comes_from_a_hub_is_kept_in_topics(kinds: tuple[str]) -> None:
    with hub_of(kinds[0]) as hub:
        keeper = Keeper(OURS_3, hub.directory, (), ())
        keeper.conf = LEAF % {"name": "leafy", "user": "a", "port": hub.route_port}
        keeper.options = (*keeper.options, "--set", "nats.topics=kept.>")
        keeper.start()
        try:
            keeper.wait()
            talker = client(hub, b"", "ca")

            def are_kept() -> bool:
                talker.send(b"PUB kept.a 1\r\n1\r\n")
                talker.barrier()
                return b"1" in keeper.kept("kept.a")

            wait_until(are_kept, "it is kept")
            talker.close()
        finally:
            keeper.stop()


CONFS = {
    'leafnodes { remotes [ {url: "nats-leaf://u:p@h:1"}, {url: "nats-leaf://u:p@h:1"} ] }':
        'duplicate remote urls=["nats-leaf://u:xxxxx@h:1"], account="$G"',
    'leafnodes { remotes [ {url: "nats-leaf://h", account: X} ] }':
        'cannot find local account "X" specified in leafnode remote',
    'leafnodes { remotes [ {url: "nats-leaf://h", nkey: x} ] }': "Remote leafnode nkey is not a valid seed",
    'leafnodes { remotes [ {urls: ["ws://h", "nats-leaf://h"]} ] }':
        "remote leaf node configuration cannot have a mix of websocket and non-websocket urls",
    'leafnodes { remotes [ {url: "nats-leaf://h:0"} ] }': '"nats-leaf://h:0" is not nats-leaf://HOST:PORT',
    'leafnodes { remotes [ {url: "nats-leaf://h", tls: {ca_file: "/none/of/these"}} ] }':
        "leafnodes.remotes: nats.tls-ca-file: /none/of/these: No such file or directory",
    'leafnodes { remotes [ {url: "nats-leaf://h", proxy: {url: "http://p"}} ] }':
        "leafnodes.remotes.proxy is not supported",
    'leafnodes { remotes {} }': "",
}  # fmt: skip


@pytest.mark.parametrize("text", CONFS)
def test_what_is_wrong_of_a_remote_is_an_error_with_its_line(tmp_path: Path, text: str) -> None:
    path = tmp_path / "nats.conf"
    path.write_text(f"\n{text}\n")
    with pytest.raises(ValueError, match=r"nats\.conf:2: ") as error:
        read_conf(str(path))
    assert str(error.value).partition("nats.conf:2: ")[2].startswith(CONFS[text])


MORE = ["hub: true", "jetstream_cluster_migrate: true", "isolate: true"]


@pytest.mark.parametrize("more", MORE)
def test_what_is_not_supported_of_a_remote_is_one_warning(tmp_path: Path, more: str) -> None:
    path = tmp_path / "nats.conf"
    path.write_text(f'leafnodes {{ remotes [ {{ url: "nats-leaf://h", {more} }} ] }}\n')
    found = read_conf(str(path))
    assert len(found.warnings) == 1 and "is not supported: " in found.warnings[0]
    assert len(found.content["leaf"]["remotes"]) == (0 if "hub" in more else 1)


def test_servers_of_a_hub_are_reached_all_by_websockets_or_none(tmp_path: Path) -> None:
    path = tmp_path / "nats.conf"
    path.write_text('leafnodes { remotes [ { urls: ["wss://h/a", "ws://i"], ws_no_masking: true } ] }\n')
    found = read_conf(str(path))
    assert not found.warnings and found.content["leaf"]["remotes"][0]["ws_no_masking"]
    path.write_text('leafnodes { remotes [ { urls: ["wss://h", "nats-leaf://i"] } ] }\n')
    with pytest.raises(ValueError, match="cannot have a mix of websocket and non-websocket urls"):
        read_conf(str(path))
