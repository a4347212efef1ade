"""Auth callout: a service says who may come, and what they may; of a nats-server and of us the same."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
from mq_shards.acceptor.protocols.nats import nkeys as nats_nkeys
from mq_shards.acceptor.protocols.nats.places import GOOD_HOSTS, MOST, Places
from mq_shards.acceptor.protocols.nats.xkeys import XKey
from mq_shards.acceptor.remarks import SAME

from tests.nats.jwts import Account, Key
from tests.nats.servers import NatsServer, nats_server, running
from tests.nats.test_conf import complaint
from tests.nats.wire import Wire, elsewhere
from tests.servers import wait_until

XKEY: Final = XKey()
KINDS = [
    pytest.param(0, id="nats-server", marks=pytest.mark.skipif(nats_server() is None, reason="no nats-server")),
    pytest.param(1, id="shards-1"),
    pytest.param(2, id="shards-2"),
]
ISSUER, STRANGER = Account("issuer"), Account("stranger")
CONF: Final = f"""
accounts {{
  AUTH {{ users: [{{user: auth, password: x}}] }}
  APP {{ users: [{{user: known, password: x}}] }}
}}
authorization {{
  timeout: 2
  auth_callout {{ issuer: {ISSUER.public}, account: AUTH, auth_users: [auth] }}
}}
"""
VIOLATION: Final = b"-ERR 'Authorization Violation'\r\n"
SUBJECT: Final = "$SYS.REQ.USER.AUTH"

Request = dict[str, Any]
Answers = Mapping[str, Callable[[Request], str | None]]


def claims_of(token: str) -> dict[str, Any]:
    content = token.split(".")[1]
    found: dict[str, Any] = json.loads(base64.urlsafe_b64decode(content + "=" * (-len(content) % 4)))
    return found


def answer(request: Request, by: Account = ISSUER, aud: str = "", of: str = "", **nats: object) -> str:
    asked = request["nats"]
    return by.jwt(
        "authorization_response", of or asked["user_nkey"], nats, aud=aud or asked["server_id"]["id"], name="answer"
    )


def user(request: Request, account: str = "APP", by: Account = ISSUER, of: str = "", **more: object) -> str:
    claims = {name: more.pop(name) for name in ("exp", "name") if name in more}
    nats = {"subs": -1, "data": -1, "payload": -1, **more}
    return by.jwt("user", of or request["nats"]["user_nkey"], nats, **{"name": "somebody", "aud": account, **claims})


SOMEBODY: Final = Key(nats_nkeys.USER, "somebody else").public
SERVER: Final = Key(nats_nkeys.SERVER, "another server").public
LIMITED: Final = {"pub": {"allow": ["a.>"]}, "sub": {"deny": ["b.>"]}}
# What the service answers, by the name that a client says.
ANSWERS: Final[dict[str, Callable[[Request], str | None]]] = {
    "good": lambda r: answer(r, jwt=user(r)),
    "known": lambda r: answer(r, jwt=user(r, name="known")),
    "limited": lambda r: answer(r, jwt=user(r, **LIMITED)),
    "of the service's account": lambda r: answer(r, jwt=user(r, "AUTH")),
    "of the global account": lambda r: answer(r, jwt=user(r, "$G")),
    "answered by another key": lambda r: answer(r, by=STRANGER, jwt=user(r)),
    "soon over": lambda r: answer(r, jwt=user(r, exp=int(time.time()) + 2)),
    "over": lambda r: answer(r, jwt=user(r, exp=int(time.time()) - 2)),
    "refused": lambda r: answer(r, error="no"),
    "neither": lambda r: answer(r),
    "both": lambda r: answer(r, error="no", jwt=user(r)),
    "for another user": lambda r: answer(r, of=SOMEBODY, jwt=user(r, of=SOMEBODY)),
    "with another user": lambda r: answer(r, jwt=user(r, of=SOMEBODY)),
    "for another server": lambda r: answer(r, aud=SERVER, jwt=user(r)),
    "of nobody's account": lambda r: answer(r, jwt=user(r, "NONE")),
    "without an account": lambda r: answer(r, jwt=user(r, "")),
    "signed by a stranger": lambda r: answer(r, jwt=user(r, by=STRANGER)),
    "for an account": lambda r: answer(r, jwt=user(r, issuer_account=ISSUER.public)),
    "websockets only": lambda r: answer(r, jwt=user(r, allowed_connection_types=["WEBSOCKET"])),
    "a user alone": user,
    "garbage": lambda r: "garbage",
    "nothing": lambda r: "",
}
LAST: Final[Answers] = {"in its last second": lambda r: answer(r, jwt=user(r, exp=int(time.time())))}
LET_IN: Final = {
    "good", "known", "limited", "of the service's account", "of the global account", "soon over",
}  # fmt: skip


class Service(threading.Thread):
    """A client that answers what it is asked, by the name that is said in CONNECT; sealed where `seals`."""

    def __init__(
        self, port: int, introduce: Callable[[Wire], None] | None = None, answers: Answers = ANSWERS, *,
        seals: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(daemon=True)
        self.wire = Wire(port, address=elsewhere())
        self.requests: list[tuple[str, Request]] = []
        self.headers: list[str] = []
        self._answers = answers
        self._seals = seals
        if introduce is None:
            self.wire.send(connect("auth", "x", headers=True))
        else:
            introduce(self.wire)
        self.wire.send(f"SUB {SUBJECT} 1\r\n".encode())
        self.wire.barrier()
        assert not self.wire.heard.closed, self.wire.heard
        self._data = b""
        self.start()

    def run(self) -> None:
        while data := self._received():
            self._data += data
            while (found := self._message()) is not None:
                reply, header, body = found
                by = header.partition("Nats-Server-Xkey: ")[2].strip()
                opened = XKEY.open(body, by) if by else body
                assert opened is not None
                token = opened.decode()
                request = claims_of(token)
                self.headers.append(header)
                self.requests.append((token, request))
                said = request["nats"]["connect_opts"]
                made = self._answers.get(said.get("user", said.get("name", "")), lambda r: None)(request)
                if made is not None:
                    answer = XKEY.seal(made.encode(), by) if self._seals else made.encode()
                    assert answer is not None
                    self.wire.send(f"PUB {reply} {len(answer)}\r\n".encode() + answer + b"\r\n")

    def _received(self) -> bytes:
        self.wire.socket.settimeout(None)
        try:
            return self.wire.socket.recv(1 << 16)
        except OSError:
            return b""

    def _message(self) -> tuple[str, str, bytes] | None:
        line, found, rest = self._data.partition(b"\r\n")
        if not line.startswith((b"MSG", b"HMSG")):
            if not found:
                return None
            self._data = rest
            if line == b"PING":
                self.wire.send(b"PONG\r\n")
            return self._message()
        words = line.decode().split(" ")
        size = int(words[-1])
        if len(rest) < size + 2:
            return None
        self._data = rest[size + 2 :]
        header_bytes = int(words[-2]) if words[0] == "HMSG" else 0
        return words[3], rest[:header_bytes].decode(), rest[header_bytes:size]

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.wire.socket.shutdown(2)
        self.join()
        self.wire.close()


def connect(user: str, password: str = "p", **more: object) -> bytes:
    said = {"verbose": False, "user": user, "pass": password, **more}
    return f"CONNECT {json.dumps(said)}\r\n".encode()


def heard(port: int, *said: bytes) -> Wire:
    wire = Wire(port, address=elsewhere())
    wire.send(b"".join(said))
    wire.barrier()
    return wire


@contextlib.contextmanager
def serving(kind: int, conf: str = CONF) -> Iterator[tuple[NatsServer, Path]]:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "nats.conf"
        path.write_text(conf)
        arguments = ["-c", str(path)] if kind == 0 else ["--nats-config", str(path)]
        with running(kind, arguments=arguments) as server:
            yield server, path


@pytest.fixture(scope="module", params=KINDS)
def both(request: pytest.FixtureRequest) -> Iterator[tuple[NatsServer, Service]]:
    with serving(request.param) as (server, _):
        service = Service(server.port, answers={**ANSWERS, **LAST})
        yield server, service
        service.close()


Both = tuple[NatsServer, Service]


@pytest.mark.parametrize("name", ANSWERS)
def test_who_is_let_in(both: Both, name: str) -> None:
    wire = heard(both[0].port, connect(name))
    if name in LET_IN:
        assert wire.heard.data == b"PONG\r\n"
    else:
        assert (wire.heard.data, wire.heard.closed) == (VIOLATION, True)
    wire.close()


def test_who_is_refused_again_and_again_is_few_lines(both: Both) -> None:
    server, service = both
    asked, before = len(service.requests), server.said().count("auth_callout: ")
    clients = [Wire(server.port) for _ in range(30)]  # of one address: most of their answers wait
    for client in clients:
        client.send(connect("refused"))
    wait_until(lambda: len(service.requests) == asked + 30, "the service is asked about all")
    heard(server.port, connect("refused")).close()
    for client in clients:
        client.close()
    lines = server.said().count("auth_callout: ") - before
    assert server.is_real or 0 < lines <= SAME * server.acceptors + 1


def test_what_the_service_is_told(both: Both) -> None:
    server, service = both
    more = {
        "name": "n",
        "lang": "l",
        "version": "v",
        "protocol": 1,
        "auth_token": "t",
        "jwt": "j",
        "nkey": "",
        "sig": "",
    }
    wire = heard(server.port, connect("good", "secret", **more))
    token, request = service.requests[-1]
    info = json.loads(wire.info[len("INFO ") :])
    nats = request["nats"]
    assert nats_nkeys.verify(request["iss"], token.rpartition(".")[0].encode(), _signature(token))
    assert nats_nkeys.is_public(nats_nkeys.USER, nats["user_nkey"])
    assert abs(time.time() - request["iat"]) < 60
    assert request["exp"] - request["iat"] in (2, 3)
    assert json.loads(base64.urlsafe_b64decode(token.split(".")[0] + "==")) == {"typ": "JWT", "alg": "ed25519-nkey"}
    assert {name: request[name] for name in ("aud", "iss", "sub")} == {
        "aud": "nats-authorization-request", "iss": nats["server_id"]["id"], "sub": ISSUER.public,
    }  # fmt: skip
    assert request.keys() == {"aud", "exp", "jti", "iat", "iss", "sub", "nats"}
    assert nats == {
        "server_id": {
            "name": info["server_name"], "host": "127.0.0.1", "id": request["iss"], "version": info["version"],
        },
        "user_nkey": nats["user_nkey"],
        "client_info": {
            "host": wire.address, "id": info["client_id"], "user": "good", "name": "n", "kind": "Client",
            "type": "nats",
        },
        "connect_opts": {
            "auth_token": "t", "user": "good", "pass": "secret", "name": "n", "lang": "l", "version": "v",
            "protocol": 1,
        },
        "type": "authorization_request",
        "version": 2,
    }  # fmt: skip
    wire.close()


def _signature(token: str) -> bytes:
    part = token.rpartition(".")[2]
    return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))


def test_what_they_may(both: Both) -> None:
    wire = heard(both[0].port, connect("limited"), b"PUB a.x 1\r\nx\r\nPUB b.x 1\r\nx\r\nSUB b.x 1\r\nSUB a.x 2\r\n")
    assert wire.heard.data == (
        b"-ERR 'Permissions Violation for Publish to \"b.x\"'\r\n"
        b"-ERR 'Permissions Violation for Subscription to \"b.x\"'\r\nPONG\r\n"
    )
    wire.close()


def test_they_are_of_the_account_that_the_service_says(both: Both) -> None:
    known, other, elsewhere = (heard(both[0].port, connect(n)) for n in ("known", "good", "of the global account"))
    for wire in (other, elsewhere):
        wire.send(b"SUB x 1\r\n")
        wire.barrier()
    known.send(b"PUB x 2\r\nhi\r\n")
    known.barrier()
    wait_until(lambda: b"MSG x 1 2" in _more(other), "it has come")
    elsewhere.barrier()
    assert b"MSG" not in elsewhere.heard.data
    for wire in (known, other, elsewhere):
        wire.close()


def _more(wire: Wire) -> bytes:
    wire.receive_what_is_there()
    return wire.heard.data


@pytest.mark.parametrize("name", ["of the service's account", "auth"])
def test_nobody_asks_the_service_but_the_server(both: Both, name: str) -> None:
    wire = heard(both[0].port, connect(name, "x"), f"PUB {SUBJECT} 1\r\nx\r\n".encode())
    assert wire.heard.data == f"-ERR 'Permissions Violation for Publish to \"{SUBJECT}\"'\r\nPONG\r\n".encode()
    wire.close()


def test_the_service_is_not_asked_about_itself(both: Both) -> None:
    server, service = both
    before = len(service.requests)
    wire = heard(server.port, connect("auth", "wrong"))
    assert wire.heard.data == VIOLATION
    assert len(service.requests) == before
    wire.close()


def test_who_may_stay_for_some_time_is_cut_off(both: Both) -> None:
    wire = heard(both[0].port, connect("soon over"))
    assert wire.heard.data == b"PONG\r\n"
    while not wire.heard.closed:
        wire.receive()
    assert wire.heard.data.endswith(b"-ERR 'User Authentication Expired'\r\n")
    wire.close()


def test_who_comes_in_its_last_second_hears_that_its_time_is_over(both: Both) -> None:
    for _ in range(5):  # on a busy machine that second may be over before the server has the answer
        wire = Wire(both[0].port, address=elsewhere())
        wire.send(connect("in its last second"))
        while not wire.heard.closed:
            wire.receive()
        wire.close()
        if wire.heard.data != VIOLATION:
            break
    assert wire.heard.data.endswith(b"-ERR 'User Authentication Expired'\r\n")


@pytest.mark.parametrize("kind", KINDS)
def test_without_an_answer_nobody_is_let_in(kind: int) -> None:
    with serving(kind, CONF.replace("timeout: 2", "timeout: 0.5")) as (server, _):
        wire = heard(server.port, connect("good"))
        assert (wire.heard.data, wire.heard.closed) == (VIOLATION, True)
        wire.close()


@pytest.mark.parametrize("kind", KINDS)
def test_of_some_accounts_alone(kind: int) -> None:
    """Users of others are who the file says; whom the file does not know is asked about."""
    conf = CONF.replace("auth_users: [auth]", "auth_users: [auth], allowed_accounts: [AUTH]")
    with serving(kind, conf) as (server, _):
        service = Service(server.port)
        for name, password, comes in (("known", "x", True), ("known", "wrong", True), ("good", "p", True)):
            wire = heard(server.port, connect(name, password))
            assert (wire.heard.data == b"PONG\r\n") == comes
            wire.close()
        asked = [request["nats"]["connect_opts"].get("pass") for _, request in service.requests]
        assert asked == ["wrong", "p"]
        service.close()


SEALED: Final = CONF.replace("auth_users", f"xkey: {XKEY.public}, auth_users")


@pytest.mark.parametrize("kind", KINDS)
def test_requests_and_answers_may_be_sealed(kind: int) -> None:
    """Whoever seals an answer is believed, whatever key has signed it; who does not, needs the issuer's."""
    with serving(kind, SEALED) as (server, _):
        for seals in (True, False):
            service = Service(server.port, seals=seals)
            for name in ANSWERS:
                if name == "soon over":
                    continue
                wire = heard(server.port, connect(name))
                comes = name in LET_IN or (seals and name == "answered by another key")
                assert (wire.heard.data == b"PONG\r\n") == comes, (name, seals)
                wire.close()
            for header, (_, request) in zip(service.headers, service.requests, strict=True):
                assert header == f"NATS/1.0\r\nNats-Server-Xkey: {request['nats']['server_id']['xkey']}\r\n\r\n"
            service.close()


