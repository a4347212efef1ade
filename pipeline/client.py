"""The client of a broker's HTTP API (docs/pipeline-http.md): topics, offsets, records, the progress of readers and the
batches of writers.

Owns one connection, kept between calls. A call that fails for a passing reason (no connection, a broker that restarts,
5xx) is tried again until `timeout_s` have gone by, and then raises BrokerError. A call that the broker refuses raises
it at once.
"""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final, TypeVar
from urllib.parse import quote, urlencode

import orjson
from mq_shards.pipeline.jumps import jumped

DEFAULT_PORT: Final = 4180
DEFAULT_TLS_PORT: Final = 4181
CONNECT_S: Final = 10.0
PROBE_S: Final = 2.0
WINDOW_BYTES: Final = 1 << 20  # most bytes in transit: a broker that slows readers down has no hold on these
FIRST_PAUSE_S: Final = 0.05
LONGEST_PAUSE_S: Final = 2.0
PUBLISH_REPLY_S: Final = 30.0  # least timeout for the reply to a batch, which a broker may hold back for 10 s
REPLY_BYTES: Final = 64 << 20  # largest reply that is not records: enough for a million topics
ERROR_BYTES: Final = 4096  # most that is read of an error reply
PUBLISHED: Final = "published"
FAILED: Final = "failed"  # the batch can never be published
CONFLICT: Final = 409
T = TypeVar("T")


