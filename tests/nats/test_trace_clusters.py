"""Message tracing over routes: each server publishes what it has done with the message."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Sequence
from typing import Any

import pytest

from tests.nats.clusters import NEW_REAL, OLD_REAL, OURS, OURS_3, Member, cluster, configured, mixtures
from tests.nats.trace_scenes import ONLY, traced
from tests.nats.wire import TIMEOUT_S, Wire
from tests.ready import readable

CONNECT = b'CONNECT {"verbose":false,"headers":true,"no_responders":true,"name":"%s"%s}\r\n'
WITHOUT = "Message delivered but remote does not support message tracing so no trace event generated from there"
NOT_WITHOUT = "Not delivered because remote does not support message tracing"


def come(member: Member, name: str, said: bytes = b"", more: str = "") -> Wire:
    wire = Wire(member.port)
    wire.send(CONNECT % (name.encode(), more.encode()) + said)
    wire.barrier()
    return wire


def events_of(tracer: Wire, count: int) -> list[dict[str, Any]]:
    until = time.monotonic() + TIMEOUT_S
    found: list[bytes] = []
    while len(found) < count:
        assert readable([tracer.socket], max(until - time.monotonic(), 0)), tracer.heard.data
        tracer.receive()
        found = re.findall(rb"\r\n(\{\"server\".*\})\r\n", tracer.heard.data)
    return sorted((json.loads(one) for one in found), key=lambda one: one["events"][0]["kind"])


def shown(event: dict[str, Any]) -> tuple[Any, ...]:
    """The hop by which it came, how many it has sent it to, and per event what matters."""
    wanted = ("type", "kind", "acc", "subj", "sub", "queue", "hop", "from", "to", "error")
    rows = [tuple((name, one[name]) for name in wanted if name in one) for one in event["events"]]
    return event["request"]["header"].get("Nats-Trace-Hop"), event.get("hops", 0), [rows[0], *sorted(rows[1:])]


BOTH = mixtures(
    (NEW_REAL, NEW_REAL), (OURS, NEW_REAL), (NEW_REAL, OURS), (OURS, OURS), (OURS_3, NEW_REAL), (NEW_REAL, OURS_3)
)


@pytest.mark.parametrize("kinds", BOTH)
@pytest.mark.parametrize("only", [False, True], ids=["delivered", "for-nobody"])
def test_each_server_tells_its_part(kinds: Sequence[str], only: bool) -> None:
    with cluster(kinds) as (first, second):
        tracer = come(first, "tracer", b"SUB t.> 1\r\n")
        here, there = come(first, "here", b"SUB x.* 1\r\n"), come(second, "there", b"SUB x.y 1\r\nSUB x.> q 2\r\n")
        interest = come(second, "interest")  # knows of the tracer when that has heard from it
        while b"ready" not in tracer.heard.data:
            interest.send(b"PUB t.ready 5\r\nready\r\n")
            tracer.barrier()
        publisher = come(first, "publisher")
        while b"ready" not in there.heard.data:
            publisher.send(b"PUB x.y 5\r\nready\r\n")
            there.barrier()
        publisher.send(traced("x.y", *([ONLY] if only else [])))
        events = events_of(tracer, 2)
        for wire in (here, there):
            wire.barrier()
        assert [shown(event) for event in events] == [
            (None, 1, [
                (("type", "in"), ("kind", 0), ("acc", "$G"), ("subj", "x.y")),
                (("type", "eg"), ("kind", 0), ("sub", "x.*")),
                (("type", "eg"), ("kind", 1), ("hop", "1")),
            ]),
            (["1"], 0, [
                (("type", "in"), ("kind", 1), ("acc", "$G"), ("subj", "x.y")),
                (("type", "eg"), ("kind", 0), ("sub", "x.>"), ("queue", "q")),
                (("type", "eg"), ("kind", 0), ("sub", "x.y")),
            ]),
        ]  # fmt: skip
        routed = next(one for one in events[0]["events"] if one["type"] == "eg" and one["kind"] == 1)
        assert (routed["name"], events[1]["events"][0]["name"]) == tuple(e["server"]["name"] for e in events[::-1])
        assert (b"hi" in here.heard.data, there.heard.data.count(b"hi")) == ((False, 0) if only else (True, 2))
        for wire in (tracer, here, there, interest, publisher):
            wire.close()


@pytest.mark.parametrize("kinds", mixtures((NEW_REAL, OLD_REAL), (OURS, OLD_REAL), (OURS_3, OLD_REAL)))
def test_a_server_that_does_not_trace_is_named(kinds: Sequence[str]) -> None:
    with cluster(kinds) as (first, second):
        tracer = come(first, "tracer", b"SUB t.> 1\r\n")
        there, publisher = come(second, "there", b"SUB x 1\r\n"), come(first, "publisher")
        while b"ready" not in there.heard.data:
            publisher.send(b"PUB x 5\r\nready\r\n")
            there.barrier()
        for lines, error in ((), WITHOUT), ((ONLY,), NOT_WITHOUT):
            tracer.heard.data = b""
            publisher.send(traced("x", *lines))
            ((_, hops, events),) = [shown(event) for event in events_of(tracer, 1)]
            assert (hops, events[1:]) == (1, [(("type", "eg"), ("kind", 1), ("hop", "1"), ("error", error))])
        publisher.send(b"PUB x 4\r\nlast\r\n")
        while b"last" not in there.heard.data:
            there.receive()
        assert there.heard.data.count(b"hi\r\n") == 1
        for wire in (tracer, there, publisher):
            wire.close()


ACCOUNTS = """
listen: "127.0.0.1:$PORT"
cluster { name: xyz, listen: "127.0.0.1:$ROUTE_PORT", routes: [%s] }
accounts {
  A { users: [{user: a, password: a}], exports: [{service: ask, allow_trace: true}] }
  B { users: [{user: b, password: b}], imports: [{service: {account: A, subject: ask}, to: b.ask}] }
}
"""


@pytest.mark.parametrize("kinds", mixtures((NEW_REAL, NEW_REAL), (OURS, NEW_REAL), (NEW_REAL, OURS), (OURS_3, OURS)))
def test_the_event_of_a_service_elsewhere_comes_back(kinds: Sequence[str]) -> None:
    """It is published in the account of the service, and reaches the one of the request."""
    with (
        configured(kinds[0], ACCOUNTS % "") as first,
        configured(kinds[1], ACCOUNTS % f'"{first.route_url}"') as second,
    ):
        there = come(second, "there", b"SUB ask 1\r\n", ',"user":"a","pass":"a"')
        tracer = come(first, "tracer", b"SUB t 1\r\n", ',"user":"b","pass":"b"')
        until = time.monotonic() + TIMEOUT_S
        while b"ready" not in there.heard.data:
            assert time.monotonic() < until, (first.said(), second.said())
            tracer.send(b"PUB b.ask r 5\r\nready\r\n")
            there.barrier()
        tracer.send(traced("b.ask", dest="t", reply="r"))
        here, elsewhere = events_of(tracer, 2)
        assert [shown(here)[2], shown(elsewhere)[2]] == [
            [
                (("type", "in"), ("kind", 0), ("acc", "B"), ("subj", "b.ask")),
                (("type", "eg"), ("kind", 1), ("hop", "1")),
                (("type", "si"), ("acc", "A"), ("from", "b.ask"), ("to", "ask")),
            ],
            [
                (("type", "in"), ("kind", 1), ("acc", "A"), ("subj", "ask")),
                (("type", "eg"), ("kind", 0), ("sub", "ask")),
            ],
        ]
        for wire in (tracer, there):
            wire.close()
