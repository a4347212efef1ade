"""What monitoring and INFO say of what a file sets, beside a real nats-server."""

from __future__ import annotations

import contextlib
import json
import subprocess
from pathlib import Path

import pytest

from tests.nats.conftest import KINDS
from tests.nats.servers import running
from tests.nats.test_monitoring_values import _get
from tests.nats.test_operating import until_true
from tests.nats.wire import Wire
from tests.servers import free_port

CERTIFICATE = (
    "openssl",
    "req",
    "-x509",
    "-newkey",
    "ec",
    "-pkeyopt",
    "ec_paramgen_curve:P-256",
    "-nodes",
    "-days",
    "9",
)


@pytest.mark.parametrize("kind", KINDS[:2])
def test_certificates_times_and_permissions(kind: int, tmp_path: Path) -> None:
    """A login over TLS has a second more than the handshake; routes are listened for on all addresses."""
    cert, key, port = tmp_path / "cert.pem", tmp_path / "key.pem", free_port()
    subprocess.run([*CERTIFICATE, "-subj", "/CN=h", "-keyout", key, "-out", cert], check=True, capture_output=True)
    said = subprocess.run(("openssl", "x509", "-noout", "-dateopt", "iso_8601", "-enddate", "-in", cert), check=True,
                          capture_output=True, text=True).stdout  # fmt: skip
    tls = f'tls {{ cert_file: "{cert}", key_file: "{key}"'
    path = tmp_path / "nats.conf"
    path.write_text(
        f"http: 127.0.0.1:{port}\n"
        f"leafnodes {{ listen: 127.0.0.1:{free_port()}, {tls}, timeout: 1.5 }} }}\n"
        f"websocket {{ listen: 127.0.0.1:{free_port()}, {tls} }} }}\n"
        f'cluster {{ port: {free_port()}, permissions {{ import {{ allow: "a.>" }}, export {{ deny: [b, c] }} }} }}\n'
    )
    with running(kind, arguments=["-c" if kind == 0 else "--nats-config", str(path)]):
        until_true(lambda: "routes" in _get(port, "/routez"))
        varz, routez = _get(port, "/varz"), _get(port, "/routez")
    end = said.strip().removeprefix("notAfter=").replace(" ", "T")
    assert varz["leaf"]["tls_cert_not_after"] == varz["websocket"]["tls_cert_not_after"] == end
    assert "tls_cert_not_after" not in varz and "tls_cert_not_after" not in varz["cluster"]
    assert (varz["leaf"]["auth_timeout"], varz["cluster"]["auth_timeout"], varz["auth_timeout"]) == (2.5, 2, 2)
    assert (varz["cluster"]["addr"], varz["system_account"]) == ("0.0.0.0", "$SYS")
    assert (routez["import"], routez["export"]) == ({"allow": ["a.>"]}, {"deny": ["b", "c"]})


@pytest.mark.parametrize("kind", KINDS[:2])
def test_what_is_advertised_is_the_servers_address(kind: int, tmp_path: Path) -> None:
    path, port = tmp_path / "nats.conf", free_port()
    path.write_text(f'http: 127.0.0.1:{port}\nclient_advertise: "192.0.2.9:1"\n')
    with (
        running(kind, arguments=["-c" if kind == 0 else "--nats-config", str(path)]) as server,
        contextlib.closing(Wire(server.port)) as wire,
    ):
        said = [json.loads(wire.info[len("INFO ") :]), _get(port, "/varz")]
    assert [(one["host"], one["port"]) for one in said] == [("192.0.2.9", 1)] * 2


@pytest.mark.parametrize("kind", KINDS[:2])
@pytest.mark.parametrize("name", ["", "edge"])
def test_a_leaf_node_without_a_cluster_is_one_if_it_has_a_name(kind: int, name: str, tmp_path: Path) -> None:
    path = tmp_path / "nats.conf"
    remotes = f'leafnodes {{ remotes: [{{ url: "nats://127.0.0.1:{free_port()}" }}] }}\n'
    path.write_text((f"server_name: {name}\n" if name else "") + remotes)

    def cluster(port: int) -> str | None:
        with contextlib.closing(Wire(port)) as wire:
            found: str | None = json.loads(wire.info[len("INFO ") :]).get("cluster")
            return found

    with running(kind, arguments=["-c" if kind == 0 else "--nats-config", str(path)]) as server:
        if name:
            until_true(lambda: cluster(server.port) == name)
        else:
            assert [cluster(server.port) for _ in range(10)] == [None] * 10


@pytest.mark.parametrize("kind", KINDS[:2])
def test_who_has_not_logged_in_is_in_the_global_account(kind: int, tmp_path: Path) -> None:
    path, port = tmp_path / "nats.conf", free_port()
    path.write_text(f"http: 127.0.0.1:{port}\nauthorization {{ user: a, password: b, timeout: 50 }}\n")
    with (
        running(kind, arguments=["-c" if kind == 0 else "--nats-config", str(path)]) as server,
        contextlib.closing(Wire(server.port)),
    ):
        until_true(lambda: _get(port, "/connz")["connections"] != [])
        assert {row["name_tag"] for row in _get(port, "/connz?auth=1")["connections"]} == {"$G"}
