"""Traced messages: what a nats-server publishes of them, and what else its clients hear."""

from __future__ import annotations

import json
import re
import time
from dataclasses import dataclass
from typing import Any, Final

from tests.nats.wire import TIMEOUT_S, Wire
from tests.ready import readable

OPTIONS: Final = '"verbose":false,"pedantic":false,"headers":true,"no_responders":true,"name":"%s"'
SAMPLED: Final = "traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
QUIET_S: Final = 0.3  # so long it is listened for an event that is not to come


@dataclass(frozen=True)
class Trace:
    """`there`: who subscribes, each a user and lines; `said`: by a user, who has subscribed to t.> for `events`."""

    name: str
    said: bytes
    there: tuple[tuple[str, bytes], ...] = ()
    user: str = "a"
    events: int = 1
    more: str = ""  # options of the publisher's CONNECT


def traced(subject: str, *lines: str, dest: str = "t.x", body: bytes = b"hi", reply: str = "") -> bytes:
    to = [f"Nats-Trace-Dest: {dest}"] if dest else []
    header = "".join(f"{line}\r\n" for line in ("NATS/1.0", *to, *lines, "")).encode("latin-1")
    where = f"{subject} {reply}" if reply else subject
    return b"HPUB %s %d %d\r\n%s%s\r\n" % (where.encode(), len(header), len(header) + len(body), header, body)


ONLY: Final = "Nats-Trace-Only: true"

TRACES: Final = (
    Trace("nobody is there", traced("x")),
    Trace("one is there", traced("x", "B: 1", "A: <2>", "B: 3"), (("a", b"SUB x 1\r\n"),)),
    Trace("wildcards and a queue", traced("x.y", ONLY), (("a", b"SUB x.* 1\r\nSUB x.> q 2\r\n"),)),
    Trace("two members, of which one is chosen", traced("x"), (("a", b"SUB x q 1\r\n"), ("a", b"SUB x r 1\r\n"))),
    Trace("it is for nobody", traced("x", ONLY, reply="r"), (("a", b"SUB x 1\r\n"),)),
    Trace("nobody is there, and one is told", traced("x", ONLY, reply="t.reply")),
    Trace("one does not hear oneself", b"SUB x 9\r\n" + traced("x"), more=',"echo":false'),
    Trace("it is mapped", traced("old.1"), (("a", b"SUB new.* 1\r\n"),)),
    Trace("it is mapped to itself", traced("same"), (("a", b"SUB same 1\r\n"),)),
    Trace("one may not publish it", traced("y", dest="t.few"), user="few"),
    Trace("one may not publish the trace", traced("x.y"), (("a", b"SUB x.y 1\r\n"),), "few", 0),
    Trace("one may not have it", traced("x.hidden"), (("few", b"SUB x.* 1\r\n"),)),
    Trace("a reply that may not be", traced("x", reply="_R_.x")),
    Trace("it goes nowhere", traced("x", dest="t.*") + traced("x", ONLY, dest="t..x"),
          (("a", b"SUB x 1\r\n"),), events=0),
    Trace("an old header", traced("x", "Nats-Trace-Origin-Account: A"), (("a", b"SUB x 1\r\n"),), events=0),
    Trace("a parent", traced("x", SAMPLED, dest=""), (("a", b"SUB x 1\r\n"),)),
    Trace("a parent in capitals", traced("x", SAMPLED.title(), ONLY, dest=""), (("a", b"SUB x 1\r\n"),)),
    Trace("a parent that wants no trace",
          traced("x", SAMPLED[:-1] + "0", dest="") + traced("x", SAMPLED + "1", dest=""),
          (("a", b"SUB x 1\r\n"),), events=0),
    Trace("a parent where nothing is traced", traced("x", SAMPLED, dest=""), (("c", b"SUB x 1\r\n"),), "c", 0),
    Trace("a parent and a destination", traced("x", SAMPLED, ONLY), (("a", b"SUB x 1\r\n"),)),
    Trace("a stream", traced("out.open.1"), (("b", b"SUB from_a.> 1\r\n"), ("a", b"SUB out.> 1\r\n"))),
    Trace("a stream, for nobody", traced("out.open.1", ONLY),
          (("b", b"SUB from_a.out.open.1 1\r\nSUB from_a.> q 2\r\n"),)),
    Trace("a stream that hides who has it", traced("out.shut.1"), (("b", b"SUB out.> 1\r\n"),)),
    Trace("a stream that hides who would have it", traced("out.shut.1", ONLY, reply="r"), (("b", b"SUB out.> 1\r\n"),)),
    Trace("a service", traced("b.open", ONLY, reply="r"), (("a", b"SUB ask.open 1\r\n"),), "b"),
    Trace("a service that hides who has it", traced("b.shut", ONLY, reply="r"), (("a", b"SUB ask.shut 1\r\n"),), "b"),
    Trace("a service without anybody", traced("b.open", reply="t.reply"), (), "b"),
    Trace("strange names", traced("x", "\xe4<&>: \"\\\t\x01", "B:", ": x"), (("a", b"SUB x 1\r\n"),)),
    Trace("it is too large", traced("x", body=b"", reply="").replace(b"52\r\n", b"5200000\r\n"), events=1),
)  # fmt: skip


