"""Pulsar's rare commands: CONNECT and authentication, lookups, and commands that come once per producer or consumer.

pulsar.c, the C half, handles the commands that come with each message. It hands the others to Python, and tells it of
events (pulsar_upcalls.h). A connection's next commands are parsed meanwhile, once it is connected. It also asks for
messages to be decompressed for clients of other protocols (opening.h).

Commands are accepted and answered as by a standalone Pulsar broker 4.0.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable
from typing import Final

from mq_shards.acceptor.engine import FOREVER, Answer, Engine, protocol_number
from mq_shards.acceptor.protocol import Broker, Settings
from mq_shards.acceptor.protocols.pulsar import credentials as pulsar_credentials
from mq_shards.acceptor.protocols.pulsar import subscribe
from mq_shards.acceptor.protocols.pulsar.answers import Answers
from mq_shards.acceptor.protocols.pulsar.auth import NOBODY, Authentication
from mq_shards.acceptor.protocols.pulsar.catalog import Catalog
from mq_shards.acceptor.protocols.pulsar.clients import (
    CONSUMER,
    INVALID_TOPIC_NAME,
    MAX_VERSION,
    NO_TERMS,
    NOT_ALLOWED,
    PRODUCER,
    Client,
    Desk,
    PulsarError,
    Request,
    Terms,
    names_a_key_twice,
)
from mq_shards.acceptor.protocols.pulsar.consumers import Consumers, Limits
from mq_shards.acceptor.protocols.pulsar.liveness import Liveness
from mq_shards.acceptor.protocols.pulsar.messages import decode
from mq_shards.acceptor.protocols.pulsar.names import (
    NON_PERSISTENT,
    PulsarNameError,
    TopicName,
    check_subscription,
    topic_name,
)
from mq_shards.acceptor.protocols.pulsar.permissions import Permissions
from mq_shards.acceptor.protocols.pulsar.producers import Producers
from mq_shards.acceptor.protocols.pulsar.pulsar import Pulsar
from mq_shards.acceptor.protocols.pulsar.rates import rates_of_consumers, rates_of_producers
from mq_shards.acceptor.protocols.pulsar.tls import context_of
from mq_shards.acceptor.protocols.pulsar.topics import Topics
from mq_shards.acceptor.protocols.pulsar.transactions import Transactions
from mq_shards.acceptor.upgrade import Upgrades
from mq_shards.csrc._core import ffi, lib
from mq_shards.csrc.decompression import decompress
from mq_shards.csrc.structs import struct_in

# The release that clients are told, and its version of the protocol.
SERVER_VERSION: Final = "Pulsar Server 4.0.7 (mq-shards)"
PROTOCOL_VERSION: Final = 21
# Producers and consumers of disconnected clients: 2 ms.
_FORGOTTEN_AT_ONCE: Final = 512

log = logging.getLogger(__name__)


class PulsarServing(Pulsar):
    def __init__(self, engine: Engine, settings: Settings, broker: Broker) -> None:
        super().__init__(engine, settings, broker)
        self._number = protocol_number(self.name)
        self._desk = Desk(engine)
        self._liveness = Liveness(engine, self._desk.clients, broker.acceptor, broker.calls)
        self._catalog = Catalog(broker.calls, self._count_refused, lambda: self._desk.used)
        self._producers = Producers(self._desk, broker, self._liveness, self._terms)
        self._catalog.on_policies.append(self._producers.policies_changed)
        self._upgrades = Upgrades(engine, self._shaken, self._handshake_failed)
        self._context = context_of(settings)
        self._authentication = Authentication(
            self._desk, settings, SERVER_VERSION, self.certificate_names, lambda: self.access, self.refuse_login
        )
        self._answers = Answers(self._desk, broker.calls)
        self._consumers = Consumers(self._desk, self._liveness, self._answers.ends, self._limits, self._made)
        self._catalog.on_policies.append(self._consumers.policies_changed)
        self._topics = Topics(self._desk, self._catalog, broker.calls, self._url, authorizes=self._authorizes)
        self._transactions = Transactions(self._desk, self._catalog)
        self._permissions = Permissions(self._desk, self._catalog, broker.calls, authorizes=self._authorizes)
        self._address = ("localhost", self.port)
        self._leaving: deque[Client] = deque()  # disconnected, with producers or consumers not forgotten yet
        engine.set("pulsar.max-message-size", settings["max-message-size"])
        engine.set("pulsar.keep-alive-ns", settings["keep-alive"])
        self._of_clients: dict[int, Callable[[Client, int, int], None]] = {
            lib.PULSAR_PRODUCER_ATTACHED: self._producers.attached,
            lib.PULSAR_PRODUCER_WAITS_NO_MORE: self._producers.put_off,
            lib.PULSAR_PRODUCER_GONE: self._producers.gone,
            lib.PULSAR_CONSUMER_GONE: self._consumers.gone,
        }
        self._commands: dict[str, Callable[[Request], None]] = {
            "connect": self._connect,
            "authResponse": self._auth_response,
            "lookupTopic": self._about_topic(self._topics.look_up),
            "partitionMetadata": self._about_topic(self._topics.partitions),
            "producer": self._about_topic(self._producer),
            "subscribe": self._about_topic(self._subscribe),
            "close_producer": self._producers.close,
            "close_consumer": self._consumers.close,
            "unsubscribe": self._consumers.unsubscribe,
            "seek": self._consumers.seek,
            "consumerStats": self._answers.stats,
            "getLastMessageId": self._consumers.last_message_id,
            "getTopicsOfNamespace": self._topics.of_namespace,
            "tcClientConnectRequest": self._transactions.connect,
            "newTxn": self._transactions.begin,
            "addPartitionToTxn": self._transactions.add_partitions,
            "addSubscriptionToTxn": self._transactions.add_subscriptions,
            "endTxn": self._transactions.end,
            "ack": self._acknowledge,
            "watchTopicList": self._topics.watch,
            "watchTopicListClose": self._topics.unwatch,
            "getSchema": self._about_topic(self._topics.get_schema),
            "getOrCreateSchema": self._about_topic(self._topics.put_schema),
        }

    def _acknowledge(self, request: Request) -> None:
        """What C leaves to Python."""
        body = request.body
        in_txn = body.HasField("txnid_least_bits") and body.HasField("txnid_most_bits")
        (self._transactions.acknowledge if in_txn else self._consumers.acknowledge_ahead)(request)

    def listening(self, host: str, port: int) -> None:
        self._address = (host, port)

    def reload(self, settings: Settings) -> None:
        """Reads certificates, keys that verify tokens, and passwords from their files again. Connected clients stay
        connected. Raises ValueError with nothing changed."""
        context, credentials = context_of(settings), pulsar_credentials.Credentials.of(settings)
        self._context = context
        self._authentication.learn(credentials)

    # --- what the engine says ---------------------------------------------------------------------------------------

    def command(self, conn: int, command: bytes) -> None:
        client = self._desk.clients.get(conn)
        what = command[0]
        if what == lib.PULSAR_DO:
            if client is None:
                client = self._desk.clients[conn] = Client(conn)
            self._do(client, command[1:])
        elif what == lib.PACKED_ASKS:
            self._open(command[1:])
        elif what == lib.PULSAR_TLS:
            self._begin_tls(conn)
        elif what == lib.PULSAR_ALIVE:
            self._liveness.alive(conn)
        elif client is not None:
            told = struct_in("pulsar_told", command, 1)
            self._of_clients[what](client, told.id, told.number)

    def _terms(self, topic: TopicName) -> Terms:
        policies = self._catalog.policies(topic)
        there = policies.get("deduplication")
        deduplicates = bool(self._settings["deduplication"] if there is None else there)
        rates = rates_of_producers(topic, policies)
        terms = Terms(
            deduplicates, policies.get("delayed_delivery", True), policies.get("max_delay_ms", 0),
            policies.get("max_message_bytes", 0), rates,
        )  # fmt: skip
        return NO_TERMS if terms == NO_TERMS else terms

    def _made(self, topic: TopicName, subscription: str) -> None:
        """Tells the gateway that the subscription exists for which it kept a place, if their number is limited."""
        if self._catalog.policies(topic).get("max_subscriptions"):
            self._catalog.ask("made", lambda _found: None, again=False, topic=str(topic), subscription=subscription)

    def _limits(self, topic: TopicName, subscription: str) -> Limits:
        policies = self._catalog.policies(topic)
        often, within_s = policies.get("subscribe_rate") or (0, 0)
        return Limits(
            max(0, int(policies.get("max_unacked_per_consumer", 0))),
            max(0, int(policies.get("max_unacked_per_subscription", 0))),
            rates_of_consumers(topic, subscription, policies),
            int(often),
            int(within_s),
        )

    def _open(self, asked: bytes) -> None:
        what, body = struct_in("packed_asks", asked), asked[ffi.sizeof("struct packed_asks") :]
        is_allowed = what.bytes <= self._settings["max-message-size"]
        opened = decompress(what.compression, body, what.bytes) if is_allowed else None
        self._engine.configure(self._number, "unopened" if opened is None else "opened", what.id, opened or b"")

    def _do(self, client: Client, data: bytes) -> None:
        command = decode(data)
        does = self._commands.get(command[0]) if command is not None else None
        if command is None or does is None:
            self._desk.hang_up(client)
            return
        does(Request(self._desk, client, command[1]))

    def answer(self, conn: int, answer: Answer) -> None:
        client = self._desk.clients.get(conn)
        if client is not None:
            self._desk.answered(client, answer)

    def closed(self, conn: int) -> None:
        client = self._desk.leave(conn)
        if client is not None:
            self._topics.client_gone(client)
            self._leaving.append(client)
            self._forget_some()
        self._authentication.closed(conn)
        self._liveness.closed(conn)
        self._upgrades.closed(conn)

    def _forget_some(self) -> None:
        """Forgets producers and consumers of clients that have left: they may have had thousands, and others wait."""
        most = _FORGOTTEN_AT_ONCE
        while self._leaving and most > 0:
            client = self._leaving[0]
            most -= self._producers.forget_some(client, most)
            most -= self._consumers.forget_some(client, most)
            if not client.producers and not client.consumers:
                self._leaving.popleft()

    # --- time -------------------------------------------------------------------------------------------------------

    def wait_ns(self) -> int:
        if self._leaving:
            return 0
        waits = [wait for wait in self._waits() if wait != FOREVER]
        return min(waits, default=FOREVER)

    def _waits(self) -> tuple[int, ...]:
        parts = (self._liveness, self._answers, self._consumers, self._authentication, self._upgrades)
        return tuple(part.wait_ns() for part in parts)

    def expire(self) -> None:
        self._answers.expire()
        self._consumers.expire()
        self._authentication.expire(self._end)
        self._upgrades.expire()
        self._forget_some()
        for conn in self._liveness.expired():
            # closed() lets whoever waited for this go on; workers hear of the end when the connection is closed.
            self._engine.close_connection(conn)
            self.closed(conn)

    # --- commands ---------------------------------------------------------------------------------------------------

    def _connect(self, request: Request) -> None:
        body, client = request.body, request.client
        client.version, client.protocol_version = body.client_version[:MAX_VERSION], body.protocol_version

        def admitted(error: PulsarError | None) -> None:
            if self._desk.clients.get(client.conn) is not client:
                return  # the client is gone
            if error is None:
                self._connected(request)
                return
            self._desk.say(client, "error", request_id=NOBODY, error=error.code, message=str(error))
            self._engine.close_connection(client.conn)

        self._authentication.admit(client, body, admitted)

    def _connected(self, request: Request) -> None:
        body, client = request.body, request.client
        client.connected, client.since_s = True, time.time()
        self._engine.call(client.conn, "connected")
        flags = {"supports_topic_watchers": True, "supports_get_partitioned_metadata_without_auto_creation": True}
        self._desk.say(
            client, "connected", server_version=SERVER_VERSION,
            protocol_version=min(body.protocol_version, PROTOCOL_VERSION),
            max_message_size=self._settings["max-message-size"], feature_flags=flags,
        )  # fmt: skip
        request.done()
        self._engine.resume(client.conn)

    def _auth_response(self, request: Request) -> None:
        self._authentication.refresh(request, self._end)

    def _end(self, client: Client) -> None:
        self._desk.hang_up(client)

    # --- TLS --------------------------------------------------------------------------------------------------------

    def _begin_tls(self, conn: int) -> None:
        if self._context is None:
            self._engine.close_connection(conn)
            return
        from mq_shards.acceptor.filters.tls import VerifyingTls

        self._upgrades.begin(conn)
        self._upgrades.shake_hands(conn, VerifyingTls(self._context))

    def certificate_names(self, conn: int) -> tuple[str, ...]:
        found = self._upgrades.tls(conn)
        return () if found is None else tuple(getattr(found, "certificate_names", ()))

    def _authorizes(self) -> bool:
        """Whether clients need permissions."""
        return bool(self._settings["authorization-enabled"]) or self.access is not None

    def users_changed(self) -> None:
        self._authentication.users_changed(self._end)
        if self.access is not None:
            self._permissions.users_changed(self.access.users)

    def _shaken(self, conn: int) -> None:
        self._engine.resume(conn)

    def _count_refused(self) -> None:
        if self._broker.access is not None:
            self._broker.access.count_action(self.name)

    def _handshake_failed(self, conn: int, alert: bytes, why: str) -> None:
        log.debug("%s: %s", self._engine.remote(conn), why)
        if alert:
            self._engine.send(conn, alert)
        self._engine.close_connection(conn)

    def input(self, conn: int, data: bytes) -> None:
        self._upgrades.input(conn, data)

    def output(self, conn: int, data: bytes) -> None:
        self._upgrades.output(conn, data)

    def _topic(self, request: Request) -> TopicName | None:
        """The topic that a command names; None if that is not a valid name, and then the command has been refused."""
        try:
            return topic_name(request.body.topic)
        except PulsarNameError as error:
            self._refuse_name(request, str(error))
            return None

    def _refuse_name(self, request: Request, text: str) -> None:
        code = INVALID_TOPIC_NAME
        name = request.body.DESCRIPTOR.name
        if name != "GetSchema":
            text = f"Invalid topic name: {text}"
        if name == "GetOrCreateSchema":
            self._end(request.client)
        elif name == "Lookup":
            request.reply("lookupTopicResponse", response=2, error=code, message=text)
        elif name == "PartitionMetadata":
            request.reply("partitionMetadataResponse", response=1, error=code, message=text)
        elif name == "GetSchema":
            request.reply("getSchemaResponse", error_code=code, error_message=text)
        else:
            request.fail(code, text)

    def _url(self) -> tuple[str, str | None]:
        """The address of all topics, without TLS and with it: this acceptor, as every acceptor serves all topics."""
        host, port = self._address
        host = f"[{host}]" if ":" in host else host
        plain: str = self._settings["advertised-url"] or f"pulsar://{host}:{port}"
        encrypted = plain.replace("pulsar://", "pulsar+ssl://", 1) if self._context is not None else None
        return plain, encrypted

    def _about_topic(self, does: Callable[[Request, TopicName], None]) -> Callable[[Request], None]:
        def do(request: Request) -> None:
            topic = self._topic(request)
            if topic is not None:
                does(request, topic)

        return do

    def _producer(self, request: Request, topic: TopicName) -> None:
        if names_a_key_twice(request.body):
            self._end(request.client)
            return

        def opened(schema_version: bytes) -> None:
            self._producers.open(request, topic, schema_version)

        if request.opens(PRODUCER, request.body.producer_id):
            self._topics.open(request, topic, create=True, consumer=False, then=opened)

    def _subscribe(self, request: Request, topic: TopicName) -> None:
        if names_a_key_twice(request.body):
            self._end(request.client)
            return
        try:
            check_subscription(request.body.subscription)  # before the catalog is told of it
        except PulsarNameError as error:
            request.fail(NOT_ALLOWED, str(error))
            return
        if topic.domain == NON_PERSISTENT:
            subscribe.keep_nothing(request.body)
        create = bool(request.body.force_topic_creation)
        if request.opens(CONSUMER, request.body.consumer_id):
            self._topics.open(
                request, topic, create=create, consumer=True, then=lambda _version: self._consumers.open(request, topic)
            )


SERVING: Final = PulsarServing
