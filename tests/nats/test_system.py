"""What users of the system account ask servers and hear of them: beside a real nats-server, key by key."""

from __future__ import annotations

import json
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.nats.servers import NatsServer, nats_server, running
from tests.nats.test_monitoring import shape
from tests.nats.test_operating import until_true

CONF = """
server_name: here
accounts {
  A {
    users: [
      {user: a, password: a}
      {user: r, password: r, permissions: {
        publish: {allow: ["$SYS.>", "a.<b>"], deny: "b"}, subscribe: ["in.>", "answer"]
        allow_responses: {max: 5, expires: "1m"}
      }}
      {user: d, password: d, permissions: {subscribe: {deny: ["q x", "y"]}, publish: {deny: []}}}
    ]
  }
  SYS { users: [ {user: sys, password: sys} ] }
}
system_account: SYS
"""
KINDS = [
    pytest.param(0, id="nats-server", marks=pytest.mark.skipif(nats_server() is None, reason="no nats-server")),
    pytest.param(1, id="shards-1", marks=pytest.mark.long),
    pytest.param(2, id="shards-2"),
]


class User:
    """A client as raw bytes, one request at a time."""

    def __init__(self, server: NatsServer, user: str, name: str = "test", protocol: int = 0) -> None:
        self.socket = socket.create_connection(("127.0.0.1", server.port), timeout=60)
        self.file = self.socket.makefile("rb")
        self.info = json.loads(self.file.readline()[5:])
        hello: dict[str, Any] = {"verbose": False, "user": user, "pass": user, "name": name, "protocol": protocol}
        hello |= {"lang": "raw", "version": "1"}
        self.send(b"CONNECT " + json.dumps(hello).encode() + b"\r\n")
        self.sync()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def sync(self) -> None:
        self.send(b"PING\r\n")
        while self.file.readline() != b"PONG\r\n":
            pass

    def until(self, words: bytes) -> None:
        while words not in (line := self.file.readline()):
            assert line, "the connection has ended"

    def message(self) -> tuple[str, bytes]:
        while True:
            words = self.file.readline().split()
            assert words, "the connection has ended"
            if words[0] == b"MSG":
                body = self.file.read(int(words[-1]) + 2)
                return words[1].decode(), body[:-2]

    def ask(self, subject: str, body: bytes = b"") -> dict[str, Any]:
        self.send(b"SUB answer 9\r\nPUB %b answer %d\r\n%b\r\n" % (subject.encode(), len(body), body))
        _, said = self.message()
        self.send(b"UNSUB 9\r\n")
        found: dict[str, Any] = json.loads(said)
        return found

    def close(self) -> None:
        self.file.close()
        self.socket.close()


def start(kind: int, directory: Path, *settings: str) -> Iterator[NatsServer]:
    conf = directory / f"system-{kind}.conf"
    conf.write_text(CONF)
    with running(kind, settings, ["-c" if kind == 0 else "--nats-config", str(conf)]) as server:
        yield server


@pytest.fixture(scope="module", params=KINDS)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    yield from start(request.param, tmp_path_factory.mktemp("system"))


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    if nats_server() is None:
        pytest.skip("no nats-server")
    yield from start(0, tmp_path_factory.mktemp("real"))