def play(trace: Trace, port: int) -> dict[str, Any]:
    """The events, and what is heard otherwise; what differs from time to time is left out."""
    clients: list[Wire] = []
    ids: dict[int, str] = {}

    def come(user: str, lines: bytes, more: str = "") -> Wire:
        client = Wire(port)
        ids[json.loads(client.info[5:])["client_id"]] = f"{user}-{len(clients)}"
        clients.append(client)
        said = OPTIONS % f"{user}-{len(clients)}"
        client.send(b"CONNECT {%s}\r\n" % (f'"user":"{user}","pass":"{user}",{said}{more}'.encode()) + lines)
        client.barrier()
        return client

    try:
        tracer = come(trace.user if trace.user != "few" else "a", b"SUB t.> t\r\n")
        for user, lines in trace.there:
            come(user, lines)
        publisher = come(trace.user, b"", trace.more)
        publisher.send(trace.said)
        publisher.barrier()
        until = time.monotonic() + (TIMEOUT_S if trace.events else QUIET_S)
        while len(_events(tracer)) < max(trace.events, 1) and (left := until - time.monotonic()) > 0:
            if readable([tracer.socket], left):
                tracer.receive()
        for client in clients:
            client.barrier()
        events = [json.loads(one) for one in _events(tracer)]
        assert len(events) == trace.events, tracer.heard.data
        heard = [_masked(client.heard.data.decode("latin-1")) for client in clients[1:]]
        return {"events": [_plain(event, ids) for event in events], "heard": heard}
    finally:
        for client in clients:
            client.close()


def _events(tracer: Wire) -> list[bytes]:
    return re.findall(rb"\r\n(\{\"server\".*\})\r\n", tracer.heard.data)


def _masked(text: str) -> str:
    """Without which message it is of those that go to several subscriptions, and without random subjects and sizes."""
    lines = sorted(text.split("\r\n"))
    return "\r\n".join(re.sub(r"_R_\.\S+|(?<=HMSG ask)\S+ .*|(?<=Info: ).*", "...", line) for line in lines)


def _plain(event: dict[str, Any], ids: dict[int, str]) -> dict[str, Any]:
    for name in ("name", "host", "id", "seq", "time"):
        assert event["server"].pop(name)
    first, *others = event["events"]
    for one in event["events"]:
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?Z", one.pop("ts"))
        if "cid" in one:
            one["cid"] = ids.get(one["cid"], "a server's")
    if any(one["type"] == "se" for one in others):
        for one in others:
            one.pop("sub", "")  # a nats-server has the subject in the exporter's account
    event["events"] = [first, *sorted(others, key=lambda one: json.dumps(one, sort_keys=True))]
    return event
