"""How somebody has come, for the process that goes on with his connection."""

from __future__ import annotations

from typing import Final, NamedTuple

import orjson

CERTIFICATE_BYTES: Final = 8192  # of the names of a certificate; the others are nobody's


class Arrival(NamedTuple):
    user: str = ""  # who comes by that listener and says nothing
    is_open: bool = False  # nobody is asked there
    is_encrypted: bool = False
    peer: str = ""  # the client's address, where the socket does not say it
    certificate_names: tuple[str, ...] = ()  # of a client's certificate that was verified
    relay: str = ""  # by which it passes: acceptor/relay.py

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