@pytest.mark.parametrize(
    ("subject", "body"),
    [
        ("$SYS.REQ.SERVER.PING", b""),
        ("$SYS.REQ.SERVER.PING.IDZ", b""),
        ("$SYS.REQ.SERVER.PING.STATSZ", b'{"server_name":"her"}'),
        ("$SYS.REQ.SERVER.PING.VARZ", b""),
        ("$SYS.REQ.SERVER.PING.CONNZ", b'{"auth":true,"subscriptions_detail":true,"acc":"A"}'),
        ("$SYS.REQ.SERVER.PING.CONNZ", b'{"sort":"nonsense"}'),
        ("$SYS.REQ.SERVER.PING.CONNZ", b'{"acc":"A","filter_subject":"a.b"}'),
        ("$SYS.REQ.SERVER.PING.SUBSZ", b'{"subscriptions":true,"account":"A"}'),
        ("$SYS.REQ.SERVER.PING.ACCOUNTZ", b""),
        ("$SYS.REQ.SERVER.PING.HEALTHZ", b""),
        ("$SYS.REQ.SERVER.PING.ROUTEZ", b""),
        ("$SYS.REQ.SERVER.PING.GATEWAYZ", b""),
        ("$SYS.REQ.SERVER.PING.LEAFZ", b""),
        ("$SYS.REQ.SERVER.PING.JSZ", b""),
        ("$SYS.REQ.SERVER.ID.VARZ", b""),
        ("$SYS.REQ.ACCOUNT.A.CONNZ", b""),
        ("$SYS.REQ.ACCOUNT.A.SUBSZ", b""),
        ("$SYS.REQ.ACCOUNT.A.STATZ", b""),
        ("$SYS.REQ.ACCOUNT.A.INFO", b""),
        ("$SYS.REQ.SERVER.PING.RAFTZ", b""),
        ("$SYS.REQ.SERVER.ID.KICK", b'{"cid":999999}'),
        ("$SYS.REQ.SERVER.ID.LDM", b'{"cid":999999}'),
        ("$SYS.REQ.SERVER.PING.CONNZ", b'{"mqtt_client":"x"}'),
        ("$SYS.REQ.SERVER.PING.CONNZ", b'{"state":3}'),
        ("$SYS.REQ.SERVER.PING.LEAFZ", b"null"),
        ("$SYS.REQ.SERVER.PING.LEAFZ", b" "),
        ("$SYS.REQ.SERVER.PING.LEAFZ", b'{"account":'),
        ("$SYS.REQ.ACCOUNT.A.CONNS", b""),
    ],
)
def test_answers_have_the_keys_of_a_nats_server(
    real: NatsServer, server: NatsServer, subject: str, body: bytes
) -> None:
    if server.acceptors == 0:
        pytest.skip("it is itself")
    shapes = []
    for one in (real, server):
        client, system = User(one, "a"), User(one, "sys")
        client.send(b"SUB a.* 1\r\nPUB a.b 1\r\nx\r\n")
        client.sync()
        shapes.append(shape(system.ask(subject.replace(".ID.", f".{system.info['server_id']}."), body)))
        client.close()
        system.close()
    assert shapes[1] == shapes[0]


@pytest.mark.parametrize(
    ("endpoint", "body"),
    [
        *(
            (endpoint, body)
            for endpoint in ("STATSZ", "VARZ", "JSZ")
            for body in (
                b'{"server_name":"elsewhere"}',
                b'{"server_name":"her","exact_match":true}',
                b'{"tags":["x"]}',
            )
        ),
        ("JSZ", b'{"leader_only":true}'),
    ],
)
def test_a_filter_leaves_servers_out(server: NatsServer, endpoint: str, body: bytes) -> None:
    system = User(server, "sys")
    subject = f"$SYS.REQ.SERVER.PING.{endpoint}"
    system.send(b"SUB none 8\r\nSUB last 9\r\nPUB %b none %d\r\n%b\r\n" % (subject.encode(), len(body), body))
    system.send(b"PUB %b last 0\r\n\r\n" % subject.encode())
    # What was asked behind it, of the same kind, is answered, and it is not.
    assert system.message()[0] == "last"
    system.close()


@pytest.mark.parametrize(
    ("subject", "body", "behind", "of_it"),
    [
        ("ACCOUNT.nobody.STATZ", b"", "ACCOUNT.SYS.STATZ", b""),
        ("SERVER.ID.KICK", b"", "SERVER.ID.KICK", b'{"cid":9999}'),
        ("SERVER.ID.KICK", b'{"cid":"x"}', "SERVER.ID.KICK", b"{}"),
    ],
)
def test_what_is_not_answered(server: NatsServer, subject: str, body: bytes, behind: str, of_it: bytes) -> None:
    system = User(server, "sys")
    for asked, content, reply in ((subject, body, "none"), (behind, of_it, "last")):
        named = asked.replace("ID", system.info["server_id"])
        line = f"SUB {reply} {reply}\r\nPUB $SYS.REQ.{named} {reply} {len(content)}\r\n"
        system.send(line.encode() + content + b"\r\n")
    assert system.message()[0] == "last"
    system.close()


@pytest.mark.parametrize("body", [b'{"server_name":"elsewhere"}', b"no JSON", b"[]"])
def test_who_a_server_is_it_says_whatever_it_is_sent(server: NatsServer, body: bytes) -> None:
    system = User(server, "sys")
    assert system.ask("$SYS.REQ.SERVER.PING.IDZ", body)["name"] == "here"
    system.close()


def test_nobody_knows_of_jetstream_in_an_account(server: NatsServer) -> None:
    system = User(server, "sys")
    for account in ("A", "NOBODY"):
        answer = system.ask(f"$SYS.REQ.ACCOUNT.{account}.JSZ", b'{"leader_only":true}')
        assert answer["error"] == {"code": 500, "description": "jetstream not enabled"}, answer
    system.close()


