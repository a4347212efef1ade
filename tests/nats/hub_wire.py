"""A hub as raw bytes: leaf nodes come to it, and it says what a test wants."""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.nats.leaf_wire import OWN
from tests.nats.route_wire import ID, TIMEOUT_S, RouteWire, line
from tests.ready import readable
from tests.servers import wait_until

NONCE = "bm9uY2Vub25jZQ"
INFO: dict[str, Any] = {
    "server_id": ID, "server_name": "hub", "version": "2.15.2", "go": "go1.25", "proto": 1, "host": "127.0.0.1",
    "port": 7422, "headers": True, "auth_required": True, "max_payload": 1048576, "client_id": 7, "nonce": NONCE,
    "info_on_connect": True, "leafnode_urls": [],
}  # fmt: skip
# What it says when it is known who the leaf node is.
CONNECTED: dict[str, Any] = {"connect_info": True, "remote_account": "HUB"}


@dataclass
class HubWire(RouteWire):
    """A leaf node that has come. What it says is heard as a leaf node hears a hub."""

    def __post_init__(self) -> None:
        self.said_who: dict[str, Any] = {}
        self.loop = b""
        self.heard_last: list[bytes] = []

    def greet(self, info: Mapping[str, Any]) -> None:
        self.send(line("INFO", {**INFO, **info}))

    def hear_who(self) -> bool:
        """False: it has gone."""
        verb, _, rest = self.line().partition(b" ")
        assert verb in (b"CONNECT", b""), verb
        self.said_who = json.loads(rest) if rest else {}
        return bool(rest)

    def tell(self, **connected: object) -> None:
        """It is known who it is; what it tells then is in `told`."""
        info = {key: value for key, value in INFO.items() if key != "nonce"}
        self.send(line("INFO", {**info, **CONNECTED, **connected}))
        told: list[bytes] = []

        def is_told() -> bool:
            told.extend(self.barrier())
            return any(one.startswith(b"LS+ $LDS.") for one in told) or self.closed

        wait_until(is_told, "it says what is wanted there")
        self.loop = next((one[4:] for one in told if one.startswith(b"LS+ $LDS.")), b"")
        self.heard_last = told
        self.told = [one for one in told if OWN.fullmatch(one) is None]

    def hears(self, wanted: bytes) -> list[bytes]:
        found: list[bytes] = []

        def has_come() -> bool:
            found.extend(self.barrier())
            return wanted in found

        wait_until(has_come, f"{wanted!r} comes")
        return found


class HubPort:
    """Where leaf nodes come to."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._socket.settimeout(TIMEOUT_S)
        self.port: int = self._socket.getsockname()[1]

    def accept(self) -> HubWire:
        """Nothing is said yet."""
        found, _ = self._socket.accept()
        found.settimeout(TIMEOUT_S)
        found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        wire = HubWire(self.port)
        wire.socket = found
        return wire

    def comes(self, **info: object) -> HubWire:
        """Who had to wait too long for INFO has come again."""
        while True:
            wire = self.accept()
            wire.greet(info)
            if wire.hear_who():
                return wire

    def joins(self, **connected: object) -> HubWire:
        """One that has said who it is, and is told what may pass."""
        wire = self.comes()
        wire.tell(**connected)
        return wire

    def is_alone(self, seconds: float) -> bool:
        """Nobody else comes for so long."""
        return not readable([self._socket], seconds)

    def close(self) -> None:
        self._socket.close()
