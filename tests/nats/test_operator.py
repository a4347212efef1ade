"""Operator mode: what clients with JWTs are let do, by a nats-server and by us."""

from __future__ import annotations

import base64
import contextlib
import http.server
import json
import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import nkeys
import pytest

from tests.nats.jwts import Account, Key, Operator
from tests.nats.servers import NatsServer, nats_server, running
from tests.nats.test_mesh import all_children
from tests.nats.wire import Wire
from tests.servers import comm_of, wait_until

KINDS = [
    pytest.param(0, id="nats-server", marks=pytest.mark.skipif(nats_server() is None, reason="no nats-server")),
    pytest.param(1, id="shards-1"),
    pytest.param(2, id="shards-2"),
]
VIOLATION: Final = b"-ERR 'Authorization Violation'\r\n"

OPERATOR, SIGNER, STRANGER = Operator(), Operator("signer"), Operator("stranger")
SYSTEM, A, B, C, SMALL, STRICT, OLD = (Account(name) for name in ("SYS", "A", "B", "C", "SMALL", "STRICT", "OLD"))
CALLING = Account("CALLING")  # a service says who may come, which nobody is
A_SIGNER, A_SCOPED, B_SIGNER = Account("A signer"), Account("A scoped"), Account("B signer")
OLD_SIGNER = Account("OLD signer")
GONE, REVOKED = A.user("gone"), A.user("revoked", iat=1_700_000_000)

TEMPLATE: Final = {
    "pub": {"allow": ["{{name()}}.>", "tag.{{tag(team)}}", "of.{{account-tag(zone)}}.{{subject()}}"], "deny": ["no.>"]},
    "sub": {"allow": ["_INBOX.>", "{{account-name()}}.*"]},
    "subs": 3, "data": -1, "payload": 100, "allowed_connection_types": ["STANDARD"],
}  # fmt: skip


def accounts() -> dict[str, str]:
    """Their JWTs, by their names."""
    a = OPERATOR.account(
        A, name="acc", tags=["zone:here"],
        signing_keys=[A_SIGNER.public, {"kind": "user_scope", "key": A_SCOPED.public, "template": TEMPLATE}],
        revocations={REVOKED[0].public: 1_700_000_001},
        default_permissions={"pub": {"deny": ["denied"]}},
        exports=[
            {"name": "open", "subject": "open.>", "type": "stream"},
            {"name": "private", "subject": "private.*", "type": "stream", "token_req": True},
            {"name": "ask", "subject": "ask", "type": "service"},
            {"name": "secret", "subject": "secret", "type": "service", "token_req": True,
             "revocations": {C.public: 1_700_000_001}},
            {"name": "mine", "subject": "mine.*", "type": "stream", "account_token_position": 2},
        ],
        mappings={"old.*": [
            {"subject": "new.$1", "weight": 100}, {"subject": "elsewhere", "weight": 100, "cluster": "elsewhere"},
        ]},
    )  # fmt: skip

    def imports(account: Account) -> list[dict[str, Any]]:
        return [
            {"name": "open", "subject": "open.>", "account": A.public, "type": "stream", "to": "from.a"},
            {"name": "local", "subject": "open.*", "account": A.public, "type": "stream", "local_subject": "local.$1"},
            {"name": "private", "subject": "private.x", "account": A.public, "type": "stream",
             "token": A.activation(account, "stream", "private.x")},
            {"name": "unasked", "subject": "private.y", "account": A.public, "type": "stream"},
            {"name": "ask", "subject": "ask", "account": A.public, "type": "service", "local_subject": "please"},
            {"name": "secret", "subject": "secret", "account": A.public, "type": "service",
             "token": A.activation(account, "service", "secret")},
        ]  # fmt: skip

    return {
        A.public: a,
        B.public: SIGNER.account(B, signing_keys=[B_SIGNER.public], imports=imports(B)),
        C.public: OPERATOR.account(C, {"disallow_bearer": True}, imports=imports(C)),
        SMALL.public: OPERATOR.account(SMALL, {"conn": 1, "subs": 2, "payload": 10}),
        SYSTEM.public: OPERATOR.account(SYSTEM),
        CALLING.public: OPERATOR.account(
            CALLING, authorization={"auth_users": [CALLING.user("service")[0].public], "allowed_accounts": ["*"]}
        ),
        OLD.public: SIGNER.account(
            OLD, version=1, tags=["a:b"], signing_keys=[OLD_SIGNER.public],
            revocations={OLD.user("gone")[0].public: 1_700_000_001},
            imports=[
                {"name": "private", "subject": "private.x", "account": A.public, "type": "stream",
                 "token": A.activation(OLD, "stream", "private.x", version=1)},
            ],
        ),
    }  # fmt: skip


