"""The terminal's clients at ports where something else listens, and with certificates that are refused."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from mq_shards.supervisor.terminal import at
from mq_shards.supervisor.terminal.client import CannotError, ClientError, Proof

from tests.supervisor.test_secure import secure
from tests.terminal.commands import run

HOST = "127.0.0.1"
SECONDS = 10.0  # twice what a client waits for a greeting or TLS
TIMEOUT_S = 0.5
TOKEN = "mqs_only-for-the-broker"


@contextlib.contextmanager
def listener(answer: bytes | None) -> Iterator[tuple[int, list[bytes]]]:
    """A port, and what its clients have sent first. `answer`: sent before the end of a connection; None: silence."""
    heard: list[bytes] = []
    kept = []

    def serve() -> None:
        while True:
            try:
                client = server.accept()[0]
            except OSError:
                return
            kept.append(client)
            if answer is None:
                continue
            client.settimeout(TIMEOUT_S)
            with contextlib.suppress(TimeoutError):  # a NATS client waits for us to begin
                heard.append(client.recv(1 << 16))
            with contextlib.suppress(OSError):
                client.sendall(answer)
                client.shutdown(socket.SHUT_WR)

    with socket.create_server((HOST, 0)) as server:
        thread = threading.Thread(target=serve)
        thread.start()
        yield server.getsockname()[1], heard
        server.shutdown(socket.SHUT_RDWR)
        thread.join()
        for one in kept:
            one.close()


def failure(scheme: str, port: int) -> str:
    """The line that a command would write."""
    begun = time.monotonic()
    with pytest.raises(ClientError) as caught:
        where = at.secured(at.parse(f"{scheme}://{HOST}:{port}"), None, insecure=True)
        at.connect(where).publish("t", [b"x"])
    assert time.monotonic() - begun < SECONDS, scheme
    return str(caught.value)


def test_a_port_that_stays_silent_is_left_after_seconds() -> None:
    schemes = (*at.ENCRYPTED, "nsq", "nats", "beanstalk")
    with listener(None) as (port, _), ThreadPoolExecutor(len(schemes)) as pool:
        for scheme, line in zip(schemes, pool.map(lambda scheme: failure(scheme, port), schemes), strict=True):
            begins_with_tls = scheme not in ("nsq+tls", "tls", "nats+tls", "nsq", "nats", "beanstalk")
            assert ("has not begun TLS" if begins_with_tls else f"a port for {scheme}://") in line, (scheme, line)


@pytest.mark.parametrize("scheme", ["https", "nsq-https", "beanstalks", "pulsar+ssl"])
def test_a_port_that_answers_in_plain_is_said_to_speak_no_tls(scheme: str) -> None:
    with listener(b"INFO {}\r\n" * 9) as (port, _):
        assert "it speaks no TLS" in failure(scheme, port)


@pytest.mark.parametrize("scheme", at.CLIENTS)
def test_a_port_that_closes_without_a_word_is_doubted(scheme: str) -> None:
    with listener(b"") as (port, _):
        assert f"is this a port for {scheme}://" in failure(scheme, port)


def test_a_login_that_was_for_an_encrypted_address_is_sent_to_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    with listener(b"\r\n") as (port, heard):
        monkeypatch.setattr(at, "HTTP_PORT", port)
        where = at.secured(at.parse(f"nsq+tls://{HOST}:4150"), None, insecure=True, who=Proof(token=TOKEN))
        with pytest.raises(ClientError, match="https://"):
            at.elsewhere(where, CannotError("nsq+tls:// cannot list topics"))
        with pytest.raises(ClientError):
            at.elsewhere(replace(where, tls=None, proof=None), CannotError("nsq:// cannot list topics"))
    assert [data[:1] for data in heard if data] == [b"\x16", *[b"G"] * (len(heard) - 1)], heard
    assert TOKEN.encode() not in heard[0]


def test_a_certificate_that_the_broker_wants_or_refuses_is_one_line(tmp_path: Path) -> None:
    with secure(tmp_path, f"--set=tls.client-ca={tmp_path / 'authority.pem'}") as broker:
        ports = {"https": broker.https, "nsq-https": broker.nsq_https, "beanstalks": broker.beanstalks}
        for scheme, port in ports.items():
            where = ("publish", "t", "x", "--at", f"{scheme}://localhost:{port}", "--ca", str(broker.made.authority))
            pair = ("--cert", str(tmp_path / "stranger.pem"), "--key", str(tmp_path / "stranger.key"))
            for refused in (run(*where), run(*where, *pair)):
                assert (refused.returncode, refused.stderr.count(b"\n")) == (1, 1), refused
                # The broker's alert may be lost with the end of the connection.
                assert b"certificate" in refused.stderr
