"""Accounts in a directory (`resolver: {type: full, dir: ...}`): what is pushed is kept, and told to who asks."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from mq_shards.acceptor.protocols.nats.dir_resolver import DirResolver
from mq_shards.acceptor.protocols.nats.directory import SUFFIX, WRITING, Directory, StoreError

from tests.nats.clusters import NEW_REAL, OURS, OURS_3, Member, configured, mixtures
from tests.nats.jwts import Key
from tests.nats.operators import (
    KINDS,
    OPERATOR,
    SIGNER,
    STRANGER,
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
from tests.nats.route_wire import CONNECT, INFO, RouteWire
from tests.nats.servers import NatsServer
from tests.nats.wire import Wire
from tests.servers import START_SECONDS, wait_until

BOTH = [KINDS[0], KINDS[2]]  # a nats-server, and two acceptors
UPDATE, LIST, DELETE = (f"$SYS.REQ.CLAIMS.{what}" for what in ("UPDATE", "LIST", "DELETE"))
PRELOAD = {SYSTEM.public: accounts()[SYSTEM.public]}


def of(where: Path, kind: str = "full", **more: object) -> str:
    """A configuration file; `more` is of the block."""
    said = "".join(f", {name}: {json.dumps(value)}" for name, value in more.items())
    return conf(resolver=f"{{ type: {kind}, dir: {json.dumps(str(where))}{said} }}", preload=PRELOAD)


@contextlib.contextmanager
def administered(kind: int, content: str) -> Iterator[tuple[NatsServer, Wire]]:
    """With a user of the system account."""
    with serving(kind, content) as server:
        admin = connect(server, SYSTEM.user("admin"))
        admin.barrier()
        yield server, admin
        admin.close()


def push(admin: Wire, *jwts: str) -> list[str]:
    """What is said to each."""
    answers = (request(admin, UPDATE, jwt.encode()) for jwt in jwts)
    return [one["data"]["message"] if "data" in one else one["error"]["description"] for one in answers]


def revoking(name: str) -> str:
    return OPERATOR.account(A, revocations={A.user(name)[0].public: int(time.time())})


def raw(wire: Wire, subject: str, body: bytes = b"") -> bytes:
    """An answer that is no JSON."""
    wire.heard.data, wire.asked = b"", 0
    wire.send(b"SUB raw 78\r\nUNSUB 78 1\r\nPUB %s raw %d\r\n%s\r\n" % (subject.encode(), len(body), body))
    head, _, rest = until(wire, b"MSG raw 78 ").partition(b"MSG raw 78 ")[2].partition(b"\r\n")
    while not head or len(wire.heard.data.partition(b"MSG raw 78 ")[2]) < len(head) + 2 + int(head) + 2:
        wire.receive()
        head, _, rest = wire.heard.data.partition(b"MSG raw 78 ")[2].partition(b"\r\n")
    return rest[: int(head)]


# --- what is pushed ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", BOTH)
def test_an_account_that_is_pushed_is_there_and_stays(kind: int, tmp_path: Path) -> None:
    where, known = tmp_path / "jwt", accounts()
    with administered(kind, of(where)) as (server, admin):
        assert heard(server, A.user("u1")) == VIOLATION, "nobody knows the account"
        assert push(admin, known[A.public], known[B.public]) == ["jwt updated"] * 2
        assert (where / f"{A.public}.jwt").read_text() == known[A.public]
        assert heard(server, A.user("u1")) == b""
        assert sorted(request(admin, LIST, b"")["data"]) == sorted([A.public, B.public, SYSTEM.public])
        assert raw(admin, f"$SYS.REQ.ACCOUNT.{A.public}.CLAIMS.LOOKUP") == known[A.public].encode()
        assert raw(admin, f"$SYS.REQ.ACCOUNT.{C.public}.CLAIMS.LOOKUP") == b""
    with serving(kind, of(where)) as server:
        assert heard(server, B.user("u2")) == b""


@pytest.mark.parametrize("kind", BOTH)
def test_who_is_there_obeys_what_is_pushed(kind: int, tmp_path: Path) -> None:
    """By each of the three subjects; who is revoked goes."""
    with administered(kind, of(tmp_path / "jwt")) as (server, admin):
        assert push(admin, OPERATOR.account(A)) == ["jwt updated"]
        goes, stays = (connect(server, A.user(name)) for name in ("goes", "stays"))
        for wire in (goes, stays):
            wire.barrier()
        subjects = (f"$SYS.REQ.ACCOUNT.{A.public}.CLAIMS.UPDATE", f"$SYS.ACCOUNT.{A.public}.CLAIMS.UPDATE", UPDATE)
        for number, subject in enumerate(subjects):
            jwt = OPERATOR.account(A, {"payload": 100 + number})
            assert request(admin, subject, jwt.encode())["data"] == {
                "account": A.public, "code": 200, "message": "jwt updated",
            }  # fmt: skip
            stays.heard.data, stays.asked = b"", 0
            stays.send(b"PUB a %d\r\n%s\r\n" % (100 + number, bytes(100 + number)))
            stays.barrier()
            assert b"-ERR" not in stays.heard.data, "it is obeyed once it is answered"
        assert push(admin, revoking("goes")) == ["jwt updated"]
        while not goes.heard.closed:
            goes.receive()
        assert goes.heard.data.endswith(b"-ERR 'User Authentication Revoked'\r\n")
        stays.barrier()
        assert not stays.heard.closed
        for wire in (goes, stays):
            wire.close()


@pytest.mark.parametrize("kind", KINDS[:2])
def test_what_cannot_be_pushed(kind: int, tmp_path: Path) -> None:
    where = tmp_path / "jwt"
    with administered(kind, of(where, limit=2)) as (_, admin):
        wrong = request(admin, f"$SYS.REQ.ACCOUNT.{A.public}.CLAIMS.UPDATE", OPERATOR.account(B).encode())["error"]
        assert wrong == {
            "account": A.public, "code": 500,
            "description": "jwt update resulted in error - subject does not match jwt content",
        }  # fmt: skip
        nothing = request(admin, UPDATE, b"not a JWT")["error"]
        assert (nothing["account"], nothing["code"]) == ("n/a", 500)
        assert nothing["description"].startswith("jwt update resulted in error - ")
        assert push(admin, OPERATOR.account(A), OPERATOR.account(B)) == [
            "jwt updated", "jwt update resulted in error - jwt store is full",
        ]  # fmt: skip
        assert push(admin, OPERATOR.account(A, {"payload": 7})) == ["jwt updated"], "it is no other one"
        assert {path.name for path in where.iterdir()} == {f"{one.public}.jwt" for one in (A, SYSTEM)}


def test_a_stranger_replaces_nobody(tmp_path: Path) -> None:
    """A nats-server keeps what nobody of its operator has signed, and then nobody of that account can come."""
    with administered(1, of(tmp_path / "jwt")) as (server, admin):
        assert push(admin, OPERATOR.account(A)) == ["jwt updated"]
        (said,) = push(admin, STRANGER.account(A))
        assert said == "jwt update resulted in error - account jwt not signed by a trusted operator"
        assert heard(server, A.user("u")) == b""


# --- what is deleted --------------------------------------------------------------------------------------------------


def deletion(by: Key, *names: object, subject: str = "") -> bytes:
    return by.jwt("generic", subject or by.public, {"accounts": list(names)}).encode()


@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize("hard", [False, True], ids=["renamed", "removed"])
def test_what_is_deleted_is_gone(kind: int, tmp_path: Path, hard: bool) -> None:
    where = tmp_path / "jwt"
    with administered(kind, of(where, allow_delete=True, hard_delete=hard)) as (server, admin):
        assert push(admin, OPERATOR.account(A), OPERATOR.account(B)) == ["jwt updated"] * 2
        goes = connect(server, A.user("goes"))
        goes.barrier()
        assert request(admin, DELETE, deletion(OPERATOR, A.public, B.public))["data"] == {
            "code": 200, "message": "deleted 2 accounts",
        }  # fmt: skip
        while not goes.heard.closed:
            goes.receive()
        assert goes.heard.data.endswith(b"-ERR 'Account Authentication Expired'\r\n")
        for account in (A, B):
            assert heard(server, account.user("u")) == VIOLATION
        left = {f"{SYSTEM.public}.jwt"} | (set() if hard else {f"{one.public}.jwt.deleted" for one in (A, B)})
        assert {path.name for path in where.iterdir()} == left
        assert request(admin, LIST, b"")["data"] == [SYSTEM.public]
        assert push(admin, OPERATOR.account(A, {"payload": 9})) == ["jwt updated"]
        assert heard(server, A.user("u")) == b"", "it is there again"
        goes.close()


@pytest.mark.parametrize("kind", KINDS[:2])
def test_what_cannot_be_deleted(kind: int, tmp_path: Path) -> None:
    own = OPERATOR.public
    bad = {
        "not trusted": deletion(STRANGER, A.public),
        "not self signed": deletion(OPERATOR, A.public, subject=SIGNER.public),
        "malformed request": deletion(OPERATOR, "nobody"),
        "not allowed to delete system account": deletion(OPERATOR, A.public, SYSTEM.public),
    }
    with administered(kind, of(tmp_path / "jwt", allow_delete=True)) as (server, admin):
        assert push(admin, OPERATOR.account(A)) == ["jwt updated"]
        for why, asked in bad.items():
            subject = {"not trusted": STRANGER.public, "not self signed": SIGNER.public}.get(why, own)
            assert request(admin, DELETE, asked)["error"] == {
                "code": 500, "description": f"delete accounts request by {subject} failed - {why}",
            }  # fmt: skip
        assert heard(server, A.user("u")) == b""
    with administered(kind, of(tmp_path / "jwt")) as (server, admin):
        assert request(admin, DELETE, deletion(OPERATOR, A.public))["error"]["description"] == (
            f"delete accounts request by {own} failed - delete must be enabled in server config"
        )
        assert heard(server, A.user("u")) == b""


# --- files that somebody else puts there ------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [2])
def test_files_are_read_anew_with_the_configuration(kind: int, tmp_path: Path) -> None:
    """By a nats-server only where the configuration says something else of who may what."""
    where = tmp_path / "jwt"
    where.mkdir()
    (where / f"{A.public}.jwt").write_text(OPERATOR.account(A))
    with administered(kind, of(where)) as (server, _):
        goes = connect(server, A.user("goes"))
        goes.barrier()
        (where / f"{A.public}.jwt").write_text(revoking("goes"))
        server.process.send_signal(signal.SIGHUP)
        while not goes.heard.closed:
            goes.receive()
        assert goes.heard.data.endswith(b"-ERR 'User Authentication Revoked'\r\n")
        goes.close()


@pytest.mark.parametrize("kind", BOTH)
def test_the_file_counts_unless_what_was_pushed_is_newer(kind: int, tmp_path: Path) -> None:
    where = tmp_path / "jwt"
    where.mkdir()
    limits = {"conn": -1, "subs": -1, "payload": 10}
    newer = OPERATOR.jwt("account", SYSTEM.public, {"limits": limits}, iat=1_700_000_009)
    (where / f"{SYSTEM.public}.jwt").write_text(newer)
    with serving(kind, of(where)) as server:
        said = heard(server, SYSTEM.user("u"), b"PUB a 11\r\n12345678901\r\n")
        assert said.endswith(b"'Maximum Payload Violation'\r\n")
    assert (where / f"{SYSTEM.public}.jwt").read_text() == newer


def test_what_is_damaged_is_passed_over(tmp_path: Path) -> None:
    where, known = tmp_path / "jwt", accounts()
    where.mkdir()
    (where / f"{A.public}.jwt").write_text(known[A.public][:-40])
    (where / f"{B.public}.jwt").write_bytes(bytes(3 << 20))
    (where / f"{C.public}.jwt").symlink_to(where / "nowhere")
    (where / "no key.jwt").write_text(known[A.public])
    (where / f"{A.public}.jwt{WRITING}").write_text("half")
    with administered(1, of(where)) as (server, admin):
        for account in (A, B, C):
            assert heard(server, account.user("u")) == VIOLATION
        wait_until(lambda: not list(where.glob(f"*{WRITING}")), "what was half written is gone")
        assert push(admin, known[A.public], known[B.public]) == ["jwt updated"] * 2
        for account in (A, B):
            assert heard(server, account.user("u")) == b""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may not be kept from a directory so")
def test_a_directory_that_goes_is_said_and_comes_again(tmp_path: Path) -> None:
    where = tmp_path / "jwt"
    with administered(1, of(where)) as (server, admin):
        for path in where.iterdir():
            path.unlink()
        where.rmdir()
        where.write_text("a file is in its place")
        (said,) = push(admin, OPERATOR.account(A))
        assert said.startswith("jwt update resulted in error - ")
        where.unlink()
        assert push(admin, OPERATOR.account(A)) == ["jwt updated"]
        assert heard(server, A.user("u")) == b""


# --- a cache ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", BOTH)
def test_a_cache_keeps_what_it_was_asked_for(kind: int, tmp_path: Path) -> None:
    where = tmp_path / "jwt"
    with administered(kind, of(where, "cache", ttl="1h")) as (server, admin):
        assert push(admin, OPERATOR.account(A)) == ["jwt update cache skipped"], "nobody has come from there"
        assert push(admin, accounts()[SYSTEM.public]) == ["jwt updated cache"]
        assert heard(server, A.user("u")) == VIOLATION
        assert request(admin, LIST, b"")["data"] == [SYSTEM.public]


# --- in a cluster -----------------------------------------------------------------------------------------------------


def member_conf(where: Path, kind: str, other: Member | None) -> str:
    routes = f"routes: [{other.route_url}]" if other is not None else ""
    more = {"interval": "1s"} if kind == "full" else {}
    return of(where, kind, timeout="20s", **more) + (
        f'port: $PORT, host: "127.0.0.1", server_name: {where.name}, authorization: {{timeout: 60}}\n'
        f'cluster {{ name: c, listen: "127.0.0.1:$ROUTE_PORT", {routes} }}\n'
    )


def at(member: Member, user: tuple[Key, str], *lines: bytes) -> bytes:
    return heard(member, user, *lines)  # type: ignore[arg-type]


@pytest.mark.long
@pytest.mark.parametrize("kinds", mixtures((NEW_REAL, OURS), (OURS, NEW_REAL), (OURS, OURS_3)))
def test_servers_of_a_cluster_tell_each_other_of_accounts(kinds: tuple[str, str], tmp_path: Path) -> None:
    """Who has it not looks it up, and those that keep all have the same soon."""
    with configured(kinds[0], member_conf(tmp_path / "one", "full", None)) as one:
        admin = connect(one, SYSTEM.user("admin"))  # type: ignore[arg-type]
        assert push(admin, OPERATOR.account(A), OPERATOR.account(B)) == ["jwt updated"] * 2
        with configured(kinds[1], member_conf(tmp_path / "two", "full", one)) as two:
            wait_until(lambda: len(list((tmp_path / "two").glob("*.jwt"))) == 3, "it has all", START_SECONDS)
            for account in (A, B):
                assert at(two, account.user("u")) == b""
        with configured(kinds[1], member_conf(tmp_path / "three", "cache", one)) as three:
            asked = lambda: at(three, A.user("u"))  # noqa: E731
            wait_until(lambda: asked() == b"", "there is a route", START_SECONDS)
            wait_until((tmp_path / "three" / f"{A.public}.jwt").exists, "it is kept")
            assert not (tmp_path / "three" / f"{B.public}.jwt").exists()
        admin.close()


IMPORT = {"name": "ask", "subject": "ask", "account": A.public, "type": "service", "local_subject": "please"}
EXPORT = {"name": "ask", "subject": "ask", "type": "service"}


@pytest.mark.parametrize("kind", [OURS_3])
def test_an_account_that_is_pushed_after_others_import_from_it(kind: str, tmp_path: Path) -> None:
    """Its own clients come to another server."""
    with configured(kind, member_conf(tmp_path / "jwt", "full", None)) as member:
        admin = connect(member, SYSTEM.user("admin"))  # type: ignore[arg-type]
        assert push(admin, OPERATOR.account(B, imports=[IMPORT])) == ["jwt updated"]
        client = connect(member, B.user("u"))  # type: ignore[arg-type]
        client.barrier()
        assert push(admin, OPERATOR.account(A, exports=[EXPORT])) == ["jwt updated"]
        wire = RouteWire.joined(member.route_port, {**INFO, "cluster": "c"}, {**CONNECT, "cluster": "c"})
        wire.send(b"RS+ %s ask\r\n" % A.public.encode())
        wire.barrier()

        def is_asked() -> bool:
            client.send(b"PUB please 2\r\nhi\r\n")
            client.barrier()
            return any(said.startswith(b"HMSG %s ask " % A.public.encode()) for said in wire.barrier())

        wait_until(is_asked, "a request comes to the other server")
        for one in (admin, client, wire):
            one.close()


@pytest.mark.parametrize("kind", [OURS])
def test_other_servers_are_asked_though_no_client_is_told_of_them(kind: str, tmp_path: Path) -> None:
    content = member_conf(tmp_path / "jwt", "full", None).replace("name: c,", "name: c, no_advertise: true,")
    with configured(kind, content) as member:
        wire = RouteWire.joined(member.route_port, {**INFO, "cluster": "c"}, {**CONNECT, "cluster": "c"})
        wire.send(b"RS+ %s $SYS.REQ.ACCOUNT.*.CLAIMS.LOOKUP\r\n" % SYSTEM.public.encode())
        asked: list[bytes] = []

        def is_asked() -> bool:
            connect(member, A.user("u")).close()  # type: ignore[arg-type]
            asked.extend(one for one in wire.barrier() if b".CLAIMS.LOOKUP " in one)
            return bool(asked)

        wait_until(is_asked, "who has the account is asked")
        _, account, _, reply, _ = asked[0].split()
        jwt = OPERATOR.account(A).encode()
        wire.send(b"RMSG %s %s %d\r\n%s\r\n" % (account, reply, len(jwt), jwt))
        wait_until((tmp_path / "jwt" / f"{A.public}.jwt").exists, "what it says is kept")
        assert at(member, A.user("u")) == b""
        wire.close()


# --- files alone ------------------------------------------------------------------------------------------------------


def terms(where: Path, **more: object) -> dict[str, object]:
    return {"type": "full", "dir": str(where), "limit": 0, "ttl_ns": 0, "deletes": "", **more}


def test_what_has_expired_is_removed(tmp_path: Path) -> None:
    store = Directory(terms(tmp_path))
    store.learn(store.scan(), 0)
    store.save(A.public, OPERATOR.account(A, exp=2_000_000_000), 0)
    store.save(B.public, OPERATOR.account(B), 0)
    both = store.digest
    store.expire(1_999_999_999)
    assert store.digest == both
    store.expire(2_000_000_000)
    assert store.keys() == [B.public] and [path.name for path in tmp_path.iterdir()] == [B.public + SUFFIX]


def test_what_somebody_else_has_renewed_does_not_expire(tmp_path: Path) -> None:
    store = Directory(terms(tmp_path))
    store.save(A.public, OPERATOR.account(A, exp=2_000_000_000), 0)
    (tmp_path / f"{A.public}{SUFFIX}").write_text(OPERATOR.account(A, exp=2_100_000_000))
    store.expire(2_000_000_000)
    assert store.keys() == [A.public] and store.load(A.public) == OPERATOR.account(A, exp=2_100_000_000)


def test_two_brokers_with_one_directory_write_whole_files(tmp_path: Path) -> None:
    jwts = [OPERATOR.account(A, {"payload": 10**number}) for number in range(2)]

    def write(jwt: str) -> None:
        for number in range(20):
            store = Directory(terms(tmp_path, deletes="hard"))
            store.save(A.public, jwt, number)
            assert store.load(A.public) in jwts

    with ThreadPoolExecutor(2) as brokers:
        list(brokers.map(write, jwts))
    assert [path.name for path in tmp_path.iterdir()] == [A.public + SUFFIX]


def test_one_that_cannot_be_read_keeps_nobody_from_the_others(tmp_path: Path) -> None:
    store = Directory(terms(tmp_path))
    for account in (A, B, C):
        store.save(account.public, OPERATOR.account(account, exp=2_000_000_000), 0)
    first, *others = store.keys()
    (tmp_path / f"{first}{SUFFIX}").unlink()
    (tmp_path / f"{first}{SUFFIX}").mkdir()
    (tmp_path / f"{first}{SUFFIX}{WRITING}").mkdir()
    again = Directory(terms(tmp_path))
    again.learn(sorted(again.scan()), 0)
    assert again.keys() == others
    assert len(store.pack(store.keys(), 0)) == len(others)
    store.expire(2_000_000_000)
    assert store.keys() == [first]


def test_what_is_no_file_is_no_account_and_keeps_nobody_waiting(tmp_path: Path) -> None:
    store = Directory(terms(tmp_path))
    store.save(A.public, OPERATOR.account(A), 0)
    os.mkfifo(tmp_path / f"{B.public}{SUFFIX}")
    (tmp_path / f"{C.public}{SUFFIX}").symlink_to(tmp_path / f"{C.public}{SUFFIX}")
    found: list[dict[str, str]] = []
    keys = [A.public, B.public, C.public]
    reading = threading.Thread(target=lambda: found.append(store.read(keys)), daemon=True)
    reading.start()
    reading.join(60)
    assert [list(one) for one in found] == [[A.public]]
    store.save(B.public, OPERATOR.account(B), 0)
    assert list(store.read(keys)) == [A.public, B.public]


def test_a_broker_drops_nothing_that_another_is_writing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = Directory(terms(tmp_path)), Directory(terms(tmp_path))
    fsync = os.fsync
    there: list[int] = []

    def meanwhile(fd: int) -> None:
        fsync(fd)
        other.scan()
        there.append(len(list(tmp_path.glob(f"*{WRITING}"))))

    monkeypatch.setattr(os, "fsync", meanwhile)
    for _ in range(2):
        one.save(A.public, OPERATOR.account(A, {"payload": len(there)}), 0)
    assert there == [1, 0, 1, 0], "while a file is written, and when its directory is told"
    left = tmp_path / f"{A.public}{SUFFIX}.killed{WRITING}"
    left.write_text("half")
    assert other.scan() == [A.public] and not left.exists()


def test_what_was_begun_before_it_is_configured_anew_is_done_first(tmp_path: Path) -> None:
    """Else it would be removed as half of a file, or not be known."""
    is_begun, may_go_on = threading.Event(), threading.Event()
    events: list[object] = []

    def slow() -> None:
        is_begun.set()
        may_go_on.wait(60)
        before.directory.save(A.public, OPERATOR.account(A), 0)

    before = DirResolver(terms(tmp_path), lambda: None, lambda _, found: found(""))
    before.do(slow, lambda _: None)
    before.do(lambda: before.directory.save(B.public, OPERATOR.account(B), 0), lambda _: None)
    assert is_begun.wait(60)
    before.close()
    after = DirResolver(terms(tmp_path), lambda: None, lambda _, found: found(""), before)
    after.do(after.directory.scan, events.append)
    may_go_on.set()

    def is_scanned() -> bool:
        after.settle()
        return bool(events)

    wait_until(is_scanned, "it is looked at")
    after.close()
    assert events == [[A.public]], "who waited is not answered, and nothing is done for it"


def test_a_cache_lets_go_what_was_asked_for_least_recently(tmp_path: Path) -> None:
    store = Directory(terms(tmp_path, type="cache", limit=2, ttl_ns=10_000_000_000, deletes="hard"))
    store.scan()
    for now, account in enumerate((A, B, A, C)):
        store.save_if_newer(account.public, OPERATOR.account(account), now)
    assert set(store.keys()) == {A.public, C.public}
    store.expire(12)
    assert store.keys() == [C.public]


def test_digests_are_of_what_is_there_in_whatever_order(tmp_path: Path) -> None:
    one, other = Directory(terms(tmp_path / "one")), Directory(terms(tmp_path / "other", deletes="hard"))
    for store, order in ((one, (A, B)), (other, (C, B, A))):
        store.scan()
        for account in order:
            store.save(account.public, OPERATOR.account(account), 0)
    assert one.digest != other.digest
    other.delete(C.public)
    again = Directory(terms(tmp_path / "one"))
    again.learn(again.scan(), 0)
    assert one.digest == other.digest == again.digest
    with pytest.raises(StoreError, match="not set up"):
        one.delete(A.public)


# --- what the file may say --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("block", "why"),
    [
        ("type: full", "dir has no value"),
        ("type: full, dir: '/dev/null'", "accessible directory"),
        ("type: full, dir: '/dev/null/x'", "accessible directory"),
        ("type: full, dir: x, ttl: '1h'", "FULL does not accept ttl"),
        ("type: full, dir: x, hard_delete: true", "hard_delete has no effect without delete"),
        ("type: cache, dir: x, allow_delete: true", "CACHE does not accept allow_delete"),
        ("type: cache, dir: x, hard_delete: false", "CACHE does not accept hard_delete"),
        ("type: cache, dir: x, interval: '1s'", "CACHE does not accept interval"),
        ("type: full, dir: x, timeout: '0s'", "takes longer"),
        ("type: half, dir: x", "full or cache"),
    ],
)
def test_a_block_that_cannot_be_is_said_with_its_line(tmp_path: Path, block: str, why: str) -> None:
    from mq_shards.acceptor.protocols.nats.conf_keys import read_conf

    path = tmp_path / "nats-server.conf"
    path.write_text(f"operator: {OPERATOR.own(system_account=SYSTEM.public)}\nresolver {{ {block} }}\n")
    with pytest.raises(ValueError, match=r"nats-server\.conf:2") as error:
        read_conf(str(path))
    assert why in str(error.value)


def test_a_directory_wants_a_system_account(tmp_path: Path) -> None:
    from mq_shards.acceptor.protocols.nats.conf_keys import read_conf

    path = tmp_path / "nats-server.conf"
    path.write_text(f"operator: {OPERATOR.own()}\nresolver {{ type: full, dir: {tmp_path} }}\n")
    with pytest.raises(ValueError, match="needs a system_account"):
        read_conf(str(path))