def test_the_system_account_hears_who_comes_and_goes(server: NatsServer) -> None:
    system = User(server, "sys")
    system.send(b"SUB $SYS.ACCOUNT.A.* 1\r\n")
    system.sync()
    client = User(server, "a", "a name")
    client.send(b"PUB x 3\r\nabc\r\n")
    client.sync()
    event = next_event(system, "CONNECT")
    assert event["type"] == "io.nats.server.advisory.v1.client_connect"
    assert (event["client"]["acc"], event["client"]["user"], event["client"]["name"]) == ("A", "a", "a name")
    assert event["client"]["id"] == client.info["client_id"]
    assert event["server"]["id"] == system.info["server_id"]
    client.close()
    event = next_event(system, "DISCONNECT")
    shown = event["client"]
    assert shown["id"] == client.info["client_id"] and shown["rtt"] > 0
    # In a nats-server's order; there may be a name, a language and a version before "rtt".
    assert list(shown)[-5:] == ["rtt", "stop", "name_tag", "kind", "client_type"]
    assert (event["sent"]["msgs"], event["sent"]["bytes"]) == (1, 3)
    assert event["reason"] in ("Client Closed", "Read Error")
    system.close()


def test_who_goes_is_told_of_also_where_none_are_kept(tmp_path: Path) -> None:
    for server in start(1, tmp_path, "nats.max-closed-clients=0"):
        system = User(server, "sys")
        system.send(b"SUB $SYS.ACCOUNT.A.DISCONNECT 1\r\n")
        system.sync()
        client = User(server, "a")
        client.close()
        assert next_event(system, "DISCONNECT")["client"]["id"] == client.info["client_id"]
        closed = system.ask(f"$SYS.REQ.SERVER.{system.info['server_id']}.CONNZ", b'{"state":1}')
        assert closed["data"]["connections"] == []
        system.close()


def next_event(system: User, kind: str) -> dict[str, Any]:
    while True:
        subject, body = system.message()
        if subject == f"$SYS.ACCOUNT.A.{kind}":
            found: dict[str, Any] = json.loads(body)
            return found


def test_who_is_not_of_the_system_account_has_no_answer(server: NatsServer) -> None:
    client = User(server, "a")
    client.send(b"SUB answer 1\r\nPUB $SYS.REQ.SERVER.PING.IDZ answer 0\r\n\r\nPUB answer 4\r\nmine\r\n")
    assert client.message() == ("answer", b"mine")
    client.close()


QUESTIONS = [
    ("$SYS.REQ.ACCOUNT.PING.CONNZ", b'{"subscriptions":true,"auth":true}'),
    ("$SYS.REQ.SERVER.PING.CONNZ", b'{"auth":true}'),
    ("$SYS.REQ.ACCOUNT.PING.STATZ", b""),
]


@pytest.mark.parametrize(("subject", "body"), QUESTIONS)
def test_who_is_of_another_account_may_ask_about_that(
    real: NatsServer, server: NatsServer, subject: str, body: bytes
) -> None:
    said = []
    for one in (real, server):
        client, system = User(one, "a"), User(one, "sys")
        answer = client.ask(subject, body)["data"]
        for connection in answer.get("connections", ()):
            assert connection["account"] == "A"
        said.append(shape(answer))
        client.close()
        system.close()
    assert said[1] == said[0]


def test_a_client_is_kicked_and_another_told_to_go(server: NatsServer) -> None:
    system, client = User(server, "sys"), User(server, "a")
    own = f"$SYS.REQ.SERVER.{system.info['server_id']}"
    cid = b'{"cid":%d}' % client.info["client_id"]
    # It would not understand INFO at any time.
    assert "does not support Lame Duck Mode" in system.ask(f"{own}.LDM", cid)["error"]["description"]
    other = User(server, "a", protocol=1)
    other.until(b'"connect_info":true')
    assert "error" not in system.ask(f"{own}.LDM", b'{"cid":%d}' % other.info["client_id"])
    other.until(b'"ldm":true')
    system.send(b"SUB $SYS.ACCOUNT.A.DISCONNECT 1\r\n")
    system.send(b"PUB %b.KICK none %d\r\n%b\r\n" % (own.encode(), len(cid), cid))
    assert client.file.read() == b""
    event = next_event(system, "DISCONNECT")
    assert (event["client"]["id"], event["reason"]) == (client.info["client_id"], "Kicked")
    other.sync()
    for one in (other, system):
        one.close()


