"""Commands about topics that need no producer or consumer: LOOKUP, PARTITIONED_METADATA, lists of a namespace's topics,
watchers of such lists, and schemas. They are passed on to the catalog, and its answers to clients."""

from __future__ import annotations

import base64
import itertools
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

import orjson
from mq_shards.acceptor import engine
from mq_shards.acceptor.engine import Answer
from mq_shards.acceptor.protocols.pulsar.catalog import LIST_NS, Catalog, Fields, GatewayDownError, handle
from mq_shards.acceptor.protocols.pulsar.clients import (
    INCOMPATIBLE_SCHEMA,
    NOT_ALLOWED,
    SERVICE_NOT_READY,
    Client,
    Desk,
    PulsarError,
    Request,
    properties_of,
)
from mq_shards.acceptor.protocols.pulsar.messages import Message
from mq_shards.acceptor.protocols.pulsar.names import ASSIGN, COORDINATORS, NO_LISTENER, TopicName, is_namespace
from mq_shards.acceptor.protocols.pulsar.position import position_of
from mq_shards.ringbuf.calls import Calls

Opened: TypeAlias = Callable[[bytes], None]
Url: TypeAlias = Callable[[], tuple[str, str | None]]

MODES: Final = ("PERSISTENT", "NON_PERSISTENT", "ALL")
CONNECT, FAILED = 1, 2  # answers to LOOKUP; to PARTITIONED_METADATA:
PARTITIONS_FOUND, PARTITIONS_FAILED = 0, 1
NONE: Final = 0  # a type of schema like others, but for GET_OR_CREATE_SCHEMA
ANY_SCHEMA: Final = 21  # of a consumer that accepts any
PRODUCE, CONSUME = "produce", "consume"
KINDS: Final = ("Exclusive", "Shared", "Failover", "Key_Shared")
MAX_SCHEMA_PROPERTIES: Final = 1024
MAX_WATCHERS: Final = 1000  # of a connection
VERSION_BYTES: Final = 8  # of a schema; what a client sends behind them means nothing
WATCH_TRIES: Final = 5  # how often the gateway is asked again for a watcher, if it does not answer
# The catalog's names of the types of schema, indexed by Schema.Type.
SCHEMA_TYPES: Final = (
    "NONE", "STRING", "JSON", "PROTOBUF", "AVRO", "BOOLEAN", "INT8", "INT16", "INT32", "INT64", "FLOAT", "DOUBLE",
    "DATE", "TIME", "TIMESTAMP", "KEY_VALUE", "INSTANT", "LOCAL_DATE", "LOCAL_TIME", "LOCAL_DATE_TIME",
    "PROTOBUF_NATIVE",
)  # fmt: skip


@dataclass(slots=True, eq=False, repr=False)
class Watcher:
    """A client's watcher. The catalog knows it by a number that the acceptor chooses."""

    id: int
    client: Client
    namespace: str
    pattern: str
    hash: str


class _Opening(NamedTuple):
    ask: Callable[[], None]
    said: Callable[[Fields | PulsarError], None]


def schema_fields(topic: TopicName, schema: Message) -> Fields:
    """A schema as the catalog takes it. Raises PulsarError."""
    if schema.type == ANY_SCHEMA:
        raise PulsarError(INCOMPATIBLE_SCHEMA, "Schema AUTO_CONSUME is a client-side schema type")
    if len(schema.properties) > MAX_SCHEMA_PROPERTIES:
        raise PulsarError(NOT_ALLOWED, f"A schema has {MAX_SCHEMA_PROPERTIES} properties at most")
    return {
        "topic": str(topic),
        "type": SCHEMA_TYPES[schema.type],
        "name": schema.name,
        "data": base64.b64encode(schema.schema_data).decode(),
        "properties": {pair.key: pair.value for pair in schema.properties},
    }


def who(client: Client) -> Fields:
    """The fields that tell the catalog who a client is."""
    found: Fields = {"role": client.role, "original": client.original}
    return found | {"open": True} if client.is_open else found


def producer_fields(body: Message) -> Fields:
    has_schema = body.HasField("schema") and body.schema.type != ANY_SCHEMA
    found = {"action": PRODUCE, "encrypted": bool(body.encrypted), "schema": has_schema}
    return found | {"initial": body.initial_subscription_name} if body.initial_subscription_name else found


