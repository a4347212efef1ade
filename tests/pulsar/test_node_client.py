"""Pulsar's official Node client in scenarios of every feature (tests/pulsar/node/scenarios.js).

Its package has no binary in a registry and is built here: with the libpulsar that the Python client brings, and with
the C++ client's headers, `include/` of its source, which PULSAR_CPP_INCLUDE names. Without them nothing is tried.
"""

from __future__ import annotations

import http.client
import importlib.util
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pulsar.servers import PulsarServer, running
from tests.pulsar.test_official_clients import run
from tests.servers import ROOT

VERSION = "1.18.0"
HERE = Path(__file__).parent / "node"
BUILT = ROOT / "build" / "pulsar" / f"node-{VERSION}"
NODE_INCLUDE = Path("/usr/include/node")

pytestmark = [pytest.mark.long, pytest.mark.timeout(1500)]  # it is fetched and built first


@pytest.fixture(scope="module")
def server() -> Iterator[PulsarServer]:
    with running(workers=2, acceptors=2) as server:
        connection = http.client.HTTPConnection(server.http, timeout=60)
        path = "/admin/v2/persistent/public/default/node-partitioned/partitions"
        connection.request("PUT", path, "4", {"Content-Type": "application/json"})
        assert connection.getresponse().status == 204
        connection.close()
        yield server


def libpulsar() -> Path:
    found = importlib.util.find_spec("_pulsar")
    if found is None or found.origin is None:
        pytest.skip("there is no Python client")
    libraries = sorted((Path(found.origin).parent / "pulsar_client.libs").glob("libpulsar-*.so"))
    if not libraries:
        pytest.skip("the Python client brings no libpulsar")
    return libraries[0]


def build(include: Path) -> None:
    """node_modules with the addon in its place."""
    package = BUILT / "node_modules" / "pulsar-client"
    addon = package / "lib" / "binding" / "pulsar.node"
    if addon.exists():
        return
    BUILT.mkdir(parents=True, exist_ok=True)
    (BUILT / "package.json").write_text('{"private": true}')
    fetched = subprocess.run(
        ["npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", f"pulsar-client@{VERSION}"],
        cwd=BUILT, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    if fetched.returncode != 0:
        pytest.skip("its package cannot be fetched")
    addon.parent.mkdir(parents=True, exist_ok=True)
    library = libpulsar()
    new = addon.with_suffix(".new")
    built = subprocess.run(
        [
            "g++", "-std=gnu++17", "-O1", "-fPIC", "-shared", "-fvisibility=hidden", "-DNAPI_VERSION=4", "-o", str(new),
            "-I", str(include), "-I", str(NODE_INCLUDE), "-I", str(BUILT / "node_modules" / "node-addon-api"),
            *map(str, sorted((package / "src").glob("*.cc"))), str(library), f"-Wl,-rpath,{library.parent}",
        ],
        capture_output=True, text=True, timeout=900, check=False,
    )  # fmt: skip
    assert built.returncode == 0, built.stderr[-3000:]
    new.replace(addon)


@pytest.mark.skipif(shutil.which("node") is None or shutil.which("npm") is None, reason="there is no Node")
@pytest.mark.skipif(not NODE_INCLUDE.is_dir(), reason="Node's headers are not there")
@pytest.mark.skipif("PULSAR_CPP_INCLUDE" not in os.environ, reason="the C++ client's headers are not there")
def test_the_node_client_finds_what_it_finds_at_a_real_broker(
    server: PulsarServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    build(Path(os.environ["PULSAR_CPP_INCLUDE"]))
    monkeypatch.setenv("NODE_PATH", str(BUILT / "node_modules"))
    run(["node", str(HERE / "scenarios.js"), server.url])
