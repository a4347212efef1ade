"""The state that Pulsar's Python half keeps of connections, and how it answers them and asks workers.

Each command is a Request. It is answered once, by reply() or fail(), at once or later. Until then it counts towards
PULSAR_MAX_WITH_PYTHON, the number of a connection's commands that Python may have.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from sys import getsizeof
from typing import Final, Generic, NamedTuple, TypeAlias, TypeVar

from mq_shards.acceptor.access.rights import Login
from mq_shards.acceptor.engine import FAILED, Answer, Engine, WorkerRequest
from mq_shards.acceptor.protocols.pulsar.ending import Ending
from mq_shards.acceptor.protocols.pulsar.messages import Message, encode
from mq_shards.acceptor.protocols.pulsar.names import MAX_PROPERTIES, MAX_PROPERTY_BYTES, TopicName
from mq_shards.acceptor.protocols.pulsar.rates import NO_RATES, Rates
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
Unasked: TypeAlias = tuple[int, TopicName, Heard, dict[str, int | bytes]]  # see Desk.ask
Ranges: TypeAlias = tuple[tuple[int, int], ...]
Key = TypeVar("Key", bound=tuple[object, ...])
Value = TypeVar("Value")


MAX_TRIES: Final = 8  # how often a command is tried when its worker keeps dying, or naming who is gone

# Most characters in the metadata of a consumer, as at a real broker, and of a producer, where that one has no limit.
MAX_CONSUMER_METADATA: Final = 1024
MAX_PRODUCER_METADATA: Final = 4096
# Most bytes of memory for what clients say of all producers and consumers of an acceptor, and for Notes.
MAX_KEPT_BYTES: Final = 64 << 20
MAX_IDS: Final = 1000  # in an ACK that Python handles
TOO_MUCH_AT_ONCE: Final = "Too much in one acknowledgement"
MAX_NOTES: Final = 1000  # of one kind, of a connection
NOTE_BYTES: Final = 200  # that a note takes without what its key consists of, about
RANGE_BYTES: Final = getsizeof((0, 0)) + 2 * getsizeof(1 << 15)
MAX_VERSION: Final = 256  # characters that are kept of what a client says its version is

NO_METADATA: Final[Mapping[str, str]] = {}


# A command of 5 MB may have 500,000 of these: they are counted before anything is done with them, which takes long.


def pairs_of(given: Iterable[Message]) -> Mapping[str, str]:
    """KeyValues, of which most clients send none."""
    return {one.key: one.value for one in given} or NO_METADATA


def names_a_key_twice(body: Message) -> bool:
    """Whether the metadata of a PRODUCER or SUBSCRIBE do, if there are not too many to look: a real broker cannot read
    them then, and closes the connection."""
    count = len(body.metadata)
    return 1 < count <= MAX_PRODUCER_METADATA and len({one.key for one in body.metadata}) < count


def metadata_of(body: Message, most: int) -> Mapping[str, str]:
    """The properties that a client gives a producer or consumer. Raises PulsarError if they are too long."""
    found = pairs_of(body.metadata[:most])
    if len(body.metadata) > most or sum(len(key) + len(value) for key, value in found.items()) > most:
        raise PulsarError(METADATA_ERROR, f"metadata has a max size of {most} bytes")
    return found


def properties_of(body: Message) -> Mapping[str, str]:
    """The properties that a SUBSCRIBE gives its subscription. Of a key that is given twice a real broker takes the
    first. Raises PulsarError if they are too many."""
    count = len(body.subscription_properties)
    found = pairs_of(reversed(body.subscription_properties[:MAX_PROPERTIES]))
    used = sum(len(key.encode()) + len(value.encode()) for key, value in found.items())
    if count > MAX_PROPERTIES or used > MAX_PROPERTY_BYTES:
        raise PulsarError(NOT_ALLOWED, f"properties are {MAX_PROPERTIES} and {MAX_PROPERTY_BYTES} bytes at most")
    return found


def bytes_of(said: Mapping[str, str] | Ranges) -> int:
    """What metadata, properties or hash ranges take in memory."""
    if not said:
        return 0
    if isinstance(said, tuple):
        return getsizeof(said) + RANGE_BYTES * len(said)
    return getsizeof(said) + sum(getsizeof(key) + getsizeof(value) for key, value in said.items())


class PulsarError(Exception):
    """An error for the client: a ServerError and a text."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code: Final = code


