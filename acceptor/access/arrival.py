"""How a connection was accepted, for the process that takes it over."""

from __future__ import annotations

from typing import Final, NamedTuple

import orjson

CERTIFICATE_BYTES: Final = 8192  # of a certificate's names; those beyond it are dropped


class Arrival(NamedTuple):
    user: str = ""  # the user of clients of that listener that do not log in
    is_open: bool = False  # its clients need not be users
    is_encrypted: bool = False
    peer: str = ""  # the client's address, if the socket does not have it
    certificate_names: tuple[str, ...] = ()  # from the client's verified certificate
    relay: str = ""  # the relay's name, if there is one: acceptor/relays.py

    def encode(self) -> bytes:
        names, left = [], CERTIFICATE_BYTES
        for name in self.certificate_names:
            left -= len(name.encode()) + 8
            if left >= 0:
                names.append(name)
        return orjson.dumps([self.user, self.is_open, self.is_encrypted, self.peer, names, self.relay])


def decode(content: bytes) -> Arrival:
    user, is_open, is_encrypted, peer, names, relay = orjson.loads(content)
    return Arrival(user, is_open, is_encrypted, peer, tuple(names), relay)
