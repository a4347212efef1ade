"""What monitoring shows in one situation, value by value beside a real nats-server: accounts, users, a websocket."""

from __future__ import annotations

import http.client
import json
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from tests.nats.servers import nats_server, running
from tests.nats.test_operating import until_true
from tests.nats.websocket_wire import Websocket
from tests.nats.wire import Wire
from tests.servers import free_port

CONF: Final = """
accounts {
  ONE {
    users: [ {user: one, password: x, permissions: {publish: {deny: "no"}}} ], limits: {max_connections: 10}
    exports: [
      {stream: "s.>"}, {service: "q", latency: {sampling: headers, subject: l}}
      {stream: "private", accounts: [TWO]}, {service: "many", response: stream}
    ]
  }
  TWO {
    users: [ {user: two, password: x} ], mappings: { "a": "b" }
    imports: [
      {stream: {account: ONE, subject: "s.>"}, prefix: p}, {service: {account: ONE, subject: q}, to: ask, share: true}
    ]
  }
  SYS { users: [ {user: sys, password: x} ] }
}
system_account: SYS
server_name: same
cluster { name: "alone" }
"""
PATHS: Final = (
    "/varz", "/connz", "/connz?auth=1", "/connz?subs=1", "/connz?subs=detail", "/connz?state=closed&auth=1&subs=1",
    "/connz?state=any", "/connz?state=any&subs=detail", "/connz?sort=subs", "/connz?sort=bytes_to",
    "/connz?sort=msgs_from", "/connz?limit=-1", "/connz?cid=99999", "/connz?acc=ONE",
    "/connz?acc=ONE&auth=1&subs=detail", "/connz?user=one&auth=1",
    "/connz?user=nobody", "/connz?acc=TWO&user=one", "/connz?mqtt_client=x", "/accountz?acc=ONE", "/accountz?acc=TWO",
    "/accountz?acc=SYS", "/subsz?subs=1&acc=TWO", "/subsz?subs=1&test=foo.x", "/accstatz", "/accstatz?unused=1",
    "/leafz?subs=1",
    "/gatewayz?accs=1", "/jsz?accounts=1&streams=1", "/healthz?js-enabled-only=1", "/routez?subs=1",
)  # fmt: skip
# Which are so by chance, by time, or by what the program is made of.
VOLATILE: Final = {
    "server_id", "now", "start", "uptime", "cpu", "mem", "cores", "gomaxprocs", "git_commit", "go", "last_activity",
    "rtt", "idle", "port", "config_load_time", "config_digest", "cid", "stop", "feature_flags", "slow_consumer_stats",
    "http_port", "http_req_stats", "update_time", "pending_bytes", "sublist_stats", "num_cache", "cache_hit_rate",
    "max_fanout", "avg_fanout", "num_matches", "num_inserts", "num_removes",
}  # fmt: skip
# A nats-server has subscriptions and imports of its own in each account, which are counted and listed.
ITS_OWN: Final = {"subscriptions", "num_subscriptions", "total"}
# ... and counts what an account imports as the exporter's.
IMPORTED: Final = ("p.s.>", "ask")
# What is listed in no order that is promised.
SETS: Final = {
    "connections", "subscriptions_list", "subscriptions_list_detail", "exports", "imports", "account_statz",
}  # fmt: skip


@contextmanager
def situation(kind: int) -> Iterator[int]:
    """The port of monitoring."""
    from tempfile import NamedTemporaryFile

    monitoring, websockets = free_port(), free_port()
    more = f'http: 127.0.0.1:{monitoring}\nwebsocket {{ listen: "127.0.0.1:{websockets}", no_tls: true }}\n'
    with ExitStack() as stack:
        file = stack.enter_context(NamedTemporaryFile("w", suffix=".conf"))
        file.write(CONF + more)
        file.flush()
        server = stack.enter_context(running(kind, arguments=["-c" if kind == 0 else "--nats-config", file.name]))

        def client(user: str, *lines: bytes) -> Wire:
            wire = Wire(server.port)
            stack.callback(wire.close)
            said = {"verbose": False, "pedantic": False, "user": user, "pass": "x", "name": f"of {user}", "lang": "raw"}
            wire.send(b"CONNECT " + json.dumps(said).encode() + b"\r\n")
            wire.barrier()
            for line in lines:
                wire.send(line)
                wire.barrier()
            return wire

        client("one", b"SUB foo.* 1\r\nSUB foo.> q 2\r\nSUB q 3\r\nSUB bar 4\r\nUNSUB 4 5\r\n")
        client("two", b"SUB p.s.> 1\r\n", b"PUB foo 3\r\nabc\r\n")
        client("one", b"PUB foo.a 2\r\nhi\r\nPUB s.x 2\r\nhi\r\n")
        client("sys")
        gone = client("one", b"SUB gone 1\r\n")
        gone.close()
        refused = Wire(server.port)
        refused.send(b'CONNECT {"user":"nobody","pass":"y"}\r\n')
        while not refused.heard.closed:
            refused.receive()
        refused.close()
        one = stack.enter_context(Websocket(websockets))
        one.say(b'CONNECT {"verbose":false,"user":"one","pass":"x"}\r\nSUB w 1\r\nPING\r\n')
        one.until(b"PONG")
        until_true(lambda: len(_get(monitoring, "/connz?state=closed&limit=9")["connections"]) >= 3)
        yield monitoring