class Terms(NamedTuple):
    """What policies prescribe for a topic's producers."""

    deduplicates: bool = False
    delays: bool = True
    max_delay_ms: int = 0
    max_message_bytes: int = 0  # 0: the broker's
    rates: Rates = NO_RATES


NO_TERMS: Final = Terms()


@dataclass(slots=True, eq=False, repr=False)
class Producer:
    """A producer of a connection."""

    id: int
    name: str
    topic: TopicName
    mode: int
    number: int  # the codec's, by which the worker knows it
    terms: Terms = NO_TERMS
    ready: bool = False
    schema_version: bytes = b""
    metadata: Mapping[str, str] = field(default_factory=lambda: NO_METADATA)
    kept_bytes: int = 0  # that count towards MAX_KEPT_BYTES


@dataclass(slots=True, eq=False, repr=False)
class Consumer:
    """A consumer of a connection."""

    id: int
    number: int  # the codec's, by which the worker knows it
    topic: TopicName
    subscription: str
    kind: int
    name: str
    durable: bool
    ledger: int = 0
    open: bool = False
    takes_any: bool = False  # it accepts whatever schema the topic has
    compacted: bool = False  # it reads the compacted view
    any_order: bool = False  # it would take the messages of a key in any order
    rates: Rates = NO_RATES
    metadata: Mapping[str, str] = field(default_factory=lambda: NO_METADATA)
    properties: Mapping[str, str] = field(default_factory=lambda: NO_METADATA)  # of a subscription that is not durable
    kept_bytes: int = 0  # that count towards MAX_KEPT_BYTES
    ranges: Ranges = ()  # the hash slots it has named; empty: they are shared out


PRODUCER: Final = "producer"
CONSUMER: Final = "consumer"


@dataclass(slots=True, eq=False, repr=False)
class Opening:
    """The unanswered command that makes a producer or consumer of a client."""

    kind: str  # PRODUCER or CONSUMER
    number: int  # the producer's or consumer's
    called_off: bool = False


class Notes(Generic[Key, Value]):
    """What is remembered of a client's commands, as far as there is room. Desk.note() adds to them."""

    __slots__ = ("found", "kept_bytes")

    def __init__(self) -> None:
        self.found: Final[dict[Key, Value]] = {}
        self.kept_bytes = 0  # that count towards MAX_KEPT_BYTES


def note_bytes(key: tuple[object, ...]) -> int:
    return NOTE_BYTES + sum(map(getsizeof, key))


@dataclass(slots=True, eq=False, repr=False)
class Client:
    """The state of a connection."""

    conn: int
    version: str = ""
    protocol_version: int = 0
    role: str = ""
    original: str = ""  # the role for which a proxy speaks
    login: Login | None = None  # as a user that all protocols share; None: it is none
    is_open: bool = False  # it did not have to say who it is
    refreshes: bool = False  # it can be asked for another token when its own expires
    challenged_until_ns: int = 0  # when it must have sent that token, if it has been asked
    since_s: float = 0.0  # connected since, by the wall clock
    connected: bool = False
    producers: dict[int, Producer] = field(default_factory=dict)
    consumers: dict[int, Consumer] = field(default_factory=dict)
    heard: dict[int, Heard] = field(default_factory=dict)  # what to do with a worker's answer, by slot
    # What waits until fewer questions are under way. None if nothing does: an empty deque takes 0.8 KB.
    unasked: deque[Unasked] | None = None
    subscribed: Notes[tuple[str, str, int], tuple[float, int]] = field(default_factory=Notes)  # since, count
    sought: Notes[tuple[str, str], object] = field(default_factory=Notes)  # where readers begin that were moved
    unended: dict[int, int] = field(default_factory=dict)  # by transaction: ENDs the gateway did not answer
    closing: dict[int, list[Request]] = field(default_factory=dict)  # unanswered CLOSE_PRODUCERs
    opening: dict[tuple[str, int], Opening] = field(default_factory=dict)  # unanswered PRODUCERs and SUBSCRIBEs
    ending: Ending = field(default_factory=Ending)  # consumers
    seeking: dict[int, list[Request]] = field(default_factory=dict)  # by consumer: SEEKs that wait for another's place

    def call_off(self, kind: str, number: int) -> None:
        """The client closes a producer or consumer: what would make it, and waits for an answer, does not go on."""
        opening = self.opening.pop((kind, number), None)
        if opening is not None:
            opening.called_off = True


