"""Services that are measured over routes: the server of the asker publishes the result, and that of the responder has
measured the other half."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.nats.clusters import NEW_REAL, OURS, OURS_3, Member, configured, mixtures
from tests.nats.latency_scenes import request
from tests.nats.wire import Wire
from tests.ready import readable

CONF = Path(__file__).parent / "confs" / "latency.conf"
CONNECT = b'CONNECT {"user":"%s","pass":"%s","verbose":false,"headers":true,"no_responders":true,"name":"%s"}\r\n'
BOTH = mixtures(
    (NEW_REAL, NEW_REAL), (OURS, NEW_REAL), (NEW_REAL, OURS), (OURS, OURS), (OURS_3, OURS_3), (OURS_3, NEW_REAL),
    (NEW_REAL, OURS_3),
)  # fmt: skip


def conf(name: str, routes: str = "") -> str:
    block = f'cluster {{name: xyz, listen: "127.0.0.1:$ROUTE_PORT", routes: [{routes}]}}'
    return f'listen: "127.0.0.1:$PORT"\nserver_name: {name}\n{block}\n{CONF.read_text()}'


@contextlib.contextmanager
def both(kinds: Sequence[str]) -> Iterator[tuple[Member, Member]]:
    with configured(kinds[0], conf("first")) as first, configured(kinds[1], conf("second", first.route_url)) as second:
        yield first, second


def come(member: Member, user: bytes, name: bytes, said: bytes = b"") -> Wire:
    wire = Wire(member.port)
    wire.send(CONNECT % (user, user, name) + said)
    wire.barrier()
    return wire


def until(wire: Wire, pattern: bytes) -> re.Match[bytes]:
    while (found := re.search(pattern, wire.heard.data)) is None:
        wire.receive()
    return found


@pytest.mark.parametrize("kinds", BOTH)
def test_the_result_says_who_answered_at_another_server(kinds: Sequence[str]) -> None:
    with both(kinds) as (first, second):
        results = come(second, b"a", b"results", b"SUB lat.one 1\r\n")
        responder = come(second, b"a", b"responder", b"SUB one 1\r\n")
        asker = come(first, b"b", b"asker", b"SUB r 1\r\n")
        while not readable([responder.socket], 0.1):  # the first server does not know of the responder yet
            asker.send(request("plain"))
            asker.barrier()
        reply = until(responder, rb"MSG one 1 (_R_\S+\.T) ")[1]
        responder.send(b"PUB %s 3\r\nyes\r\n" % reply)
        until(asker, rb"yes\r\n")
        found = json.loads(until(results, rb'(\{"type".*"status":200.*\})\r\n')[1])
        assert found["requestor"] == {"acc": "B", "rtt": found["requestor"]["rtt"]}
        assert (found["responder"]["name"], found["responder"]["server"]) == ("responder", "second")
        assert 0 <= found["service"] <= found["total"] > 0 <= found["system"] <= found["total"]