@pytest.mark.parametrize("kind", KINDS)
def test_an_answer_that_nobody_can_open_lets_nobody_in(kind: int) -> None:
    answers: Answers = {
        "cut": lambda r: "xkv1",
        "short": lambda r: "xkv1" + "x" * 30,
        "other": lambda r: "x" * 200,
        "long": lambda r: "xkv1" + "x" * 900,
    }
    with serving(kind, SEALED) as (server, _):
        service = Service(server.port, answers=answers)
        for name in answers:
            wire = heard(server.port, connect(name))
            assert (wire.heard.data, wire.heard.closed) == (VIOLATION, True)
            wire.close()
        service.close()


@pytest.mark.parametrize("kind", KINDS)
def test_who_was_let_in_is_asked_about_anew_when_the_file_is_read_anew(kind: int) -> None:
    """By ending its connection without a word, after which clients come again; others stay."""
    with serving(kind) as (server, path):
        service = Service(server.port)
        good, limited = heard(server.port, connect("good")), heard(server.port, connect("limited"))
        path.write_text(CONF + "max_payload: 9000\n")
        server.process.send_signal(signal.SIGHUP)
        for wire in (good, limited):
            while not wire.heard.closed:
                wire.receive()
            assert b"-ERR" not in wire.heard.data
            wire.close()
        before = len(service.requests)
        again = heard(server.port, connect("good"))
        assert again.heard.data == b"PONG\r\n"
        assert len(service.requests) == before + 1
        again.close()
        service.close()


