"""Services that are measured: what a nats-server publishes of requests to them."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from tests.nats.wire import TIMEOUT_S, Wire
from tests.ready import readable

OPTIONS: Final = '"verbose":false,"pedantic":false,"headers":true,"no_responders":true,"lang":"raw","version":"1"'
ANSWER: Final = "answer"
GO: Final = "go"
QUIET_S: Final = 0.3  # so long it is listened for a result that is not to come

Step = tuple[str, bytes | str]


@dataclass(frozen=True)
class Latency:
    """`steps`: a client, whose name begins with its user's, sends lines; or it answers the request that it has got, as
    often as it does so; or it goes. `results`: how many are published."""

    name: str
    steps: tuple[Step, ...]
    results: int = 1


def request(subject: str, *headers: str, reply: str = "r") -> bytes:
    if not headers:
        return b"PUB %s %s 2\r\nhi\r\n" % (subject.encode(), reply.encode())
    lines = "".join(f"{line}\r\n" for line in ("NATS/1.0", *headers, "")).encode()
    return b"HPUB %s %s %d %d\r\n%shi\r\n" % (subject.encode(), reply.encode(), len(lines), len(lines) + 2, lines)


def asked(name: str, subject: str, *headers: str, results: int = 1, service: str = "") -> Latency:
    """A request that is answered."""
    steps = (
        ("a", b"SUB %s 1\r\n" % (service or subject).encode()), ("b", b"SUB r 1\r\n"),
        ("b", request(subject, *headers)), ("a", ANSWER),
    )  # fmt: skip
    return Latency(name, steps, results)


def by_headers(name: str, *headers: str, results: int = 1) -> Latency:
    return asked(name, "s.x", *headers, results=results, service="some.x")


PARENT: Final = "traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7"
B3: Final = "b3: 80f198ee56343ba864fe8b2a57d3eff7-e457b5a2e4d86bd1"
UBER: Final = "uber-trace-id: 479fefe9525eddb:5adb976bfc1f95c1:479fefe9525eddb"

LATENCIES: Final = (
    asked("the asker is shared", "all"),
    asked("the asker is not shared", "plain", service="one"),
    asked("headers do not matter if all are measured", "plain", f"{PARENT}-01", service="one"),
    Latency("it is told in the account that imports results", (
        ("a", b"SUB one 1\r\n"), ("b", b"SUB lat.> 9\r\nSUB r 1\r\n"), ("b", request("plain")), ("a", ANSWER))),
    Latency("within the account nothing is measured", (
        ("a", b"SUB all 1\r\n"), ("a2", b"SUB r 1\r\n"), ("a2", request("all")), ("a", b"PUB r 0\r\n\r\n")), 0),
    Latency("of two answers one counts", (
        ("a", b"SUB all 1\r\n"), ("a2", b"SUB all 1\r\n"), ("b", b"SUB r 1\r\n"), ("b", request("all")),
        ("a", ANSWER), ("a2", ANSWER))),
    Latency("one answers twice", (
        ("a", b"SUB all 1\r\n"), ("b", b"SUB r 1\r\n"), ("b", request("all")), ("a", ANSWER), ("a", ANSWER))),
    Latency("a member of a queue answers", (
        ("a", b"SUB one q 1\r\n"), ("b", b"SUB r 1\r\n"), ("b", request("plain")), ("a", ANSWER))),
    Latency("nobody can answer", (
        ("a", b"SUB all 1\r\n"), ("b", b"PUB all 2\r\nhi\r\n"), ("b", b"PUB plain 0\r\n\r\n")), 2),
    Latency("nobody is there", (("b", b"SUB r 1\r\n"), ("b", request("all")), ("b", request("plain"))), 2),
    Latency("nobody answers in time", (("a", b"SUB quick 1\r\n"), ("b", b"SUB r 1\r\n"), ("b", request("quick")))),
    Latency("the asker does not wait", (
        ("a", b"SUB all 1\r\n"), ("b", b"SUB r 1\r\n"), ("b", request("all")), ("b", b"UNSUB 1\r\n"))),
    Latency("the asker does not wait at a wildcard", (
        ("a", b"SUB all 1\r\nSUB one 2\r\n"), ("b", b"SUB r.* 1\r\n"),
        ("b", request("all", reply="r.1") + request("plain", reply="r.2")),
        ("b", b"UNSUB 1\r\n")), 2),
    Latency("the asker waits twice", (
        ("a", b"SUB all 1\r\n"), ("b", b"SUB r 1\r\nSUB r 2\r\n"), ("b", request("all")), ("b", b"UNSUB 1\r\n")), 0),
    Latency("the asker goes", (("a", b"SUB all 1\r\n"), ("b", b"SUB r 1\r\n"), ("b", request("all")), ("b", GO))),
    Latency("an asker who is not shared goes", (
        ("a", b"SUB one 1\r\n"), ("b", b"SUB r 1\r\n"), ("b", request("plain")), ("b", GO))),
    Latency("the asker waits for one answer", (
        ("a", b"SUB all 1\r\n"), ("b", b"SUB r 1\r\nUNSUB 1 1\r\n"), ("b", request("all")), ("a", ANSWER))),
    Latency("the responder goes", (
        ("a", b"SUB quick 1\r\n"), ("b", b"SUB r 1\r\n"), ("b", request("quick")), ("a", GO))),
    by_headers("no header", results=0),
    by_headers("another header", "x: 1", results=0),
    by_headers("a parent", f"{PARENT}-01"),
    by_headers("a parent and a state", f"{PARENT}-01", "Tracestate: a=1", "x: 2"),
    by_headers("a parent that is not sampled", f"{PARENT}-00", results=0),
    by_headers("a parent that is too long", f"{PARENT}-0101", results=0),
    by_headers("a parent of other flags", f"{PARENT}-81", results=0),
    by_headers("b3", f"{B3}-1-05e3ac9a4f6e3b90"),
    by_headers("b3 that leaves it to us", B3),
    by_headers("b3 that denies", f"{B3}-0", results=0),
    by_headers("b3 that denies and says no more", "b3: 0", results=0),
    by_headers("b3 of several headers", "X-B3-TraceId: 80f198ee56343ba864fe8b2a57d3eff7", "x-b3-sampled: 1",
               "X-B3-ParentSpanId: 05e3ac9a4f6e3b90", "X-B3-SpanId: e457b5a2e4d86bd1", "b3: 0"),
    by_headers("b3 of several headers that denies", "X-B3-TraceId: 80f1", "X-B3-Sampled: 0", f"{PARENT}-01", results=0),
    by_headers("b3 of several headers that says neither", "X-B3-TraceId: 80f1", "X-B3-Sampled: d"),
    by_headers("uber", f"{UBER}:1", "uberctx-b: 2", "UberCtx-A: <1>", "uberctx-b: 3"),
    by_headers("uber that is not sampled", f"{UBER}:2", f"{PARENT}-01", results=0),
    by_headers("uber of two digits", f"{UBER}:03"),
    by_headers("uber of which the first digit is none", f"{UBER}:x1"),
    by_headers("uber of no digit", f"{UBER}:1x", results=0),
    by_headers("a header of a trace", "Nats-Trace-Dest: lat.none", results=0),
    by_headers("headers that are none", f"{PARENT}-01", "none", results=0),
    Latency("nobody can answer what is traced", (("b", request("s.x", f"{PARENT}-01", reply="")),)),
    Latency("nobody is there for what is traced", (("b", request("s.x", f"{B3}-1")),)),
)  # fmt: skip


def play(scene: Latency, port: int) -> dict[str, Any]:
    """The results, and what clients hear otherwise; what differs from time to time is left out."""
    clients: dict[str, Wire] = {}
    ids: dict[int, str] = {}
    try:
        listener = clients["a0"] = _come("a0", port, ids)
        listener.send(b"SUB lat.> t\r\n")
        listener.barrier()
        for who, said in scene.steps:
            client = clients.get(who) or clients.setdefault(who, _come(who, port, ids))
            if said == GO:
                client.close()
            elif said == ANSWER:
                client.send(b"PUB %s 3\r\nyes\r\n" % _reply(client))
                client.barrier()
            else:
                assert isinstance(said, bytes)
                client.send(said)
                client.barrier()
        results = [json.loads(one) for one in _results(listener, scene.results)]
        assert len(results) == scene.results, listener.heard.data
        gone = {who for who, said in scene.steps if said == GO}
        for who in clients.keys() - gone:
            clients[who].barrier()
        told = [(who, client.heard.data.decode()) for who, client in clients.items() if who not in {"a0", *gone}]
        plain = sorted((_plain(one, ids) for one in results), key=json.dumps)
        return {"results": plain, "heard": {who: _masked(data) for who, data in told}}
    finally:
        for client in clients.values():
            client.close()


def _come(who: str, port: int, ids: dict[int, str]) -> Wire:
    client = Wire(port)
    ids[json.loads(client.info[5:])["client_id"]] = who
    client.send(b'CONNECT {"user":"%s","pass":"%s",%s,"name":"%s"}\r\n' % (
        who[:1].encode(), who[:1].encode(), OPTIONS.encode(), who.encode()))  # fmt: skip
    client.barrier()
    return client


def _reply(client: Wire) -> bytes:
    while not (found := re.findall(rb"H?MSG \S+ \S+ (_R_\S+) ", client.heard.data)):
        client.receive()
    return found[-1]


def _results(listener: Wire, count: int) -> list[bytes]:
    until = time.monotonic() + (TIMEOUT_S if count else QUIET_S)
    while len(found := re.findall(rb"\r\n(\{\"type\".*\})\r\n", listener.heard.data)) < max(count, 1):
        left = until - time.monotonic()
        if left <= 0:
            break
        if readable([listener.socket], left):
            listener.receive()
    return found


def _masked(text: str) -> str:
    text = re.sub(r"_R_\.\S+", "...", re.sub(r"(HMSG .* )\d+ \d+\r\n", r"\1...\r\n", text))
    text = re.sub(r"\{\"type\":.*\}", "a result", re.sub(r"(?<=MSG lat.)(\S+ \S+) +\d+", r"\1", text))
    return re.sub(r"(?<=Info: ).*", "...", text)


TIME: Final = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?Z"


def _plain(result: dict[str, Any], ids: Mapping[int, str]) -> dict[str, Any]:
    assert re.fullmatch(r"[0-9A-Za-z]{22}", result["id"])
    assert re.fullmatch(TIME, result["timestamp"]) and re.fullmatch(TIME, result["start"])
    assert result["start"] < result["timestamp"]
    for whom in ("requestor", "responder"):
        one = result.get(whom, {})
        if "rtt" in one:
            assert one["rtt"] > 0
            one["rtt"] = "..."
        if "id" in one:
            one["id"] = ids[one["id"]]
            assert re.fullmatch(TIME, one["start"])
            one["start"] = one["server"] = "..."
    if result["status"] == 200:
        assert 0 <= result["service"] <= result["total"] and 0 <= result["system"] <= result["total"] > 0
        result |= {"service": "...", "system": "...", "total": "..."}
    return {**result, "id": "...", "timestamp": "...", "start": "..."}