class Desk:
    """Shared by all parts of the Python half: the clients, and how to answer them and to ask workers."""

    def __init__(self, engine: Engine) -> None:
        self.engine: Final = engine
        self.clients: Final[dict[int, Client]] = {}
        self.used: Final[Counter[str]] = Counter()  # producers and consumers, by the core's name of their topic
        self.take_any: Final[Counter[str]] = Counter()  # the consumers among them that accept any schema
        self.kept_bytes = 0  # of what clients say of all producers and consumers, and of Notes

    def use(self, topic: TopicName, by: int) -> None:
        self.used[topic.core] += by
        if not self.used[topic.core]:
            del self.used[topic.core]

    def take(self, topic: TopicName, by: int) -> None:
        self.take_any[topic.core] += by
        if not self.take_any[topic.core]:
            del self.take_any[topic.core]

    def room_for(self, *said: Mapping[str, str] | Ranges) -> int:
        """The bytes that a client's words about a producer or consumer take. Raises PulsarError if there is no room
        for them."""
        wanted = sum(map(bytes_of, said))
        if wanted and self.kept_bytes + wanted > MAX_KEPT_BYTES:
            why = "There are as many metadata and hash ranges of producers and consumers as there may be"
            raise PulsarError(METADATA_ERROR, why)
        return wanted

    def keep(self, part: Producer | Consumer, kept_bytes: int) -> None:
        part.kept_bytes = kept_bytes
        self.kept_bytes += kept_bytes

    def let_go(self, part: Producer | Consumer) -> None:
        self.kept_bytes -= part.kept_bytes
        part.kept_bytes = 0

    def note(self, client: Client, notes: Notes[Key, Value], key: Key, value: Value) -> None:
        """Remembers something until the client leaves. Its oldest notes of that kind are forgotten where there are too
        many, and where memory is short, the new one if that does not help."""
        if self.clients.get(client.conn) is not client:
            return  # it has left, and its notes have been dropped
        self.drop(notes, key)
        wanted = note_bytes(key)
        while notes.found and (len(notes.found) >= MAX_NOTES or self.kept_bytes + wanted > MAX_KEPT_BYTES):
            self.drop(notes, next(iter(notes.found)))
        if self.kept_bytes + wanted <= MAX_KEPT_BYTES:
            notes.found[key] = value
            notes.kept_bytes += wanted
            self.kept_bytes += wanted

    def drop(self, notes: Notes[Key, Value], key: Key) -> Value | None:
        """Forgets a note, if there is one, and returns it."""
        found = notes.found.pop(key, None)
        freed = note_bytes(key) if found is not None else 0
        notes.kept_bytes -= freed
        self.kept_bytes -= freed
        return found

    def leave(self, conn: int) -> Client | None:
        """Removes a client and its notes. What is kept of its producers and consumers goes with them."""
        client = self.clients.pop(conn, None)
        if client is not None:
            self.kept_bytes -= client.subscribed.kept_bytes + client.sought.kept_bytes
            client.subscribed, client.sought = Notes(), Notes()  # commands under way may still look for some
        return client

    def say(self, client: Client, name: str, **fields: object) -> None:
        if client.conn in self.clients:
            self.engine.reply(client.conn, encode(name, **fields))

    def ask(self, client: Client, kind: int, topic: TopicName, heard: Heard, /, **fields: int | bytes) -> bool:
        """Asks the worker that has the topic, when the connection has as many questions under way as it may have later.
        `heard` is called with its answer, unless the connection ends before. False if it cannot be asked: then `heard`
        is not called."""
        if not client.unasked and self._ask(client, kind, topic, heard, fields):
            return True
        if not client.heard:
            return False
        if client.unasked is None:
            client.unasked = deque()
        client.unasked.append((kind, topic, heard, fields))
        return True

    def _ask(
        self, client: Client, kind: int, topic: TopicName, heard: Heard, fields: dict[str, int | bytes]
    ) -> bool:  # fmt: skip
        worker = self.engine.worker_of_name(topic.core.encode())
        slot = self.engine.request(worker, client.conn, WorkerRequest(kind, **fields))  # type: ignore[arg-type]
        if slot >= 0:
            client.heard[slot] = heard
        return slot >= 0

    def answered(self, client: Client, answer: Answer) -> None:
        """A worker has answered: what waited may be asked now."""
        heard = client.heard.pop(answer.slot, None)
        if heard is not None:
            heard(answer)
        while client.unasked:
            kind, topic, heard, fields = client.unasked[0]
            if "topic" in fields:  # its number may be another topic's meanwhile
                fields["topic"] = self.engine.bind(topic.core.encode())
            if self._ask(client, kind, topic, heard, fields):
                client.unasked.popleft()
            elif client.heard:
                return
            else:  # nothing is under way, so that nothing would come of waiting
                client.unasked.popleft()
                heard(Answer(kind, FAILED, 0, 0, b""))
        client.unasked = None
        if not client.heard:
            client.heard.clear()  # gives back the memory of what was in it

    def hang_up(self, client: Client) -> None:
        """Closes the connection without an error, as a real broker does."""
        self.engine.call(client.conn, "hang-up")