WITHOUT: Final = """
accounts {
  AUTH { users: [{user: auth, password: x}] }
  APP { users: [{user: good, password: x}] }
}
"""


@pytest.mark.parametrize("kind", KINDS[1:])
def test_a_callout_may_come_and_go_while_the_server_runs(kind: int) -> None:
    """A nats-server must be started again for that, which ends all connections. Here users of the service stay."""
    of_stranger = CONF.replace(ISSUER.public, STRANGER.public)
    with serving(kind, WITHOUT) as (server, path):
        service = Service(server.port)
        wire = heard(server.port, connect("good", "x"))

        def comes() -> tuple[int, bool]:
            """How often the service is asked about a client, and whether it is let in."""
            nonlocal wire
            wire.close()
            before = len(service.requests)
            wire = heard(server.port, connect("good", "x"))
            return len(service.requests) - before, not wire.heard.closed

        assert comes() == (0, True)
        for conf, expected in ((CONF, (1, True)), (WITHOUT, (0, True)), (CONF, (1, True)), (of_stranger, (1, False))):
            path.write_text(conf)
            server.process.send_signal(signal.SIGHUP)
            while not wire.heard.closed:
                wire.receive()
            assert b"-ERR" not in wire.heard.data
            # The acceptors read it one after the other.
            wait_until(lambda expected=expected: comes() == expected, "it holds")
        assert not service.wire.heard.closed
        service.close()