def conf(more: str = "", resolver: str = "MEMORY", preload: Mapping[str, str] | None = None) -> str:
    known = accounts() if preload is None else preload
    own = OPERATOR.own(signing_keys=[SIGNER.public], system_account=SYSTEM.public)
    listed = "\n".join(f"  {name}: {jwt}" for name, jwt in known.items())
    return f"operator: {own}\nresolver: {resolver}\nresolver_preload {{\n{listed}\n}}\n{more}\n"


FILES: Final[dict[int, Path]] = {}  # of servers, by their ports


@contextlib.contextmanager
def serving(kind: int, content: str) -> Iterator[NatsServer]:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "nats-server.conf"
        path.write_text(content)
        with running(kind, arguments=["-c" if kind == 0 else "--nats-config", str(path)]) as server:
            FILES[server.port] = path
            yield server


@pytest.fixture(scope="module", params=KINDS)
def server(request: pytest.FixtureRequest) -> Iterator[NatsServer]:
    with serving(request.param, conf()) as server:
        yield server


def connect(server: NatsServer, user: tuple[Key, str], *, sig: bytes | None = None, **options: object) -> Wire:
    wire = Wire(server.port)
    introduce(wire, user, sig=sig, **options)
    return wire


def introduce(wire: Wire, user: tuple[Key, str], *, sig: bytes | None = None, **options: object) -> None:
    key, jwt = user
    nonce = json.loads(wire.info[5:])["nonce"]
    signature = base64.urlsafe_b64encode(key.sign(nonce.encode()) if sig is None else sig).decode().rstrip("=")
    said = {"verbose": False, "pedantic": False, "jwt": jwt, "sig": signature, **options}
    wire.send(b"CONNECT " + json.dumps(said).encode() + b"\r\n")


def heard(server: NatsServer, user: tuple[Key, str], *lines: bytes, **options: object) -> bytes:
    """What a client is told, up to its PONG."""
    wire = connect(server, user, **options)  # type: ignore[arg-type]
    try:
        wire.send(b"".join(lines))
        wire.barrier()
        return wire.heard.data.removesuffix(b"PONG\r\n")
    finally:
        wire.close()


# --- who comes --------------------------------------------------------------------------------------------------------


def test_info_asks_for_a_signature(server: NatsServer) -> None:
    info = json.loads(Wire(server.port).info[5:])
    assert info["auth_required"] is True and info["nonce"]


def span(start: str, end: str) -> dict[str, str]:
    return {"start": start, "end": end}


def as_signed_by_the_other(user: tuple[Key, str], account: Account, *, header: bool) -> tuple[Key, str]:
    """With the signature that the other version has."""
    head, claims, _ = user[1].split(".")
    signature = account.sign((f"{head}.{claims}" if header else claims).encode())
    return user[0], f"{head}.{claims}.{base64.urlsafe_b64encode(signature).decode().rstrip('=')}"


