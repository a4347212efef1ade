"""SUBSCRIBE and the commands about a consumer or its subscription: CLOSE_CONSUMER, UNSUBSCRIBE, SEEK,
GET_LAST_MESSAGE_ID. The commands about messages (FLOW, ACK, REDELIVER) are handled in C."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from sys import intern
from typing import Any, Final, NamedTuple, TypeAlias

from mq_shards.acceptor import engine
from mq_shards.acceptor.engine import Answer
from mq_shards.acceptor.protocols.pulsar import subscribe
from mq_shards.acceptor.protocols.pulsar.clients import (
    CONSUMER,
    MAX_CONSUMER_METADATA,
    MAX_IDS,
    METADATA_ERROR,
    NO_METADATA,
    NOT_ALLOWED,
    SERVICE_NOT_READY,
    TOO_MUCH_AT_ONCE,
    Client,
    Consumer,
    Desk,
    PulsarError,
    Request,
    metadata_of,
    properties_of,
)
from mq_shards.acceptor.protocols.pulsar.liveness import Liveness
from mq_shards.acceptor.protocols.pulsar.messages import Message
from mq_shards.acceptor.protocols.pulsar.names import NON_PERSISTENT, TopicName
from mq_shards.acceptor.protocols.pulsar.position import last_entry, position_of
from mq_shards.acceptor.protocols.pulsar.rates import NO_RATES, Rates
from mq_shards.acceptor.protocols.pulsar.returning import MOST_SEEKS, Returning
from mq_shards.acceptor.protocols.pulsar.start import NO_ENTRY, Start, start_at, start_at_time
from mq_shards.acceptor.protocols.pulsar.subscribe import EXCLUSIVE, FAILOVER, KEY_SHARED, MAX_UNACKED, SHARED
from mq_shards.csrc._core import ffi, lib
from mq_shards.csrc.structs import packed

NOT_NOTED: Final = "The acknowledgement could not be noted"
TAKES_ANY: Final = 21  # Schema.Type
# How long after the answer to SUBSCRIBE a consumer is told whether it is active: the Go client ignores it if sooner.
TELL_NS: Final = 100_000_000


class Limits(NamedTuple):
    """What policies prescribe for a subscription's consumers; 0: any number."""

    most_unacked: int = 0
    most_unacked_of_all: int = 0
    rates: Rates = NO_RATES
    subscribes: int = 0  # most SUBSCRIBEs of a consumer ...
    within_s: int = 0  # ... in this time


LimitsOf: TypeAlias = Callable[[TopicName, str], Limits]