def consumer_fields(body: Message) -> Fields:
    """Raises PulsarError if the subscription's properties are too many."""
    properties = properties_of(body)
    kind = KINDS[body.subType] if 0 <= body.subType < len(KINDS) else None
    found = {"action": CONSUME, "subscription": body.subscription, "type": kind, "durable": bool(body.durable)}
    if body.replicate_subscription_state:
        found["replicated"] = True
    if body.durable and properties:
        found["properties"] = properties
    return found


def version_bytes(version: int) -> bytes:
    return version.to_bytes(VERSION_BYTES, "big", signed=True)


class Topics:
    def __init__(
        self, desk: Desk, catalog: Catalog, calls: Calls | None, url: Url, *, authorizes: Callable[[], bool]
    ) -> None:
        """`url` returns the address of all topics, without and with TLS; `authorizes`: are permissions needed?"""
        self._authorizes = authorizes
        self._desk = desk
        self._catalog = catalog
        self._url = url
        self._watchers: dict[int, Watcher] = {}
        self._numbers_of: dict[int, set[int]] = {}  # of a connection's watchers, if it has any
        self._opening: dict[tuple[int, str], deque[_Opening]] = {}  # by connection and topic, first come first
        self._numbers = itertools.count(1)
        self._anew: deque[int] = deque()  # watchers to be asked for again
        self._asks_anew = False
        if calls is not None:
            calls.hear("pulsar.watched", self._watched)
            calls.on_lost(self._watch_anew)

    # --- opening topics for producers and consumers ------------------------------------------------------------------

    def open(self, request: Request, topic: TopicName, *, create: bool, consumer: bool, then: Opened) -> None:
        """Calls `then` when the request's client may use the topic, with the version of the schema that it gave, if
        any. Otherwise refuses the request."""

        key = request.client.conn, topic.core

        def heard(found: Fields | PulsarError) -> None:
            # In the order of the connection's requests, though making a topic takes longer than finding it.
            waiting = self._opening[key]
            handle("open", waiting.popleft().said, lambda: found)
            if isinstance(found, GatewayDownError):  # down for one request is down for all that wait
                while waiting:
                    handle("open", waiting.popleft().said, lambda: found)
            if waiting:
                waiting[0].ask()
            else:
                del self._opening[key]

        def said(found: Fields | PulsarError) -> None:
            if isinstance(found, GatewayDownError):
                self._open_without(request, topic, then)
            elif isinstance(found, PulsarError):
                request.fail(found.code, str(found))
            else:
                own = found["topic_policies"]
                self._catalog.learn(topic.namespace, found["policies"], str(topic.base), own)
                self._check_schema(request, topic, consumer, then)

        try:
            wanted = consumer_fields(request.body) if consumer else producer_fields(request.body)
        except PulsarError as error:
            request.fail(error.code, str(error))
            return

        def ask() -> None:
            # May be asked twice: it makes nothing twice. C++ clients give up a consumer whose first SUBSCRIBE fails.
            self._catalog.ask("open", heard, topic=str(topic), create=create, **wanted, **who(request.client))

        waiting = self._opening.setdefault(key, deque())
        waiting.append(_Opening(ask, said))
        if len(waiting) == 1:
            ask()

    def _open_without(self, request: Request, topic: TopicName, then: Opened) -> None:
        """Opens a topic that exists though the catalog cannot be asked, unless its permission would be needed."""
        if self._authorizes():
            request.fail(SERVICE_NOT_READY, "The broker's catalog cannot be asked now")
            return

        def heard(answer: Answer) -> None:
            if answer.status == engine.OK:
                then(b"")
            else:
                request.fail(SERVICE_NOT_READY, "The broker's catalog cannot be asked now")

        request.locate(topic, heard)

    def _check_schema(self, request: Request, topic: TopicName, consumer: bool, then: Opened) -> None:
        schema = request.body.schema
        if not request.body.HasField("schema") or (consumer and schema.type == ANY_SCHEMA):
            then(b"")
            return

        def heard(found: Fields | PulsarError) -> None:
            if isinstance(found, PulsarError):
                request.fail(found.code, str(found))
            else:
                then(version_bytes(found["version"]))

        try:
            fields = schema_fields(topic, schema)
        except PulsarError as error:
            heard(error)
            return
        if not consumer:
            # Again, as "open": the same schema has the same version.
            self._catalog.ask("put-schema", heard, consumer=False, **who(request.client), **fields)
            return

        def located(answer: Answer) -> None:
            # A consumer's schema becomes the topic's only if the topic has no messages and no other clients.
            if answer.status == engine.FAILED:
                request.fail(SERVICE_NOT_READY, "The topic's worker is gone")
                return
            where = position_of(answer.body) if answer.status == engine.OK else None
            unused = self._desk.used[topic.core] == self._desk.take_any[topic.core]
            idle = unused and (where is None or where.next_seq == where.began_seq)
            told = {**who(request.client), **fields}
            self._catalog.ask("put-schema", heard, consumer=True, idle=idle, **told)

        request.locate(topic, located)

    # --- where a topic is -------------------------------------------------------------------------------------------

    def look_up(self, request: Request, topic: TopicName) -> None:
        def heard(found: Fields | PulsarError) -> None:
            if isinstance(found, PulsarError) and not isinstance(found, GatewayDownError):
                request.reply("lookupTopicResponse", response=FAILED, error=found.code, message=str(found))
                return
            if listener := request.body.advertised_listener_name:
                why = NO_LISTENER.format(listener)
                request.reply("lookupTopicResponse", response=FAILED, error=SERVICE_NOT_READY, message=why)
                return
            plain, encrypted = self._url()
            request.reply(
                "lookupTopicResponse", response=CONNECT, brokerServiceUrl=plain, brokerServiceUrlTls=encrypted,
                authoritative=True, proxy_through_service_url=True,
            )  # fmt: skip

        self._catalog.ask("lookup", heard, topic=str(topic), **who(request.client))

    def partitions(self, request: Request, topic: TopicName) -> None:
        def heard(found: Fields | PulsarError) -> None:
            name = "partitionMetadataResponse"
            if isinstance(found, PulsarError):
                request.reply(name, response=PARTITIONS_FAILED, error=found.code, message=str(found))
            else:
                request.reply(name, response=PARTITIONS_FOUND, partitions=found["partitions"])

        if str(topic) == ASSIGN:
            request.reply("partitionMetadataResponse", response=PARTITIONS_FOUND, partitions=COORDINATORS)
            return
        create = bool(request.body.metadata_auto_creation_enabled)
        self._catalog.ask("partitions", heard, topic=str(topic), create=create, **who(request.client))

    # --- lists of a namespace's topics, and their watchers -----------------------------------------------------------

    def of_namespace(self, request: Request) -> None:
        body = request.body

        def heard(found: Fields | PulsarError) -> None:
            if isinstance(found, PulsarError):
                request.fail(found.code, str(found))
                return
            request.reply(
                "getTopicsOfNamespaceResponse", topics=found["topics"], filtered=found["filtered"],
                topics_hash=found["hash"], changed=found["changed"],
            )  # fmt: skip

        if not is_namespace(body.namespace):
            self._desk.hang_up(request.client)
            return
        pattern = body.topics_pattern if body.HasField("topics_pattern") else None
        known = body.topics_hash if body.HasField("topics_hash") else None
        self._catalog.ask(
            "topics", heard, answer_ns=LIST_NS, namespace=body.namespace, mode=MODES[body.mode], pattern=pattern,
            hash=known, **who(request.client),
        )  # fmt: skip

    def watch(self, request: Request) -> None:
        body, client = request.body, request.client
        if not is_namespace(body.namespace):
            self._desk.hang_up(client)
            return
        if len(self._numbers_of.get(client.conn, ())) >= MAX_WATCHERS:
            request.fail(NOT_ALLOWED, f"More than {MAX_WATCHERS} watchers")
            return
        known = body.topics_hash if body.HasField("topics_hash") else None
        number = next(self._numbers)
        watcher = Watcher(body.watcher_id, client, body.namespace, body.topics_pattern, known or "")
        self._watchers[number] = watcher
        self._numbers_of.setdefault(client.conn, set()).add(number)

        def heard(found: Fields | PulsarError) -> None:
            if isinstance(found, PulsarError):
                self._lose(client, {number} & self._watchers.keys())
                if isinstance(found, GatewayDownError):  # it may have the watcher, and have answered too late
                    self._catalog.ask("unwatch", lambda _found: None, watcher=number)
                request.fail(found.code, str(found))
                return
            watcher.hash = found["hash"]
            request.reply(
                "watchTopicListSuccess", watcher_id=watcher.id, topic=found["topics"], topics_hash=found["hash"]
            )

        self._catalog.ask(
            "watch", heard, answer_ns=LIST_NS, watcher=number, namespace=body.namespace,
            pattern=body.topics_pattern, hash=known, **who(client),
        )  # fmt: skip

    def unwatch(self, request: Request) -> None:
        numbers = self._numbers_of.get(request.client.conn, ())
        self._forget(request.client, {n for n in numbers if self._watchers[n].id == request.body.watcher_id})
        request.succeed()

    def client_gone(self, client: Client) -> None:
        self._forget(client, set(self._numbers_of.get(client.conn, ())))

    def _forget(self, client: Client, numbers: set[int]) -> None:
        self._lose(client, numbers)
        for number in numbers:
            self._catalog.ask("unwatch", lambda _found: None, watcher=number)

    def _lose(self, client: Client, numbers: set[int]) -> None:
        for number in numbers:
            del self._watchers[number]
        left = self._numbers_of.pop(client.conn, set()) - numbers
        if left:
            self._numbers_of[client.conn] = left

    def _watched(self, body: bytes) -> None:
        told = orjson.loads(body)
        watcher = self._watchers.get(told["watcher"])
        if watcher is not None:
            self._say_update(watcher, told["new"], told["deleted"], told["hash"])

    def _say_update(self, watcher: Watcher, new: list[str], deleted: list[str], known: str) -> None:
        watcher.hash = known
        self._desk.say(
            watcher.client, "watchTopicUpdate", watcher_id=watcher.id, new_topics=new, deleted_topics=deleted,
            topics_hash=known,
        )  # fmt: skip

    def _watch_anew(self) -> None:
        """Updates may have been lost: a client whose list is outdated is told the whole list as new topics."""
        self._anew = deque(self._watchers)
        if not self._asks_anew:
            self._next_anew()

    def _next_anew(self) -> None:
        """Asks for one watcher after the other, as there may be more than questions that may be under way."""
        while self._anew and self._anew[0] not in self._watchers:
            self._anew.popleft()
        self._asks_anew = bool(self._anew)
        if self._anew:
            number = self._anew.popleft()
            self._ask_anew(number, self._watchers[number], WATCH_TRIES)

    def _ask_anew(self, number: int, watcher: Watcher, tries: int) -> None:
        def heard(found: Fields | PulsarError) -> None:
            if isinstance(found, GatewayDownError) and tries > 1 and number in self._watchers:
                self._ask_anew(number, watcher, tries - 1)
                return
            if not isinstance(found, PulsarError) and found["hash"] != watcher.hash and number in self._watchers:
                self._say_update(watcher, found["topics"], [], found["hash"])
            self._next_anew()

        self._catalog.ask(
            "watch", heard, answer_ns=LIST_NS, watcher=number, namespace=watcher.namespace, pattern=watcher.pattern,
            hash=watcher.hash or None, **who(watcher.client),
        )  # fmt: skip

    # --- schemas ----------------------------------------------------------------------------------------------------

    def get_schema(self, request: Request, topic: TopicName) -> None:
        """GET_SCHEMA. As with a real broker, a version that is too short ends the connection."""
        body = request.body

        def heard(found: Fields | PulsarError) -> None:
            if isinstance(found, PulsarError):
                request.reply("getSchemaResponse", error_code=found.code, error_message=str(found))
                return
            schema = {
                "name": found["name"], "schema_data": base64.b64decode(found["data"]),
                "type": SCHEMA_TYPES.index(found["type"]),
                "properties": [{"key": key, "value": value} for key, value in found["properties"].items()],
            }  # fmt: skip
            request.reply("getSchemaResponse", schema=schema, schema_version=version_bytes(found["version"]))

        if body.HasField("schema_version") and len(body.schema_version) < VERSION_BYTES:
            if body.schema_version:
                self._desk.hang_up(request.client)
            else:
                heard(PulsarError(INCOMPATIBLE_SCHEMA, "Empty schema version"))
            return
        version = body.schema_version[:VERSION_BYTES] if body.HasField("schema_version") else None
        wanted = None if version is None else int.from_bytes(version, "big", signed=True)
        self._catalog.ask("get-schema", heard, topic=str(topic), version=wanted, **who(request.client))

    def put_schema(self, request: Request, topic: TopicName) -> None:
        def heard(found: Fields | PulsarError) -> None:
            name = "getOrCreateSchemaResponse"
            if isinstance(found, PulsarError):
                request.reply(name, error_code=found.code, error_message=str(found))
            else:
                request.reply(name, schema_version=version_bytes(found["version"]))

        if request.body.schema.type == NONE:
            request.reply("getOrCreateSchemaResponse", schema_version=b"")
            return
        try:
            fields = schema_fields(topic, request.body.schema)
        except PulsarError as error:
            heard(error)
            return
        self._catalog.ask("put-schema", heard, **who(request.client), **fields)
