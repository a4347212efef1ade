"""Services that are measured from a reload on, or no longer, and those of accounts that are known by JWTs."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from tests.nats.conftest import KINDS
from tests.nats.latency_scenes import QUIET_S, request
from tests.nats.operators import KINDS as OPERATED
from tests.nats.operators import OPERATOR, SYSTEM, A, B, conf, connect, serving
from tests.nats.servers import NatsServer, running
from tests.nats.test_operating import until_true
from tests.nats.wire import TIMEOUT_S, Wire
from tests.ready import readable

CONF = """
accounts {
  A { users: [{user: a, password: a}], exports: [{service: one%s}] }
  B { users: [{user: b, password: b}], imports: [{service: {account: A, subject: one}}] }
}
"""
CONNECT = b'CONNECT {"user":"%s","pass":"%s","verbose":false,"headers":true}\r\n'


def come(server: NatsServer, user: bytes, said: bytes) -> Wire:
    wire = Wire(server.port)
    wire.send(CONNECT % (user, user) + said)
    wire.barrier()
    return wire


def results(
    asker: Wire, responder: Wire, listener: Wire, subject: str = "one", *headers: str
) -> list[dict[str, Any]]:  # fmt: skip
    """Of one request that is answered, and of those before."""
    count = listener.heard.data.count(b'{"type"')
    ask(asker, responder, subject, *headers)
    until = time.monotonic() + (TIMEOUT_S if headers else QUIET_S)
    while listener.heard.data.count(b'{"type"') == count and readable([listener.socket], until - time.monotonic()):
        listener.receive()
    return [json.loads(one) for one in re.findall(rb'\{"type".*\}', listener.heard.data)]


def ask(asker: Wire, responder: Wire, subject: str = "one", *headers: str) -> bytes:
    """Makes a request that is answered. Returns the subject of the answer; its end says whether it is measured."""
    asker.send(request(subject, *headers))
    asker.barrier()
    responder.barrier()
    reply = re.findall(rb"MSG one 1 (_R_\S+) ", responder.heard.data)[-1]
    responder.send(b"PUB %s 3\r\nyes\r\n" % reply)
    responder.barrier()
    return bytes(reply)


@pytest.mark.parametrize("kind", KINDS)
def test_a_reload_begins_and_ends_it(kind: int, tmp_path: Path) -> None:
    file = tmp_path / "nats.conf"
    file.write_text(CONF % "")
    with running(kind, arguments=["-c" if kind == 0 else "--nats-config", str(file)]) as server:
        listener, responder = come(server, b"a", b"SUB lat 9\r\n"), come(server, b"a", b"SUB one 1\r\n")
        asker = come(server, b"b", b"SUB r 1\r\n")
        assert results(asker, responder, listener) == []
        file.write_text(CONF % ", latency: lat")
        os.kill(server.process.pid, signal.SIGHUP)
        until_true(lambda: bool(results(asker, responder, listener)))
        first = results(asker, responder, listener)[0]
        # Those who were there before are described, too.
        assert (first["status"], first["responder"]["kind"], first["responder"]["acc"]) == (200, "Client", "A")
        file.write_text(CONF % "")
        os.kill(server.process.pid, signal.SIGHUP)
        until_true(lambda: not ask(asker, responder).endswith(b".T"))
        while readable([listener.socket], QUIET_S):  # the results of those before
            listener.receive()
        count = listener.heard.data.count(b'{"type"')
        assert len(results(asker, responder, listener)) == count


@pytest.mark.parametrize("kind", OPERATED)
def test_a_service_of_a_jwt_is_measured(kind: int) -> None:
    export = {"name": "one", "subject": "one", "type": "service"}
    latency = {"service_latency": {"sampling": "headers", "results": "lat"}}
    known = {
        SYSTEM.public: OPERATOR.account(SYSTEM),
        A.public: OPERATOR.account(A, exports=[export | latency]),
        B.public: OPERATOR.account(B, imports=[
            {"name": "one", "subject": "one", "account": A.public, "type": "service", "local_subject": "please"}]),
    }  # fmt: skip
    with serving(kind, conf(preload=known)) as server:
        listener, responder = connect(server, A.user("l")), connect(server, A.user("r", tags=["x:1"]))
        listener.send(b"SUB lat 9\r\n")
        responder.send(b"SUB one 1\r\n")
        asker = connect(server, B.user("b"), headers=True)
        asker.send(b"SUB r 1\r\n")
        for wire in (listener, responder, asker):
            wire.barrier()
        assert results(asker, responder, listener, "please") == []
        (found,) = results(asker, responder, listener, "please", "b3: 1-2-1")
        assert (found["status"], found["header"]) == (200, {"B3": ["1-2-1"]})
        assert found["requestor"].keys() == {"acc", "rtt"} and found["requestor"]["acc"] == B.public
        key, jwt = A.user("r", tags=["x:1"])
        known = {"acc": A.public, "user": key.public, "jwt": jwt, "issuer_key": A.public, "tags": ["x:1"]}
        known |= {"name_tag": key.public[:6]}
        assert known.items() <= found["responder"].items()
