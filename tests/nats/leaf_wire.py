"""A leaf node as raw bytes: it says what a test wants, and hears what a real one would."""

from __future__ import annotations

import itertools
import json
import re
from typing import Any

from tests.nats.route_wire import RouteWire, line
from tests.servers import wait_until

NUMBERS = itertools.count()
# What a nats-server wants in every account, for itself; loops are found by the last.
OWN = re.compile(rb"LS\+ (\$SYS\.REQ\..*|_R_\..*|\$LDS\..*)")


def besides(heard: list[bytes]) -> list[bytes]:
    return [one for one in heard if not one.startswith((b"LS+ ", b"LS- "))]


class LeafWire(RouteWire):
    """It hears INFO when it comes; in `connected` is what it is told of its account."""

    connected: dict[str, Any]
    loop: bytes

    def connect(self, **said: object) -> None:
        name = f"leaf-{next(NUMBERS)}"
        usual = {"version": "2.15.2", "name": name, "cluster": name, "headers": True, "remote_account": "$G"}
        known = {key: value for key, value in {**usual, **said}.items() if value is not None}
        self.send(line("CONNECT", known))

    @classmethod
    def joining(cls, port: int, user: str = "a", **said: object) -> LeafWire:
        wire = cls(port)
        wire.connect(**({"user": user, "pass": user} if user else {}), **said)
        wire.told = wire.barrier()
        wire.connected = next((json.loads(one[5:]) for one in wire.told if one.startswith(b"INFO ")), {})
        wire.loop = next((one[4:] for one in wire.told if one.startswith(b"LS+ $LDS.")), b"")
        wire.told = [one for one in wire.told if not one.startswith(b"INFO ") and OWN.fullmatch(one) is None]
        return wire

    def hears(self, wanted: bytes) -> list[bytes]:
        """All that it hears until that comes."""
        found: list[bytes] = []

        def has_come() -> bool:
            found.extend(self.barrier())
            return wanted in found

        wait_until(has_come, f"{wanted!r} comes")
        return found

    def hears_besides(self) -> list[bytes]:
        """All that has come but what is wanted: of others, who have gone, that may be told at any time."""
        return besides(self.barrier())

    def wants(self, said: bytes) -> None:
        self.send(said)
        self.barrier()
