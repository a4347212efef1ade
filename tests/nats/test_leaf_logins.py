"""Who a leaf node is: by password, by nkey, by JWT, by certificate; and what becomes of one that takes nothing."""

from __future__ import annotations

import base64
import contextlib
import os
import shutil
import signal
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from mq_shards.acceptor.access.hashes import password_hash
from mq_shards.acceptor.protocols.nats import nkeys as nats_nkeys

from tests.nats.clusters import NEW_REAL, OLD_REAL, OURS, OURS_3, Member, bodies, configured, mixtures
from tests.nats.jwts import Key
from tests.nats.leaf_wire import LeafWire
from tests.nats.operators import A, accounts, conf
from tests.nats.route_wire import line
from tests.nats.test_leaf_wire import is_heard
from tests.nats.test_leaves import client, joined, leaf_of
from tests.nats.test_mesh import all_children
from tests.nats.wire import Wire, far_away
from tests.nsq.certificates import Certificates, make
from tests.servers import comm_of, wait_until

LISTEN = 'listen: "127.0.0.1:$PORT"\nserver_name: hub\n'
EITHER = [parameter for kind in (OURS, NEW_REAL) for parameter in mixtures((kind,))]
REFUSED = b"-ERR 'Authorization Violation'\r\n"


def signed(wire: LeafWire, key: Key) -> str:
    return base64.urlsafe_b64encode(key.sign(wire.info["nonce"].encode())).decode().rstrip("=")


@pytest.mark.parametrize("kinds", EITHER)
def test_one_user_may_be_all_leaf_nodes(kinds: tuple[str]) -> None:
    said = 'leafnodes { listen: "127.0.0.1:$ROUTE_PORT", authorization { user: a, password: a, account: A } }'
    with configured(kinds[0], f"{LISTEN}{said}\naccounts {{ A {{}} }}") as hub:
        wire = LeafWire.joining(hub.route_port)
        assert wire.connected["remote_account"] == "A"
        other = LeafWire(hub.route_port)
        other.connect(user="b", **{"pass": "a"})
        assert other.rest() == REFUSED
        wire.close()


@pytest.mark.parametrize("kinds", EITHER)
def test_one_key_may_be_all_leaf_nodes(kinds: tuple[str]) -> None:
    key, other = Key(nats_nkeys.USER, "leaf"), Key(nats_nkeys.USER, "other")
    said = f'leafnodes {{ listen: "127.0.0.1:$ROUTE_PORT", authorization {{ nkey: {key.public} }} }}'
    with configured(kinds[0], LISTEN + said) as hub:
        for who, by, may in ((key, key, True), (other, other, False), (key, other, False)):
            wire = LeafWire(hub.route_port)
            wire.connect(nkey=who.public, sig=signed(wire, by))
            heard = b"".join(wire.barrier())
            assert (b'"remote_account":"$G"' in heard, wire.closed) == (may, not may)
            wire.close()


@pytest.mark.parametrize("kinds", EITHER)
def test_users_of_accounts_are_leaf_nodes_by_their_jwts(kinds: tuple[str]) -> None:
    text = conf(f'{LISTEN}leafnodes {{ listen: "127.0.0.1:$ROUTE_PORT" }}', preload=accounts())
    with configured(kinds[0], text) as hub:
        key, jwt = A.user("leaf")
        wire = LeafWire(hub.route_port)
        wire.connect(jwt=jwt, sig=signed(wire, key))
        assert any(f'"remote_account":"{A.public}"'.encode() in one for one in wire.barrier())
        wire.close()
        limited, jwt = A.user("client", allowed_connection_types=["STANDARD"])
        for who, said in ((Key(nats_nkeys.USER, "other"), A.user("leaf")[1]), (limited, jwt)):
            wire = LeafWire(hub.route_port)
            wire.connect(jwt=said, sig=signed(wire, who))
            assert wire.rest() == REFUSED


