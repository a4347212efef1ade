"""What INFO says, in which order: at first, and again when it is known who a client is. Ours beside a nats-server's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest

from tests.nats.conftest import KINDS
from tests.nats.servers import running
from tests.nats.wire import Wire

CONNECT: Final = b'CONNECT {"verbose":false,"protocol":1,"user":"a","pass":"b"}\r\nPING\r\n'
ORDER: Final = [
    "server_id", "server_name", "version", "proto", "go", "host", "port", "headers", "auth_required", "max_payload",
    "client_id", "client_ip", "nonce", "connect_info", "remote_account", "acc_is_sys", "api_lvl",
]  # fmt: skip
NKEY: Final = "UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4"
A: Final = "user: a, password: b"
# Of INFO what is not the same always: at first, and behind the first PONG.
CONFS: Final[dict[str, tuple[dict[str, Any], dict[str, Any]]]] = {
    "": ({}, {"remote_account": "$G"}),
    "no_header_support: true": ({"headers": False}, {"headers": False, "remote_account": "$G"}),
    f"authorization {{ {A} }}": ({"auth_required": True}, {"auth_required": True, "remote_account": "$G"}),
    f"authorization {{ users: [{{ {A} }}] }}\nno_auth_user: a": ({}, {"auth_required": True, "remote_account": "$G"}),
    f"authorization {{ users: [{{ {A} }}, {{ nkey: {NKEY} }}] }}": (
        {"auth_required": True, "nonce": True},
        {"auth_required": True, "remote_account": "$G"},
    ),
    f"accounts {{ A {{ users: [{{ {A} }}], limits {{ max_payload: 100 }} }} }}": (
        {"auth_required": True},
        {"auth_required": True, "remote_account": "A", "max_payload": 100},
    ),
    f"accounts {{ S {{ users: [{{ {A} }}] }} }}\nsystem_account: S\nmax_payload: 500": (
        {"auth_required": True, "max_payload": 500},
        {"auth_required": True, "max_payload": 500, "remote_account": "S", "acc_is_sys": True},
    ),
    "max_payload: -1": ({"max_payload": -1}, {"max_payload": -1, "remote_account": "$G"}),
    f"accounts {{ A {{ users: [{{ {A} }}], limits {{ max_payload: 100 }} }} }}\nmax_payload: -1": (
        {"auth_required": True, "max_payload": -1},
        {"auth_required": True, "remote_account": "A", "max_payload": 100},
    ),
}


@pytest.mark.parametrize("kind", KINDS[:2])
@pytest.mark.parametrize("conf", CONFS)
def test_it_says_what_a_nats_server_says(kind: int, conf: str, tmp_path: Path) -> None:
    (tmp_path / "conf").write_text(f"port: 4222\n{conf}\n")
    with running(kind, arguments=["-c" if kind == 0 else "--nats-config", str(tmp_path / "conf")]) as server:
        client = Wire(server.port)
        client.send(CONNECT)
        while b"connect_info" not in client.heard.data:
            client.receive()
        again = client.heard.data.partition(b"INFO ")[2]
        client.close()
    first, second = CONFS[conf]
    assert said(client.info[len(b"INFO ") :]) == {"headers": True, "max_payload": 1 << 20, **first}
    assert said(again) == {"headers": True, "max_payload": 1 << 20, "connect_info": True, **second}


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_said_of_the_account_comes_together_with_the_first_pong(kind: int) -> None:
    """A client that has heard PONG is connected, and takes an INFO behind that for news of the cluster."""
    with running(kind) as server:
        for _ in range(20):
            client = Wire(server.port)
            client.send(CONNECT)
            client.receive()
            assert client.heard.data.startswith(b"PONG\r\nINFO ") and client.heard.data.endswith(b"\r\n")
            client.close()


def said(line: bytes) -> dict[str, Any]:
    info: dict[str, Any] = json.loads(line)
    info.pop("xkey", None)  # nats-server's
    assert list(info) == [name for name in ORDER if name in info]
    assert (info["version"], info["proto"], info["api_lvl"], info["client_ip"]) == ("2.15.2", 1, 5, "127.0.0.1")
    assert len(info["server_id"]) == 56 and info["server_id"].startswith("N") and info["client_id"] > 0
    if "nonce" in info:
        info["nonce"] = len(info["nonce"]) >= 15
    names = {"headers", "auth_required", "max_payload", "nonce", "connect_info", "remote_account", "acc_is_sys"}
    return {name: value for name, value in info.items() if name in names}