@pytest.mark.parametrize("kind", KINDS)
def test_options_are_read_anew_when_that_is_asked_for(kind: int, tmp_path: Path) -> None:
    for server in start(kind, tmp_path):
        conf = next(tmp_path.glob("system-*.conf"))
        system = User(server, "sys")
        reload = f"$SYS.REQ.SERVER.{system.info['server_id']}.RELOAD"
        conf.write_text(CONF.replace("{user: a, password: a}", "{user: n, password: n}"))
        assert "error" not in system.ask(reload)
        client = User(server, "n")
        client.close()
        conf.write_text("nonsense: 1\n")
        assert "nonsense" in system.ask(reload)["error"]["description"]
        system.close()


@pytest.mark.parametrize("kind", KINDS)
def test_the_system_account_hears_that_the_server_ends(kind: int, tmp_path: Path) -> None:
    for server in start(kind, tmp_path):
        system, client = User(server, "sys"), User(server, "a")
        system.send(b"SUB $SYS.SERVER.*.LAMEDUCK 1\r\nSUB $SYS.SERVER.*.SHUTDOWN 2\r\n")
        system.sync()
        if kind:  # of a nats-server the first client that goes may be this one
            server.process.send_signal(signal.SIGUSR2)
            subject, body = system.message()
            assert subject == f"$SYS.SERVER.{system.info['server_id']}.LAMEDUCK"
            assert json.loads(body)["name"] == "here"
        server.process.terminate()
        subject, body = system.message()
        assert subject == f"$SYS.SERVER.{system.info['server_id']}.SHUTDOWN"
        assert json.loads(body)["id"] == system.info["server_id"]
        client.close()
        system.close()


def test_the_server_itself_is_not_among_its_clients(server: NatsServer) -> None:
    system = User(server, "sys")

    def connections() -> list[int]:
        return [row["cid"] for row in system.ask("$SYS.REQ.SERVER.PING.CONNZ")["data"]["connections"]]

    until_true(lambda: connections() == [system.info["client_id"]])
    varz = system.ask("$SYS.REQ.SERVER.PING.VARZ")["data"]
    assert varz["connections"] == 1
    system.close()


@pytest.mark.parametrize("user", ["a", "r", "d", "sys"])
def test_a_client_is_told_who_it_is(real: NatsServer, server: NatsServer, user: str) -> None:
    said = []
    for one in (real, server):
        client = User(one, user)
        answer = client.ask("$SYS.REQ.USER.INFO")
        assert answer["server"]["id"] == client.info["server_id"]
        for limits in answer["data"].get("permissions", {}).values():
            limits.update({name: sorted(patterns) for name, patterns in limits.items() if isinstance(patterns, list)})
        said.append(answer["data"])
        client.close()
    assert said[1] == said[0]


def events(system: User, kinds: set[str]) -> dict[str, dict[str, Any]]:
    """The first of each, by what its subject ends with."""
    found: dict[str, dict[str, Any]] = {}
    while kinds - found.keys():
        subject, body = system.message()
        for kind in kinds:
            if subject.endswith(kind):
                found.setdefault(kind, json.loads(body))
    return found


def test_the_system_account_hears_who_is_not_let_in_and_how_many_there_are(
    real: NatsServer, server: NatsServer
) -> None:
    heard = []
    for one in (real, server):
        system = User(one, "sys")
        system.send(b"SUB $SYS.SERVER.> 1\r\nSUB $SYS.ACCOUNT.A.> 2\r\n")
        system.sync()
        client = User(one, "a")
        with socket.create_connection(("127.0.0.1", one.port), timeout=60) as stranger:
            stranger.sendall(b'CONNECT {"user":"a","pass":"wrong","name":"n","lang":"x","version":"1"}\r\n')
            while stranger.recv(4096):
                pass
        found = events(system, {".AUTH.ERR", ".ACCOUNT.A.CONNS", ".A.SERVER.CONNS"})
        refused = found[".AUTH.ERR"]
        assert (refused["client"]["user"], refused["reason"]) == ("a", "Authentication Failure")
        assert found[".ACCOUNT.A.CONNS"]["conns"] >= 1
        assert refused["client"].pop("rtt") > 0
        heard.append({kind: shape(event) for kind, event in found.items()})
        client.close()
        system.close()
    assert heard[1] == heard[0]