@pytest.mark.parametrize("kinds", EITHER)
def test_an_account_has_no_more_leaf_nodes_than_it_may(kinds: tuple[str]) -> None:
    said = 'leafnodes { listen: "127.0.0.1:$ROUTE_PORT" }\n'
    users = "accounts { A { users = [ {user: a, password: a} ], limits { max_leafnodes: 1 } } }"
    with configured(kinds[0], LISTEN + said + users) as hub:
        wire = LeafWire.joining(hub.route_port)
        other = LeafWire(hub.route_port)
        other.connect(user="a", **{"pass": "a"})
        assert other.rest() in (b"-ERR 'maximum account active connections exceeded'\r\n", REFUSED)
        wire.close()


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Certificates]:
    directory = tmp_path_factory.mktemp("certificates")
    yield make(directory)
    shutil.rmtree(directory, ignore_errors=True)


@pytest.mark.parametrize("first", ["false", "true"])
@pytest.mark.parametrize("kinds", mixtures((OURS, NEW_REAL), (NEW_REAL, OURS)))
def test_a_leaf_node_that_encrypts_is_one(kinds: tuple[str, str], first: str, certificates: Certificates) -> None:
    pair, mine = certificates.server, certificates.client
    said = f'cert_file: "{pair.cert}", key_file: "{pair.key}", ca_file: "{certificates.authority}", verify: true'
    text = f'leafnodes {{ listen: "127.0.0.1:$ROUTE_PORT", tls {{ {said}, handshake_first: {first} }} }}'
    with configured(kinds[0], LISTEN + text) as hub:
        tls = f'cert_file: "{mine.cert}", key_file: "{mine.key}", ca_file: "{certificates.authority}"'
        remote = f'url: "nats-leaf://127.0.0.1:{hub.route_port}", tls {{ {tls}, handshake_first: {first} }}'
        other = LISTEN.replace("hub", "leafy")
        with configured(kinds[1], f"{other}leafnodes {{ remotes [ {{ {remote} }} ] }}") as leaf:
            wires = [client(member, b"SUB x 1\r\n") for member in (hub, leaf)]
            joined(*wires)
            wires[0].send(b"PUB x 1\r\na\r\n")
            wait_until(lambda: bodies(wires[1]) == [b"a"] or wires[1].barrier(), "it comes")
            # Who shows no certificate is nobody.
            if first == "true":
                context = ssl.create_default_context(cafile=str(certificates.authority))
                plain = socket.create_connection(("127.0.0.1", hub.route_port), timeout=30)
                with contextlib.suppress(OSError), context.wrap_socket(plain, server_hostname="127.0.0.1") as bare:
                    assert bare.recv(100) == b""
            for wire in wires:
                wire.close()


@pytest.mark.parametrize("encrypts", [False, True])
@pytest.mark.parametrize("kinds", mixtures((OURS, NEW_REAL), (OURS, OLD_REAL), (OURS, OURS)))
def test_where_all_have_one_certificate_a_leaf_node_may_encrypt(
    kinds: tuple[str, str], encrypts: bool, certificates: Certificates
) -> None:
    text = LISTEN + 'leafnodes { listen: "127.0.0.1:$ROUTE_PORT" }'
    one = ("--set", f"tls.cert={certificates.server.cert}", "--set", f"tls.key={certificates.server.key}")
    with configured(kinds[0], text, one) as hub:
        tls = f', tls {{ ca_file: "{certificates.authority}" }}' if encrypts else ""
        remote = f'url: "nats-leaf://127.0.0.1:{hub.route_port}"{tls}'
        leaf_text = f"{LISTEN.replace('hub', 'leafy')}leafnodes {{ remotes [ {{ {remote} }} ] }}"
        with configured(kinds[1], leaf_text) as leaf:
            wires = [client(member) for member in (hub, leaf)]
            joined(*wires)
            for wire in wires:
                wire.close()


