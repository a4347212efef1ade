"""Pulsar's rare commands: CONNECT and who a client is, where a topic is, what is asked once a producer or consumer.

csrc/acceptor/protocols/pulsar.c has the others, and hands these over as they came (the bytes of a BaseCommand), with a
letter before them:

    d...    a command; the connection's next ones are parsed meanwhile, except before it is connected
    p, c    a producer or consumer (its id: 8 bytes) is none any more
    a       a connection that was asked whether it is alive, is

What is accepted and said is what a standalone broker 4.0 does.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import ClassVar, Final

from mq_shards.acceptor.engine import FOREVER, Answer, Engine
from mq_shards.acceptor.option_kinds import MAX_BODY, MS, SECOND, YEAR, Duration, Kind, Number, Text
from mq_shards.acceptor.protocol import Broker, Protocol, Settings
from mq_shards.acceptor.protocols.pulsar_answers import Answers
from mq_shards.acceptor.protocols.pulsar_catalog import Catalog
from mq_shards.acceptor.protocols.pulsar_clients import INVALID_TOPIC_NAME, Client, Desk, Request
from mq_shards.acceptor.protocols.pulsar_consumers import Consumers
from mq_shards.acceptor.protocols.pulsar_liveness import Liveness
from mq_shards.acceptor.protocols.pulsar_messages import decode
from mq_shards.acceptor.protocols.pulsar_names import PulsarNameError, TopicName, topic_name
from mq_shards.acceptor.protocols.pulsar_producers import Producers
from mq_shards.acceptor.protocols.pulsar_topics import Topics

# The release that clients are told they speak with, and the version of the protocol that it speaks.
SERVER_VERSION: Final = "Pulsar Server 4.0.7 (mq-shards)"
PROTOCOL_VERSION: Final = 21


class Pulsar(Protocol):
    name = "pulsar"
    port = 6650
    example = "python3 -c \"import pulsar; pulsar.Client('pulsar://{address}').create_producer('t').send(b'hello')\""
    options: ClassVar[Mapping[str, Kind]] = {
        "max-message-size": Number(5 << 20, 1, MAX_BODY // 2, "bytes of the largest message, as clients are told"),
        "keep-alive": Duration(30 * SECOND, MS, YEAR, "between two PINGs; who is silent for two of these is cut off"),
        "advertised-url": Text("", "where clients are told that a topic is; empty: where they are connected already"),
    }

    def __init__(self, engine: Engine, settings: Settings, broker: Broker) -> None:
        super().__init__(engine, settings, broker)
        self._desk = Desk(engine)
        self._liveness = Liveness(engine)
        self._producers = Producers(self._desk, broker, self._liveness)
        self._answers = Answers(self._desk, broker.calls)
        self._consumers = Consumers(self._desk, self._liveness, self._answers.ends)
        self._catalog = Catalog(broker.calls)
        self._topics = Topics(self._desk, self._catalog, broker.calls, self._url)
        self._address = ("localhost", self.port)
        engine.set("pulsar.max-message-size", settings["max-message-size"])
        engine.set("pulsar.keep-alive-ns", settings["keep-alive"])
        self._commands: dict[str, Callable[[Request], None]] = {
            "connect": self._connect,
            "lookupTopic": self._about_topic(self._topics.look_up),
            "partitionMetadata": self._about_topic(self._topics.partitions),
            "producer": self._about_topic(self._producer),
            "subscribe": self._about_topic(self._subscribe),
            "close_producer": self._producers.close,
            "close_consumer": self._consumers.close,
            "unsubscribe": self._consumers.unsubscribe,
            "seek": self._consumers.seek,
            "getLastMessageId": self._consumers.last_message_id,
            "getTopicsOfNamespace": self._topics.of_namespace,
            "watchTopicList": self._topics.watch,
            "watchTopicListClose": self._topics.unwatch,
            "getSchema": self._about_topic(self._topics.get_schema),
            "getOrCreateSchema": self._about_topic(self._topics.put_schema),
        }

    def listening(self, host: str, port: int) -> None:
        self._address = (host, port)

    # --- what the engine says ---------------------------------------------------------------------------------------

    def command(self, conn: int, command: bytes) -> None:
        client = self._desk.clients.get(conn)
        what = command[:1]
        if what == b"d":
            if client is None:
                client = self._desk.clients[conn] = Client(conn)
            self._do(client, command[1:])
        elif what == b"a":
            self._liveness.alive(conn)
        elif client is not None:
            gone = self._producers.gone if what == b"p" else self._consumers.gone
            gone(client, int.from_bytes(command[1:], "little"))

    def _do(self, client: Client, data: bytes) -> None:
        command = decode(data)
        does = self._commands.get(command[0]) if command is not None else None
        if command is None or does is None:
            self._desk.hang_up(client)
            return
        does(Request(self._desk, client, command[1]))

    def answer(self, conn: int, answer: Answer) -> None:
        client = self._desk.clients.get(conn)
        heard = client.heard.pop(answer.slot, None) if client is not None else None
        if heard is not None:
            heard(answer)

    def closed(self, conn: int) -> None:
        client = self._desk.clients.pop(conn, None)
        if client is not None:
            self._producers.client_gone(client)
            self._consumers.client_gone(client)
            self._topics.client_gone(client)
        self._liveness.closed(conn)

    # --- time -------------------------------------------------------------------------------------------------------

    def wait_ns(self) -> int:
        waits = [wait for wait in (self._liveness.wait_ns(), self._answers.wait_ns()) if wait != FOREVER]
        return min(waits, default=FOREVER)

    def expire(self) -> None:
        self._answers.expire()
        for conn in self._liveness.expired():
            # What it had is another's now; the end of its connection says so to whoever else has something of it.
            self._engine.close_connection(conn)
            self.closed(conn)

    # --- commands ---------------------------------------------------------------------------------------------------

    def _connect(self, request: Request) -> None:
        body, client = request.body, request.client
        client.version, client.protocol_version = body.client_version, body.protocol_version
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

    def _topic(self, request: Request) -> TopicName | None:
        """The topic that a command names; None, and it has been refused, if it cannot be one."""
        try:
            return topic_name(request.body.topic)
        except PulsarNameError as error:
            self._refuse(request, INVALID_TOPIC_NAME, str(error))
            return None

    def _refuse(self, request: Request, code: int, text: str) -> None:
        name = request.body.DESCRIPTOR.name
        if name == "Lookup":
            request.reply("lookupTopicResponse", response=2, error=code, message=text)
        elif name == "PartitionMetadata":
            request.reply("partitionMetadataResponse", response=1, error=code, message=text)
        elif name in ("GetSchema", "GetOrCreateSchema"):
            answer = "getSchemaResponse" if name == "GetSchema" else "getOrCreateSchemaResponse"
            request.reply(answer, error_code=code, error_message=text)
        else:
            request.fail(code, text)

    def _url(self, client: Client) -> str:
        """Where clients find all topics: every acceptor has them."""
        host, port = self._address
        host = f"[{host}]" if ":" in host else host
        url: str = self._settings["advertised-url"]
        return url or f"pulsar://{host}:{port}"

    def _about_topic(self, does: Callable[[Request, TopicName], None]) -> Callable[[Request], None]:
        def do(request: Request) -> None:
            topic = self._topic(request)
            if topic is not None:
                does(request, topic)

        return do

    def _producer(self, request: Request, topic: TopicName) -> None:
        def opened(schema_version: bytes) -> None:
            self._producers.open(request, topic, schema_version)

        self._topics.open(request, topic, create=True, consumer=False, then=opened)

    def _subscribe(self, request: Request, topic: TopicName) -> None:
        create = bool(request.body.force_topic_creation)
        self._topics.open(
            request, topic, create=create, consumer=True, then=lambda _version: self._consumers.open(request, topic)
        )


PROTOCOL: Final = Pulsar
