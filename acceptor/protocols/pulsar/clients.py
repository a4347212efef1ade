"""What Pulsar's Python half keeps of connections, and how it speaks with them and with workers.

A command is a Request: it is answered once, by reply() or fail(), now or later; until then it counts among those that
its connection has with Python, of which there are only so many.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from mq_shards.acceptor.access.rights import Login
from mq_shards.acceptor.engine import FAILED, Answer, Engine
from mq_shards.acceptor.protocols.pulsar.messages import Message, encode
from mq_shards.acceptor.protocols.pulsar.names import TopicName
from mq_shards.acceptor.protocols.pulsar.rates import NO_RATE, Rate
from mq_shards.csrc._core import lib

# ServerError
METADATA_ERROR: Final = 1
PERSISTENCE_ERROR: Final = 2
AUTHENTICATION_ERROR: Final = 3
AUTHORIZATION_ERROR: Final = 4
CONSUMER_BUSY: Final = 5
SERVICE_NOT_READY: Final = 6
UNSUPPORTED_VERSION: Final = 10
TOPIC_NOT_FOUND: Final = 11
TOPIC_TERMINATED: Final = 15
PRODUCER_BUSY: Final = 16
INVALID_TOPIC_NAME: Final = 17
INCOMPATIBLE_SCHEMA: Final = 18
CONSUMER_ASSIGN_ERROR: Final = 19
NOT_ALLOWED: Final = 22
PRODUCER_FENCED: Final = 25

Heard: TypeAlias = Callable[[Answer], None]


MAX_TRIES: Final = 8  # of a command whose worker dies while it is asked

NO_METADATA: Final[Mapping[str, str]] = {}


def metadata_of(body: Message) -> Mapping[str, str]:
    """What a client says of a producer or consumer; most say nothing."""
    return {one.key: one.value for one in body.metadata} or NO_METADATA


class PulsarError(Exception):
    """What a client is told: a ServerError and a text."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code: Final = code


@dataclass(frozen=True, slots=True)
class Terms:
    """What policies say of a topic's producers."""

    deduplicates: bool = False
    delays: bool = True
    max_delay_ms: int = 0
    rate: Rate = NO_RATE


NO_TERMS: Final = Terms()


@dataclass(slots=True, eq=False)
class Producer:
    id: int
    name: str
    topic: TopicName
    mode: int
    number: int  # its worker's for it
    epoch: int = 0
    key: int = 0  # by which its worker knows it again
    last: int = 0  # the last sequence id that is known of it; NO_PLACE: none
    terms: Terms = NO_TERMS
    topic_epoch: int | None = None
    ready: bool = False
    schema_version: bytes = b""
    metadata: Mapping[str, str] = field(default_factory=lambda: NO_METADATA)


@dataclass(slots=True, eq=False)
class Consumer:
    id: int
    number: int  # its worker's for it
    topic: TopicName
    subscription: str
    kind: int
    name: str
    durable: bool
    ledger: int = 0
    open: bool = False
    takes_any: bool = False  # schema there is
    compacted: bool = False  # it reads the compacted view
    rates: tuple[Rate, Rate] = (NO_RATE, NO_RATE)
    metadata: Mapping[str, str] = field(default_factory=lambda: NO_METADATA)
    ranges: tuple[tuple[int, int], ...] = ()  # of slots, if it has named some


@dataclass(slots=True, eq=False)
class Client:
    conn: int
    version: str = ""
    protocol_version: int = 0
    role: str = ""
    original: str = ""  # for whom a proxy speaks
    login: Login | None = None  # of a user that all protocols have in common
    is_open: bool = False  # nobody is asked who he is
    refreshes: bool = False  # its token having expired, it can be asked for another
    challenged_until_ns: int = 0  # and has been: it has until then
    since_s: float = 0.0  # wall clock
    connected: bool = False
    producers: dict[int, Producer] = field(default_factory=dict)
    consumers: dict[int, Consumer] = field(default_factory=dict)
    heard: dict[int, Heard] = field(default_factory=dict)  # by slot: what to do with a worker's answer
    subscribed: dict[tuple[str, str, int], tuple[float, int]] = field(default_factory=dict)  # since when, how often
    sought: dict[tuple[str, str], object] = field(default_factory=dict)  # where its readers are to begin anew
    unended: dict[int, int] = field(default_factory=dict)  # transactions: how often it was not told that they are over
    closing: dict[int, list[Request]] = field(default_factory=dict)  # CLOSE_PRODUCERs, by producer