class Consumers:
    def __init__(
        self,
        desk: Desk,
        liveness: Liveness,
        ends: Callable[[Client, Consumer], None],
        limits: LimitsOf,
        made: Callable[[TopicName, str], None],
    ) -> None:
        """`ends` is called with a consumer of a terminated topic, `made` with a durable subscription that now exists.
        `limits` returns those of a topic's subscription."""
        self._desk = desk
        self._limits = limits
        self._made = made
        self._ends = ends
        self._liveness = liveness
        # Consumers to be told whether they are active, and when, soonest first.
        self._to_tell: deque[tuple[int, Client, Consumer]] = deque()
        self._returning: Final = Returning()

    # --- SUBSCRIBE --------------------------------------------------------------------------------------------------

    def open(self, request: Request, topic: TopicName) -> None:
        body, client = request.body, request.client
        if request.is_called_off() or client.ending.waits(body.consumer_id, lambda: self.open(request, topic)):
            return
        there = client.consumers.get(body.consumer_id)
        if there is not None:
            if there.open:
                request.succeed()
            else:
                request.fail(SERVICE_NOT_READY, "Consumer is already present on the connection")
            return
        try:
            subscribe.check(body)
            self._check_often(client, topic, body)
        except PulsarError as error:
            request.fail(error.code, str(error))
            return
        if body.start_message_rollback_duration_sec:  # whatever id comes with it: Java's client names the earliest
            since_s = time.time() - body.start_message_rollback_duration_sec
            start_at_time(request, topic, int(since_s * 1000), lambda start: self._begin(request, topic, start))
        elif body.HasField("start_message_id"):
            self._look_for_place(request, topic)
        else:
            self._subscribe(request, topic, subscribe.initial(body))

    def _check_often(self, client: Client, topic: TopicName, body: Message) -> None:
        """Raises PulsarError if a consumer subscribes more often than a policy allows."""
        limits = self._limits(topic, body.subscription)
        if limits.subscribes <= 0:
            return
        key = topic.core, body.consumer_name, body.consumer_id
        since_s, count = client.subscribed.found.get(key, (0.0, 0))
        now_s = time.monotonic()
        if now_s - since_s >= max(limits.within_s, 1):
            since_s, count = now_s, 0
        if count >= limits.subscribes:
            raise PulsarError(NOT_ALLOWED, "Subscribe limited by subscribe rate limit per consumer.")
        self._desk.note(client, client.subscribed, key, (since_s, count + 1))

    def _begin(self, request: Request, topic: TopicName, start: Start | None) -> None:
        if start is None:
            request.fail(SERVICE_NOT_READY, "The topic's worker is gone")
        elif request.body.durable:
            self._set_back(request, topic, start)
        else:
            self._subscribe(request, topic, start)

    def _set_back(self, request: Request, topic: TopicName, start: Start) -> None:
        """A durable subscription that is there is moved first, as by a SEEK, whoever its consumers are."""

        def moved(answer: Answer) -> None:
            if answer.status == engine.FAILED and request.may_try_again():
                self._set_back(request, topic, start)
            else:
                self._subscribe(request, topic, start)

        self._ask_to_move(request, topic, request.body.subscription, start, moved)

    def _look_for_place(self, request: Request, topic: TopicName) -> None:
        """Asks for the topic's incarnation, without which a message id names no place."""
        request.locate(topic, lambda answer: self._subscribe_at(request, topic, answer))

    def _subscribe_at(self, request: Request, topic: TopicName, answer: Answer) -> None:
        if answer.status == engine.FAILED:  # else it would begin at the end
            request.fail(SERVICE_NOT_READY, "The topic's worker is gone")
            return
        incarnation = position_of(answer.body).incarnation if answer.status == engine.OK else 0
        start = start_at(request.body.start_message_id, incarnation)
        if start.start == lib.START_LATEST and not request.body.durable:
            start = subscribe.initial(request.body)
        self._subscribe(request, topic, start)

    def _subscribe(self, request: Request, topic: TopicName, start: Start, *, may_look: bool = True) -> None:
        body, client = request.body, request.client
        if request.is_called_off():
            return
        if body.consumer_id in client.consumers:
            request.fail(SERVICE_NOT_READY, "Consumer is already present on the connection")
            return
        try:
            metadata, ranges = metadata_of(body, MAX_CONSUMER_METADATA), subscribe.own_ranges(body)
            properties = NO_METADATA if body.durable else properties_of(body)  # the catalog has those of durable ones
            kept_bytes = self._desk.room_for(metadata, properties, ranges)
        except PulsarError as error:
            request.fail(error.code, str(error))
            return
        name = topic.core.encode()
        shared = body.subType in (SHARED, KEY_SHARED)
        # The worker deals the keys of a Key_Shared subscription; for an Exclusive one the acceptor leaves some out.
        wanted = subscribe.packed_ranges(ranges) if body.subType == EXCLUSIVE else b""
        epoch, limits = body.HasField("consumer_epoch"), self._limits(topic, body.subscription)
        wish = packed(
            "consumer_wish", shared=shared, partition=topic.partition, epoch=body.consumer_epoch, has_epoch=epoch,
            most_unacked=min(limits.most_unacked, MAX_UNACKED), ranges=len(wanted) // ffi.sizeof("struct key_range"),
        )  # fmt: skip
        sought = self._desk.drop(client.sought, (topic.core, body.subscription))
        if isinstance(sought, Start) and not body.durable:
            start = sought
        number = self._desk.engine.call(client.conn, "add-consumer", body.consumer_id, wish + wanted + name)
        if number == 0:
            self._refuse_seeks(client, body.consumer_id)
            request.fail(NOT_ALLOWED, "Too many consumers or topics")
            return
        # Durable subscriptions of many topics often have one name, which is then kept once.
        subscription = intern(body.subscription) if body.durable else body.subscription
        consumer = Consumer(
            body.consumer_id, number, topic, subscription, body.subType, body.consumer_name, body.durable
        )
        consumer.compacted = body.read_compacted
        consumer.any_order = body.keySharedMeta.allowOutOfOrderDelivery
        consumer.metadata, consumer.properties, consumer.ranges = metadata, properties, ranges
        self._desk.keep(consumer, kept_bytes)
        consumer.takes_any = body.schema.type == TAKES_ANY
        client.consumers[consumer.id] = consumer
        asked = request.ask(
            lib.MSG_SUBSCRIBE, topic, lambda answer: self._subscribed(request, consumer, start, answer, may_look),
            topic=self._desk.engine.bind(name), pri=number,
            body=subscribe.wanted_of(body, topic, start, limits.most_unacked_of_all if shared else 0),
        )  # fmt: skip
        if not asked:
            self._drop(client, consumer)
            self._refuse_seeks(client, consumer.id)

    def _subscribed(self, request: Request, consumer: Consumer, start: Start, answer: Answer, may_look: bool) -> None:
        client = request.client
        if client.consumers.get(consumer.id) is not consumer:
            request.done()
            return
        ledger = answer.incarnation.to_bytes(8, "little")
        if answer.status == engine.OK and self._desk.engine.call(client.conn, "open-consumer", consumer.id, ledger):
            consumer.ledger, consumer.open = answer.incarnation, True
            self._desk.use(consumer.topic, 1)
            self._desk.take(consumer.topic, int(consumer.takes_any))
            self._limit(client, consumer)
            if consumer.durable:
                self._made(consumer.topic, consumer.subscription)
            request.succeed()
            if consumer.kind == FAILOVER:
                self._to_tell.append((time.monotonic_ns() + TELL_NS, client, consumer))
            self._look_for_end(client, consumer)
            for waiting in self._returning.take(client, consumer.id):
                self.seek(waiting)
            return
        self._drop(client, consumer)
        # The worker died, and has no consumers when it is back.
        if answer.status in (engine.OK, engine.FAILED) and request.may_try_again():
            self._subscribe(request, consumer.topic, start, may_look=may_look)
            return
        if may_look and answer.status == engine.FULL and self._may_be_gone(request, answer.id):
            self._liveness.look_at(
                answer.id >> 32, answer.id & 0xFFFFFFFF, lambda alive: self._looked(request, consumer, start, alive)
            )
            return
        self._refuse_seeks(client, consumer.id)
        request.fail(*subscribe.refusal(answer, consumer))

    def _may_be_gone(self, request: Request, there: int) -> bool:
        """Whether to look for a consumer that is in the way, by its acceptor and connection. The worker may name one
        more than once that is no client of ours: it has not heard yet that this has gone, or it is NSQ's."""
        own = self._liveness.is_here(there >> 32) and there & 0xFFFFFFFF == request.client.conn
        if there == 0 or own:
            return False
        was_gone, request.gone = request.gone == there, there
        return not was_gone or request.may_try_again()

    def _looked(self, request: Request, consumer: Consumer, start: Start, alive: bool) -> None:
        self._subscribe(request, consumer.topic, start, may_look=not alive)

    def _limit(self, client: Client, consumer: Consumer) -> None:
        rates = self._limits(consumer.topic, consumer.subscription).rates
        if rates != consumer.rates:
            consumer.rates = rates
            limits = b"".join(packed("pulsar_rate", **rate.fields()) for rate in rates)
            self._desk.engine.call(client.conn, "limit-consumer", consumer.id, limits)

    def policies_changed(self, namespace: str) -> None:
        for client in self._desk.clients.values():
            for consumer in client.consumers.values():
                if consumer.open and consumer.topic.namespace == namespace:
                    self._limit(client, consumer)

    def _look_for_end(self, client: Client, consumer: Consumer) -> None:
        def heard(answer: Answer) -> None:
            if answer.status == engine.OK and position_of(answer.body).terminated:
                self._ends(client, consumer)

        self._desk.ask(
            client, lib.MSG_POSITION, consumer.topic, heard,
            topic=self._desk.engine.bind(consumer.topic.core.encode()),
        )  # fmt: skip

    # --- time -------------------------------------------------------------------------------------------------------

    def wait_ns(self) -> int:
        return max(self._to_tell[0][0] - time.monotonic_ns(), 0) if self._to_tell else engine.FOREVER

    def expire(self) -> None:
        while self._to_tell and self._to_tell[0][0] <= time.monotonic_ns():
            _, client, consumer = self._to_tell.popleft()
            if client.consumers.get(consumer.id) is consumer:
                self._desk.engine.call(client.conn, "tell-consumer", consumer.id)

    # --- the end of one ---------------------------------------------------------------------------------------------

    def close(self, request: Request) -> None:
        client, consumer = request.client, request.client.consumers.get(request.body.consumer_id)
        client.call_off(CONSUMER, request.body.consumer_id)
        self._refuse_seeks(client, request.body.consumer_id)
        if consumer is None:
            request.succeed()
            return
        client.ending.begin(consumer.id)
        self._leave(request, consumer, lambda: self._ended(request, consumer))

    def _leave(self, request: Request, consumer: Consumer, then: Callable[[], None]) -> None:
        """Ends a consumer at its worker, and calls `then` when that has answered: nothing is delivered after that."""
        client = request.client
        if client.consumers.get(consumer.id) is consumer:
            del client.consumers[consumer.id]
        self._forget(consumer)

        def left(_answer: Answer) -> None:
            if consumer.id not in client.consumers:  # else its SUBSCRIBE is tried again
                self._desk.engine.call(client.conn, "drop-consumer", consumer.id)
            then()

        if not request.ask(lib.MSG_UNSUBSCRIBE, consumer.topic, left, pri=consumer.number):
            self._desk.engine.call(client.conn, "lose-consumer", consumer.id)
            self._desk.engine.call(client.conn, "drop-consumer", consumer.id)
            client.ending.over(consumer.id)

    @staticmethod
    def _ended(request: Request, consumer: Consumer, error: tuple[int, str] | None = None) -> None:
        """Answers what was to end a consumer."""
        if error is None:
            request.succeed()
        else:
            request.fail(*error)
        request.client.ending.over(consumer.id)

    def gone(self, client: Client, consumer_id: int, number: int) -> None:
        """The codec has ended a consumer and told its client."""
        consumer = client.consumers.get(consumer_id)
        if consumer is not None and consumer.number == number:
            del client.consumers[consumer_id]
            self._forget(consumer)
            self._refuse_seeks(client, consumer_id)

    def forget_some(self, client: Client, most: int) -> int:
        """Forgets consumers of a client that has left, `most` at most. Returns how many."""
        count = min(most, len(client.consumers))
        for _ in range(count):
            self._forget(client.consumers.popitem()[1])
        return count

    def _refuse_seeks(self, client: Client, consumer_id: int) -> None:
        for waiting in self._returning.take(client, consumer_id):
            waiting.fail(METADATA_ERROR, "Consumer not found")

    def _drop(self, client: Client, consumer: Consumer) -> None:
        client.consumers.pop(consumer.id, None)
        self._desk.engine.call(client.conn, "drop-consumer", consumer.id)
        self._forget(consumer)

    def _forget(self, consumer: Consumer) -> None:
        self._desk.let_go(consumer)
        if consumer.open:
            consumer.open = False
            self._desk.use(consumer.topic, -1)
            self._desk.take(consumer.topic, -int(consumer.takes_any))

    # --- about a subscription ---------------------------------------------------------------------------------------

    def unsubscribe(self, request: Request) -> None:
        consumer = request.client.consumers.get(request.body.consumer_id)
        if consumer is None:
            request.fail(METADATA_ERROR, "Consumer not found")
            return
        name = consumer.topic.core.encode()
        request.client.ending.begin(consumer.id)

        def counted(answer: Answer) -> None:
            if answer.status == engine.FAILED:  # how many others there are is not known
                self._ended(request, consumer, (SERVICE_NOT_READY, "The topic's worker is gone"))
                return
            there = _channel_in(answer.body, consumer.subscription) if answer.status == engine.OK else None
            others = there.consumers - 1 if there is not None else 0
            if others > 0 and not request.body.force:
                why = "Unconnected or shared consumer attempting to unsubscribe"
                self._ended(request, consumer, (METADATA_ERROR, why))
            else:
                self._leave(request, consumer, delete)

        def delete() -> None:
            if not consumer.durable:
                self._ended(request, consumer)
                return
            asked = request.ask(
                lib.MSG_CHANGE, consumer.topic, deleted, id=self._desk.engine.shard_of_name(name),
                pri=lib.CHANGE_DELETE, body=name + b"\n" + consumer.subscription.encode(),
            )  # fmt: skip
            if not asked:
                request.client.ending.over(consumer.id)

        def deleted(answer: Answer) -> None:
            is_gone = answer.status in (engine.OK, engine.NOT_FOUND, engine.NONE)
            self._ended(
                request, consumer, None if is_gone else (METADATA_ERROR, "The subscription could not be deleted")
            )

        if not request.ask(lib.MSG_CATALOG, consumer.topic, counted, body=name):
            request.client.ending.over(consumer.id)

    def seek(self, request: Request) -> None:
        body, client = request.body, request.client
        consumer = client.consumers.get(body.consumer_id)
        if consumer is not None and not consumer.open and self._returning.waits(request):
            return
        away = self._returning.consumer(client, body.consumer_id) if consumer is None else None
        consumer = consumer if consumer is not None and consumer.open else away
        waiting = client.seeking.get(body.consumer_id)
        if consumer is None or (waiting is not None and len(waiting) == MOST_SEEKS):
            request.fail(METADATA_ERROR, "Consumer not found")
        elif consumer.topic.domain == NON_PERSISTENT:
            request.succeed()  # as a real broker says, though there is nothing to go back to
        elif waiting is not None:
            waiting.append(request)
        elif body.HasField("message_id"):
            self._move(request, consumer, start_at(body.message_id, consumer.ledger))
        elif body.HasField("message_publish_time"):
            self._seek_time(request, consumer)
        else:
            request.fail(METADATA_ERROR, "Message id and message publish time were not present")

    def _seek_time(self, request: Request, consumer: Consumer) -> None:
        """Looks for the place. What is sought meanwhile waits."""
        client = request.client
        client.seeking[consumer.id] = []

        def found(start: Start | None) -> None:
            waiting = client.seeking.pop(consumer.id, [])
            if start is None:
                request.fail(METADATA_ERROR, "The subscription could not be moved")
            else:
                self._move(request, consumer, start)
            for each in waiting:
                self.seek(each)

        start_at_time(request, consumer.topic, request.body.message_publish_time, found)

    def _move(self, request: Request, consumer: Consumer, start: Start) -> None:
        # A reader that was moved subscribes again with its first start message id: it goes on where it was moved to.
        key = consumer.topic.core, consumer.subscription
        if not consumer.durable:
            self._desk.note(request.client, request.client.sought, key, start)
            if not consumer.open:  # its subscription has gone with it
                self._returning.left(request.client, consumer)
                request.succeed()
                return

        def sought(answer: Answer) -> None:
            died = answer.status == engine.FAILED
            if answer.status == engine.OK or (died and not consumer.durable):
                if request.client.consumers.get(consumer.id) in (None, consumer):
                    self._returning.left(request.client, consumer)
                request.succeed()
            elif died and request.may_try_again():
                ask()
            else:
                self._desk.drop(request.client.sought, key)
                request.fail(METADATA_ERROR, "The subscription could not be moved")

        def ask() -> None:
            self._ask_to_move(request, consumer.topic, consumer.subscription, start, sought)

        ask()

    def _ask_to_move(
        self, request: Request, topic: TopicName, subscription: str, start: Start, moved: Callable[[Answer], None]
    ) -> None:
        request.ask(
            lib.MSG_SEEK, topic, moved, topic=self._desk.engine.bind(topic.core.encode()), pri=start.start,
            ttr_ns=start.at, flags=lib.MSG_DISMISS, body=subscription.encode(),
        )  # fmt: skip

    def acknowledge_ahead(self, request: Request) -> None:
        """A cumulative ACK of an entry that was not delivered to the consumer. Perhaps its client has kept the id.
        If the topic has that entry, none up to it comes any more.
        """
        consumer = request.client.consumers.get(request.body.consumer_id)
        if consumer is None or not consumer.open:
            request.done()
            return
        named = request.body.message_id
        if len(named) > MAX_IDS:
            _say_acknowledged(request, NOT_ALLOWED, TOO_MUCH_AT_ONCE)
            return
        ids = [one for one in named if one.ledgerId == consumer.ledger and one.entryId < NO_ENTRY >> 1]
        if not ids or consumer.topic.domain == NON_PERSISTENT:
            _say_acknowledged(request)
            return
        last = max(ids, key=lambda one: int(one.entryId))
        until = last.entryId + (not any(last.ack_set))

        def moved(answer: Answer) -> None:
            if answer.status == engine.OK:
                _say_acknowledged(request)
            else:
                _say_acknowledged(request, SERVICE_NOT_READY, NOT_NOTED)

        def located(answer: Answer) -> None:
            if answer.status != engine.OK:
                _say_acknowledged(request, SERVICE_NOT_READY, NOT_NOTED)
            elif last.entryId > last_entry(position_of(answer.body)):
                _say_acknowledged(request)
            else:
                request.ask(
                    lib.MSG_SEEK, consumer.topic, moved,
                    topic=self._desk.engine.bind(consumer.topic.core.encode()), pri=lib.START_SEQ, ttr_ns=until,
                    flags=lib.MSG_UPTO, body=consumer.subscription.encode(),
                )  # fmt: skip

        request.locate(consumer.topic, located, consumer.subscription)

    def last_message_id(self, request: Request) -> None:
        consumer = request.client.consumers.get(request.body.consumer_id)
        if consumer is None or not consumer.open:
            request.fail(METADATA_ERROR, "Consumer not found")
            return
        if consumer.topic.domain == NON_PERSISTENT:
            request.fail(NOT_ALLOWED, "GetLastMessageId on a non-persistent topic is not allowed")
            return

        def heard(answer: Answer) -> None:
            if answer.status != engine.OK:
                request.fail(METADATA_ERROR, "The topic's end is not known")
                return
            where = position_of(answer.body)
            partition = consumer.topic.partition
            ledger, last = where.incarnation, where.last_seq
            tag, parts, empty = where.last_tag, where.last_parts, last == NO_ENTRY
            if consumer.compacted and where.compacted_until > last:
                last, tag, parts = where.compacted_last, where.compacted_tag, where.compacted_parts
                empty |= last == NO_ENTRY
            if empty:
                found = {"ledgerId": NO_ENTRY, "entryId": NO_ENTRY, "partition": partition, "batch_index": -1}
            else:
                batch = parts - 1 if tag == lib.HEADERS_PULSAR and parts else -1
                found = {"ledgerId": ledger, "entryId": last, "partition": partition, "batch_index": batch}
            done = {"ledgerId": ledger, "entryId": (where.unfinished - 1) % (1 << 64)}
            if where.unfinished <= where.began_seq:
                done["entryId"] = NO_ENTRY
            request.reply("getLastMessageIdResponse", last_message_id=found, consumer_mark_delete_position=done)

        request.locate(consumer.topic, heard, consumer.subscription)


def _channel_in(catalog: bytes, subscription: str) -> Any:  # noqa: ANN401
    """The struct channel_figures of a subscription in the CATALOG of its topic; None: it is not there."""
    topic, channel = ffi.new("struct topic_figures *"), ffi.new("struct channel_figures *")
    if len(catalog) < ffi.sizeof(topic[0]):
        return None
    ffi.memmove(topic, catalog, ffi.sizeof(topic[0]))
    at = ffi.sizeof(topic[0]) + topic.name_bytes
    for _ in range(topic.channels):
        ffi.memmove(channel, catalog[at : at + ffi.sizeof(channel[0])], ffi.sizeof(channel[0]))
        at += ffi.sizeof(channel[0])
        if catalog[at : at + channel.name_bytes] == subscription.encode():
            return channel
        at += channel.name_bytes
    return None


def _say_acknowledged(request: Request, error: int | None = None, why: str | None = None) -> None:
    if not request.body.HasField("request_id"):
        request.done()
        return
    request.reply("ackResponse", consumer_id=request.body.consumer_id, error=error, message=why)
