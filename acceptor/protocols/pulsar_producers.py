"""PRODUCER and CLOSE_PRODUCER: who may publish to a topic, under which name, and whether beside others."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final

from mq_shards.acceptor import engine
from mq_shards.acceptor.engine import Answer
from mq_shards.acceptor.protocol import Broker
from mq_shards.acceptor.protocols.pulsar_clients import (
    NOT_ALLOWED,
    PRODUCER_BUSY,
    PRODUCER_FENCED,
    SERVICE_NOT_READY,
    TOPIC_TERMINATED,
    Client,
    Desk,
    Producer,
    PulsarError,
    Request,
)
from mq_shards.acceptor.protocols.pulsar_liveness import Liveness
from mq_shards.acceptor.protocols.pulsar_names import TopicName
from mq_shards.acceptor.protocols.pulsar_position import position_of
from mq_shards.csrc._core import lib

SHARED: Final = 0
EXCLUSIVE: Final = 1
WAIT_FOR_EXCLUSIVE: Final = 2
EXCLUSIVE_WITH_FENCING: Final = 3


@dataclass(slots=True, eq=False)
class Holder:
    client: Client
    producer: Producer


@dataclass(slots=True, eq=False)
class Topic:
    """The producers of a topic."""

    by_name: dict[str, Holder] = field(default_factory=dict)
    exclusive: Holder | None = None
    waiting: deque[tuple[Request, Holder]] = field(default_factory=deque)
    epoch: int = -1


class Producers:
    def __init__(self, desk: Desk, broker: Broker, liveness: Liveness) -> None:
        self._desk = desk
        self._liveness = liveness
        self._prefix = f"standalone-{broker.instance[:8]}-{broker.acceptor}"
        self._made = 0
        self._topics: dict[str, Topic] = {}

    # --- PRODUCER ---------------------------------------------------------------------------------------------------

    def open(self, request: Request, topic: TopicName, schema_version: bytes = b"") -> None:
        body, client = request.body, request.client
        there = client.producers.get(body.producer_id)
        if there is not None:
            if there.ready:
                self._say_ready(request, there)
            else:
                request.fail(SERVICE_NOT_READY, "Producer is already present on the connection")
            return
        name = body.producer_name or self._new_name()
        producer = Producer(body.producer_id, name, topic, body.producer_access_mode, body.epoch)
        producer.schema_version = schema_version
        holder = Holder(client, producer)
        self._admit(request, holder, may_look=True)

    def _new_name(self) -> str:
        self._made += 1
        return f"{self._prefix}-{self._made}"

    def _admit(self, request: Request, holder: Holder, *, may_look: bool) -> None:
        """Now, or once it is known whether those in its way are alive."""
        producer = holder.producer
        place = self._topics.setdefault(producer.topic.core, Topic())
        try:
            self._check(request, place, holder)
        except PulsarError as error:
            in_the_way = self._in_the_way(place, holder)
            if may_look and in_the_way is not None and in_the_way.client is not holder.client:
                self._liveness.look(
                    in_the_way.client.conn, lambda alive: self._admit(request, holder, may_look=not alive)
                )
                return
            self._forget_if_idle(producer.topic.core)
            request.fail(error.code, str(error))
            return
        if producer.mode == WAIT_FOR_EXCLUSIVE and (place.exclusive is not None or place.by_name):
            place.waiting.append((request, holder))
            self._add(holder)
            place.by_name.setdefault(producer.name, holder)
            self._desk.say(
                holder.client, "producer_success", request_id=request.body.request_id, producer_name=producer.name,
                last_sequence_id=-1, schema_version=b"", producer_ready=False,
            )  # fmt: skip
            request.done()
            return
        self._enter(place, holder)
        self._make(request, holder)

    def _in_the_way(self, place: Topic, holder: Holder) -> Holder | None:
        return place.by_name.get(holder.producer.name) or place.exclusive

    def _check(self, request: Request, place: Topic, holder: Holder) -> None:
        """Raises PulsarError."""
        producer = holder.producer
        same = place.by_name.get(producer.name)
        if same is not None and not self._replaces(holder, same):
            raise PulsarError(PRODUCER_BUSY, f"Producer with name '{producer.name}' is already connected to topic")
        if same is not None:
            self._throw_out(same)
        if producer.mode == SHARED and (place.exclusive is not None or place.waiting):
            raise PulsarError(PRODUCER_BUSY, "Topic has an existing exclusive producer: " + _name_of(place.exclusive))
        if producer.mode == EXCLUSIVE:
            if place.exclusive is not None or place.waiting:
                raise PulsarError(PRODUCER_FENCED, "Topic has an existing exclusive producer")
            if place.by_name:
                raise PulsarError(PRODUCER_FENCED, "Topic has existing shared producers")
        wanted = request.body
        if producer.mode != SHARED and wanted.HasField("topic_epoch") and wanted.topic_epoch < place.epoch:
            raise PulsarError(PRODUCER_FENCED, f"Topic epoch is {place.epoch}, not {wanted.topic_epoch}")

    def _replaces(self, holder: Holder, same: Holder) -> bool:
        """The same client, back with a higher epoch."""
        same_connection = same.client is holder.client
        return same_connection and holder.producer.epoch > same.producer.epoch

    def _enter(self, place: Topic, holder: Holder) -> None:
        producer = holder.producer
        if producer.mode == EXCLUSIVE_WITH_FENCING:
            for other in list(place.by_name.values()):
                self._throw_out(other)
            place.waiting.clear()
        if producer.mode != SHARED:
            place.exclusive = holder
            place.epoch += 1
            producer.topic_epoch = place.epoch
        place.by_name[producer.name] = holder
        self._add(holder)

    def _add(self, holder: Holder) -> None:
        if holder.client.producers.get(holder.producer.id) is not holder.producer:
            holder.client.producers[holder.producer.id] = holder.producer
            self._desk.use(holder.producer.topic, 1)

    def _throw_out(self, holder: Holder) -> None:
        """Silently: its next SEND closes its connection."""
        self._leave(holder.client, holder.producer)
        self._desk.engine.call(holder.client.conn, "close-producer", holder.producer.id)

    def _make(self, request: Request, holder: Holder) -> None:
        """The topic is there from then on, if it was not."""
        topic = holder.producer.topic
        number = self._desk.engine.bind(topic.core.encode())
        asked = request.ask(
            lib.MSG_POSITION, topic, lambda answer: self._located(request, holder, answer), topic=number
        )
        if not asked:
            self._leave(holder.client, holder.producer)

    def _located(self, request: Request, holder: Holder, answer: Answer) -> None:
        where = position_of(answer.body) if answer.status == engine.OK else None
        if where is not None and where.terminated:
            self._leave(holder.client, holder.producer)
            request.fail(TOPIC_TERMINATED, "Topic was already terminated")
        elif where is not None and where.incarnation:
            self._made_topic(request, holder, answer)
        else:
            self._make_topic(request, holder)

    def _make_topic(self, request: Request, holder: Holder) -> None:
        name = holder.producer.topic.core.encode()
        shard = self._desk.engine.shard_of_name(name)
        asked = request.ask(
            lib.MSG_CHANGE, holder.producer.topic, lambda answer: self._made_topic(request, holder, answer),
            id=shard, pri=lib.CHANGE_RETAIN, body=name,
        )  # fmt: skip
        if not asked:
            self._leave(holder.client, holder.producer)

    def _made_topic(self, request: Request, holder: Holder, answer: Answer) -> None:
        client, producer = holder.client, holder.producer
        if client.producers.get(producer.id) is not producer:
            request.done()  # closed meanwhile
        elif answer.status != engine.OK:
            self._leave(client, producer)
            request.fail(SERVICE_NOT_READY, "The topic could not be made")
        elif not self._desk.engine.call(client.conn, "add-producer", producer.id, producer.topic.core.encode()):
            self._leave(client, producer)
            request.fail(NOT_ALLOWED, "Too many producers or topics")
        else:
            producer.ready = True
            self._say_ready(request, producer)

    def _say_ready(self, request: Request, producer: Producer) -> None:
        request.reply(
            "producer_success", producer_name=producer.name, last_sequence_id=-1,
            schema_version=producer.schema_version, producer_ready=True, topic_epoch=producer.topic_epoch,
        )  # fmt: skip

    # --- the end of one ---------------------------------------------------------------------------------------------

    def close(self, request: Request) -> None:
        """Answered when all receipts have been: see `gone`."""
        client, producer_id = request.client, request.body.producer_id
        producer = client.producers.get(producer_id)
        if producer is not None:
            self._leave(client, producer)
        if self._desk.engine.call(client.conn, "close-producer", producer_id):
            client.closing.setdefault(producer_id, []).append(request)
        else:
            request.succeed()

    def gone(self, client: Client, producer_id: int) -> None:
        """The codec has done with it: at its client's wish, or because its worker is gone and the client knows."""
        producer = client.producers.get(producer_id)
        if producer is not None:
            self._leave(client, producer)
        for request in client.closing.pop(producer_id, ()):
            request.succeed()

    def client_gone(self, client: Client) -> None:
        for producer in list(client.producers.values()):
            self._leave(client, producer)

    def _leave(self, client: Client, producer: Producer) -> None:
        if client.producers.pop(producer.id, None) is not None:
            self._desk.use(producer.topic, -1)
        place = self._topics.get(producer.topic.core)
        if place is None:
            return
        held = place.by_name.get(producer.name)
        if held is not None and held.producer is producer:
            del place.by_name[producer.name]
        if place.exclusive is not None and place.exclusive.producer is producer:
            place.exclusive = None
        place.waiting = deque(pair for pair in place.waiting if pair[1].producer is not producer)
        self._next_waiting(place)
        self._forget_if_idle(producer.topic.core)

    def _next_waiting(self, place: Topic) -> None:
        if not place.waiting or place.exclusive is not None:
            return
        waiting = {id(holder) for _, holder in place.waiting}
        if any(id(holder) not in waiting for holder in place.by_name.values()):
            return
        request, holder = place.waiting.popleft()
        self._enter(place, holder)
        self._make(request, holder)

    def _forget_if_idle(self, core: str) -> None:
        place = self._topics.get(core)
        # An epoch is remembered as long as the process lives: who comes back with an older one is fenced.
        if place is not None and not place.by_name and not place.waiting and place.epoch < 0:
            del self._topics[core]


def _name_of(holder: Holder | None) -> str:
    return "" if holder is None else holder.producer.name