class Desk:
    """What all parts of the Python half stand on."""

    def __init__(self, engine: Engine) -> None:
        self.engine: Final = engine
        self.clients: Final[dict[int, Client]] = {}
        self.used: Final[Counter[str]] = Counter()  # producers and consumers of a topic, by the core's name for it
        self.take_any: Final[Counter[str]] = Counter()  # consumers among them that take any schema

    def use(self, topic: TopicName, by: int) -> None:
        self.used[topic.core] += by
        if not self.used[topic.core]:
            del self.used[topic.core]

    def take(self, topic: TopicName, by: int) -> None:
        self.take_any[topic.core] += by
        if not self.take_any[topic.core]:
            del self.take_any[topic.core]

    def say(self, client: Client, name: str, **fields: object) -> None:
        if client.conn in self.clients:
            self.engine.reply(client.conn, encode(name, **fields))

    def ask(self, client: Client, kind: int, topic: TopicName, heard: Heard, /, **fields: int | bytes) -> bool:
        """Of the worker that has the topic; `heard` is called with its answer, unless the connection ends before. False
        if it cannot be asked now: nothing will be heard."""
        worker = self.engine.worker_of_name(topic.core.encode())
        slot = self.engine.request(worker, client.conn, kind, **fields)  # type: ignore[arg-type]
        if slot >= 0:
            client.heard[slot] = heard
        return slot >= 0

    def hang_up(self, client: Client) -> None:
        """Without a word, as a real broker does."""
        self.engine.call(client.conn, "hang-up")


@dataclass(slots=True, eq=False)
class Request:
    """A command of a client's. `body` is its protobuf message."""

    desk: Desk
    client: Client
    body: Message
    answered: bool = False
    tries: int = 0  # that came to nothing since a worker died

    def reply(self, name: str, **fields: object) -> None:
        """Its answer, to which the request's number is added."""
        self.desk.say(self.client, name, request_id=self.body.request_id, **fields)
        self.done()

    def succeed(self) -> None:
        self.reply("success")

    def fail(self, code: int, text: str) -> None:
        self.reply("error", error=code, message=text)

    def done(self) -> None:
        if not self.answered and self.client.conn in self.desk.clients:
            self.desk.engine.call(self.client.conn, "done")
        self.answered = True

    def may_try_again(self) -> bool:
        """Its worker died, and did it or not: the next one is asked. Clients in C++ and Go give up a consumer or
        producer whose first SUBSCRIBE or PRODUCER is refused."""
        self.tries += 1
        return self.tries < MAX_TRIES

    def ask(self, kind: int, topic: TopicName, heard: Heard, /, **fields: int | bytes) -> bool:
        """As Desk.ask; if it cannot be asked now, the client is told to try again."""
        if self.desk.ask(self.client, kind, topic, heard, **fields):
            return True
        self.fail(SERVICE_NOT_READY, "Too many requests under way")
        return False

    def locate(self, topic: TopicName, heard: Heard, subscription: str = "") -> None:
        """Where the topic's worker says that it stands, and its subscription; of its next life when it dies."""

        def located(answer: Answer) -> None:
            if answer.status == FAILED and self.may_try_again():
                self.locate(topic, heard, subscription)
            else:
                heard(answer)

        number = self.desk.engine.bind(topic.core.encode())
        self.ask(lib.MSG_POSITION, topic, located, topic=number, body=subscription.encode())
