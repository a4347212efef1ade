"""Operator mode: what clients with JWTs are let do, by a nats-server and by us."""

from __future__ import annotations

import base64
import contextlib
import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import nkeys
import pytest
from mq_shards.acceptor.protocols.nats.expiry import Expiries
from mq_shards.acceptor.protocols.nats.jwt import Token

from tests.nats.jwts import Account, Key
from tests.nats.operators import (
    A_SCOPED,
    A_SIGNER,
    B_SIGNER,
    CALLING,
    FILES,
    KINDS,
    OLD,
    OLD_SIGNER,
    OPERATOR,
    REVOKED,
    SIGNER,
    SMALL,
    STRANGER,
    STRICT,
    SYSTEM,
    VIOLATION,
    A,
    B,
    C,
    accounts,
    conf,
    connect,
    heard,
    request,
    serving,
    until,
)
from tests.nats.servers import NatsServer
from tests.nats.wire import Wire


@pytest.fixture(scope="module", params=KINDS)
def server(request: pytest.FixtureRequest) -> Iterator[NatsServer]:
    with serving(request.param, conf()) as server:
        yield server


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
    # A server that takes long asks first whether the client is there.
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


@pytest.mark.parametrize(("asked", "heard_as"), [(b"two.please", b"of.one.two"), (b"by.two.one", b"of.one.two")])
def test_a_service_may_be_named_by_its_wildcards(server: NatsServer, asked: bytes, heard_as: bytes) -> None:
    service = connect(server, A.user("g2"))
    service.send(b"SUB of.> 1\r\n")
    service.barrier()
    asker = connect(server, B.user("k1"))
    asker.send(b"PUB %s inbox 1\r\nx\r\n" % asked)
    assert until(service, b"x\r\n").partition(b"MSG ")[2].split(b" ")[0] == heard_as
    asker.close()
    service.close()


def test_mappings_of_an_account(server: NatsServer) -> None:
    wire = connect(server, A.user("m1"))
    wire.barrier()  # a nats-server maps nothing of what it has read together with CONNECT
    wire.send(b"SUB new.* 1\r\nPUB old.x 2\r\nhi\r\n")
    wire.barrier()
    assert wire.heard.data == b"PONG\r\nMSG new.x 1 2\r\nhi\r\nPONG\r\n"
    wire.close()


# --- time -------------------------------------------------------------------------------------------------------------


def test_a_user_whose_time_is_over_is_cut_off(server: NatsServer) -> None:
    wire = connect(server, A.user("e1", exp=int(time.time()) + 4))  # enough for a busy machine to let it in
    wire.barrier()
    assert wire.heard.data == b"PONG\r\n"
    while not wire.heard.closed:
        wire.receive()
    assert wire.heard.data == b"PONG\r\n-ERR 'User Authentication Expired'\r\n"


def test_a_user_in_the_last_second_of_its_jwt_is_told_so(server: NatsServer) -> None:
    while time.time() % 1 > 0.5:  # so that the second is not over when the server looks
        time.sleep(0.02)
    wire = connect(server, A.user("e0", exp=int(time.time())))
    while not wire.heard.closed:
        wire.receive()
    assert wire.heard.data == b"-ERR 'User Authentication Expired'\r\n"


def test_a_user_stays_for_whole_seconds() -> None:
    token = Token("user", "", "", expires_s=1_000_002)
    assert [token.user_end_s(now_s, 0) for now_s in (1_000_000.25, 1_000_001.75, 1_000_002.5)] == [
        1_000_002.25, 1_000_002.75, 1_000_002.5,
    ]  # fmt: skip
    assert token.user_end_s(1_000_000.25, 1.5) == 1_000_001.75
    assert Token("user", "", "").user_end_s(1_000_000.25, 0) == 0
    assert [token.lets_in_at(now_s) for now_s in (1_000_002.99, 1_000_003.0)] == [True, False]


def test_a_user_whose_end_is_negative_or_too_far_is_cut_off_at_once(server: NatsServer) -> None:
    """It is no end that the clock can be before, and an acceptor once looked for it for ever. A nats-server's sum of
    nanoseconds overflows."""
    for exp in (-1, -(1 << 60), 1 << 62):
        wire = connect(server, A.user("e2", exp=exp))
        while not wire.heard.closed:
            wire.receive()
        assert wire.heard.data == b"-ERR 'User Authentication Expired'\r\n"
    assert heard(server, A.user("e3")) == b""


@pytest.mark.parametrize("kind", KINDS)
def test_an_account_whose_end_is_negative_lets_nobody_in(kind: int) -> None:
    with serving(kind, conf(preload={**accounts(), SMALL.public: OPERATOR.account(SMALL, exp=-1)})) as server:
        assert heard(server, SMALL.user("e4")) == VIOLATION
        assert heard(server, A.user("e5")) == b""


def test_a_connection_that_is_left_open_with_an_end_in_the_past_holds_nobody_up() -> None:
    ends = Expiries(lambda: 100.0)
    ends.set(1, 50.0)
    for conn in ends.over():
        ends.set(conn, 50.0)
    assert ends.wait_ns() == 0 and list(ends.over()) == [1] and list(ends.over()) == []


def test_a_wall_clock_that_is_set_forward_cuts_nobody_off() -> None:
    now_s, wall_s = 100.0, 1_000_000.0
    ends = Expiries(lambda: now_s, lambda: wall_s)
    ends.set(1, wall_s + 10)
    wall_s += 3600
    ends.set(1, 1_000_010.0)  # as by a reload
    now_s += 9
    assert list(ends.over()) == [] and ends.wait_ns() == 1_000_000_000
    now_s += 1
    assert list(ends.over()) == [1]


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
def test_an_account_that_is_told_of_its_end_has_its_clients_cut_off_then(kind: int) -> None:
    with serving(kind, conf()) as server, contextlib.ExitStack() as stack:
        admin = stack.enter_context(contextlib.closing(connect(server, SYSTEM.user("admin"))))
        client = stack.enter_context(contextlib.closing(connect(server, SMALL.user("there"))))
        client.barrier()
        ending = OPERATOR.account(SMALL, exp=int(time.time()) + 2)
        subject = f"$SYS.REQ.ACCOUNT.{SMALL.public}.CLAIMS.UPDATE"
        assert request(admin, subject, ending.encode())["data"]["message"] == "jwt updated"
        while not client.heard.closed:
            client.receive()
        assert client.heard.data.endswith(b"-ERR 'Account Authentication Expired'\r\n")


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
