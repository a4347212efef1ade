"""Where a subscription begins, or is moved to: by a message id, or by the time at which messages were published.

That time is the one that producers give (publish_time), as at a real broker: clients seek to times that they have read
in messages. A worker knows only when it has stored a message, by its own clock, so that the place is looked for here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from mq_shards.acceptor import engine
from mq_shards.acceptor.engine import Answer
from mq_shards.acceptor.protocols.pulsar.clients import Request
from mq_shards.acceptor.protocols.pulsar.messages import Message, publish_time_ms
from mq_shards.acceptor.protocols.pulsar.names import TopicName
from mq_shards.acceptor.protocols.pulsar.position import position_of
from mq_shards.csrc._core import ffi, lib

NO_ENTRY: Final = (1 << 64) - 1  # -1: no entry
MAX_ID: Final = (1 << 63) - 1
MS: Final = 1_000_000


class Start(NamedTuple):
    """Where a subscription begins: enum start, and its seq."""

    start: int
    at: int = 0


def start_at(message_id: Message, incarnation: int) -> Start:
    """The place that a client names by a message id: (-1, -1) is the beginning, the largest possible id the end."""
    ledger, entry = message_id.ledgerId, message_id.entryId
    if ledger == NO_ENTRY:
        return Start(lib.START_EARLIEST)
    if ledger > incarnation or (ledger == incarnation and MAX_ID <= entry < NO_ENTRY):
        return Start(lib.START_LATEST)
    if ledger < incarnation or entry == NO_ENTRY:
        return Start(lib.START_EARLIEST)
    return Start(lib.START_SEQ, entry)


def start_at_time(request: Request, topic: TopicName, at_ms: int, found: Callable[[Start | None], None]) -> None:
    """Calls `found` with the first message that was published at that time or later; None: the worker is gone. A number
    of 64 bits is a signed one, as at a real broker: Java's clients may go back to before 1970."""
    _Search(request, topic, at_ms - (1 << 64) if at_ms > MAX_ID else at_ms, found).begin()


@dataclass(slots=True, eq=False)
class _Search:
    """By bisection, as at a real broker: times mostly rise from one message to the next."""

    request: Request
    topic: TopicName
    at_ms: int
    found: Callable[[Start | None], None]
    low: int = 0
    high: int = 0

    def begin(self) -> None:
        self._ask(lib.MSG_POSITION, self._located)

    def _ask(self, kind: int, heard: Callable[[Answer], None], **fields: int) -> None:
        def answered(answer: Answer) -> None:
            if answer.status != engine.FAILED:
                heard(answer)
            elif self.request.may_try_again():
                self.begin()
            else:
                self.found(None)

        desk = self.request.desk
        number = desk.engine.bind(self.topic.core.encode())
        if not desk.ask(self.request.client, kind, self.topic, answered, topic=number, **fields):
            self.found(None)

    def _located(self, answer: Answer) -> None:
        where = position_of(answer.body) if answer.status == engine.OK else None
        if where is None:
            self.found(Start(lib.START_LATEST))
        elif where.last_seq == NO_ENTRY:
            self.found(Start(lib.START_EARLIEST))  # what is not committed yet may be of that time
        else:
            self.low, self.high = where.first_seq, where.next_seq
            self._halve()

    def _halve(self) -> None:
        if self.low >= self.high:
            self.found(Start(lib.START_SEQ, self.low))
            return
        middle = (self.low + self.high) // 2

        def peeked(answer: Answer) -> None:
            is_there = answer.status == engine.OK and answer.seq < self.high
            if is_there and _published_ms(answer) < self.at_ms:
                self.low = answer.seq + 1
            else:  # of one that cannot be read it is not known: none is passed over
                self.high = middle
            self._halve()

        self._ask(lib.MSG_PEEK_SEQ, peeked, ttr_ns=middle, pri=1, flags=lib.MSG_HEADERS | lib.MSG_HEAD)


def _published_ms(answer: Answer) -> int:
    """As its producer says; else when it was stored."""
    found = None
    if answer.flags & lib.MSG_HEADERS:
        head = ffi.from_buffer("struct headers *", answer.body[: ffi.sizeof("struct headers")])
        if head.tag == lib.HEADERS_PULSAR:
            found = publish_time_ms(answer.body[ffi.sizeof("struct headers") :])
    return answer.incarnation // MS if found is None else found  # that of a PEEK_SEQ is a time
