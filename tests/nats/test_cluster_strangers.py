"""Servers that come to a cluster and go, hundreds of them, cost its clients nothing."""

from __future__ import annotations

import os
import signal

from tests.nats.clusters import OURS, Member, cluster
from tests.nats.route_wire import INFO, RouteWire
from tests.nats.wire import Wire

COME = 600  # a control socket holds some 300 messages


def come_and_go(member: Member) -> None:
    for n in range(COME):
        urls = [f"10.0.{n >> 8}.{n & 255}:4222"]
        RouteWire.joined(member.route_port, {**INFO, "connect_urls": urls}).close()


def test_who_comes_and_goes_does_not_wait_for_the_supervisor() -> None:
    with cluster([OURS]) as [member]:
        assert member.process is not None
        os.kill(member.process.pid, signal.SIGSTOP)
        try:
            come_and_go(member)
            client = Wire(member.port)
            client.send(b'CONNECT {"verbose":false}\r\nPING\r\n')
            while b"PONG" not in client.heard.data:
                client.receive()
            client.close()
        finally:
            os.kill(member.process.pid, signal.SIGCONT)
        # And what is there in the end is told.
        late = RouteWire.joined(member.route_port, {**INFO, "connect_urls": ["10.1.1.1:4222"]})
        client = Wire(member.port)
        client.send(b'CONNECT {"verbose":false,"protocol":1}\r\nPING\r\n')
        while b"10.1.1.1:4222" not in client.heard.data + client.info:
            client.receive()
        assert b"10.0." not in client.heard.data.rpartition(b"INFO")[2]
        client.close()
        late.close()
