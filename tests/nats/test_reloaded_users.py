"""Clients of users that are gone, moved or changed when the configuration file is read anew."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from mq_shards.acceptor.access.hashes import password_hash
from mq_shards.acceptor.protocols.nats import nkeys

from tests.nats.jwts import Key
from tests.nats.operators import KINDS
from tests.nats.servers import NatsServer, running
from tests.nats.wire import Wire
from tests.servers import wait_until

NKEY = Key(nkeys.USER, "someone")
USERS = "accounts { A { users [ %s ] }, B { users [ %s ] } }"
ONE = "{user: one, password: p}"
BY_KEY = f"{{nkey: {NKEY.public}}}"
SAYS = {"user": "one", "pass": "p"}
HASHED = password_hash("p", 4)
VIOLATION = b"-ERR 'Authorization Violation'\r\n"
SILENT = b""

# The file before, the file after, what CONNECT says, and what the client is told; None: it stays.
CHANGES: dict[str, tuple[str, str, dict[str, str], bytes | None]] = {
    "removed": (USERS % (ONE, ""), USERS % ("{user: x, password: p}", ""), SAYS, SILENT),
    "moved": (USERS % (ONE, ""), USERS % ("", ONE), SAYS, SILENT),
    "key removed": (USERS % (BY_KEY, ""), USERS % (ONE, ""), {"nkey": NKEY.public}, SILENT),
    "key moved": (USERS % (BY_KEY, ""), USERS % ("", BY_KEY), {"nkey": NKEY.public}, SILENT),
    "other password": (USERS % (ONE, ""), USERS % ("{user: one, password: q}", ""), SAYS, VIOLATION),
    "another user": (USERS % (ONE, ""), USERS % (ONE + ", {user: x, password: y}", ""), SAYS, None),
    "type of connection": (
        USERS % (ONE, ""),
        USERS % ("{user: one, password: p, allowed_connection_types: [LEAFNODE]}", ""),
        SAYS,
        VIOLATION,
    ),
    "without accounts": (
        f"authorization {{ users [ {ONE} ] }}",
        "authorization { users [ {user: x, password: p} ] }",
        SAYS,
        SILENT,
    ),
    "one for all": (
        "authorization { user: one, password: p }",
        "authorization { user: one, password: q }",
        SAYS,
        SILENT,
    ),
    "one for all, then users": (
        "authorization { user: one, password: p }",
        f"authorization {{ users [ {ONE} ] }}",
        SAYS,
        None,
    ),
    "token": ("authorization { token: a }", "authorization { token: b }", {"auth_token": "a"}, VIOLATION),
    "token, named": (
        "authorization { token: a }",
        "authorization { token: b }",
        {"auth_token": "a", "user": "u"},
        SILENT,
    ),
    "nobody": ("", USERS % (ONE, ""), {}, VIOLATION),
    "unneeded name of nobody": ("", USERS % ("{user: x, password: y}", ""), SAYS, SILENT),
    "unneeded name of an account's user": ("", USERS % (ONE, ""), SAYS, SILENT),
    "unneeded login that is right": ("", f"authorization {{ users [ {ONE} ] }}", SAYS, None),
    "unneeded login that is right, hashed": (
        "",
        f"authorization {{ users [ {{user: one, password: '{HASHED}'}} ] }}",
        SAYS,
        None,
    ),
    "unneeded password that is wrong": (
        "",
        f"authorization {{ users [ {ONE} ] }}",
        {"user": "one", "pass": "q"},
        VIOLATION,
    ),
    "unneeded login, one for all": ("", "authorization { user: one, password: p }", SAYS, SILENT),
    "unneeded token that is right": ("", "authorization { token: a }", {"auth_token": "a"}, None),
    "unneeded token that is wrong": ("", "authorization { token: a }", {"auth_token": "b"}, VIOLATION),
    "unneeded key of an account": ("", USERS % (BY_KEY, ""), {"nkey": NKEY.public}, SILENT),
    "unneeded key that is right": ("", f"authorization {{ users [ {BY_KEY} ] }}", {"nkey": NKEY.public}, None),
    "no login any more": (USERS % (ONE, ""), "", SAYS, SILENT),
    "no_auth_user moved": (
        USERS % (ONE, "") + "\nno_auth_user: one",
        USERS % ("", ONE) + "\nno_auth_user: one",
        {},
        SILENT,
    ),
}


@pytest.mark.parametrize("kind", KINDS[:2])
@pytest.mark.parametrize("change", CHANGES)
def test_what_a_client_hears(kind: int, change: str, tmp_path: Path) -> None:
    """Whoever hears nothing may connect again, and is then in the other account; clients that are told of a violation
    may give up."""
    before, after, said, expected = CHANGES[change]
    path = tmp_path / "nats.conf"
    path.write_text(before)
    with running(kind, arguments=["-c" if kind == 0 else "--nats-config", str(path)]) as server:
        wire = Wire(server.port)
        options: dict[str, Any] = {"verbose": False, "pedantic": False, **said}
        if "nkey" in said:
            nonce = json.loads(wire.info[5:]).get("nonce", "")
            options["sig"] = base64.urlsafe_b64encode(NKEY.sign(nonce.encode())).decode().rstrip("=")
        wire.send(b"CONNECT " + json.dumps(options).encode() + b"\r\n")
        wire.barrier()
        before_it = len(wire.heard.data)
        path.write_text(f"{after}\nmax_payload: 1000")
        os.kill(server.process.pid, signal.SIGHUP)
        if expected is None:
            wait_until(lambda: _is_read(server), "the file was read anew")
            wire.barrier()
            assert b"-ERR" not in wire.heard.data and not wire.heard.closed
            return
        while not wire.heard.closed:
            wire.receive()
        assert wire.heard.data[before_it:] == expected


def _is_read(server: NatsServer) -> bool:
    with contextlib.closing(Wire(server.port)) as wire:
        return bool(json.loads(wire.info[5:])["max_payload"] == 1000)


# Of "p", in 12 and in 13 rounds: to compare takes a third of a second, and twice as long, and so it does to make them.
HASHED_SLOWLY = "$2b$12$VmnJrQ4nsnN0f6ZfVJ2Pl.dizevtkZmv5Ly.ZSTtPwJpjKEp.oQgy"
HASHED_MORE_SLOWLY = "$2b$13$8Mf4/mDerYQJXoZn/z93YOYcrcsiNucRs2pzl./w2F4F5H21.uIge"
OTHERS = f"{{user: other, password: q}}, {{user: later, password: '{HASHED_MORE_SLOWLY}'}}"
# The rights of users, of whom it is asked whether they may publish to "denied".
DENIED = "permissions: {publish: {deny: denied}}"


def _said(**said: str) -> bytes:
    return b"CONNECT " + json.dumps({"verbose": False, "pedantic": False, "protocol": 1, **said}).encode() + b"\r\n"


def _is_denied(wire: Wire) -> bool:
    wire.send(b"PUB denied 0\r\n\r\n")
    wire.barrier()
    assert not wire.heard.closed
    return b"Permissions Violation" in wire.heard.data


def test_a_login_while_another_is_judged_again_is_the_one_that_counts(tmp_path: Path) -> None:
    path = tmp_path / "nats.conf"
    path.write_text("")
    with running(1, arguments=["--nats-config", str(path)]) as server, contextlib.closing(Wire(server.port)) as wire:
        wire.send(_said(**SAYS))
        wire.barrier()
        one = f"{{user: one, password: '{HASHED_SLOWLY}', {DENIED}}}"
        path.write_text(f"authorization {{ users [ {one}, {OTHERS} ] }}\nmax_payload: 1000")
        os.kill(server.process.pid, signal.SIGHUP)
        while b'"max_payload":1000,' not in wire.heard.data:  # sent once the password is being compared
            wire.receive()
        wire.send(_said(user="other", **{"pass": "q"}))
        wire.barrier()
        with contextlib.closing(Wire(server.port)) as later:
            later.send(_said(user="later", **{"pass": "p"}))
            later.barrier()  # answered after the first comparison, which began before
        assert not _is_denied(wire)


def test_a_login_that_is_judged_while_the_file_is_read_anew_is_judged_by_the_new_one(tmp_path: Path) -> None:
    path = tmp_path / "nats.conf"
    path.write_text(f"authorization {{ users [ {{user: one, password: '{HASHED_SLOWLY}'}} ] }}")
    with running(1, arguments=["--nats-config", str(path)]) as server, contextlib.closing(Wire(server.port)) as wire:
        wire.send(_said(**SAYS))
        one = f"{{user: one, password: p, {DENIED}}}"
        path.write_text(f"authorization {{ users [ {one}, {OTHERS} ] }}\nmax_payload: 1000")
        os.kill(server.process.pid, signal.SIGHUP)
        wait_until(lambda: _is_read(server), "the file was read anew")
        with contextlib.closing(Wire(server.port)) as later:
            later.send(_said(user="later", **{"pass": "p"}))
            later.barrier()  # answered after the first comparison, which began before
        assert _is_denied(wire)


@pytest.mark.parametrize("kind", KINDS[:2])
def test_who_has_more_subscriptions_than_its_account_may_have_now_is_disconnected(kind: int, tmp_path: Path) -> None:
    path = tmp_path / "nats.conf"
    path.write_text(f"accounts {{ A {{ users [ {ONE} ], limits {{ max_subs: 9 }} }} }}")
    with running(kind, arguments=["-c" if kind == 0 else "--nats-config", str(path)]) as server:
        many, few = Wire(server.port), Wire(server.port)
        many.send(_said(**SAYS) + b"SUB a 1\r\nSUB b 2\r\nSUB c 3\r\n")
        few.send(_said(**SAYS) + b"SUB a 1\r\n")
        for wire in (many, few):
            wire.barrier()
        path.write_text(f"accounts {{ A {{ users [ {ONE} ], limits {{ max_subs: 2 }} }} }}")
        os.kill(server.process.pid, signal.SIGHUP)
        while not many.heard.closed:
            many.receive()
        assert many.heard.data.endswith(b"-ERR 'maximum subscriptions exceeded'\r\n")
        few.barrier()
        few.send(b"SUB b 2\r\nSUB c 3\r\n")
        few.barrier()
        assert few.heard.data.count(b"-ERR") == 1 and not few.heard.closed
        many.close()
        few.close()