def _get(port: int, path: str) -> Any:  # noqa: ANN401
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", path)
    answer = connection.getresponse()
    body = json.loads(answer.read())
    connection.close()
    return body if answer.status == 200 else {"status": answer.status, "body": body}


def still(value: object, name: str = "") -> object:
    if isinstance(value, dict):
        own = ITS_OWN if "kind" not in value else set()
        shown = {key: still(one, key) for key, one in value.items() if key not in VOLATILE | own}
        return {key: one for key, one in shown.items() if not (key == "sent" and isinstance(one, dict))}
    if not isinstance(value, list):
        return float(value) if isinstance(value, int) and not isinstance(value, bool) else value
    found = [still(one) for one in value if name in ("exports", "imports") or "$SYS." not in json.dumps(one)]
    if name.startswith("subscriptions_list"):
        found = [one for one in found if not isinstance(one, dict) or one["subject"] not in IMPORTED]
    if name == "connections":
        # Without those that looked whether it serves.
        found = [one for one in found if "name" in one or one.get("reason") == "Authentication Failure"]  # type: ignore[operator, union-attr]
    return sorted(found, key=lambda one: json.dumps(one, sort_keys=True)) if name in SETS else found


@pytest.fixture(scope="module")
def seen() -> dict[str, object]:
    """By a real one."""
    if nats_server() is None:
        pytest.skip("no nats-server")
    with situation(0) as port:
        return {path: still(_get(port, path)) for path in PATHS}


@pytest.fixture(scope="module", params=[1, 2])
def ours(request: pytest.FixtureRequest) -> Iterator[int]:
    with situation(request.param) as port:
        yield port


@pytest.mark.parametrize("path", PATHS)
def test_it_shows_what_a_nats_server_shows(seen: dict[str, object], ours: int, path: str) -> None:
    assert still(_get(ours, path)) == seen[path]


@pytest.mark.parametrize(
    "kind", [pytest.param(0, marks=pytest.mark.skipif(nats_server() is None, reason="no nats-server")), 1, 2]
)
def test_a_total_is_of_all_or_of_an_account(kind: int, tmp_path: Path) -> None:
    """Whichever user is asked for; and of who has gone nobody was of the global account."""
    monitoring, path = free_port(), tmp_path / "nats.conf"
    path.write_text(f"http: 127.0.0.1:{monitoring}\ncluster {{ name: alone }}\n")
    with running(kind, arguments=["-c" if kind == 0 else "--nats-config", str(path)]) as server:
        wires = [Wire(server.port) for _ in range(3)]
        for wire, name in zip(wires, (b"one", b"two", b"gone"), strict=True):
            wire.send(b'CONNECT {"verbose":false,"name":"%s"}\r\n' % name)
            wire.barrier()
        wires[-1].close()
        assert json.loads(wires[0].info[len("INFO ") :])["cluster"] == "alone", "of which it is, even without others"
        until_true(lambda: "gone" in json.dumps(_get(monitoring, "/connz?state=closed")))

        def counted(query: str) -> tuple[int, int]:
            found = _get(monitoring, f"/connz?{query}")
            return found["total"], found["num_connections"]

        until_true(lambda: counted("") == (2, 2))  # who looked whether it serves has gone
        assert counted("user=nobody") == (2, 0)
        assert counted("user=nobody&acc=$G") == (2, 0)
        assert counted("state=all&acc=$G") == (2, 2)
        assert counted("state=closed&acc=$G") == (0, 0)
        assert counted("state=all")[0] > 2
        for wire in wires:
            wire.close()


@pytest.mark.parametrize("path", ["/varz", "/subsz", "/accountz?acc=ONE"])
def test_numbers_are_written_as_go_writes_them(ours: int, path: str) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", ours, timeout=60)
    connection.request("GET", path)
    body = connection.getresponse().read()
    assert json.loads(body) and not re.search(rb"\d\.0\b", re.sub(rb'"[^"]*"', b"", body))


@pytest.mark.parametrize("kind", [1, 2])
def test_an_account_may_share_more_than_one_answer_between_processes_holds(kind: int, tmp_path: Path) -> None:
    count, name = 2200, "n" * 3900
    imports = ", ".join(f'{{stream: {{account: A, subject: "{name}{n}"}}}}' for n in range(count))
    monitoring, path = free_port(), tmp_path / "nats.conf"
    accounts = f'A {{ exports: [{{stream: ">"}}] }}, B {{ imports: [{imports}] }}'
    path.write_text(f"http: 127.0.0.1:{monitoring}\naccounts {{ {accounts} }}\n")
    with running(kind, arguments=["--nats-config", str(path)]):
        found = _get(monitoring, "/accountz?acc=B")["account_detail"]["imports"]
        assert len(json.dumps(found)) > 16 << 20
        shared = [one["subject"] for one in found if one["account"] == "A"]
        assert sorted(shared) == sorted(f"{name}{n}" for n in range(count))
