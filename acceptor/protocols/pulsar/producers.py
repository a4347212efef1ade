"""PRODUCER and CLOSE_PRODUCER: who may publish to a topic, under which name, and whether together with others. The
topic's worker decides (MSG_ATTACH, csrc/shards/attach.c), so its decisions hold for all acceptors."""

from __future__ import annotations

import base64
import itertools
import os
from collections.abc import Callable
from typing import Final

from mq_shards.acceptor import engine
from mq_shards.acceptor.engine import Answer
from mq_shards.acceptor.protocol import Broker
from mq_shards.acceptor.protocols.pulsar.clients import (
    MAX_PRODUCER_METADATA,
    NOT_ALLOWED,
    PRODUCER,
    PRODUCER_BUSY,
    PRODUCER_FENCED,
    SERVICE_NOT_READY,
    TOPIC_TERMINATED,
    Client,
    Desk,
    Producer,
    PulsarError,
    Request,
    Terms,
    metadata_of,
)
from mq_shards.acceptor.protocols.pulsar.liveness import Liveness
from mq_shards.acceptor.protocols.pulsar.names import TopicName
from mq_shards.csrc._core import lib
from mq_shards.csrc.structs import packed

# ProducerAccessMode; enum access has the same numbers.
SHARED: Final = 0
EXCLUSIVE: Final = 1

# Texts of a real broker's errors begin with an exception's name, which clients see.
_EXCEPTION: Final = "org.apache.pulsar.broker.service.BrokerServiceException$"

TermsOf = Callable[[TopicName], Terms]