@pytest.mark.parametrize(
    ("block", "said"),
    [
        ("{}", "auth_callout needs an issuer"),
        ("{issuer: x}", '"x" is not the public key of an account'),
        (f"{{issuer: {ISSUER.public}}}", "auth_callout needs auth_users"),
        (f"{{issuer: {ISSUER.public}, users: [a], x: 1}}", 'unknown key "x" of auth_callout'),
        (f"{{issuer: {ISSUER.public}, users: [a], allowed_accounts: [NONE]}}", 'there is no account "NONE"'),
        (f"{{issuer: {ISSUER.public}, users: [a], xkey: X}}", '"X" is not the public key of an xkey'),
    ],
)
def test_what_is_wrong_in_the_block_is_said(tmp_path: Path, block: str, said: str) -> None:
    assert complaint(tmp_path, f"\nauthorization {{ auth_callout: {block} }}") == f"nats.conf:2: {said}"


TOKEN: Final = "the token of a user of all protocols"


@contextlib.contextmanager
def serving_with_users(tmp_path: Path) -> Iterator[tuple[NatsServer, Path]]:
    """The name that the service knows is one of a user that all protocols have in common, too."""
    path, users = tmp_path / "nats.conf", tmp_path / "users.toml"
    path.write_text(CONF)
    digest = hashlib.sha256(TOKEN.encode()).hexdigest()
    users.write_text(f'[users.limited]\ntokens = ["sha256:{digest}"]\npublish = ["*"]\nconsume = ["*"]\n')
    users.chmod(0o600)
    with running(1, arguments=["--nats-config", str(path), "--users", str(users)]) as server:
        yield server, path