@pytest.mark.parametrize("kind", [OURS, OURS_3])
def test_a_leaf_node_that_takes_nothing_is_cut_off_and_others_go_on(kind: str) -> None:
    text = f'{LISTEN}max_pending: 1MB\nleafnodes {{ listen: "127.0.0.1:$ROUTE_PORT", write_deadline: "300ms" }}'
    with configured(kind, text) as hub:
        slow, good = LeafWire.joining(hub.route_port, ""), LeafWire.joining(hub.route_port, "")
        for wire in (slow, good):
            wire.wants(b"LS+ end\r\n")
        slow.wants(b"LS+ load\r\n")
        talkers = [client(hub) for _ in range(3)]
        body = b"x" * 60000
        for talker in talkers:
            wait_until(lambda t=talker: is_heard(t, b"PUB end 1\r\n-\r\n", good, b"-"), "it is wanted there")
        # More than sockets take: who publishes waits, until who does not read is gone.
        for talker in talkers:
            talker.send(b"PUB load %d\r\n%s\r\n" % (len(body), body) * 170)
            talker.send(b"PUB end 3\r\nend\r\n")
        for talker in talkers:
            talker.barrier()
        good.hears(b"end")
        heard = slow.rest()  # what had been sent, and then the end
        assert heard.count(b"LMSG load ") < 3 * 170
        for talker in talkers:
            talker.close()
        good.close()


class FarAway(LeafWire):
    def opened(self) -> socket.socket:
        return far_away(self.port)


@pytest.mark.parametrize("kind", [OURS, OURS_3])
def test_a_leaf_node_that_takes_little_does_not_hold_publishers_for_ever(kind: str) -> None:
    text = f'{LISTEN}max_pending: 32MB\nleafnodes {{ listen: "127.0.0.1:$ROUTE_PORT", write_deadline: "1s" }}'
    with configured(kind, text) as hub:
        slow = FarAway.joining(hub.route_port, "")
        slow.wants(b"LS+ load\r\n")
        talker = client(hub)
        wait_until(lambda: is_heard(talker, b"PUB load 1\r\n-\r\n", slow, b"-"), "it is wanted there")
        body = b"PUB load 60000\r\n%s\r\n" % (b"x" * 60000)
        talking = threading.Thread(target=lambda: talker.send(body * 1000))
        talking.start()
        began = time.monotonic()
        with contextlib.suppress(ConnectionError):
            while talking.is_alive() and slow.socket.recv(4096):  # 400 KB a second at most, of 500 that are wanted
                assert time.monotonic() < began + 10, "publishers still wait"
                time.sleep(0.01)
        talking.join()
        talker.barrier()
        talker.close()
        slow.close()


@pytest.mark.parametrize("kinds", mixtures((OURS_3, NEW_REAL)))
def test_leaf_nodes_come_back_to_an_acceptor_that_died(kinds: tuple[str, str]) -> None:
    said = 'leafnodes { listen: "127.0.0.1:$ROUTE_PORT" }'
    with configured(kinds[0], LISTEN + said) as hub, leaf_of(hub.route_port, kinds[1], "leafy") as leaf:
        wires = [client(hub, b"SUB x 1\r\n") for _ in range(6)]
        far = client(leaf, b"SUB x 1\r\n")
        joined(*wires, far)
        assert hub.process is not None
        victim = next(pid for pid in all_children(hub.process.pid) if comm_of(pid) == "mq-acceptor-0")
        os.kill(victim, signal.SIGKILL)
        wait_until(lambda: is_there(hub), "it is back")
        # Those of the others are there still; what they want is wanted of the leaf node again.
        left = [wire for wire in wires if not ended(wire)]
        joined(client(hub), far, *left)
        for wire in (*left, far):
            wire.close()


def is_there(hub: Member) -> bool:
    with contextlib.suppress(OSError, ValueError):
        LeafWire.joining(hub.route_port, "").close()
        return True
    return False


def ended(wire: Wire) -> bool:
    wire.barrier()
    return wire.heard.closed


