"""The interface of all clients. What a protocol cannot do raises CannotError; http:// is then tried instead."""

from __future__ import annotations

import base64
import socket
import ssl
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

CONNECT_S: Final = 5.0
GREETING_S: Final = 5.0  # for the first answer, if no login comes before it
ANSWER_S: Final = 30.0
UNAVAILABLE: Final = 503
# X509_V_ERR_...: a certificate signed by itself, or by nobody who is known. Another --ca does not help with others.
UNKNOWN_AUTHORITY: Final = (18, 19, 20, 21)
# What OpenSSL calls the answer of a peer that does not speak TLS.
NO_TLS: Final = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST", "PACKET_LENGTH_TOO_LONG")


class ClientError(Exception):
    """One line: what failed at which address, and why."""


class LostError(ClientError):
    """The connection has ended or does not come about. The broker may come back."""


class CannotError(ClientError):
    """This protocol has no way to ask for it."""


class RefusedError(ClientError):
    """The broker has answered, by HTTP, that it will not."""

    def __init__(self, text: str, status: int) -> None:
        super().__init__(text)
        self.status = status


@dataclass(frozen=True, slots=True)
class Proof:
    """Credentials: a token, or a user and a password."""

    token: str = field(default="", repr=False)
    user: str = ""
    password: str = field(default="", repr=False)

    @property
    def secret(self) -> str:
        """The credentials as one word, for protocols that have one field."""
        return self.token or f"{self.user}:{self.password}"

    @property
    def header(self) -> dict[str, str]:
        """The credentials as a header of an HTTP request."""
        if self.token:
            return {"Authorization": f"Bearer {self.token}"}
        return {"Authorization": "Basic " + base64.b64encode(self.secret.encode()).decode()}


@dataclass(frozen=True, slots=True)
class At:
    """Where a broker listens: SCHEME://HOST:PORT, or SCHEME://unix:/PATH."""

    scheme: str
    host: str
    port: int
    path: str = ""
    tls: ssl.SSLContext | None = field(default=None, compare=False)  # None: not encrypted
    proof: Proof | None = field(default=None, compare=False)
    has_certificate: bool = field(default=False, compare=False)  # of our own, in `tls`

    def __str__(self) -> str:
        if self.path:
            return f"{self.scheme}://unix:{self.path}"
        return f"{self.scheme}://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Message:
    """`more`: what else is known of the message, by the names that --json shows."""

    topic: str
    body: bytes
    more: dict[str, Any] = field(default_factory=dict)
    handle: Any = None  # what its client needs to finish it


class Client:
    """A connection, to be closed. A method that the protocol does not support raises CannotError."""

    # What cannot be had again after the connection was lost, for a line that says that the broker is back.
    missed = ""

    def __init__(self, at: At) -> None:
        self.at: Final = at
        self.place: Any = None  # where `tail` stands, for the `tail` of the next client
        self.silent: Sequence[str] = ()  # processes of the broker without which it made its last list of topics

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def publish(self, topic: str, bodies: Iterable[bytes], delay_s: float = 0.0) -> int:
        """Returns how many. They are in the log when it returns, if the protocol acknowledges that."""
        raise self.cannot("publish")

    def consume(self, topic: str, channel: str) -> Iterator[Message]:
        """Consumes messages. Each is finished when the next one is asked for, or by `finish`."""
        raise self.cannot("consume")

    def finish(self, message: Message) -> None:
        """Acknowledges a message; does nothing if the protocol has no acknowledgements."""

    def topics(self) -> list[dict[str, Any]]:
        """All, sorted: name, in and out (a second), backlog, in_flight, consumers; None: the protocol does not tell."""
        raise self.cannot("list topics")

    def overview(self) -> dict[str, Any]:
        raise self.cannot("say how the broker is")

    def peek(self, topic: str, first: int | None, limit: int) -> Iterator[Message]:
        """The newest messages, or those from seq `first` on. Consumes nothing."""
        raise self.cannot("show messages without taking them")

    def tail(self, topic: str, last: int, place: object = None) -> Iterator[Message]:
        """The last `last` messages, then those published from now on. Consumes nothing. `place`: goes on there
        instead."""
        raise self.cannot("follow a topic without taking its messages")

    def cannot(self, what: str) -> CannotError:
        return CannotError(f"{self.at.scheme}:// cannot {what}")


def begin_tls(at: At, connected: socket.socket) -> socket.socket:
    """Returns the connection encrypted, if the address is; it has CONNECT_S for that. Raises OSError."""
    if at.tls is None:
        return connected
    connected.settimeout(CONNECT_S)
    try:
        return at.tls.wrap_socket(connected, server_hostname=at.host or "localhost")
    except TimeoutError:
        late = f"it has not begun TLS within {CONNECT_S:g} s: is this the port of an encrypted listener?"
        raise OSError(late) from None


def doubt(at: At) -> str:
    """What may be wrong with an address whose connections end before anything has been answered."""
    certificate = ", and does it want another certificate of ours (--cert)" if at.tls is not None else ""
    return f"is this a port for {at.scheme}://{certificate}?"


def words(data: bytes) -> str:
    """What a broker says, or a name in it, as text."""
    return data.decode(errors="backslashreplace")


def as_word(name: str, of: str = "topic") -> str:
    """The name, for a protocol in which a space or a line end would end it. Raises ClientError."""
    if not name or any(one.isspace() or not one.isprintable() for one in name):
        raise ClientError(f"{name!r} is not a {of}'s name")
    return name


def reason(error: OSError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        remedy = ": name who signed it with --ca" if error.verify_code in UNKNOWN_AUTHORITY else ""
        return f"its certificate is not trusted ({error.verify_message}){remedy}"
    if isinstance(error, ssl.SSLEOFError):
        # What refuses a certificate may end the connection before its alert arrives.
        return "it ends the connection within TLS: does it want another certificate of ours (--cert)?"
    if isinstance(error, ssl.SSLError) and error.reason:
        if error.reason in NO_TLS:
            return "it speaks no TLS: is this the port of an encrypted listener?"
        alert = error.reason.partition("ALERT_")[2].replace("_", " ").lower()
        if alert == "certificate required":
            return "it wants a certificate of ours: name one with --cert and --key"
        if "certificate" in alert or alert == "unknown ca":
            return f"it refuses our certificate ({alert})"
    return error.strerror or str(error) or type(error).__name__
