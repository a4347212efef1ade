"""Strangers who are refused, over and over: what the journal has of them is little, and how much more there was."""

from __future__ import annotations

import logging
import socket
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest
from mq_shards.acceptor.access.access import Access
from mq_shards.acceptor.access.attempts import Attempts
from mq_shards.acceptor.engine import FOREVER
from mq_shards.acceptor.remarks import MINUTE_NS, SAME, Remarks

from tests import servers
from tests.nsq import certificates
from tests.servers import Shape

TIMES = 3 * SAME
HOST = "127.0.0.1"
TIMEOUT_S = 30
SHAPE = Shape("shards-1", "mq-shards", ("--workers", "1", "--acceptors", "1"))


def talk(port: int, said: bytes) -> None:
    """Says so, and hears what comes, to the end."""
    with socket.create_connection((HOST, port), timeout=TIMEOUT_S) as client:
        client.sendall(said)
        while client.recv(1 << 16):
            pass


def no_handshake(port: int) -> None:
    talk(port, b"this is no handshake of TLS\r\n" * 10)


def broken_record(port: int) -> None:
    """Encrypted, and then not."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    plain = socket.create_connection((HOST, port), timeout=TIMEOUT_S)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    while True:
        try:
            tls.do_handshake()
            break
        except ssl.SSLWantReadError:
            plain.sendall(outgoing.read())
            incoming.write(plain.recv(1 << 16))
    plain.sendall(outgoing.read() + b"no record at all" * 10)
    while plain.recv(1 << 16):
        pass
    plain.close()


def no_websocket(port: int) -> None:
    """It may ask again."""
    with socket.create_connection((HOST, port), timeout=TIMEOUT_S) as client:
        client.sendall(b"POST / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b"405 " in client.recv(1 << 16)


def test_who_is_refused_over_and_over_is_few_lines(tmp_path: Path) -> None:
    made = certificates.make(tmp_path)
    secure, websocket = servers.free_port(), servers.free_port()
    options = (
        f"--listen=beanstalks://{HOST}:{secure}", f"--listen=nats-ws://{HOST}:{websocket}",
        f"--set=tls.cert={made.server.cert}", f"--set=tls.key={made.server.key}",
    )  # fmt: skip
    with servers.running(SHAPE, options=options) as broker:
        floods: dict[str, tuple[Callable[[int], None], int, str]] = {
            "handshakes": (no_handshake, secure, "the TLS handshake failed"),
            "records": (broken_record, secure, "TLS"),
            "websockets": (no_websocket, websocket, "request method"),
        }
        before = 0
        for name, (flood, port, words) in floods.items():
            for _ in range(TIMES):
                flood(port)
            servers.wait_until(lambda words=words: words in broker.said(), f"{name} are told of")
            lines = len(broker.said().splitlines())
            assert lines - before < 2 * SAME, name
            before = lines


def test_how_many_logins_were_refused_is_said_when_the_minute_is_over(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now_ns = 5
    caplog.set_level(logging.INFO)
    access = Access(lambda: None, lambda conn: 0, Attempts(None))
    monkeypatch.setattr(access, "_remarks", Remarks(logging.getLogger("access"), lambda: now_ns))
    assert access.wait_ns() == FOREVER
    for _ in range(SAME + 30):
        access.count_refused("nats", "10.0.0.1:40960", "boss")
    assert caplog.messages == ["10.0.0.1:40960: nats: a login was refused (boss)"] * SAME
    assert access.wait_ns() == MINUTE_NS
    now_ns += MINUTE_NS
    access.expire()
    assert caplog.messages[-1].endswith("(30 lines like it in a minute)")
    assert access.wait_ns() == FOREVER
