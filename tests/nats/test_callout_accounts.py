"""Auth callout in operator mode: a service of an account says who its users are; of a nats-server and us the same."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

from tests.nats.jwts import Account, Key, Operator
from tests.nats.operators import introduce, serving
from tests.nats.servers import NatsServer
from tests.nats.test_callout import KINDS, SUBJECT, VIOLATION, XKEY, Answers, Request, Service
from tests.nats.wire import Wire, elsewhere
from tests.servers import wait_until

OPERATOR = Operator("callout operator")
SYSTEM, CALLING, SEALED, A, B = (Account(f"callout {name}") for name in ("SYS", "CALLING", "SEALED", "A", "B"))
BROKEN = Account("callout BROKEN")
CALLING_SIGNER, A_SIGNER, A_SCOPED = (Account(f"callout {name} signer") for name in ("CALLING", "A", "scoped"))
STRANGER = Account("callout stranger")
SERVICE, SEALED_SERVICE = CALLING.user("callout service"), SEALED.user("callout sealed service")
SENTINEL: Final = {
    account.public: account.user("sentinel", name="sentinel", tags=["a:b"], pub={"deny": [">"]}, sub={"deny": [">"]})
    for account in (CALLING, SEALED, BROKEN)
}
SCOPE: Final = {"pub": {"allow": ["scoped.{{name()}}"]}, "sub": {"allow": ["_INBOX.>"]}, "subs": -1, "data": -1}


def conf() -> str:
    def signs(*users: tuple[Key, str]) -> dict[str, Any]:
        return {"auth_users": [one[0].public for one in users]}

    accounts = {
        SYSTEM: OPERATOR.account(SYSTEM),
        CALLING: OPERATOR.account(
            CALLING, signing_keys=[CALLING_SIGNER.public],
            authorization={**signs(SERVICE), "allowed_accounts": [A.public]},
        ),
        SEALED: OPERATOR.account(
            SEALED, authorization={**signs(SEALED_SERVICE), "allowed_accounts": ["*"], "xkey": XKEY.public}
        ),
        A: OPERATOR.account(
            A, signing_keys=[A_SIGNER.public, {"kind": "user_scope", "key": A_SCOPED.public, "template": SCOPE}]
        ),
        B: OPERATOR.account(B),
        BROKEN: OPERATOR.account(BROKEN, authorization={**signs(SERVICE), "xkey": "X"}),
    }  # fmt: skip
    listed = "\n".join(f"  {account.public}: {jwt}" for account, jwt in accounts.items())
    own = OPERATOR.own(system_account=SYSTEM.public)
    return f"operator: {own}\nresolver: MEMORY\nresolver_preload {{\n{listed}\n}}\nauthorization {{ timeout: 2 }}\n"


def answer(request: Request, by: Account = CALLING, of: Account | None = None, **nats: object) -> str:
    if of is not None:
        nats["issuer_account"] = of.public
    asked = request["nats"]
    return by.jwt("authorization_response", asked["user_nkey"], nats, aud=asked["server_id"]["id"], name="answer")


def user(request: Request, by: Account, of: Account | None = None, **more: object) -> str:
    claims = {name: more.pop(name) for name in ("exp", "name") if name in more}
    nats = {"subs": -1, "data": -1, "payload": -1, **more}
    if of is not None:
        nats["issuer_account"] = of.public
    return by.jwt("user", request["nats"]["user_nkey"], nats, **{"name": "somebody", **claims})


def scoped(request: Request) -> str:
    nats = {"issuer_account": A.public}
    return A_SCOPED.jwt("user", request["nats"]["user_nkey"], nats, name="me")


# What the service answers, by the name that a client says; and the account that it is then of.
ANSWERS: Final[dict[str, tuple[Callable[[Request], str | None], Account | None]]] = {
    "good": (lambda r: answer(r, jwt=user(r, CALLING)), CALLING),
    "by a signing key": (lambda r: answer(r, CALLING_SIGNER, CALLING, jwt=user(r, CALLING)), CALLING),
    "user by a signing key": (lambda r: answer(r, jwt=user(r, CALLING_SIGNER, CALLING)), CALLING),
    "of another account": (lambda r: answer(r, jwt=user(r, A)), A),
    "of another account's signing key": (lambda r: answer(r, jwt=user(r, A_SIGNER, A)), A),
    "scoped": (lambda r: answer(r, jwt=scoped(r)), A),
    "scoped and says more": (lambda r: answer(r, jwt=user(r, A_SCOPED, A, pub={"allow": ["x"]})), None),
    "of an account that may not be": (lambda r: answer(r, jwt=user(r, B)), None),
    "of nobody's account": (lambda r: answer(r, jwt=user(r, STRANGER)), None),
    "by nobody's signing key": (lambda r: answer(r, jwt=user(r, STRANGER, A)), None),
    "answered by a stranger": (lambda r: answer(r, STRANGER, jwt=user(r, CALLING)), None),
    "answered by the other account": (lambda r: answer(r, A, jwt=user(r, CALLING)), None),
    "answered for the other account": (lambda r: answer(r, A_SIGNER, A, jwt=user(r, CALLING)), None),
    "over": (lambda r: answer(r, jwt=user(r, CALLING, exp=int(time.time()) - 2)), None),
    "refused": (lambda r: answer(r, error="no"), None),
    "websockets only": (lambda r: answer(r, jwt=user(r, CALLING, allowed_connection_types=["WEBSOCKET"])), None),
    "without limits": (lambda r: answer(r, jwt=user(r, CALLING, subs=0, payload=0)), CALLING),
    "garbage": (lambda r: "garbage", None),
    "nothing": (lambda r: "", None),
}


@pytest.fixture(scope="module", params=KINDS)
def both(request: pytest.FixtureRequest) -> Iterator[tuple[NatsServer, Service]]:
    with serving(request.param, conf()) as server:
        answers: Answers = {name: made for name, (made, _) in ANSWERS.items()}
        service = Service(server.port, lambda wire: introduce(wire, SERVICE, headers=True), answers)
        yield server, service
        service.close()


Both = tuple[NatsServer, Service]


def comes(server: NatsServer, name: str, account: Account = CALLING, **more: object) -> Wire:
    wire = Wire(server.port, address=elsewhere())
    introduce(wire, SENTINEL[account.public], name=name, **more)
    wire.barrier()
    return wire


@pytest.mark.parametrize("name", ANSWERS)
def test_who_is_let_in(both: Both, name: str) -> None:
    wire, account = comes(both[0], name), ANSWERS[name][1]
    if account is None:
        assert (wire.heard.data, wire.heard.closed) == (VIOLATION, True)
    else:
        assert wire.heard.data == b"PONG\r\n"
        wire.send(b"SUB _INBOX.x 1\r\nPUB $SYS.REQ.USER.INFO _INBOX.x 0\r\n\r\n")
        if name == "scoped":
            wire.send(b"PUB scoped.me 0\r\n\r\nPUB other 0\r\n\r\n")
            wire.barrier()
            assert b"scoped.me" not in wire.heard.data
            assert b"-ERR 'Permissions Violation for Publish to \"other\"'\r\n" in wire.heard.data
        else:
            wait_until(lambda: account.public.encode() in _more(wire), "it says of which account it is")
    wire.close()


def _more(wire: Wire) -> bytes:
    wire.receive_what_is_there()
    return wire.heard.data


def test_what_the_service_is_told(both: Both) -> None:
    server, service = both
    wire = comes(server, "good", lang="l", version="v", protocol=1)
    request = service.requests[-1][1]
    info = json.loads(wire.info[len("INFO ") :])
    nats, key = request["nats"], SENTINEL[CALLING.public][0]
    assert {name: request[name] for name in ("aud", "iss", "sub")} == {
        "aud": "nats-authorization-request", "iss": nats["server_id"]["id"], "sub": CALLING.public,
    }  # fmt: skip
    said = nats["connect_opts"]
    assert nats["client_info"] == {
        "host": wire.address, "id": info["client_id"], "user": key.public, "name": "good", "tags": ["a:b"],
        "name_tag": "sentinel", "kind": "Client", "type": "nats", "nonce": info["nonce"],
    }  # fmt: skip
    assert said == {
        "jwt": SENTINEL[CALLING.public][1], "sig": said["sig"], "name": "good", "lang": "l", "version": "v",
        "protocol": 1,
    }  # fmt: skip
    wire.close()


def test_the_service_itself_and_others_are_not_asked_about(both: Both) -> None:
    server, service = both
    before = len(service.requests)
    for known in (SERVICE, A.user("plain"), CALLING_SIGNER.user("callout service", of=CALLING)):
        wire = Wire(server.port, address=elsewhere())
        introduce(wire, known)
        wire.send(f"PUB {SUBJECT} 1\r\nx\r\n".encode())
        wire.barrier()
        # Of the service's account only the server asks it; elsewhere that is a subject like others.
        denied = f"-ERR 'Permissions Violation for Publish to \"{SUBJECT}\"'\r\n".encode()
        assert wire.heard.data == (b"" if known[0].public == A.user("plain")[0].public else denied) + b"PONG\r\n"
        wire.close()
    assert len(service.requests) == before


def test_who_has_not_the_key_is_not_asked_about(both: Both) -> None:
    server, service = both
    before = len(service.requests)
    wire = Wire(server.port, address=elsewhere())
    introduce(wire, SENTINEL[CALLING.public], sig=bytes(64), name="good")
    wire.barrier()
    assert wire.heard.data == VIOLATION
    assert len(service.requests) == before
    wire.close()


def test_requests_are_sealed_for_the_account(both: Both) -> None:
    """Each account has a service of its own, and may let in users of any where it says so."""
    server, _ = both
    answers: Answers = {
        "good": lambda r: answer(r, SEALED, jwt=user(r, SEALED)),
        "of another account": lambda r: answer(r, SEALED, jwt=user(r, B)),
        "by anybody": lambda r: answer(r, STRANGER, jwt=user(r, SEALED)),
    }
    for seals in (True, False):
        service = Service(
            server.port, lambda wire: introduce(wire, SEALED_SERVICE, headers=True), answers, seals=seals
        )  # fmt: skip
        for name in answers:
            wire = comes(server, name, SEALED)
            assert (wire.heard.data == b"PONG\r\n") == (seals or name != "by anybody"), (seals, name)
            wire.close()
        assert all("Nats-Server-Xkey: X" in header for header in service.headers)
        service.close()


def test_for_a_key_that_is_none_nothing_can_be_sealed(both: Both) -> None:
    wire = comes(both[0], "good", BROKEN)
    assert (wire.heard.data, wire.heard.closed) == (VIOLATION, True)
    wire.close()


@pytest.mark.parametrize("kind", KINDS[1:])
def test_who_was_let_in_goes_with_its_account(kind: int) -> None:
    """And when the account's JWT says so, nobody is asked about any more."""
    with serving(kind, conf()) as server:
        answers: Answers = {name: made for name, (made, _) in ANSWERS.items()}
        service = Service(server.port, lambda wire: introduce(wire, SERVICE, headers=True), answers)
        there, signed = comes(server, "of another account"), comes(server, "of another account's signing key")
        admin = Wire(server.port)
        introduce(admin, SYSTEM.user("admin"))
        update(admin, A, OPERATOR.account(A))
        while not signed.heard.closed:
            signed.receive()
        assert VIOLATION in signed.heard.data
        there.barrier()
        assert not there.heard.closed
        update(admin, A, OPERATOR.account(A, revocations={"*": int(time.time())}))
        while not there.heard.closed:
            there.receive()
        assert b"-ERR 'User Authentication Revoked'\r\n" in there.heard.data
        update(admin, CALLING, OPERATOR.account(CALLING))
        before = len(service.requests)
        plain = comes(server, "refused")
        assert plain.heard.data == b"PONG\r\n"
        assert len(service.requests) == before
        for wire in (there, signed, admin, plain):
            wire.close()
        service.close()


def update(admin: Wire, account: Account, jwt: str) -> None:
    body = jwt.encode()
    subject = f"$SYS.REQ.ACCOUNT.{account.public}.CLAIMS.UPDATE"
    admin.heard.data = b""
    admin.send(b"SUB answer 9\r\nPUB %s answer %d\r\n%s\r\n" % (subject.encode(), len(body), body))
    wait_until(lambda: b"jwt updated" in _more(admin), "all obey it")
    admin.send(b"UNSUB 9\r\n")
