"""What may stand between a socket and a codec: TLS and compression, as streams of bytes.

A filter has two halves that know nothing of each other: decode() takes what came from the socket, encode() takes what
is to go there. Both are given large pieces, and what encode() returns can be decoded to its end. A Chain puts filters
on top of one another. No filter knows a wire protocol, and none touches a socket.

A few bytes may stand for very many, and nobody has to have introduced himself to send them. So decode() does a bounded
piece of work: what it returns is about PIECE_BYTES at most, never twice as many, and made of PIECE_PARTS records or
chunks. When it stopped for that, `pending` says so, and decode(b"") goes on.
"""

from __future__ import annotations

from typing import Final, Protocol

PIECE_BYTES: Final = 64 << 10
PIECE_PARTS: Final = 256


class FilterError(Exception):
    """What came is not of the format: the connection cannot go on."""


class Filter(Protocol):
    @property
    def ended(self) -> bool:
        """The other side has said, in the format's own way, that nothing follows."""
        ...

    @property
    def pending(self) -> bool:
        """There may be more in what was given to decode() than it has returned."""
        ...

    def decode(self, data: bytes) -> bytes:
        """A piece of what has come, `data` last; b"" if nothing is complete. Raises FilterError."""
        ...

    def encode(self, data: bytes) -> bytes: ...


class Chain:
    """Filters of one connection, the one next to the socket first."""

    def __init__(self) -> None:
        self._filters: list[Filter] = []

    def add(self, filter: Filter) -> None:
        """On top of the others: next to the codec."""
        self._filters.append(filter)

    def decode(self, data: bytes) -> bytes:
        """A piece, as of a filter; `data` must be b"" while `pending`. Raises FilterError."""
        if len(self._filters) == 1:
            return self._filters[0].decode(data)
        assert not (data and self.pending)
        # The topmost that has something left goes on; those above it have nothing.
        first = max((at for at, filter in enumerate(self._filters) if filter.pending), default=0)
        for filter in self._filters[first:]:
            data = filter.decode(data)
        return data

    def encode(self, data: bytes) -> bytes:
        for filter in reversed(self._filters):
            data = filter.encode(data)
        return data

    @property
    def pending(self) -> bool:
        return any(filter.pending for filter in self._filters)

    @property
    def ended(self) -> bool:
        """And everything before that has been returned."""
        return not self.pending and any(filter.ended for filter in self._filters)