NOW = time.time()
DAY = 86_400
GOOD = {
    "of an account": A.user("u1"),
    "of a signing key": A_SIGNER.user("u2", of=A),
    "of an account that another key of the operator has signed": B.user("u3"),
    "that will expire": A.user("u4", exp=int(NOW) + DAY),
    "that has begun": A.user("u5", nbf=int(NOW) - DAY),
    "from here": A.user("u6", src=["10.0.0.0/8", "127.0.0.0/8"]),
    "of a type of connection": A.user("u7", allowed_connection_types=["STANDARD", "MQTT"]),
    "of a type that nobody knows beside one": A.user("u8", allowed_connection_types=["STANDARD", "PIGEON"]),
    "at all times": A.user("u9", times=[span("00:00:00", "23:59:59"), span("12:00:00", "11:59:59")]),
    "with tags": A.user("u10", tags=["a:b"]),
    "of version 1": OLD.user("u11", version=1, tags=["a:b"]),
    "of version 1 and a signing key": OLD_SIGNER.user("u12", of=OLD, version=1),
    "of version 1 in an account of version 2": A.user("u13", version=1, src="10.0.0.0/8,127.0.0.0/8"),
    "of version 2 in an account of version 1": OLD.user("u14"),
    "who is a service that says who may come": CALLING.user("service"),
    "issued after it was revoked": A.user("revoked", iat=1_700_000_002),
}
BAD = {
    "that has expired": A.user("b1", exp=int(NOW) - 1),
    "that has not begun": A.user("b2", nbf=int(NOW) + DAY),
    "from elsewhere": A.user("b3", src=["10.0.0.0/8"]),
    "of another type of connection": A.user("b4", allowed_connection_types=["WEBSOCKET"]),
    "of a type that nobody knows": A.user("b5", allowed_connection_types=["PIGEON"]),
    "at another time": A.user("b6", times=[span("00:00:00", "00:00:00")]),
    "who was revoked": REVOKED,
    "of a key that is none of the account's": B_SIGNER.user("b7", of=A),
    "of an account that is not there": Account("nobody").user("b8"),
    "of version 1 who was revoked": OLD.user("gone", version=1),
    "of version 1 that has expired": OLD.user("b10", version=1, exp=int(NOW) - 1),
    "of version 1 and a key that is none of the account's": B_SIGNER.user("b11", of=OLD, version=1),
    "of version 1, signed as version 2": as_signed_by_the_other(OLD.user("b12", version=1), OLD, header=True),
    "of version 2, signed as version 1": as_signed_by_the_other(OLD.user("b13"), OLD, header=False),
    "about whom a service would have to be asked": CALLING.user("b14"),
    "that says too much for its signing key": A_SCOPED.user("b9", of=A),
}


@pytest.mark.parametrize("which", GOOD, ids=lambda which: which.replace(" ", "-"))
def test_a_user_is_let_in(server: NatsServer, which: str) -> None:
    assert heard(server, GOOD[which]) == b""


@pytest.mark.parametrize("which", BAD, ids=lambda which: which.replace(" ", "-"))
def test_a_user_is_not_let_in(server: NatsServer, which: str) -> None:
    assert heard(server, BAD[which]) == VIOLATION


def test_who_has_not_the_key_is_not_let_in(server: NatsServer) -> None:
    user = A.user("u1")
    assert heard(server, user, sig=bytes(64)) == VIOLATION
    assert heard(server, (A.user("u2")[0], user[1])) == VIOLATION
    assert heard(server, (user[0], "")) == VIOLATION
    assert heard(server, (user[0], "a.b.c")) == VIOLATION
    spoilt = user[1][:-4] + ("AAAA" if not user[1].endswith("AAAA") else "BBBB")
    assert heard(server, (user[0], spoilt)) == VIOLATION


def test_bearers_need_no_key(server: NatsServer) -> None:
    assert heard(server, A.user("bearer", bearer_token=True), sig=b"") == b""
    assert heard(server, C.user("bearer", bearer_token=True), sig=b"") == VIOLATION


# --- what they may ----------------------------------------------------------------------------------------------------


def test_permissions(server: NatsServer) -> None:
    user = A.user("p1", pub={"allow": ["yes.>"], "deny": ["yes.no"]}, sub={"allow": ["in.>", "q workers"]})
    publishes = b"PUB yes.a 0\r\n\r\nPUB yes.no 0\r\n\r\nPUB no 0\r\n\r\n"
    said = heard(server, user, publishes, b"SUB in.a 1\r\nSUB out 2\r\nSUB q workers 3\r\nSUB q 4\r\n")
    assert said == (
        b"-ERR 'Permissions Violation for Publish to \"yes.no\"'\r\n"
        b"-ERR 'Permissions Violation for Publish to \"no\"'\r\n"
        b"-ERR 'Permissions Violation for Subscription to \"out\"'\r\n"
        b"-ERR 'Permissions Violation for Subscription to \"q\"'\r\n"
    )


def test_default_permissions_are_of_those_that_have_none(server: NatsServer) -> None:
    line = b"PUB denied 0\r\n\r\n"
    refused = b"-ERR 'Permissions Violation for Publish to \"denied\"'\r\n"
    assert heard(server, A.user("d1"), line) == refused
    assert heard(server, A.user("d2", pub={"deny": ["other"]}), line) == b""
    assert heard(server, B.user("d3"), line) == b""


