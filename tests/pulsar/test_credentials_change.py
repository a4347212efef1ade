"""Credentials that change while clients are at work: tokens that expire and are refreshed, certificates that are issued
anew. Traffic goes on, and nothing is lost; a client whose token is not renewed is cut off, and goes on when it is."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.nsq.certificates import make
from tests.pulsar.servers import PulsarServer, running
from tests.pulsar.test_official_clients import go_client, java_client
from tests.pulsar.test_security import SECRET, token

pulsar = pytest.importorskip("pulsar")

SECONDS = 6
LIFE_S = 2  # of a token: each connection is asked for another twice, at least
LONG = [pytest.mark.long, pytest.mark.timeout(600)]
CLIENTS = ["python", pytest.param("go", marks=LONG), pytest.param("java", marks=LONG)]


class Tokens:
    """A file with a token that is good for LIFE_S seconds, written anew until told otherwise."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._ends, self.renews = threading.Event(), True
        self._write()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _write(self) -> None:
        beside = self.path.with_suffix(".new")
        beside.write_bytes(token(exp=int(time.time()) + LIFE_S))
        beside.replace(self.path)

    def _run(self) -> None:
        while not self._ends.wait(0.2):
            if self.renews:
                self._write()

    def end(self) -> None:
        self._ends.set()
        self._thread.join()


@pytest.fixture
def tokens(tmp_path: Path) -> Iterator[Tokens]:
    found = Tokens(tmp_path / "token")
    yield found
    found.end()


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[PulsarServer]:
    (tmp_path / "secret").write_bytes(SECRET)
    settings = [f"pulsar.token-secret-key-file={tmp_path / 'secret'}"]
    with running(workers=2, acceptors=2, data_dir=tmp_path / "data", settings=settings) as server:
        yield server
        assert "Traceback" not in server.stderr.read_text()


def program(client: str, url: str, *arguments: str) -> subprocess.Popen[str]:
    """Has traffic for SECONDS."""
    match client:
        case "python":
            command = [sys.executable, "-m", "tests.pulsar.traffic", url, str(SECONDS)]
        case "go":
            command = [go_client(), url, "traffic", str(SECONDS)]
        case _:
            command = [*java_client(), "Traffic", url, str(SECONDS)]
    return subprocess.Popen([*command, *arguments], stdout=subprocess.PIPE, text=True)


def all_came(process: subprocess.Popen[str]) -> None:
    said, _ = process.communicate(timeout=120)
    counts = [int(line.split()[-1]) for line in said.splitlines() if line.startswith("ok traffic: ")]
    assert process.returncode == 0 and len(counts) == 1 and counts[0] > 50, said


@pytest.mark.parametrize("client", CLIENTS)
def test_traffic_goes_on_when_a_token_expires_and_another_is_there(
    guarded: PulsarServer, tokens: Tokens, client: str
) -> None:
    all_came(program(client, guarded.url, "token", str(tokens.path)))


def test_a_client_whose_token_is_not_renewed_is_cut_off_until_it_is(guarded: PulsarServer, tokens: Tokens) -> None:
    """Its CONNECT is refused meanwhile, and what it has not sent is sent when it is let in again."""
    supplied = pulsar.AuthenticationToken(lambda: tokens.path.read_text())
    client = pulsar.Client(
        guarded.url, authentication=supplied, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
    )  # fmt: skip
    producer = client.create_producer("t", send_timeout_millis=60_000)
    consumer = client.subscribe("t", "s", pulsar.ConsumerType.Shared)
    producer.send(b"0")
    tokens.renews = False
    time.sleep(LIFE_S + 1)  # until it has expired, and a refused client has come back
    results: list[object] = []
    producer.send_async(b"1", lambda result, _id: results.append(result))
    time.sleep(1)
    assert results == []
    tokens.renews = True
    found = set()
    while b"1" not in found:
        message = consumer.receive(60_000)
        found.add(message.data())
        consumer.acknowledge(message)
    assert found == {b"0", b"1"}
    client.close()


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("client", ["python", "go", "java"])
def test_traffic_goes_on_when_clients_with_certificates_have_to_come_again(tmp_path: Path, client: str) -> None:
    found = make(tmp_path)
    settings = [
        f"pulsar.tls-cert-file={found.server.cert}", f"pulsar.tls-key-file={found.server.key}",
        f"pulsar.tls-trust-certs-file={found.authority}", "pulsar.tls-auth=true",
    ]  # fmt: skip
    with running(workers=2, acceptors=2, data_dir=tmp_path / "data", settings=settings) as server:
        url = server.url.replace("pulsar://127.0.0.1", "pulsar+ssl://localhost")
        files = found.client.cert, found.client.key, found.authority
        process = program(client, url, "certificate", *map(str, files))
        for name in ("mq-acceptor-0", "mq-acceptor-1"):
            time.sleep(2)
            os.kill(server.pid_of(name), signal.SIGKILL)
        all_came(process)