class BrokerError(Exception):
    """One line: which broker, which call, why. `status`: the HTTP status of a refusal; None if it was not refused."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status

    def __reduce__(self) -> tuple[Any, ...]:
        return BrokerError, (str(self), self.status)


class BrokenOffError(Exception):
    """A reply of records ended before it was complete; the part that came is good."""


@dataclass(frozen=True, slots=True)
class Tls:
    """PEM files: `ca`, the only authorities believed ("": the system's); `cert` and `key`, our certificate."""

    ca: str = ""
    cert: str = ""
    key: str = ""

    def context(self) -> ssl.SSLContext:
        """Raises OSError, which names the file."""
        try:
            context = ssl.create_default_context(cafile=self.ca or None)
        except OSError as error:
            raise OSError(f"tlsCa {self.ca}: {error}") from error
        # From Python 3.13 on this refuses authorities that other clients take, such as one that does not say what it
        # is for.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        if self.cert:
            try:
                context.load_cert_chain(self.cert, self.key or None)
            except OSError as error:
                raise OSError(f"tlsCert {self.cert}: {error}") from error
        return context


@dataclass(frozen=True, slots=True, order=True)
class Address:
    """Where a broker answers, and how we authenticate. `tls`: None if the connection is not encrypted."""

    host: str
    port: int
    tls: Tls | None = field(default=None, compare=False, repr=False)
    token: str = field(default="", compare=False, repr=False)  # proves who we are; "": none

    @property
    def logs_in(self) -> bool:
        return bool(self.token or (self.tls is not None and self.tls.cert))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @staticmethod
    def parse(text: str) -> Address:
        """`host`, `host:port` or `[v6]:port`; with http:// or https:// in front. Raises ValueError."""
        scheme, slashes, rest = text.strip().partition("://")
        if slashes:
            if scheme not in ("http", "https"):
                raise ValueError(f"{text!r} is neither http:// nor https://")
            text = rest.removesuffix("/")
        tls = Tls() if scheme == "https" and slashes else None
        host, colon, port = text.strip().rpartition(":")
        if not colon or (host.count(":") > 0 and not host.startswith("[")):
            host, port = text.strip(), str(DEFAULT_PORT if tls is None else DEFAULT_TLS_PORT)
        host = host.removeprefix("[").removesuffix("]")
        if not host or not port.isdecimal() or not 0 < int(port) < 65536:
            raise ValueError(f"{text!r} is not host:port")
        return Address(host, int(port), tls)


@dataclass(frozen=True, slots=True)
class Topic:
    """What a broker has of a topic: `records` messages, of seq `earliest` to `latest` - 1, with `bytes` in all. From
    `complete` on none is missing."""

    topic: str
    shard: int
    earliest: int
    complete: int
    latest: int
    records: int
    bytes: int
    incarnation: str
    """Of the log in which its seqs were given out."""
    jumps: tuple[tuple[int, int], ...] = ()
    """See jumps.py."""

    @property
    def message_bytes(self) -> float:
        """The average size of a message, at least 1."""
        return max(1.0, self.bytes / max(1, self.records))

    def messages(self, start: int, end: int) -> int:
        """How many messages there may be from seq `start` to `end` - 1."""
        return max(0, end - start - jumped(self.jumps, start, end))


@dataclass(frozen=True, slots=True)
class Listing:
    """A broker's id and topics: all if `whole`, else those that changed since the last listing, with the names of
    topics that are `gone`. `changes`: what to pass as `since` next time. `counts_on`: a topic that was forgotten counts
    on from where it was when it comes back, with few exceptions."""

    broker: str
    topics: list[Topic]
    changes: str
    whole: bool
    gone: list[str]
    counts_on: bool

    @staticmethod
    def decode(body: Mapping[str, Any]) -> Listing:
        names = [field.name for field in fields(Topic) if field.name != "jumps"]
        topics = [
            Topic(
                **{name: topic[name] for name in names},
                jumps=tuple((begin, until) for begin, until in topic.get("jumps", ())),
            )
            for topic in body["topics"]
        ]
        # An older broker knows no `changes` and always lists all topics.
        return Listing(
            body["broker"], topics, body.get("changes", ""), body.get("whole", True), body.get("gone", []),
            body.get("counts_on", False),
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Place:
    """A time among a topic's messages: `seq` is the first at or after it, none from `until` on is before it."""

    seq: int
    until: int | None


@dataclass(frozen=True, slots=True)
class Reader:
    """What a broker keeps for a named reader: by topic, the first unread seq, and the number of unread messages."""

    name: str
    topics: Mapping[str, int]
    unread: Mapping[str, int]
    changed_ns: int

    @staticmethod
    def decode(body: Mapping[str, Any]) -> Reader:
        return Reader(body["name"], body["topics"], body["unread"], body["changed_ns"])


@dataclass(frozen=True, slots=True)
class StagedFile:
    """What is staged under a name. `touched_ns`: when it was last added to. `publishing`: a batch has named it."""

    name: str
    bytes: int
    touched_ns: int
    publishing: bool


@dataclass(frozen=True, slots=True)
class WriterState:
    """The last batch of a writer that a broker knows. `state`: PUBLISHED, FAILED, or another while it is published;
    `error`: why it does not get on."""

    batch: int
    state: str
    messages: int
    error: str

    @staticmethod
    def decode(body: Mapping[str, Any]) -> WriterState:
        return WriterState(body["batch"], body["state"], body["messages"], body.get("error", ""))


@dataclass(frozen=True, slots=True)
class Writer:
    """The last batch of one of a broker's writers: see WriterState."""

    name: str
    batch: int
    state: str
    messages: int
    changed_ns: int
    error: str

    @staticmethod
    def decode(body: Mapping[str, Any]) -> Writer:
        return Writer(
            body["writer"], body["batch"], body["state"], body["messages"], body["changed_ns"], body.get("error", "")
        )  # fmt: skip


class Records:
    """The reply to a call for records, read piece by piece."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self._response = response
        self.earliest = int(response.headers.get("X-Earliest", "0"))
        self.incarnation = response.headers.get("X-Incarnation", "")
        # Places on its disk that the broker found damaged and left out.
        self.damage = response.headers.get("X-Damage", "")
        # The seq to ask for next, once all of it has been read.
        self.next = int(response.headers["X-Next"])

    def readinto(self, buffer: memoryview) -> int:
        """Returns how many bytes were read; 0 only at the end. Raises BrokenOffError."""
        try:
            count = self._response.readinto(buffer)
        except (OSError, http.client.HTTPException) as error:
            raise BrokenOffError(str(error) or type(error).__name__) from error
        if count == 0 and self._response.length:
            raise BrokenOffError(f"the connection was closed {self._response.length} bytes too early")
        return count


class ManyRecords:
    """The reply to a call for the records of many ranges. `parts`: one for each range, from the first on, as many as
    fit; None for a topic that does not exist. Read the parts in their order."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        try:
            said = orjson.loads(response.read(int(response.headers["X-Parts"])))
            self.parts = [None if part is None else Part(response, part) for part in said]
        except (OSError, http.client.HTTPException) as error:
            raise BrokenOffError(str(error) or type(error).__name__) from error
        except (ValueError, KeyError, TypeError) as error:
            raise BrokenOffError(f"its reply makes no sense: {error}") from error


class Part:
    """The records of one range, read like Records."""

    def __init__(self, response: http.client.HTTPResponse, said: Mapping[str, Any]) -> None:
        self._response = response
        self._left = int(said["bytes"])
        self.earliest = int(said["earliest"])
        self.incarnation = str(said["incarnation"])
        self.damage = str(said["damage"])
        self.next = int(said["next"])

    def readinto(self, buffer: memoryview) -> int:
        if self._left == 0:
            return 0
        try:
            count = self._response.readinto(buffer[: self._left])
        except (OSError, http.client.HTTPException) as error:
            raise BrokenOffError(str(error) or type(error).__name__) from error
        if count == 0:
            raise BrokenOffError(f"the connection was closed {self._left} bytes too early")
        self._left -= count
        return count


class _RefusedError(Exception):
    """The broker refused a call, or its reply is no use: trying again would not help."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class Client:
    """`broker`: the id of the broker that is meant, "" until it is known. Another at this address refuses calls."""

    def __init__(self, address: Address, timeout_s: float, broker: str = "") -> None:
        self.address = address
        self.broker = broker
        self._timeout_s = timeout_s
        self._connection: http.client.HTTPConnection | None = None

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def identify(self) -> str:
        """Asks which broker answers here now; later calls are meant for it."""
        self.broker = ""
        self.broker = self._json("GET", "/v1/broker", lambda body: str(body["broker"]))
        return self.broker

    def listing(self, since: str = "", names: Sequence[str] = (), prefix: str = "") -> Listing:
        """Lists the topics of the broker that answers here now; later calls are meant for it. `since`: `changes` of the
        last listing. `names` or `prefix` select topics; keep them the same while passing on `since`."""
        self.broker = ""
        asked = {"since": since, "topics": ",".join(names), "prefix": prefix}
        query = urlencode({name: value for name, value in asked.items() if value})
        found = self._json("GET", f"/v1/topics?{query}" if query else "/v1/topics", Listing.decode)
        self.broker = found.broker
        return found

    def topics(self) -> list[Topic]:
        return self.listing().topics

    def place_of(self, topic: str, timestamp_ns: int) -> Place:
        query = urlencode({"topic": topic, "timestamp_ns": max(0, timestamp_ns)})
        return self._json("GET", f"/v1/offsets?{query}", lambda body: Place(body["seq"], body.get("until")))

    def commit(self, reader: str, offsets: Mapping[str, int], owner: str, *, begin: bool = False) -> None:
        """Makes the broker keep, for `reader`, all messages from these offsets on. Refused (409) if another owner has
        begun under this name since."""
        query = urlencode({"owner": owner} | ({"begin": 1} if begin else {}))
        path = f"/v1/readers/{quote(reader, safe='')}?{query}"
        self._json("PUT", path, lambda _: None, orjson.dumps(dict(offsets)))

    def stage(self, name: str, at: int, sections: bytes) -> int:
        """Writes sections after the first `at` bytes staged under a name; returns how many bytes are staged then."""
        path = f"/v1/staged/{quote(name, safe='')}?at={at}"
        return self._json("POST", path, lambda body: int(body["bytes"]), sections)

    def staged(self) -> Iterator[StagedFile]:
        """Yields all staged files by name, one page of them per call to the broker."""
        after, more = "", True
        while more:
            path = "/v1/staged?" + urlencode({"after": after})
            files, more = self._json("GET", path, _staged_of)
            yield from files
            after = files[-1].name if files else after

    def drop_staged(self, name: str) -> None:
        self._json("DELETE", f"/v1/staged/{quote(name, safe='')}", lambda _: None)

    def writer(self, writer: str) -> WriterState | None:
        try:
            return self._json("GET", f"/v1/writers/{quote(writer, safe='')}", WriterState.decode)
        except BrokerError as error:
            if error.status == 404:
                return None
            raise

    def writers(self) -> list[Writer]:
        return self._json("GET", "/v1/writers", lambda body: [Writer.decode(found) for found in body["writers"]])

    def publish(self, writer: str, batch: int, staged: Sequence[tuple[str, int]], *, once: bool) -> WriterState:
        """Asks to publish a batch, or how far it is. `staged`: names and sizes, in the order of publication."""
        asked = {"batch": batch, "staged": [{"name": name, "bytes": size} for name, size in staged]}
        body = orjson.dumps(asked | {"once": True} if once else asked)
        path = f"/v1/writers/{quote(writer, safe='')}"
        return self._json("PUT", path, WriterState.decode, body, reply_s=PUBLISH_REPLY_S)

    def delete_writer(self, writer: str) -> None:
        self._json("DELETE", f"/v1/writers/{quote(writer, safe='')}", lambda _: None)

    def readers(self) -> list[Reader]:
        return self._json("GET", "/v1/readers", lambda body: [Reader.decode(found) for found in body["readers"]])

    def drop_reader(self, reader: str) -> bool:
        """Returns False if there is no reader of that name."""
        try:
            self._json("DELETE", f"/v1/readers/{quote(reader, safe='')}", lambda _: None)
        except BrokerError as error:
            if error.status == 404:
                return False
            raise
        return True

    @contextlib.contextmanager
    def records(self, topic: str, start: int, end: int, max_bytes: int) -> Iterator[Records]:
        """The records of seq `start` to `end` - 1, or as many of the first as fit in max_bytes."""
        query = urlencode({"topic": topic, "from": start, "to": end, "max_bytes": max_bytes})
        path = f"/v1/records?{query}"
        response = self._persist("GET", path, lambda: self._ask("GET", path, None))
        try:
            yield Records(response)
        finally:
            # A connection with an unread rest of a reply cannot be used again.
            if not response.isclosed():
                self.close()

    @contextlib.contextmanager
    def records_of(self, ranges: Sequence[tuple[str, int, int]], max_bytes: int) -> Iterator[ManyRecords]:
        """The records of each range (topic, start, end), or as many of the first as fit in max_bytes."""
        body = orjson.dumps({"ranges": ranges, "max_bytes": max_bytes})
        response = self._persist("POST", "/v1/records", lambda: self._ask("POST", "/v1/records", body))
        try:
            yield ManyRecords(response)
        finally:
            if not response.isclosed():
                self.close()

    def _json(
        self, method: str, path: str, decode: Callable[[Any], T], body: bytes | None = None, reply_s: float = CONNECT_S
    ) -> T:
        def once() -> T:
            reply = _all_of(self._ask(method, path, body, reply_s))
            try:
                return decode(orjson.loads(reply) if reply else None)
            except (ValueError, KeyError, TypeError) as error:
                raise _RefusedError(f"its reply makes no sense: {reply[:80]!r}") from error

        return self._persist(method, path, once)

    def _persist(self, method: str, path: str, once: Callable[[], T]) -> T:
        give_up = time.monotonic() + self._timeout_s
        pause_s = FIRST_PAUSE_S
        while True:
            try:
                return once()
            except (OSError, http.client.HTTPException) as error:
                self.close()
                if time.monotonic() + pause_s > give_up:
                    raise BrokerError(f"broker {self.address}: {method} {path}: {_said(error)}") from error
            except _RefusedError as error:
                self.close()
                raise BrokerError(f"broker {self.address}: {method} {path}: {error}", error.status) from error
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    def _connected(self) -> http.client.HTTPConnection:
        host, port, tls = self.address.host, self.address.port, self.address.tls
        found = http.client.HTTPConnection(host, port, timeout=CONNECT_S)
        if tls is not None:
            try:
                found = http.client.HTTPSConnection(host, port, timeout=CONNECT_S, context=tls.context())
            except OSError as error:
                raise _RefusedError(str(error)) from error
        try:
            found.connect()
        except ssl.SSLCertVerificationError as error:
            raise _RefusedError(f"its certificate is not believed: {error.verify_message}") from error
        return found

    def _ask(self, method: str, path: str, body: bytes | None, reply_s: float = CONNECT_S) -> http.client.HTTPResponse:
        """Returns a response with a status of success. Raises OSError and HTTPException for errors that may pass."""
        if self._connection is None:
            self._connection = self._connected()
            self._connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_WINDOW_CLAMP, WINDOW_BYTES)
        self._connection.sock.settimeout(max(reply_s, self._timeout_s))
        headers = {"X-Broker": self.broker} if self.broker else {}
        if self.address.token:
            headers["Authorization"] = f"Bearer {self.address.token}"
        self._connection.request(method, path, body, headers)
        response = self._connection.getresponse()
        if response.status < 300:
            return response
        reason = f"{response.status} {_error_of(response)}"
        if response.status >= 500:
            raise http.client.HTTPException(reason)
        raise _RefusedError(reason, response.status)


def _said(error: Exception) -> str:
    if isinstance(error, http.client.BadStatusLine) and not isinstance(error, http.client.RemoteDisconnected):
        return f"it does not speak HTTP there: {str(error).strip()[:80]!r}"
    return str(error) or type(error).__name__


def check_brokers(brokers: Iterable[Address]) -> None:
    """Asks each broker once, for jobs that begin with Spark: it would be some time until that failed, and tried again.
    Raises BrokerError where that would not help: the broker refuses us, we do not believe it, its name is unknown, or
    the port speaks something else."""
    for address in brokers:
        with Client(address, timeout_s=0) as client:
            try:
                client.identify()
            except BrokerError as error:
                if isinstance(error.__cause__, OSError) and (said := _other_scheme(address)):
                    raise BrokerError(f"broker {address}: {said}") from None
                if _lasts(error.__cause__):
                    raise


def _other_scheme(address: Address) -> str:
    """Returns what to say if the port speaks HTTP with TLS, or without, and not as the address says; otherwise ""."""
    try:
        if address.tls is not None:
            found = http.client.HTTPConnection(address.host, address.port, timeout=PROBE_S)
        else:
            context = ssl.create_default_context()
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # it is told nothing
            found = http.client.HTTPSConnection(address.host, address.port, timeout=PROBE_S, context=context)
        with contextlib.closing(found):
            found.request("GET", "/v1/health")
            found.getresponse()
    except (OSError, http.client.HTTPException):
        return ""
    if address.tls is not None:
        return f"it does not speak TLS there: http://{address}"
    return f"it speaks only TLS there: https://{address}"


def _lasts(error: BaseException | None) -> bool:
    if isinstance(error, http.client.BadStatusLine):
        return not isinstance(error, http.client.RemoteDisconnected)  # another protocol answers
    if isinstance(error, socket.gaierror):
        return error.errno != socket.EAI_AGAIN
    if isinstance(error, ssl.SSLError):
        return not isinstance(error, (ssl.SSLEOFError, ssl.SSLZeroReturnError))  # as of a broker that ends
    return isinstance(error, _RefusedError)


def _staged_of(body: Any) -> tuple[list[StagedFile], bool]:  # noqa: ANN401
    return [StagedFile(**one) for one in body["staged"]], bool(body["more"])


def _error_of(response: http.client.HTTPResponse) -> str:
    text = response.read(ERROR_BYTES)
    try:
        found = orjson.loads(text)
    except ValueError:
        found = None
    if isinstance(found, dict) and "error" in found:
        return str(found["error"])
    return text[:200].decode(errors="replace").strip()


def _all_of(response: http.client.HTTPResponse) -> bytes:
    reply = response.read(REPLY_BYTES)
    if not response.isclosed() and response.read(1):
        raise _RefusedError(f"its reply has more than {REPLY_BYTES} bytes")
    return reply