def test_figures_of_the_server_come_by_themselves(real: NatsServer, tmp_path: Path) -> None:
    """At first after a quarter of a second, then more and more seldom."""
    system = User(real, "sys")
    expected = shape(system.ask("$SYS.REQ.SERVER.PING"))
    system.close()
    for ours in start(2, tmp_path):
        began = time.monotonic()
        system = User(ours, "sys")
        system.send(b"SUB $SYS.SERVER.*.STATSZ 1\r\n")
        for least in (0.0, 0.5):
            subject, body = system.message()
            assert subject == f"$SYS.SERVER.{system.info['server_id']}.STATSZ"
            assert shape(json.loads(body)) == expected
            assert least < time.monotonic() - began < 5
        system.close()


@pytest.mark.long
def test_ten_thousand_accounts_hold_up_nobody(tmp_path: Path) -> None:
    """Each time one of their clients comes or goes the system account hears how many there are."""
    count = 10_000
    users = "".join(f"A{n} {{ users: [{{user: u{n}, password: u{n}}}] }}\n" for n in range(count))
    conf = tmp_path / "many.conf"
    conf.write_text(f"accounts {{ {users} SYS {{ users: [{{user: sys, password: sys}}] }} }}\nsystem_account: SYS\n")
    with running(2, arguments=["--nats-config", str(conf)]) as server:
        system = User(server, "sys")
        assert len(system.ask("$SYS.REQ.SERVER.PING.ACCOUNTZ")["data"]["accounts"]) == count + 2
        system.send(b"SUB $SYS.ACCOUNT.A7.SERVER.CONNS 1\r\n")
        system.sync()
        clients = [User(server, f"u{n}") for n in range(200)]
        _, said = system.message()
        assert json.loads(said)["conns"] == 1
        for client in clients:
            client.close()


@pytest.mark.parametrize("kind", KINDS)
def test_an_answer_may_be_larger_than_what_clients_may_send(kind: int, tmp_path: Path) -> None:
    """Also than what waits for anybody else: whole, and those that are asked for together with it come, too."""
    path = tmp_path / "nats.conf"
    path.write_text(CONF)
    with running(kind, arguments=["-c" if kind == 0 else "--nats-config", str(path)]) as server:
        clients = [User(server, "a", name=f"many {number}") for number in range(3)]
        for client in clients:
            lines = (b"SUB %b.%d %d\r\n" % (b"x" * 100, number, number) for number in range(4000))
            client.send(b"".join(lines))
            client.sync()
        asker = User(server, "sys")
        options = b'{"subscriptions_detail":true,"acc":"A"}'
        subject = b"$SYS.REQ.SERVER.PING.CONNZ"
        asker.send(b"SUB answer 9\r\n" + 4 * (b"PUB %b answer %d\r\n%b\r\n" % (subject, len(options), options)))
        asker.send(b"PUB $SYS.REQ.SERVER.PING answer 0\r\n\r\n")
        answers = [asker.message()[1] for _ in range(5)]
        found = [json.loads(one).get("data", {}).get("connections") for one in answers]
        assert sorted(len(one or ()) for one in found) == [0, 3, 3, 3, 3]
        assert max(len(one) for one in answers) > 1 << 20
        assert all(len(one["subscriptions_list_detail"]) == 4000 for rows in found for one in rows or ())
        asker.sync()


@pytest.mark.parametrize("acceptors", [1, 2])
def test_the_server_hears_again_what_it_could_not_take(acceptors: int, tmp_path: Path) -> None:
    """Its own client is cut off as any other is that more waits for than may, and is there again."""
    path = tmp_path / "nats.conf"
    path.write_text(CONF + "max_payload: 4000\nmax_pending: 4000\n")
    with running(acceptors, arguments=["--nats-config", str(path)]) as server:
        sys = User(server, "sys")
        cuts = 0

        def is_cut_off() -> bool:
            """It may take all of that in time: then more is sent."""
            sys.send((b"PUB $SYS.REQ.SERVER.PING 3900\r\n" + bytes(3900) + b"\r\n") * 77)
            sys.sync()
            return server.said().count("has been cut off") > cuts

        for _ in range(3):
            until_true(is_cut_off)
            cuts = server.said().count("has been cut off")
            until_true(lambda: _is_answered(sys))


def _is_answered(user: User) -> bool:
    """This time, or one that was asked before: what is asked while it comes again nobody hears."""
    user.send(b"SUB answer 9\r\nPUB $SYS.REQ.SERVER.PING.IDZ answer 0\r\n\r\nPING\r\n")
    lines = [line := user.file.readline()]
    while line and line != b"PONG\r\n":
        lines.append(line := user.file.readline())
    return any(line.startswith(b"MSG answer ") for line in lines)