@dataclass(slots=True, eq=False, repr=False)
class Request:
    """A client's command. `body` is its protobuf message."""

    desk: Desk
    client: Client
    body: Message
    answered: bool = False
    tries: int = 0  # how often a worker died before it had answered, or named once more who was said to be gone
    gone: int = 0  # who was in the way last and is no client that is alive
    opening: Opening | None = None  # if it makes a producer or consumer

    def opens(self, kind: str, number: int) -> bool:
        """Notes what it makes, until it is answered. It is refused, and False returned, while another that makes the
        same is unanswered."""
        if (kind, number) in self.client.opening:
            self.fail(SERVICE_NOT_READY, f"{kind.capitalize()} is already present on the connection")
            return False
        self.opening = self.client.opening[kind, number] = Opening(kind, number)
        return True

    def is_called_off(self) -> bool:
        """Whether the client has closed meanwhile what it makes: then it is not answered, as with a real broker."""
        if self.opening is None or not self.opening.called_off:
            return False
        self.done()
        return True

    def reply(self, name: str, **fields: object) -> None:
        """Answers the command; adds the request id."""
        self.desk.say(self.client, name, request_id=self.body.request_id, **fields)
        self.done()

    def succeed(self) -> None:
        self.reply("success")

    def fail(self, code: int, text: str) -> None:
        self.reply("error", error=code, message=text)

    def done(self) -> None:
        if not self.answered and self.client.conn in self.desk.clients:
            self.desk.engine.call(self.client.conn, "done")
        if not self.answered and self.opening is not None:
            self._opened(self.opening)
        self.answered = True

    def _opened(self, opening: Opening) -> None:
        key = opening.kind, opening.number
        if self.client.opening.get(key) is opening:
            del self.client.opening[key]
        if not self.client.opening:
            self.client.opening.clear()  # gives back the memory of what was in it

    def may_try_again(self) -> bool:
        """Whether to ask the next worker when this one died, having done it or not. Clients in C++ and Go give up a
        consumer or producer whose first SUBSCRIBE or PRODUCER is refused."""
        self.tries += 1
        return self.tries < MAX_TRIES

    def ask(self, kind: int, topic: TopicName, heard: Heard, /, **fields: int | bytes) -> bool:
        """As Desk.ask; if the worker cannot be asked now, the command fails and the client tries again."""
        if self.desk.ask(self.client, kind, topic, heard, **fields):
            return True
        self.fail(SERVICE_NOT_READY, "Too many requests under way")
        return False

    def locate(self, topic: TopicName, heard: Heard, subscription: str = "") -> None:
        """Asks for the POSITION of a topic and a subscription; when the worker dies, asks the next one."""

        def located(answer: Answer) -> None:
            if answer.status == FAILED and self.may_try_again():
                self.locate(topic, heard, subscription)
            else:
                heard(answer)

        number = self.desk.engine.bind(topic.core.encode())
        self.ask(lib.MSG_POSITION, topic, located, topic=number, body=subscription.encode())
