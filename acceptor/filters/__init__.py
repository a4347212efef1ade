"""Filters between a socket and a codec: TLS and compression, as streams of bytes.

A filter has two independent halves: decode() takes bytes from the socket, encode() takes bytes for the socket. Both are
called with large pieces, and the client can decode all of what encode() returns at once. A Chain puts filters on top of
one another. No filter knows a wire protocol, and none touches a socket.

A few compressed bytes can become very many, and a client can send them before it has logged in. So one call of decode()
does a limited amount of work: it returns about PIECE_BYTES at most, never twice as many, made of at most PIECE_PARTS
records or chunks. If it stopped at that limit, `pending` is true, and decode(b"") goes on.
"""

from __future__ import annotations

from typing import Final, Protocol

PIECE_BYTES: Final = 64 << 10
PIECE_PARTS: Final = 256


class FilterError(Exception):
    """Input has a wrong format: the connection cannot go on."""


class Filter(Protocol):
    @property
    def ended(self) -> bool:
        """The other side has ended its stream in the format's own way."""
        ...

    @property
    def pending(self) -> bool:
        """decode() may be able to return more of the input that it has."""
        ...

    def decode(self, data: bytes) -> bytes:
        """Adds `data` to the input and returns a piece of it decoded; b"" if nothing is complete. Raises
        FilterError."""
        ...

    def encode(self, data: bytes) -> bytes: ...


class Chain:
    """The filters of one connection; the first is next to the socket."""

    def __init__(self) -> None:
        self._filters: list[Filter] = []

    def add(self, filter: Filter) -> None:
        """Adds a filter on top of the others, next to the codec."""
        self._filters.append(filter)

    def decode(self, data: bytes) -> bytes:
        """Returns a piece, as Filter.decode() does; `data` must be b"" while `pending`. Raises FilterError."""
        if len(self._filters) == 1:
            return self._filters[0].decode(data)
        assert not (data and self.pending)
        # The topmost filter with input left goes on first; the filters above it have none.
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
        if len(self._filters) == 1:
            return self._filters[0].pending
        return any(filter.pending for filter in self._filters)

    @property
    def ended(self) -> bool:
        """The other side has ended its stream, and decode() has returned everything before the end."""
        if len(self._filters) == 1:
            return self._filters[0].ended and not self._filters[0].pending
        return not self.pending and any(filter.ended for filter in self._filters)
