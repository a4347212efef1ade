"""What every client here can be asked. A protocol that cannot say something says so, and where to ask instead."""

from __future__ import annotations

import base64
import ssl
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

CONNECT_S: Final = 5.0
ANSWER_S: Final = 30.0


class ClientError(Exception):
    """One line: what was asked of whom, and why it was not done."""


class CannotError(ClientError):
    """This protocol has no way to ask for it."""


@dataclass(frozen=True, slots=True)
class Proof:
    """Who somebody says that he is: a token, or a user and a password."""

    token: str = field(default="", repr=False)
    user: str = ""
    password: str = field(default="", repr=False)

    @property
    def secret(self) -> str:
        """Where there is room for one word."""
        return self.token or f"{self.user}:{self.password}"

    @property
    def header(self) -> dict[str, str]:
        """Of an HTTP request."""
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
    tls: ssl.SSLContext | None = field(default=None, compare=False)  # of who is encrypted
    proof: Proof | None = field(default=None, compare=False)

    def __str__(self) -> str:
        if self.path:
            return f"{self.scheme}://unix:{self.path}"
        return f"{self.scheme}://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Message:
    """`more`: what else is known of it, by the names that --json shows."""

    topic: str
    body: bytes
    more: dict[str, Any] = field(default_factory=dict)
    handle: Any = None  # by which its client finishes it


class Client:
    """A connection. To be closed. What is not said here raises CannotError."""

    def __init__(self, at: At) -> None:
        self.at: Final = at

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def publish(self, topic: str, bodies: Iterable[bytes], delay_s: float = 0.0) -> int:
        """How many. They are in the log when it returns, where the protocol says so."""
        raise self.cannot("publish")

    def consume(self, topic: str, channel: str) -> Iterator[Message]:
        """Takes messages. The one before is finished when the next is asked for, or `finish` is called."""
        raise self.cannot("consume")

    def finish(self, message: Message) -> None:
        """Nothing, where the protocol knows no acknowledgements."""

    def topics(self) -> list[dict[str, Any]]:
        """By name: name, in (a second), out, backlog, in_flight, consumers; None for what the protocol does not say."""
        raise self.cannot("list topics")

    def overview(self) -> dict[str, Any]:
        raise self.cannot("say how the broker is")

    def peek(self, topic: str, first: int | None, limit: int) -> list[Message]:
        """The newest, or those from a seq on. Nothing is taken."""
        raise self.cannot("show messages without taking them")

    def tail(self, topic: str, last: int) -> Iterator[Message]:
        """What is published from now on, and `last` messages before. Nothing is taken."""
        raise self.cannot("follow a topic without taking its messages")

    def cannot(self, what: str) -> CannotError:
        return CannotError(f"{self.at.scheme}:// cannot {what}")


def reason(error: OSError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted ({error.verify_message}): name who signed it with --ca"
    return error.strerror or str(error) or type(error).__name__