def test_answers_are_allowed_to_who_was_asked(server: NatsServer) -> None:
    service = connect(server, A.user("r1", sub={"allow": ["ask.me"]}, resp={"max": 1, "ttl": 60_000_000_000}))
    client = connect(server, A.user("r2"))
    service.send(b"SUB ask.me 1\r\n")
    service.barrier()
    client.send(b"SUB inbox 1\r\nPUB ask.me inbox 2\r\nhi\r\n")
    client.barrier()
    service.barrier()
    assert service.heard.data.endswith(b"MSG ask.me 1 inbox 2\r\nhi\r\nPONG\r\n")
    service.heard.data = b""
    service.asked = 0
    service.send(b"PUB inbox 2\r\nyo\r\nPUB inbox 2\r\nno\r\n")
    service.barrier()
    client.barrier()
    assert b'Permissions Violation for Publish to "inbox"' in service.heard.data
    assert client.heard.data.count(b"MSG inbox 1 2\r\n") == 1
    service.close()
    client.close()


def test_scopes_of_signing_keys(server: NatsServer) -> None:
    user = A_SCOPED.scoped("s1", A, name="me", tags=["team:red", "team:blue"])
    key = user[0].public.encode()
    good = b"".join(b"PUB %s 0\r\n\r\n" % one for one in (b"me.a", b"tag.red", b"tag.blue", b"of.here." + key))
    assert heard(server, user, good + b"SUB acc.x 1\r\n") == b""
    for subject in (b"you.a", b"tag.green", b"of.there." + key):
        refused = b"-ERR 'Permissions Violation for Publish to \"%s\"'\r\n" % subject
        assert heard(server, user, b"PUB %s 0\r\n\r\n" % subject) == refused
    assert b'Permissions Violation for Subscription to "x"' in heard(server, user, b"SUB x 1\r\n")
    assert b"Maximum Payload Violation" in heard(server, user, b"PUB me.a 101\r\n")


def test_limits_of_an_account(server: NatsServer) -> None:
    user = SMALL.user("l1")
    first = connect(server, user)
    first.barrier()
    assert first.heard.data == b"PONG\r\n"
    if server.acceptors < 2:
        assert heard(server, SMALL.user("l2")) == b"-ERR 'maximum account active connections exceeded'\r\n"
    first.heard.data, first.asked = b"", 0
    first.send(b"PUB a 11\r\n")
    first.receive()
    assert first.heard.data == b"-ERR 'Maximum Payload Violation'\r\n"
    first.close()


def test_limits_of_a_user(server: NatsServer) -> None:
    user = A.user("l3", subs=1, payload=5)
    assert heard(server, user, b"SUB a 1\r\nSUB b 2\r\n") == b"-ERR 'maximum subscriptions exceeded'\r\n"
    assert heard(server, user, b"PUB a 6\r\n") == b"-ERR 'Maximum Payload Violation'\r\n"


# --- what accounts share ----------------------------------------------------------------------------------------------


def test_streams_come_to_those_who_import_them(server: NatsServer) -> None:
    taker = connect(server, B.user("t1"))
    taker.send(b"SUB from.a.> 1\r\nSUB local.* 2\r\nSUB private.* 3\r\n")
    taker.barrier()
    old = connect(server, OLD.user("t2", version=1))
    old.send(b"SUB > 1\r\n")
    old.barrier()
    giver = connect(server, A.user("g1"))
    giver.send(b"PUB open.x 2\r\nhi\r\nPUB private.x 1\r\np\r\nPUB private.y 1\r\nq\r\n")
    giver.barrier()
    until(taker, b"private.x")
    taker.barrier()
    found = set(taker.heard.data.replace(b"PONG\r\n", b"").split(b"MSG ")) - {b""}
    assert found == {b"from.a.open.x 1 2\r\nhi\r\n", b"local.x 2 2\r\nhi\r\n", b"private.x 3 1\r\np\r\n"}
    until(old, b"private.x")
    old.barrier()
    assert old.heard.data.replace(b"PONG\r\n", b"") == b"MSG private.x 1 1\r\np\r\n"
    for wire in (taker, old, giver):
        wire.close()


def test_services_answer_those_who_import_them(server: NatsServer) -> None:
    service = connect(server, A.user("g2"))
    service.send(b"SUB ask 1\r\nSUB secret 2\r\n")
    service.barrier()
    for account, answered in ((B, {b"please", b"secret"}), (C, {b"please"})):
        for subject in (b"please", b"secret"):
            service.heard.data = b""
            asker = connect(server, account.user("k1"), no_responders=True, headers=True)
            asker.send(b"SUB inbox 1\r\nPUB %s inbox 1\r\nx\r\n" % subject)
            if subject in answered:
                line = until(service, b"x\r\n").partition(b"MSG ")[2].split(b" ")
                service.send(b"PUB %s 2\r\nyo\r\n" % line[2])
                until(asker, b"MSG inbox 1 2\r\nyo\r\n")
            else:
                # Its activation was revoked.
                until(asker, b"503")
            asker.close()
    service.close()