def test_who_the_service_has_let_in_is_no_user_of_all_protocols(tmp_path: Path) -> None:
    with serving_with_users(tmp_path) as (server, path):
        service = Service(server.port)
        limited = heard(server.port, connect("limited", "", auth_token=TOKEN))
        assert limited.heard.data == b"PONG\r\n"
        users = path.with_name("users.toml")
        users.write_text(users.read_text().replace("users.limited", "users.other"))
        server.process.send_signal(signal.SIGHUP)
        while not limited.heard.closed:
            limited.receive()
        assert limited.heard.data == b"PONG\r\n"
        limited.close()
        limited = heard(server.port, connect("limited", "", auth_token=TOKEN))
        limited.send(b"PUB b.x 1\r\nx\r\n")
        limited.barrier()
        assert b"Permissions Violation" in limited.heard.data
        limited.close()
        service.close()


def test_a_request_may_be_larger_than_what_clients_may_send() -> None:
    with serving(1, CONF + "max_payload: 2000\n") as (server, _):
        service = Service(server.port)
        for name, data in (("a stranger", b""), ("good", b"PONG\r\n")):
            wire = heard(server.port, connect(name, name="x" * 3000) if not data else connect(name))
            assert wire.heard.data == (data or VIOLATION)
            wire.close()
        assert [len(r["nats"]["connect_opts"].get("name", "")) for _, r in service.requests] == [3000, 0]
        service.close()


