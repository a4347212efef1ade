"""What may stand between a socket and a codec: TLS and compression, as streams of bytes.

A filter has two halves that know nothing of each other: decode() takes what came from the socket, encode() takes what
is to go there. Both are given large pieces, and what encode() returns can be decoded to its end. A Chain puts filters
on top of one another. No filter knows a wire protocol, and none touches a socket.
"""

from __future__ import annotations

from typing import Protocol


class FilterError(Exception):
    """What came is not of the format: the connection cannot go on."""


class Filter(Protocol):
    @property
    def ended(self) -> bool:
        """The other side has said, in the format's own way, that nothing follows."""
        ...

    def decode(self, data: bytes) -> bytes:
        """What `data` completes; b"" if nothing. Raises FilterError."""
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
        """Raises FilterError."""
        for filter in self._filters:
            data = filter.decode(data)
        return data

    def encode(self, data: bytes) -> bytes:
        for filter in reversed(self._filters):
            data = filter.encode(data)
        return data

    @property
    def ended(self) -> bool:
        return any(filter.ended for filter in self._filters)