def test_mappings_of_an_account(server: NatsServer) -> None:
    wire = connect(server, A.user("m1"))
    wire.barrier()  # a nats-server maps nothing of what it has read together with CONNECT
    wire.send(b"SUB new.* 1\r\nPUB old.x 2\r\nhi\r\n")
    wire.barrier()
    assert wire.heard.data == b"PONG\r\nMSG new.x 1 2\r\nhi\r\nPONG\r\n"
    wire.close()


def until(wire: Wire, what: bytes) -> bytes:
    while what not in wire.heard.data:
        assert not wire.heard.closed
        wire.receive()
    return wire.heard.data


# --- time -------------------------------------------------------------------------------------------------------------


def test_a_user_whose_time_is_over_is_cut_off(server: NatsServer) -> None:
    wire = connect(server, A.user("e1", exp=int(time.time()) + 2))
    wire.barrier()
    assert wire.heard.data == b"PONG\r\n"
    while not wire.heard.closed:
        wire.receive()
    assert wire.heard.data == b"PONG\r\n-ERR 'User Authentication Expired'\r\n"


def request(wire: Wire, subject: str, body: bytes) -> dict[str, Any]:
    wire.heard.data = b""
    wire.send(b"SUB answer 77\r\nPUB %s answer %d\r\n%s\r\nUNSUB 77 1\r\n" % (subject.encode(), len(body), body))
    found = until(wire, b"}\r\n").partition(b"MSG answer 77 ")[2]
    answer: dict[str, Any] = json.loads(found.partition(b"\r\n")[2].strip())
    return answer


@pytest.mark.parametrize("kind", KINDS)
def test_an_account_may_be_told_anew_of_itself(kind: int) -> None:
    """Who is revoked goes, who is not stays, with what it may now; what does not count changes nothing."""
    with serving(kind, conf()) as server:
        admin = connect(server, SYSTEM.user("admin"))
        stays = connect(server, SMALL.user("stays"))
        stays.barrier()
        goes = connect(server, SMALL.user("goes"))
        if server.acceptors < 2:
            goes.barrier()
            assert b"maximum account active connections exceeded" in goes.heard.data
        wanted = OPERATOR.account(SMALL, {"conn": 9, "subs": 9, "payload": 20})
        subject = f"$SYS.REQ.ACCOUNT.{SMALL.public}.CLAIMS.UPDATE"
        said = request(admin, subject, wanted.encode())["data"]
        assert said == {"account": SMALL.public, "code": 200, "message": "jwt updated"}
        goes.close()
        goes = connect(server, SMALL.user("goes"))
        for wire in (stays, goes):
            wire.barrier()
            wire.heard.data, wire.asked = b"", 0
        stays.send(b"PUB a 15\r\n123456789012345\r\n")
        stays.barrier()
        assert stays.heard.data == b"PONG\r\n"

        bad = {
            "": "jwt update error - request body is empty",
            OPERATOR.account(A): "jwt update resulted in error - subject does not match jwt content",
        }
        for jwt, why in bad.items():
            assert request(admin, subject, jwt.encode())["error"]["description"] == why
        assert request(admin, subject, STRANGER.account(SMALL).encode())["error"]["code"] == 500
        unknown = Account("nobody")
        skipped = request(admin, f"$SYS.REQ.ACCOUNT.{unknown.public}.CLAIMS.UPDATE", OPERATOR.account(unknown).encode())
        assert skipped["data"]["message"] == "jwt update skipped"

        revoked = OPERATOR.account(SMALL, revocations={SMALL.user("goes")[0].public: int(time.time())})
        assert request(admin, f"$SYS.ACCOUNT.{SMALL.public}.CLAIMS.UPDATE", revoked.encode())["data"]["code"] == 200
        while not goes.heard.closed:
            goes.receive()
        assert goes.heard.data == b"-ERR 'User Authentication Revoked'\r\n"
        assert heard(server, SMALL.user("goes")) == VIOLATION
        stays.barrier()
        assert not stays.heard.closed
        for wire in (admin, stays, goes):
            wire.close()