class Producers:
    def __init__(self, desk: Desk, broker: Broker, liveness: Liveness, terms: TermsOf) -> None:
        """`terms` returns those of a topic."""
        self._desk = desk
        self._liveness = liveness
        self._terms = terms
        # Unique to this process: deduplication knows names for hours, so no generated name may be used twice.
        # And short, since each message has it: clients reckon with metadata of 32 bytes when they fill it.
        self._prefix = f"mq{broker.acceptor}-{base64.b64encode(os.urandom(8), altchars=b'._').decode().rstrip('=')}"
        self._made = 0
        self._waiting: dict[Producer, tuple[Request, Answer]] = {}

    # --- PRODUCER ---------------------------------------------------------------------------------------------------

    def open(self, request: Request, topic: TopicName, schema_version: bytes = b"") -> None:
        body, client = request.body, request.client
        if request.is_called_off():
            return
        there = client.producers.get(body.producer_id)
        if there is not None:
            if there.ready:
                self._say_ready(request, there)  # as at a real broker, without its last sequence id and epoch
            else:
                request.fail(SERVICE_NOT_READY, "Producer is already present on the connection")
            return
        try:
            metadata = metadata_of(body, MAX_PRODUCER_METADATA)
            kept_bytes = self._desk.room_for(metadata)
        except PulsarError as error:
            request.fail(error.code, str(error))
            return
        name = body.producer_name or self._new_name()
        if len(name.encode()) > lib.ATTACH_NAME_MAX:
            request.fail(NOT_ALLOWED, f"The name of a producer has {lib.ATTACH_NAME_MAX} bytes at most")
            return
        core = topic.core.encode()
        number = self._desk.engine.call(client.conn, "add-producer", body.producer_id, core)
        if number == 0:
            request.fail(NOT_ALLOWED, "Too many producers or topics")
            return
        producer = Producer(body.producer_id, name, topic, body.producer_access_mode, number)
        producer.schema_version = schema_version
        producer.metadata = metadata
        client.producers[producer.id] = producer
        self._desk.keep(producer, kept_bytes)
        self._desk.use(topic, 1)
        self._attach(request, producer, may_look=True)

    def _new_name(self) -> str:
        self._made += 1
        return f"{self._prefix}-{self._made}"

    def _attach(self, request: Request, producer: Producer, *, may_look: bool) -> None:
        """`may_look`: if another producer is in the way, check that it is alive before this one is refused."""
        body = request.body
        if request.client.producers.get(producer.id) is not producer:
            request.done()  # closed meanwhile
            return
        least = body.topic_epoch if body.HasField("topic_epoch") else lib.NO_PLACE
        asked = request.ask(
            lib.MSG_ATTACH, producer.topic, lambda answer: self._attached(request, producer, answer, may_look),
            topic=self._desk.engine.bind(producer.topic.core.encode()), pri=producer.number,
            body=packed("attach", access=producer.mode, least=least) + producer.name.encode(),
        )  # fmt: skip
        if not asked:
            self._drop(request.client, producer)

    def _attached(self, request: Request, producer: Producer, answer: Answer, may_look: bool) -> None:
        client = request.client
        if client.producers.get(producer.id) is not producer:
            request.done()
        elif answer.status == engine.OK:
            self._ready(request, producer, answer, answer.pri)
        elif answer.status == engine.NONE:
            self._wait(request, producer, answer)
        elif answer.status == engine.FULL:
            self._refused(request, producer, answer, may_look)
        elif answer.status == engine.FAILED:
            self._again(request, producer)
        else:
            self._drop(client, producer)
            if answer.status == lib.STATUS_TERMINATED:
                why = f"{_EXCEPTION}TopicTerminatedException: Topic was already terminated"
                request.fail(TOPIC_TERMINATED, why)
            elif answer.status == engine.TOO_MANY:
                request.fail(NOT_ALLOWED, "There are as many topics as there may be")
            else:
                request.fail(SERVICE_NOT_READY, "The topic could not be made")

    def _ready(self, request: Request, producer: Producer, attached: Answer, epoch: int) -> None:
        """Python does not keep what the worker has said (`attached`): there are very many producers."""
        terms = producer.terms = self._terms(producer.topic)
        place = packed("producer_place", key=attached.id, arrival=attached.incarnation)
        if not self._desk.engine.call(request.client.conn, "open-producer", producer.id, place + _packed(terms)):
            self._gone_again(request, producer)
            return
        producer.ready = True
        known = terms.deduplicates and attached.seq != lib.NO_PLACE
        topic_epoch = epoch if producer.mode != SHARED else None
        self._say_ready(request, producer, attached.seq if known else -1, topic_epoch)

    def _gone_again(self, request: Request, producer: Producer) -> None:
        """The worker has died since the codec added the producer. The next worker may have attached it: try anew."""
        self._desk.ask(request.client, lib.MSG_DETACH, producer.topic, lambda _answer: None, pri=producer.number)
        self._again(request, producer)

    def _again(self, request: Request, producer: Producer) -> None:
        self._drop(request.client, producer)
        if request.answered:
            return  # the client was told to wait, and then that its producer is closed
        if request.may_try_again():
            self.open(request, producer.topic, producer.schema_version)
        else:
            request.fail(SERVICE_NOT_READY, "The topic's worker is gone")

    @staticmethod
    def _say_ready(request: Request, producer: Producer, last: int = -1, topic_epoch: int | None = None) -> None:
        request.reply(
            "producer_success", producer_name=producer.name, last_sequence_id=last,
            schema_version=producer.schema_version, producer_ready=True, topic_epoch=topic_epoch,
        )  # fmt: skip

    def _refused(self, request: Request, producer: Producer, answer: Answer, may_look: bool) -> None:
        acceptor, conn = answer.id >> 32, answer.id & 0xFFFFFFFF
        outdated = answer.pri == lib.ATTACH_OUTDATED
        own = self._liveness.is_here(acceptor) and conn == request.client.conn
        if may_look and not own and not outdated:
            # The other client may be gone without the worker having noticed yet.
            self._liveness.look_at(
                acceptor, conn, lambda alive: self._attach(request, producer, may_look=not alive)
            )  # fmt: skip
            return
        self._refuse(request, producer, answer)

    def _refuse(self, request: Request, producer: Producer, answer: Answer) -> None:
        if request.client.producers.get(producer.id) is not producer:
            request.done()
            return
        self._drop(request.client, producer)
        why, there = answer.pri, f"Topic has an existing exclusive producer: {answer.body.decode(errors='replace')}"
        if why == lib.ATTACH_NAME_TAKEN:
            taken = f"Producer with name '{producer.name}' is already connected to topic '{producer.topic}'"
            request.fail(PRODUCER_BUSY, f"{_EXCEPTION}NamingException: {taken}")
        elif why == lib.ATTACH_OUTDATED:
            epochs = f"Current epoch: {answer.seq}, Producer epoch: {request.body.topic_epoch}"
            self._fail(request, PRODUCER_FENCED, f"Topic epoch has already moved. {epochs}")
        elif producer.mode == SHARED:
            self._fail(request, PRODUCER_BUSY, there)
        elif why == lib.ATTACH_EXCLUDED:
            self._fail(request, PRODUCER_FENCED, there)
        else:
            self._fail(request, PRODUCER_FENCED, "Topic has existing shared producers")

    @staticmethod
    def _fail(request: Request, code: int, text: str) -> None:
        """Fails in the words of a real broker."""
        kind = "ProducerBusyException" if code == PRODUCER_BUSY else "ProducerFencedException"
        request.fail(code, f"{_EXCEPTION}{kind}: {text}")

    def _wait(self, request: Request, producer: Producer, attached: Answer) -> None:
        client = request.client
        if not self._desk.engine.call(client.conn, "wait-producer", producer.id):
            self._gone_again(request, producer)
            return
        self._waiting[producer] = request, attached
        self._desk.say(
            client, "producer_success", request_id=request.body.request_id, producer_name=producer.name,
            last_sequence_id=-1, schema_version=b"", producer_ready=False,
        )  # fmt: skip
        request.done()

    def attached(self, client: Client, producer_id: int, epoch: int) -> None:
        """A producer that waited is the exclusive one now."""
        producer = client.producers.get(producer_id)
        waiting = self._waiting.pop(producer, None) if producer is not None else None
        if producer is not None and waiting is not None:
            self._ready(waiting[0], producer, waiting[1], epoch)

    def policies_changed(self, namespace: str) -> None:
        for client in self._desk.clients.values():
            for producer in client.producers.values():
                concerned = producer.ready and producer.topic.namespace == namespace
                if concerned and producer.terms != (terms := self._terms(producer.topic)):
                    producer.terms = terms
                    self._desk.engine.call(client.conn, "limit-producer", producer.id, _packed(terms))

    # --- the end of one ---------------------------------------------------------------------------------------------

    def close(self, request: Request) -> None:
        """Answers when all receipts have been sent and the name is free: see `gone`."""
        client, producer_id = request.client, request.body.producer_id
        client.call_off(PRODUCER, producer_id)
        if self._desk.engine.call(client.conn, "close-producer", producer_id):
            client.closing.setdefault(producer_id, []).append(request)
        else:
            request.succeed()

    def gone(self, client: Client, producer_id: int, number: int) -> None:
        """The codec has ended a producer: its client has closed it, another has fenced it off, or its topic was closed
        or its worker has died, and the client has been told."""
        producer = client.producers.get(producer_id)
        closing = client.closing.pop(producer_id, [])

        def detached(_answer: Answer | None = None) -> None:
            for request in closing:
                request.succeed()

        if producer is None or producer.number != number:
            detached()
            return
        waiting = self._forget(client, producer)
        if waiting is not None and not closing:
            self._fail(waiting, PRODUCER_FENCED, "Fenced out")
        asked = self._desk.ask(client, lib.MSG_DETACH, producer.topic, detached, pri=producer.number)
        if not asked:
            detached()

    def put_off(self, client: Client, producer_id: int, number: int) -> None:
        """The codec has ended one that waited for others to leave: its topic was closed, or its worker has died. Its
        client is told to ask again."""
        producer = client.producers.get(producer_id)
        waiting = producer is not None and producer.number == number and self._forget(client, producer)
        if producer is None or not waiting:
            return
        waiting.fail(SERVICE_NOT_READY, f"{_EXCEPTION}TopicFencedException: Topic is temporarily unavailable")
        self._desk.ask(client, lib.MSG_DETACH, producer.topic, lambda _answer: None, pri=producer.number)

    def forget_some(self, client: Client, most: int) -> int:
        """Forgets producers of a client that has left, `most` at most. Returns how many."""
        some = list(itertools.islice(client.producers.values(), most))
        for producer in some:
            self._forget(client, producer)
        return len(some)

    def _drop(self, client: Client, producer: Producer) -> None:
        """Removes a producer that was never ready."""
        if client.producers.get(producer.id) is producer:
            self._desk.engine.call(client.conn, "drop-producer", producer.id)
            self._forget(client, producer)

    def _forget(self, client: Client, producer: Producer) -> Request | None:
        """Returns the request that waited for the producer, if there is one."""
        if client.producers.pop(producer.id, None) is not None:
            self._desk.let_go(producer)
            self._desk.use(producer.topic, -1)
        request, _ = self._waiting.pop(producer, (None, None))
        return request


def _packed(terms: Terms) -> bytes:
    return packed(
        "producer_terms", max_delay_ms=terms.max_delay_ms, deduplicates=terms.deduplicates, delays=terms.delays,
        max_message_bytes=terms.max_message_bytes, rate=terms.rates[0].fields(), group=terms.rates[1].fields(),
        broker=terms.rates[2].fields(),
    )  # fmt: skip
