"""The client of a broker's HTTP API (docs/pipeline.md): topics, offsets, records, and what a query has read.

Owns one connection, kept between calls. A call that fails for a reason that may pass (no connection, a broker that
restarts, 5xx) is tried again until `patience_s` have gone by; then, or at once if the broker refuses it, BrokerError.
"""

from __future__ import annotations

import contextlib
import http.client
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar
from urllib.parse import quote, urlencode

import orjson

DEFAULT_PORT: Final = 4180
CONNECT_S: Final = 10.0
FIRST_PAUSE_S: Final = 0.05
LONGEST_PAUSE_S: Final = 2.0
REPLY_BYTES: Final = 64 << 20  # of a reply that is not records: a million topics and more
T = TypeVar("T")


class BrokerError(Exception):
    """One line: which broker, which call, why."""


class BrokenOffError(Exception):
    """A reply of records ended before it was complete; what came of it is good."""


@dataclass(frozen=True, slots=True, order=True)
class Address:
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @staticmethod
    def parse(text: str) -> Address:
        """`host`, `host:port` or `[v6]:port`. Raises ValueError."""
        host, colon, port = text.strip().rpartition(":")
        if not colon or (host.count(":") > 0 and not host.startswith("[")):
            host, port = text.strip(), str(DEFAULT_PORT)
        host = host.removeprefix("[").removesuffix("]")
        if not host or not port.isdecimal() or not 0 < int(port) < 65536:
            raise ValueError(f"{text!r} is not host:port")
        return Address(host, int(port))


@dataclass(frozen=True, slots=True)
class Topic:
    """What a broker has of a topic: `records` messages of seq `earliest` to `latest` - 1, `bytes` in all. From
    `complete` on none is missing."""

    topic: str
    shard: int
    earliest: int
    complete: int
    latest: int
    records: int
    bytes: int

    @property
    def message_bytes(self) -> float:
        """The average, at least 1."""
        return max(1.0, self.bytes / max(1, self.records))


@dataclass(frozen=True, slots=True)
class Place:
    """A time among a topic's messages: `seq` is the first at or after it, no message from `until` on is before it."""

    seq: int
    until: int | None


class Records:
    """The reply to a call for records, read piece by piece."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self._response = response
        self.earliest = int(response.headers.get("X-Earliest", "0"))
        # Places on its disk that the broker found damaged and left out.
        self.damage = response.headers.get("X-Damage", "")
        # The seq to ask for next, once all of it has been read.
        self.next = int(response.headers["X-Next"])

    def readinto(self, buffer: memoryview) -> int:
        """0 at the end, and only at the end. Raises BrokenOffError."""
        try:
            count = self._response.readinto(buffer)
        except (OSError, http.client.HTTPException) as error:
            raise BrokenOffError(str(error) or type(error).__name__) from error
        if count == 0 and self._response.length:
            raise BrokenOffError(f"the connection was closed {self._response.length} bytes too early")
        return count


class _RefusedError(Exception):
    """Trying again would not help."""


class Client:
    def __init__(self, address: Address, patience_s: float) -> None:
        self.address = address
        self._patience_s = patience_s
        self._connection: http.client.HTTPConnection | None = None

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def topics(self) -> list[Topic]:
        fields = ("topic", "shard", "earliest", "complete", "latest", "records", "bytes")
        return self._json("GET", "/v1/topics", lambda body: [Topic(*(t[f] for f in fields)) for t in body["topics"]])

    def place_of(self, topic: str, timestamp_ns: int) -> Place:
        query = urlencode({"topic": topic, "timestamp_ns": max(0, timestamp_ns)})
        return self._json("GET", f"/v1/offsets?{query}", lambda body: Place(body["seq"], body.get("until")))

    def commit(self, reader: str, offsets: Mapping[str, int]) -> None:
        """From now on the broker keeps, for `reader`, what lies at or beyond these."""
        self._json("PUT", f"/v1/readers/{quote(reader, safe='')}", lambda _: None, orjson.dumps(dict(offsets)))

    @contextlib.contextmanager
    def records(self, topic: str, start: int, end: int, max_bytes: int) -> Iterator[Records]:
        """The records of seq `start` to `end` - 1, or of as many of the first as max_bytes hold."""
        query = urlencode({"topic": topic, "from": start, "to": end, "max_bytes": max_bytes})
        path = f"/v1/records?{query}"
        response = self._persist("GET", path, lambda: self._ask("GET", path, None))
        try:
            yield Records(response)
        finally:
            # A connection with an unread rest is of no more use.
            if not response.isclosed():
                self.close()

    def _json(self, method: str, path: str, decode: Callable[[Any], T], body: bytes | None = None) -> T:
        def once() -> T:
            reply = _all_of(self._ask(method, path, body))
            try:
                return decode(orjson.loads(reply) if reply else None)
            except (ValueError, KeyError, TypeError) as error:
                raise _RefusedError(f"its reply makes no sense: {reply[:80]!r}") from error

        return self._persist(method, path, once)

    def _persist(self, method: str, path: str, once: Callable[[], T]) -> T:
        give_up = time.monotonic() + self._patience_s
        pause_s = FIRST_PAUSE_S
        while True:
            try:
                return once()
            except (OSError, http.client.HTTPException) as error:
                self.close()
                if time.monotonic() + pause_s > give_up:
                    reason = str(error) or type(error).__name__
                    raise BrokerError(f"broker {self.address}: {method} {path}: {reason}") from error
            except _RefusedError as error:
                self.close()
                raise BrokerError(f"broker {self.address}: {method} {path}: {error}") from error
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    def _ask(self, method: str, path: str, body: bytes | None) -> http.client.HTTPResponse:
        """A response with a status of success. Raises OSError and HTTPException for what may pass."""
        if self._connection is None:
            self._connection = http.client.HTTPConnection(self.address.host, self.address.port, timeout=CONNECT_S)
            self._connection.connect()
            self._connection.sock.settimeout(max(CONNECT_S, self._patience_s))
        self._connection.request(method, path, body)
        response = self._connection.getresponse()
        if response.status < 300:
            return response
        reason = f"{response.status} {response.read(200).decode(errors='replace').strip()}"
        if response.status >= 500:
            raise http.client.HTTPException(reason)
        raise _RefusedError(reason)


def _all_of(response: http.client.HTTPResponse) -> bytes:
    reply = response.read(REPLY_BYTES)
    if not response.isclosed() and response.read(1):
        raise _RefusedError(f"its reply has more than {REPLY_BYTES} bytes")
    return reply