@pytest.mark.parametrize("kind", KINDS)
def test_accounts_are_read_anew_with_the_file(kind: int) -> None:
    known = accounts()
    with serving(kind, conf(preload=known)) as server:
        stays, goes = connect(server, A.user("stays")), connect(server, A.user("goes"))
        for wire in (stays, goes):
            wire.barrier()
            wire.heard.data, wire.asked = b"", 0
        revoked = OPERATOR.account(A, revocations={A.user("goes")[0].public: int(time.time())})
        FILES[server.port].write_text(conf(preload={**known, A.public: revoked}))
        server.process.send_signal(signal.SIGHUP)
        while not goes.heard.closed:
            goes.receive()
        assert goes.heard.data == b"-ERR 'User Authentication Revoked'\r\n"
        stays.barrier()
        assert stays.heard.data == b"PONG\r\n"
        stays.close()
        goes.close()


# --- the system account, pinned accounts, a sentinel ------------------------------------------------------------------


def test_the_system_account_is_the_operators(server: NatsServer) -> None:
    wire = connect(server, SYSTEM.user("s1"))
    wire.send(b"SUB inbox 1\r\nPUB $SYS.REQ.SERVER.PING inbox 0\r\n\r\n")
    assert b'"server"' in until(wire, b"\r\n{")
    wire.close()


@pytest.mark.parametrize("kind", KINDS[:2])
def test_pinned_accounts_and_a_sentinel(kind: int) -> None:
    sentinel = A.user("sentinel", bearer_token=True)[1]
    more = f"resolver_pinned_accounts: [{A.public}]\ndefault_sentinel: {sentinel}"
    with serving(kind, conf(more)) as server:
        assert heard(server, A.user("u1")) == b""
        assert heard(server, B.user("u1")) == VIOLATION
        assert heard(server, SYSTEM.user("u1")) == b""
        assert heard(server, (A.user("u1")[0], "")) == b""


@pytest.mark.parametrize("kind", KINDS[:2])
def test_strict_operators_want_signing_keys(kind: int) -> None:
    own = OPERATOR.own(signing_keys=[SIGNER.public], strict_signing_key_usage=True)
    strict = SIGNER.account(STRICT, signing_keys=[A_SIGNER.public])
    plain = OPERATOR.account(A)
    preload = f"resolver_preload {{ {STRICT.public}: {strict}, {A.public}: {plain} }}"
    content = f"operator: {own}\nresolver: MEMORY\n{preload}\n"
    with serving(kind, content) as server:
        assert heard(server, A_SIGNER.user("u1", of=STRICT)) == b""
        assert heard(server, STRICT.user("u2")) == VIOLATION
        assert heard(server, A.user("u3")) == VIOLATION


# --- a resolver elsewhere ---------------------------------------------------------------------------------------------


@contextlib.contextmanager
def resolver(known: Mapping[str, str]) -> Iterator[tuple[str, list[str]]]:
    """Its URL, and what it was asked for."""
    asked: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            name = self.path.removeprefix("/accounts/")
            asked.append(name)
            body = known.get(name, "").encode()
            self.send_response(200 if body or not name else 404)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    found = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=found.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{found.server_port}/accounts/", asked
    finally:
        found.shutdown()
        thread.join()
        found.server_close()


@pytest.mark.parametrize("kind", KINDS)
def test_accounts_are_fetched_from_a_url(kind: int) -> None:
    with resolver(accounts()) as (url, asked), serving(kind, conf(resolver=f"URL({url})", preload={})) as server:
        assert heard(server, B.user("u1")) == b""
        assert heard(server, Account("nobody").user("u2")) == VIOLATION
        assert B.public in asked
        test_streams_come_to_those_who_import_them(server)


@pytest.mark.parametrize("kind", KINDS[:2])
@pytest.mark.parametrize("said", ["in the file", "by the operator", "by both"])
def test_where_accounts_are_is_said_in_the_file_or_by_the_operator(kind: int, said: str) -> None:
    """With a slash behind it or without; the file counts for more."""
    with resolver(accounts()) as (url, _):
        server_url = {"by the operator": url.removesuffix("/accounts/"), "by both": "http://127.0.0.1:1"}.get(said, "")
        own = OPERATOR.own(signing_keys=[SIGNER.public], **({"account_server_url": server_url} if server_url else {}))
        content = f"operator: {own}\n"
        if said != "by the operator":
            content += f"resolver: URL({url.removesuffix('/')})\n"
        with serving(kind, content) as server:
            assert heard(server, B.user("u1")) == b""
            assert heard(server, Account("nobody").user("u2")) == VIOLATION


