"""Leaf nodes that come by websocket, and hubs that are reached so: ours and real ones, both ways."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
import signal
import socket
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from mq_shards.acceptor.protocols.nats.websocket_upgrade import GUID

from tests.nats.clusters import NEW_REAL, OURS, OURS_3, Member, bodies, configured, mixtures
from tests.nats.test_leaves import client, joined
from tests.nats.websocket_wire import BINARY, PING, Websocket, frame, request
from tests.nats.wire import Wire
from tests.nsq.certificates import Certificates, make
from tests.servers import children, comm_of, free_port, wait_until

HUB = """
listen: "127.0.0.1:$PORT"
server_name: hub
http: "127.0.0.1:%(http)s"
write_deadline: "1s"
websocket { listen: "127.0.0.1:%(port)s", compression: %(packed)s, %(tls)s }
leafnodes { listen: "127.0.0.1:$ROUTE_PORT" %(leafnodes)s }
"""
LEAF = """
listen: "127.0.0.1:$PORT"
server_name: leafy
leafnodes { remotes [ { url: "%(url)s", ws_compression: %(packed)s, ws_no_masking: %(bare)s %(tls)s } ] }
"""
BIG = b"z" * 300_000


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make(tmp_path_factory.mktemp("certificates"))


def word(said: bool) -> str:
    return "true" if said else "false"


@contextlib.contextmanager
def hub_of(
    kind: str, port: int, *, packed: bool = False, tls: str = "no_tls: true", leafnodes: str = ""
) -> Iterator[Member]:
    text = HUB % {"port": port, "http": free_port(), "packed": word(packed), "tls": tls, "leafnodes": leafnodes}
    with configured(kind, text) as member:
        yield member


@contextlib.contextmanager
def leaf_of(
    kind: str, port: int, *, path: str = "", packed: bool = False, bare: bool = False, tls: str = ""
) -> Iterator[Member]:
    url = f"{'wss' if tls else 'ws'}://127.0.0.1:{port}{path}"
    with configured(kind, LEAF % {"url": url, "packed": word(packed), "bare": word(bare), "tls": tls}) as member:
        yield member


def hear_each_other(members: tuple[Member, Member]) -> None:
    wires = [client(member) for member in members]
    joined(*wires)
    for wire in wires:
        wire.send(b"SUB big 5\r\n")
        wire.barrier()
    joined(*wires)
    for wire in wires:
        wire.send(b"PUB big %d\r\n%s\r\n" % (len(BIG), BIG))

    def have_both() -> bool:
        for wire in wires:
            wire.barrier()
        return all(bodies(wire).count(BIG) == 2 for wire in wires)

    wait_until(have_both, "both have both")
    for wire in wires:
        wire.close()


PAIRS = mixtures((OURS_3, NEW_REAL), (NEW_REAL, OURS))
HOW = [(False, False), (True, False), (False, True)]


@pytest.mark.parametrize(("packed", "bare"), HOW, ids=["masked", "compressed", "unmasked"])
@pytest.mark.parametrize("kinds", PAIRS)
def test_both_sides_hear_each_other(kinds: tuple[str, str], packed: bool, bare: bool) -> None:
    port = free_port()
    with hub_of(kinds[0], port, packed=packed) as hub, leaf_of(kinds[1], port, packed=packed, bare=bare) as leaf:
        hear_each_other((hub, leaf))


@pytest.mark.parametrize("kinds", [*PAIRS, *mixtures((OURS, OURS_3))])
def test_both_sides_hear_each_other_encrypted_behind_a_path(kinds: tuple[str, str], certificates: Certificates) -> None:
    port, server = free_port(), certificates.server
    there = f'tls {{ cert_file: "{server.cert}", key_file: "{server.key}" }}'
    here = f', tls {{ ca_file: "{certificates.authority}" }}'
    with hub_of(kinds[0], port, tls=there) as hub, leaf_of(kinds[1], port, path="/to/us", tls=here) as leaf:
        hear_each_other((hub, leaf))


@pytest.mark.parametrize("kinds", [*PAIRS, *mixtures((OURS, OURS_3))])
def test_both_sides_hear_each_other_where_only_other_leaf_nodes_have_to_encrypt(
    kinds: tuple[str, str], certificates: Certificates
) -> None:
    """INFO says to all of them that TLS is required; in a websocket it means nothing."""
    port, server = free_port(), certificates.server
    there = f', tls {{ cert_file: "{server.cert}", key_file: "{server.key}" }}'
    with hub_of(kinds[0], port, leafnodes=there) as hub, leaf_of(kinds[1], port) as leaf:
        hear_each_other((hub, leaf))


def info_of(wire: Websocket) -> dict[str, Any]:
    verb, _, said = wire.until(b"\r\n").partition(b" ")
    assert verb == b"INFO"
    found: dict[str, Any] = json.loads(said)
    return found


@pytest.mark.parametrize("kinds", mixtures((OURS,), (OURS_3,), (NEW_REAL,)))
def test_what_is_said_to_it_is_what_other_leaf_nodes_are_told(kinds: tuple[str]) -> None:
    port = free_port()
    with hub_of(kinds[0], port) as hub:
        with Websocket(port, request(path="/x/leafnode")) as by_websocket:
            info = info_of(by_websocket)
            usual = json.loads(Wire(hub.route_port).info[5:])
            changing = ("nonce", "client_id", "compression")
            assert {key: info[key] for key in info if key not in changing} == {
                key: usual[key] for key in usual if key not in changing
            }
            by_websocket.say(b'CONNECT {"name":"raw","version":"2.15.2","remote_account":"$G"}\r\nLS+ news\r\nPING\r\n')
            assert b"LS+ $LDS." in by_websocket.until(b"PONG\r\n")
            talker = client(hub)

            def is_heard() -> bool:
                talker.send(b"PUB news 2\r\nhi\r\n")
                by_websocket.say(b"PING\r\n")
                said = len(by_websocket.stream)
                while b"PONG\r\n" not in by_websocket.stream[said:]:
                    assert by_websocket.hear()
                return b"LMSG news 2\r\nhi\r\n" in by_websocket.stream

            wait_until(is_heard, "it is wanted there")
            rows = monitored(hub, "/leafz")["leafs"]
            assert [row["name"] for row in rows] == ["raw"]
            # It is no client.
            assert monitored(hub, "/varz")["connections"] == 1
            talker.close()
        wait_until(lambda: not monitored(hub, "/leafz")["leafs"], "it is gone")


def monitored(hub: Member, path: str) -> Any:  # noqa: ANN401
    port = hub.conf.partition('http: "127.0.0.1:')[2].partition('"')[0]
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as answer:
        return json.loads(answer.read())


@pytest.mark.parametrize("kinds", mixtures((OURS_3, NEW_REAL)))
def test_one_that_takes_nothing_is_cut_off(kinds: tuple[str, str]) -> None:
    port = free_port()
    with hub_of(kinds[0], port) as hub, leaf_of(kinds[1], port) as leaf:
        wires = client(hub), client(leaf, b"SUB flood 1\r\n")
        joined(*wires)
        assert leaf.process is not None
        processes = [leaf.process.pid, *children(leaf.process.pid)]
        for pid in processes:
            os.kill(pid, signal.SIGSTOP)
        body = bytes(100_000)
        for _ in range(1500):  # 150 MB, more than anybody keeps
            wires[0].send(b"PUB flood %d\r\n%s\r\n" % (len(body), body))
        wires[0].barrier()
        assert not wires[0].heard.closed
        for pid in processes:
            os.kill(pid, signal.SIGCONT)


@pytest.mark.parametrize("kinds", mixtures((OURS_3, NEW_REAL)))
def test_it_comes_back_when_an_acceptor_has_died(kinds: tuple[str, str]) -> None:
    port = free_port()
    with hub_of(kinds[0], port) as hub, leaf_of(kinds[1], port) as leaf:
        hear_each_other((hub, leaf))
        assert hub.process is not None
        for pid in children(hub.process.pid):
            if "acceptor" in comm_of(pid):
                os.kill(pid, signal.SIGKILL)
        wait_until(lambda: hear_again((hub, leaf)), "they hear each other again")


def hear_again(members: tuple[Member, Member]) -> bool:
    try:
        hear_each_other(members)
    except (OSError, AssertionError):
        return False
    return True


def test_monitoring_answers_while_leaf_nodes_go() -> None:
    port = free_port()
    with hub_of(OURS_3, port) as hub:
        for number in range(30):
            with Websocket(port, request(path="/leafnode")) as leaf:
                leaf.say(b'CONNECT {"name":"raw%d","remote_account":"$G"}\r\nLS+ news\r\nPING\r\n' % number)
                leaf.until(b"PONG\r\n")
            for _ in range(6):
                assert len(monitored(hub, "/leafz")["leafs"]) <= number + 1


def test_one_is_served_without_the_acceptor_that_has_accepted_it() -> None:
    """Only the first acceptor has leaf nodes, and nothing of what they send passes through another one."""
    port = free_port()
    with hub_of(OURS_3, port) as hub, contextlib.ExitStack() as stack:
        wires = []
        for number in range(12):
            wires.append(stack.enter_context(Websocket(port, request(path="/leafnode"))))
            wires[-1].say(b'CONNECT {"name":"raw%d","remote_account":"$G"}\r\nPING\r\n' % number)
            wires[-1].until(b"PONG\r\n")
        assert hub.process is not None
        others = [pid for pid in children(hub.process.pid) if comm_of(pid) in ("mq-acceptor-1", "mq-acceptor-2")]
        assert len(others) == 2
        for pid in others:
            os.kill(pid, signal.SIGKILL)
        for wire in wires:
            said = wire.stream.count(b"PONG\r\n")
            wire.say(b"PING\r\n")
            while wire.stream.count(b"PONG\r\n") == said:
                assert wire.hear(), "it was disconnected"


def unmasked(stream: socket.socket) -> tuple[bytes, bytes]:
    """The next frame of a client: its key, and its payload."""

    def take(count: int) -> bytes:
        data = b""
        while len(data) < count:
            more = stream.recv(count - len(data))
            assert more
            data += more
        return data

    _, second = take(2)
    assert second & 0x80
    size = second & 0x7F
    size = int.from_bytes(take(2 if size == 126 else 8), "big") if size > 125 else size
    key = take(4)
    return key, bytes(byte ^ key[at % 4] for at, byte in enumerate(take(size)))


def test_what_a_hub_is_sent_is_masked_with_ever_new_keys_and_its_first_frame_may_come_with_the_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(60)
        with leaf_of(OURS, server.getsockname()[1]):
            conn, _ = server.accept()
            with conn:
                conn.settimeout(60)
                asked = b""
                while b"\r\n\r\n" not in asked:
                    asked += conn.recv(4096)
                key = asked.partition(b"Sec-WebSocket-Key: ")[2].partition(b"\r\n")[0]
                accepted = base64.b64encode(hashlib.sha1(key + GUID).digest())
                info = b'INFO {"server_id":"A","client_id":3,"headers":true,"info_on_connect":true,"nonce":"n"}\r\n'
                conn.sendall(
                    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                    b"Sec-WebSocket-Accept: %s\r\n\r\n%s" % (accepted, frame(BINARY, info, mask=None))
                )
                keys = []
                said = b""
                while b"CONNECT {" not in said:
                    key, payload = unmasked(conn)
                    keys.append(key)
                    said += payload
                for at in range(5):
                    conn.sendall(frame(PING, b"%d" % at, mask=None))
                    while True:
                        key, payload = unmasked(conn)
                        keys.append(key)
                        if payload == b"%d" % at:
                            break
                assert len(set(keys)) == len(keys) >= 6
