"""An operator and accounts of theirs, the servers that are told of them, and what clients with JWTs hear."""

from __future__ import annotations

import base64
import contextlib
import http.server
import json
import ssl
import tempfile
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from tests.nats.jwts import Account, Key, Operator
from tests.nats.servers import NatsServer, nats_server, running
from tests.nats.wire import Wire, elsewhere

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
            {"name": "of", "subject": "of.*.*", "type": "service"},
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
            {"name": "one", "subject": "of.one.*", "account": A.public, "type": "service",
             "local_subject": "$1.please"},
            {"name": "of", "subject": "of.*.*", "account": A.public, "type": "service", "local_subject": "by.$2.$1"},
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


def connect(server: NatsServer, user: tuple[Key, str], *, sig: bytes | None = None, **options: object) -> Wire:
    wire = Wire(server.port, address=elsewhere())
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


def until(wire: Wire, what: bytes) -> bytes:
    while what not in wire.heard.data:
        assert not wire.heard.closed
        wire.receive()
    return wire.heard.data


@contextlib.contextmanager
def resolver(known: Mapping[str, str], tls: ssl.SSLContext | None = None) -> Iterator[tuple[str, list[str]]]:
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
    if tls is not None:
        found.socket = tls.wrap_socket(found.socket, server_side=True)
    thread = threading.Thread(target=found.serve_forever)
    thread.start()
    try:
        host = "http://127.0.0.1" if tls is None else "https://localhost"
        yield f"{host}:{found.server_port}/accounts/", asked
    finally:
        found.shutdown()
        thread.join()
        found.server_close()


def request(wire: Wire, subject: str, body: bytes) -> dict[str, Any]:
    wire.heard.data = b""
    wire.send(b"SUB answer 77\r\nPUB %s answer %d\r\n%s\r\nUNSUB 77 1\r\n" % (subject.encode(), len(body), body))
    size, _, rest = until(wire, b"}\r\n").partition(b"MSG answer 77 ")[2].partition(b"\r\n")
    answer: dict[str, Any] = json.loads(rest[: int(size)])  # a PING of the server may be behind it
    return answer