@pytest.mark.parametrize("kind", [2, 3])
def test_an_account_that_one_acceptor_has_fetched_is_known_to_all(kind: int) -> None:
    """Publishers are there already, at all acceptors: each message comes to who imports it, from the first on."""
    takers = [Account(f"taker {number}") for number in range(12)]
    imports = [{"name": "open", "subject": "open.>", "account": A.public, "type": "stream"}]
    known = {**accounts(), **{one.public: OPERATOR.account(one, imports=imports) for one in takers}}
    with resolver(known) as (url, _), serving(kind, conf(resolver=f"URL({url})", preload={})) as server:
        givers = [connect(server, A.user("giver")) for _ in range(8)]
        for giver in givers:
            giver.barrier()
        for account in takers:
            taker = connect(server, account.user("taker"))
            taker.send(b"SUB open.> 1\r\n")
            taker.barrier()
            for number, giver in enumerate(givers):
                giver.send(b"PUB open.%d 0\r\n\r\n" % number)
            for number in range(len(givers)):
                until(taker, b"MSG open.%d 1 0\r\n" % number)
            taker.close()
        server.process.send_signal(signal.SIGHUP)
        assert heard(server, takers[0].user("taker")) == b""
        for giver in givers:
            giver.barrier()
            assert not giver.heard.closed
            giver.close()


def test_nobody_waits_for_an_acceptor_that_is_dead() -> None:
    content = conf("authorization: {timeout: 60}", resolver="URL(%s)", preload={})
    with resolver(accounts()) as (url, asked), serving(2, content % url) as server:
        waiting = [Wire(server.port) for _ in range(16)]
        victim = next(pid for pid in all_children(server.process.pid) if comm_of(pid) == "mq-acceptor-1")
        os.kill(victim, signal.SIGSTOP)
        for wire in waiting:
            introduce(wire, B.user("u1"))
        wait_until(lambda: B.public in asked, "it is fetched")
        os.kill(victim, signal.SIGKILL)
        for wire in waiting:
            wire.barrier()
        there = [wire.heard.data.replace(b"PING\r\n", b"") for wire in waiting if not wire.heard.closed]
        assert set(there) == {b"PONG\r\n"}
        assert heard(server, B.user("u2")) == b""
        for wire in waiting:
            wire.close()


def test_a_resolver_that_is_gone_keeps_nobody_waiting() -> None:
    with resolver(accounts()) as (url, _):
        pass
    with serving(1, conf(resolver=f"URL({url})", preload={A.public: accounts()[A.public]})) as server:
        assert heard(server, A.user("u1")) == b""
        assert heard(server, B.user("u2")) == VIOLATION
        assert heard(server, A.user("u3")) == b""


Ill = Callable[[http.server.BaseHTTPRequestHandler, threading.Event], None]


def _says_nothing(asked: http.server.BaseHTTPRequestHandler, over: threading.Event) -> None:
    over.wait()


def _never_ends(asked: http.server.BaseHTTPRequestHandler, over: threading.Event) -> None:
    """A byte now and then, of what claims to be a JWT."""
    with contextlib.suppress(OSError):
        asked.send_response(200)
        asked.send_header("Content-Length", "1000")
        asked.end_headers()
        while not over.wait(0.05):
            asked.wfile.write(b"e")


def _is_endless(asked: http.server.BaseHTTPRequestHandler, over: threading.Event) -> None:
    with contextlib.suppress(OSError):
        asked.send_response(200)
        asked.end_headers()
        while not over.is_set():
            asked.wfile.write(bytes(1 << 16))


def _of(content: bytes, status: int = 200, **headers: str) -> Ill:
    def answer(asked: http.server.BaseHTTPRequestHandler, over: threading.Event) -> None:
        asked.send_response(status)
        for name, value in {"Content-Length": str(len(content)), **headers}.items():
            asked.send_header(name, value)
        asked.end_headers()
        asked.wfile.write(content)

    return answer


ILL: Final[dict[str, Ill]] = {
    "that says nothing": _says_nothing,
    "that never ends": _never_ends,
    "that sends too much": _is_endless,
    "that sends garbage": _of(b"\xff\x00 garbage"),
    "that sends a page": _of(b"<html>an account</html>"),
    "that has another's": _of(OPERATOR.account(A).encode()),
    "whose operator is a stranger": _of(STRANGER.account(Account("whose operator is a stranger")).encode()),
    "that fails": _of(b"", 500),
    "that leads elsewhere for ever": _of(b"", 302, Location="again"),
    "that hangs up": lambda asked, over: asked.connection.close(),
}


