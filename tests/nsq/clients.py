"""What the tests see of a real NSQ client, whichever it is: consumers and producers with threads of their own.

pynsq runs on tornado's event loop and gnsq on gevent's; each gets its loop in a thread, and the test looks on, answers
messages and publishes from its own thread.
"""

from __future__ import annotations

import abc
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from tests.nsq.certificates import Certificates, Pair
from tests.nsq.servers import HOST, NsqServer
from tests.servers import wait_until

SECONDS = 60.0


@dataclass(frozen=True)
class Features:
    """What is negotiated with the broker, under each client's own names."""

    heartbeat_seconds: int = 30
    tls: Certificates | None = None
    show: Pair | None = None  # the client's certificate
    compression: Literal["", "snappy", "deflate"] = ""
    secret: str = ""


PLAIN = Features()


class Delivery:
    """A message that a client was given; it may be answered from any thread."""

    def __init__(self, message: Any, timestamp: int, post: Callable[[Callable[[], None]], None]) -> None:  # noqa: ANN401
        self.body: bytes = message.body
        self.attempts: int = message.attempts
        self.id: bytes = message.id
        self.timestamp = timestamp
        self._message = message
        self._post = post

    def finish(self) -> None:
        self._post(self._message.finish)

    def touch(self) -> None:
        self._post(self._message.touch)

    def requeue(self, delay_ms: int = 0, *, backoff: bool = False) -> None:
        self._post(lambda: self._message.requeue(time_ms=delay_ms, backoff=backoff))


# True: finish it. False: requeue it, as the client does with a handler that fails. None: it is answered later.
Handler = Callable[[Delivery], bool | None]


def finish(_: Delivery) -> bool:
    return True


def keep(_: Delivery) -> None:
    return None


class Looping(abc.ABC):
    """A client with its event loop in a thread, from `with` to the block's end."""

    def __init__(self) -> None:
        self.errors: list[str] = []  # that the broker sent, or that the connection had
        self.failures: list[BaseException] = []  # of the test's own handlers
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Any:  # noqa: ANN401
        self._thread.start()
        wait_until(lambda: self._ready.is_set() or not self._thread.is_alive(), "the loop has begun", SECONDS)
        if not self._ready.is_set():
            self.stop()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Closes the connections and ends the thread."""
        if self._thread.is_alive():
            self._end()
        self._thread.join(SECONDS)
        assert not self._thread.is_alive(), "the loop has not ended"
        for failure in self.failures:
            raise failure

    def _run(self) -> None:
        try:
            self._loop()
        except BaseException as failure:
            self.failures.append(failure)

    @abc.abstractmethod
    def _loop(self) -> None:
        """Opens the client, sets `_ready`, works until `_end` is called, closes the client."""

    @abc.abstractmethod
    def _end(self) -> None: ...

    @abc.abstractmethod
    def _post(self, action: Callable[[], None]) -> None:
        """Has it done in the loop's thread."""


@dataclass(frozen=True)
class Subscription:
    """Where messages come from, and what a handler does with them. Options are the client's own."""

    servers: Sequence[NsqServer]
    topic: str
    channel: str = "ch"
    handler: Handler = finish
    max_in_flight: int = 1
    max_tries: int = 5
    max_backoff_seconds: float = 1.0
    lookupd_http: Sequence[str] = ()
    features: Features = PLAIN
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def addresses(self) -> list[str]:
        return [address_of(server) for server in self.servers]


class Consumer(Looping):
    """Keeps what came, in its order."""

    def __init__(self, subscription: Subscription) -> None:
        super().__init__()
        self.subscription = subscription
        self.deliveries: list[Delivery] = []
        self.given_up: list[bytes] = []
        self.heartbeats = 0
        self.closed = 0  # connections that were lost

    @property
    def bodies(self) -> list[bytes]:
        return [delivery.body for delivery in self.deliveries]

    def wait_for(self, count: int, seconds: float = SECONDS) -> list[Delivery]:
        """Until so many deliveries have come."""
        wait_until(
            lambda: len(self.deliveries) >= count or self.failures,
            f"{count} messages are there and not only {len(self.deliveries)}; errors: {self.errors[:3]}",
            seconds,
        )
        return self.deliveries[:count]

    def _handle(self, message: Any, timestamp: int) -> bool | None:  # noqa: ANN401
        delivery = Delivery(message, timestamp, self._post)
        self.deliveries.append(delivery)
        try:
            return self.subscription.handler(delivery)
        except BaseException as failure:
            self.failures.append(failure)
            return None


class Producer(Looping):
    """Each publish waits for its answer and raises PublishError for any other than OK."""

    @abc.abstractmethod
    def publish(self, topic: str, body: bytes) -> None: ...

    @abc.abstractmethod
    def publish_many(self, topic: str, bodies: Sequence[bytes]) -> None: ...

    @abc.abstractmethod
    def publish_deferred(self, topic: str, delay_ms: int, body: bytes) -> None: ...


class PublishError(Exception):
    """What the broker answered, or what became of the connection."""


@dataclass(frozen=True)
class ClientLibrary:
    name: str
    consumer: Callable[[Subscription], Consumer]
    producer: Callable[..., Producer]  # of a server and features


def address_of(server: NsqServer) -> str:
    return f"{HOST}:{server.port}"