def test_strangers_keep_no_leaf_node_out() -> None:
    text = 'leafnodes { listen: "127.0.0.1:$ROUTE_PORT", authorization { timeout: 60 } }'
    with configured(OURS, LISTEN + text) as hub:
        strangers = [LeafWire(hub.route_port) for _ in range(300)]
        found = LeafWire.joining(hub.route_port, "")
        assert found.loop and not found.closed
        # Of so many the oldest have ended.
        assert strangers[0].rest() == b"-ERR 'maximum connections exceeded'\r\n"
        for wire in (*strangers, found):
            wire.close()


def test_there_are_as_many_leaf_nodes_as_there_may_be(tmp_path: Path) -> None:
    text = f'{LISTEN}leafnodes {{ listen: "127.0.0.1:$ROUTE_PORT" }}'
    hub = Member(OURS, tmp_path, conf=text, options=("--set", "nats.leaf-max-connections=1"))
    hub.start()
    try:
        hub.wait()
        stranger, found = LeafWire(hub.route_port), LeafWire.joining(hub.route_port, "", name="one", cluster="one")
        other = LeafWire(hub.route_port)
        other.connect()
        assert other.rest() == b"-ERR 'maximum connections exceeded'\r\n"
        again = LeafWire.joining(hub.route_port, "", name="one", cluster="one")
        assert again.loop and not again.closed
        for wire in (stranger, found, again):
            wire.close()
    finally:
        hub.stop()


def test_what_is_no_connect_is_nobody() -> None:
    said = f'{LISTEN}leafnodes {{ listen: "127.0.0.1:$ROUTE_PORT", authorization {{ timeout: 60 }} }}'
    with configured(OURS, said) as hub:
        denied = line("CONNECT", {"deny_pub": ["a..b"]})
        for junk in (b"CONNECT {\r\n", b"CONNECT []\r\n", b"GET / HTTP/1.1\r\n\r\n", denied):
            wire = LeafWire(hub.route_port)
            wire.send(junk)
            wire.send(b"PING\r\n")
            wire.rest()
            assert wire.closed
        assert is_there(hub)


def test_who_was_refused_leaves_nothing_of_its_cluster_to_the_next() -> None:
    """Of one cluster they hear nothing of each other: nobody else may be taken for one of it."""
    with configured(OURS, f'{LISTEN}leafnodes {{ listen: "127.0.0.1:$ROUTE_PORT" }}') as hub:
        refused = LeafWire(hub.route_port)
        refused.connect(cluster="one", deny_pub=["a..b"])
        assert refused.rest() == REFUSED
        other = LeafWire.joining(hub.route_port, "", cluster="other")
        other.wants(b"LS+ o\r\n")
        one = LeafWire.joining(hub.route_port, "", cluster="one")
        assert b"LS+ o" in one.told
        for wire in (other, one):
            wire.close()


@pytest.mark.parametrize("said", ["old", "new"])
def test_a_leaf_node_whose_password_is_compared_while_the_file_is_read_anew_is_judged_by_the_new_one(said: str) -> None:
    """To compare the old password takes a third of a second."""
    text = f"{LISTEN}leafnodes {{ listen: \"127.0.0.1:$ROUTE_PORT\", authorization {{ user: a, password: '%s' }} }}\n"
    with configured(OURS, text % password_hash("old", 12)) as hub:
        wire = LeafWire(hub.route_port)
        wire.connect(user="a", **{"pass": said})
        assert hub.process is not None
        changed = (text % "new").replace("$ROUTE_PORT", str(hub.route_port)).replace("$PORT", str(hub.port))
        hub.conf_path.write_text(f"{changed}max_payload: 1000\n")
        hub.process.send_signal(signal.SIGHUP)
        heard = wire.barrier()
        if said == "old":
            assert wire.closed and heard[-1] == b"-ERR 'Authorization Violation'"
        else:
            assert not wire.closed and any(b'"remote_account"' in one for one in heard)
        wire.close()
