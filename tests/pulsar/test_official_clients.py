"""Pulsar's official Go and Java clients in scenarios of every feature (tests/pulsar/go/main.go, java/Scenarios.java):
built when there is a compiler, and run against a broker of two workers and two acceptors, plainly and with TLS and a
token."""

from __future__ import annotations

import contextlib
import http.client
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from perf.pulsar import standalone
from tests.nsq.certificates import make
from tests.pulsar.servers import PulsarServer, running
from tests.pulsar.test_security import SECRET, token
from tests.servers import ROOT

HERE = Path(__file__).parent
BUILT = ROOT / "build" / "pulsar"

# What the clients are built with may have to be fetched and built first.
pytestmark = [pytest.mark.long, pytest.mark.timeout(1200)]


@contextlib.contextmanager
def prepared(settings: Sequence[str], headers: Mapping[str, str]) -> Iterator[PulsarServer]:
    """With the partitioned topics that the programs want."""
    with running(workers=2, acceptors=2, settings=settings) as server:
        for name in ("go-partitioned", "java-partitioned", "java-partitioned-t"):
            connection = http.client.HTTPConnection(server.http, timeout=60)
            path = f"/admin/v2/persistent/public/default/{name}/partitions"
            connection.request("PUT", path, "4", {"Content-Type": "application/json", **headers})
            assert connection.getresponse().status == 204
            connection.close()
        yield server
        assert "Traceback" not in server.stderr.read_text()


@pytest.fixture(scope="module", params=["plain", "guarded"])
def arguments(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """What a program is told of a broker."""
    if request.param == "plain":
        with prepared((), {}) as server:
            yield [server.url]
        return
    folder = tmp_path_factory.mktemp("guarded")
    found, mine = make(folder), token().decode()
    (folder / "secret").write_bytes(SECRET)
    settings = [f"pulsar.tls-cert-file={found.server.cert}", f"pulsar.tls-key-file={found.server.key}"]
    settings += [f"pulsar.token-secret-key-file={folder / 'secret'}"]
    with prepared(settings, {"Authorization": f"Bearer {mine}"}) as server:
        yield [server.url.replace("pulsar://127.0.0.1", "pulsar+ssl://localhost"), mine, str(found.authority)]


def run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    lines = done.stdout.splitlines()
    failed = "\n".join(line for line in lines if line.startswith("failed "))
    assert done.returncode == 0, failed or (done.stdout + done.stderr)[-3000:]
    assert sum(line.startswith("ok ") for line in lines) >= 12, done.stdout


def go_client() -> str:
    """The program, which is built if it has to be."""
    if shutil.which("go") is None:
        pytest.skip("there is no Go")
    BUILT.mkdir(parents=True, exist_ok=True)
    program = BUILT / "go-client"
    built = subprocess.run(
        ["go", "build", "-o", str(program), "."], cwd=HERE / "go", capture_output=True, text=True, timeout=900,
        check=False,
    )  # fmt: skip
    if built.returncode != 0 and "dial tcp" in built.stderr:
        pytest.skip("its modules cannot be fetched")
    assert built.returncode == 0, built.stderr
    return str(program)


def java_client() -> list[str]:
    """The beginning of a command line: the name of a class of ours follows it."""
    if shutil.which("javac") is None:
        pytest.skip("there is no Java compiler")
    if standalone.missing("tools") is not None:
        pytest.skip("make pulsar has not fetched the client")
    java = standalone.java("tools", ["-XX:TieredStopAtLevel=1"])
    path, classes = java[-1], BUILT / "java"
    classes.mkdir(parents=True, exist_ok=True)
    sources = sorted(map(str, (HERE / "java").glob("*.java")))
    subprocess.run(["javac", "-nowarn", "-cp", path, "-d", str(classes), *sources], check=True, timeout=200)
    return [*java[:-1], f"{classes}:{path}"]


def test_the_go_client_finds_what_it_finds_at_a_real_broker(arguments: list[str]) -> None:
    run([go_client(), *arguments])


@pytest.mark.parametrize("scenarios", ["Scenarios", "Transactions"])
def test_the_java_client_finds_what_it_finds_at_a_real_broker(arguments: list[str], scenarios: str) -> None:
    run([*java_client(), scenarios, *arguments])
