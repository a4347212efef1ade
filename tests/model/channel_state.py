"""The nouns of the model of topics and channels (channels.py): what there is, and what is counted."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from tests.model.beanstalk import SECOND
from tests.nsq.frames import Frame

MS = 1_000_000
EPHEMERAL = b"#ephemeral"
MSG_TIMEOUT = 60 * SECOND
MAX_MSG_TIMEOUT = 900 * SECOND
MAX_REQ_TIMEOUT = 3600 * SECOND
MAX_RDY = 2500
HEARTBEAT_NS = 30 * SECOND
PRIORITY = 1024
NEVER = 1 << 63


class State(Enum):
    NEW = "new"
    AGAIN = "to be delivered again"
    DEFERRED = "deferred"
    IN_FLIGHT = "in flight"


@dataclass(eq=False)
class Message:
    """`number` is the job's id too, and rises with the order of publishing."""

    number: int
    body: bytes = field(repr=False)
    published: int
    delay: int
    ttr: int

    @property
    def due(self) -> int:
        return self.published + self.delay


@dataclass(eq=False)
class Delivery:
    message: Message
    state: State = State.NEW
    attempts: int = 0
    due: int = 0  # if deferred
    holder: Client | None = field(default=None, repr=False)  # if in flight, and
    deadline: int = NEVER
    limit: int = NEVER  # for its deadline
    since: int = 0  # the moment at which it was to be delivered again
    loose: bool = False  # its place in the order is not said


@dataclass(eq=False)
class Channel:
    name: bytes
    topic: Topic = field(repr=False)
    ephemeral: bool
    held: dict[int, Delivery] = field(default_factory=dict, repr=False)
    clients: list[Client] = field(default_factory=list, repr=False)
    paused: bool = False
    messages: int | None = 0  # None: not said
    requeues: int = 0
    timeouts: int = 0
    delivered: int = 0
    finished: int = 0

    def take(self, message: Message, *, loose: bool = False) -> None:
        state = State.DEFERRED if message.delay else State.NEW
        delivery = Delivery(message, state, due=message.due, loose=loose)
        self.held[message.number] = delivery
        if self.messages is not None:
            self.messages += 1

    def waiting(self, state: State) -> list[Delivery]:
        return [d for d in self.held.values() if d.state is state]

    def count(self, state: State) -> int:
        return sum(d.state is state for d in self.held.values())

    @property
    def oldest(self) -> int | None:
        """When the first of what is not finished was published, but for what is to come later."""
        held = [d for d in self.held.values() if d.state in (State.NEW, State.IN_FLIGHT, State.AGAIN)]
        return min(held, key=lambda d: d.message.number).message.published if held else None


@dataclass(eq=False)
class Topic:
    name: bytes
    durable: bool = False
    wanted: bool = False
    written: bool = False  # the log knows of it
    put: bool = False  # ... as a tube
    stopped_at: int | None = None  # paused: messages from this number on it keeps itself, ...
    kept: list[Message] = field(default_factory=list)  # ... these
    channels: dict[bytes, Channel] = field(default_factory=dict)
    waiting: list[Message] = field(default_factory=list)
    messages: int | None = 0
    message_bytes: int | None = 0
    unlogged: bool = False  # messages went to ephemeral channels alone
    rewritten: bool = False  # the log has forgotten messages that are gone

    @property
    def ephemeral(self) -> bool:
        return self.name.endswith(EPHEMERAL)


@dataclass(eq=False, repr=False)
class Client:
    """An NSQ connection."""

    number: int
    heard: int
    beat_at: int
    heartbeat: int = HEARTBEAT_NS
    timeout: int = MSG_TIMEOUT
    identified: bool = False
    open: bool = True
    closing: bool = False  # CLS
    channel: Channel | None = None
    credit: int = 0
    expected: list[Frame] = field(default_factory=list)
    messages: int = 0
    finishes: int = 0
    requeues: int = 0
    # Of the step under way.
    most_credit: int = 0
    before: int = 0  # in flight at its beginning
    got: list[tuple[State, int]] = field(default_factory=list)
    was_ready: bool = False  # and its credit is as it was

    def __repr__(self) -> str:
        return f"client {self.number}"

    def in_flight(self) -> list[Delivery]:
        return [] if self.channel is None else [d for d in self.channel.held.values() if d.holder is self]

    def is_ready(self) -> bool:
        return self.open and self.channel is not None and self.credit > len(self.in_flight())

    def was_ready_throughout(self) -> bool:
        """Of the step: also if what left its hands did so after the last message had come."""
        return self.was_ready and self.is_ready() and self.before + len(self.got) < self.credit