def test_strangers_leave_half_of_the_places_to_who_has_come_before() -> None:
    places, half = Places(), MOST // 2

    def taken(host: str, times: int = MOST) -> int:
        return sum(places.take(host) is not None for _ in range(times))

    before = places.take("192.0.2.1")
    assert before is not None
    places.give(before, was_good=True)
    assert taken("10.0.0.1") == half // 2, "as many as are left"
    assert taken("::ffff:10.0.0.1", 1) == 0, "the same one"
    assert taken("2001:db8::1", 10) == 10
    assert [taken(f"10.0.{number >> 8}.{number & 255}", 1) for number in range(2, MOST)].count(1) == (
        half - half // 2 - 10
    )
    assert taken("10.9.9.9", 1) == 0
    assert taken("192.0.2.1") == (MOST - half) // 2
    assert taken("192.0.2.2", 1) == 0, "nobody has come from there"


def test_what_has_ended_counts_no_more() -> None:
    places = Places()
    taken = [place for _ in range(MOST) if (place := places.take("2001:db8::1")) is not None]
    assert places.take("2001:db8::2") is None, "the same network"
    for place in taken:
        places.give(place, was_good=False)
    for number in range(GOOD_HOSTS + 1):
        place = places.take(f"10.0.{number >> 8}.{number & 255}")
        assert place is not None and place.is_strangers
        places.give(place, was_good=True)
    first, last = places.take("10.0.0.0"), places.take("10.0.32.0")
    assert first is not None and first.is_strangers, "of so many the last are known"
    assert last is not None and not last.is_strangers