def test_a_resolver_that_is_ill_lets_nobody_in_and_keeps_nobody_out() -> None:
    """Neither those of accounts that are known, nor those that it has, while others are being asked for."""
    over, known = threading.Event(), accounts()
    sick = {name: Account(name) for name in ILL}
    by_key = {account.public: ILL[name] for name, account in sick.items()}

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            name = self.path.rpartition("/")[2]
            by_key.get(name, _of(known.get(name, "").encode()))(self, over)

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    class Server(http.server.ThreadingHTTPServer):
        request_queue_size = 256
        daemon_threads = True

        def handle_error(self, request: object, client_address: object) -> None:
            pass

    found = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=found.serve_forever)
    thread.start()
    url = f"http://127.0.0.1:{found.server_port}/accounts/"
    try:
        with serving(1, conf("authorization: {timeout: 30}", f"URL({url})", {A.public: known[A.public]})) as server:
            waiting = [(name, connect(server, account.user("u"))) for name, account in sick.items()]
            assert heard(server, A.user("u")) == b""
            assert heard(server, C.user("u")) == b""
            for name, wire in waiting:
                wire.barrier()
                assert wire.heard.data == VIOLATION, name
                wire.close()
            assert heard(server, B.user("u")) == b""
    finally:
        over.set()
        found.shutdown()
        thread.join()
        found.server_close()


# --- what the file may say --------------------------------------------------------------------------------------------


OWN: Final = f"operator: {OPERATOR.own()}\n"


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (OWN, "operators require an account resolver to be configured"),
        ("operator: /nowhere\nresolver: MEMORY\n", "cannot read the operator's JWT"),
        (f"operator: {A.user('u')[1]}\nresolver: MEMORY\n", "no JWT of an operator: it is of user"),
        (f"{OWN}resolver: nowhere\n", "is not MEMORY or URL"),
        (f"{OWN}resolver {{ type: half, dir: x }}\n", "a block with a dir and a type, full or cache"),
        (f"{OWN}resolver: MEMORY\nresolver_preload {{ X: y }}\n", "is not the public key of an account"),
        (f"{OWN}resolver: MEMORY\naccounts {{ A {{}} }}\n", "do not allow accounts to be configured"),
        (conf("system_account: " + A.public), "system_account in config and operator JWT must be identical"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_said_with_its_line(tmp_path: Path, content: str, why: str) -> None:
    from mq_shards.acceptor.protocols.nats.conf_keys import read_conf

    path = tmp_path / "nats-server.conf"
    path.write_text(content)
    with pytest.raises(ValueError, match=r"nats-server\.conf") as error:
        read_conf(str(path))
    assert why in str(error.value)


# --- tokens that others have made -------------------------------------------------------------------------------------

RECORDED: Final = Path(__file__).parent / "jwts.json"


class Seeded(Key):
    """A key of which there is a seed."""

    def __init__(self, seed: str) -> None:
        self._pair = nkeys.from_seed(seed.encode())
        self.public = self._pair.public_key.decode()

    def sign(self, data: bytes) -> bytes:
        found: bytes = self._pair.sign(data)
        return found


@pytest.mark.parametrize("kind", KINDS[:2])
def test_tokens_of_the_library_that_nats_servers_have(kind: int) -> None:
    """As github.com/nats-io/jwt 2.8.2 has made them, all with new keys."""
    made = json.loads(RECORDED.read_text())
    users = {name: (Seeded(seed), jwt) for name, (seed, jwt) in made["users"].items()}
    listed = "\n".join(f"  {name}: {jwt}" for name, jwt in made["accounts"].items())
    with serving(kind, f"operator: {made['operator']}\nresolver: MEM\nresolver_preload {{\n{listed}\n}}\n") as server:
        assert heard(server, users["scoped"], b"PUB scoped.a 0\r\n\r\nPUB other.a 0\r\n\r\n") == (
            b"-ERR 'Permissions Violation for Publish to \"other.a\"'\r\n"
        )
        giver, taker = connect(server, users["plain"]), connect(server, users["other"])
        taker.send(b"SUB a.s.> 1\r\nSUB inbox 2\r\n")
        taker.barrier()
        giver.send(b"PUB s.x 2\r\nhi\r\n")
        giver.barrier()
        until(taker, b"MSG a.s.x 1 2\r\nhi\r\n")
        taker.send(b"PUB ask inbox 1\r\nx\r\n")
        until(taker, b'Permissions Violation for Publish to "ask"')  # it may only answer
        giver.close()
        taker.close()
