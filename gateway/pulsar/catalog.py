"""What the control side knows: clusters, tenants, namespaces with their policies, topics, schemas, transactions. It is
kept in memory, and does no I/O.

Only records change it, so that replaying the log gives the same catalog. A record says what something is now, not what
was done to it. Whoever makes a record has checked it. A record that names something that does not exist is a defect of
the log, and is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, TypeAlias

import orjson
from mq_shards.acceptor.protocols.pulsar.names import NON_PERSISTENT, has_cluster, is_local

Record: TypeAlias = dict[str, Any]
Json: TypeAlias = dict[str, Any]

CLUSTER: Final = "standalone"

Status: TypeAlias = Literal["OPEN", "COMMITTING", "ABORTING"]
OPEN: Final = "OPEN"
COMMITTING: Final = "COMMITTING"
ABORTING: Final = "ABORTING"

FIRST: Final[tuple[Record, ...]] = (
    {"do": "tenant", "name": "public", "data": {"adminRoles": [], "allowedClusters": [CLUSTER]}},
    {"do": "tenant", "name": "pulsar", "data": {"adminRoles": [], "allowedClusters": [CLUSTER]}},
    {"do": "namespace", "name": "public/default", "policies": {}},
    {"do": "namespace", "name": "pulsar/system", "policies": {}},
)

SCHEMA_OVERHEAD_BYTES: Final = 256  # that a schema, or the record of its deletion, takes besides its texts
SUBSCRIPTION_OVERHEAD_BYTES: Final = 512  # that a subscription takes besides its name and properties
PROPERTY_OVERHEAD_BYTES: Final = 160  # that a property takes besides its name and value


class CatalogError(Exception):
    """A record that this version does not know, or that cannot be applied."""


class OutOfPlaceError(CatalogError):
    """A record about something that does not exist after the records before it."""


def encoded_bytes(properties: Mapping[str, str]) -> int:
    """The bytes of all names and values."""
    return sum(len(name.encode()) + len(value.encode()) for name, value in properties.items())


def _properties_bytes(properties: Mapping[str, str]) -> int:
    """What they take in memory."""
    return PROPERTY_OVERHEAD_BYTES * len(properties) + encoded_bytes(properties)


@dataclass(frozen=True, slots=True)
class Schema:
    """One version of a schema. A version without a type says that the schema was deleted."""

    version: int
    type: str
    data: str  # base64
    properties: dict[str, str]
    timestamp_ms: int
    user: str = ""
    name: str = ""

    @property
    def is_deleted(self) -> bool:
        return not self.type

    @property
    def stored_bytes(self) -> int:
        texts = len(self.data) + len(self.user.encode()) + len(self.name.encode())
        return SCHEMA_OVERHEAD_BYTES + texts + _properties_bytes(self.properties)


@dataclass(frozen=True, slots=True)
class Topic:
    partitions: int = 0  # 0: it is not partitioned
    properties: dict[str, str] = field(default_factory=dict)
    permissions: dict[str, list[str]] = field(default_factory=dict)
    policies: Json = field(default_factory=dict)  # its own, under the same names as a namespace's


PLAIN: Final = Topic()  # what most topics are: they share this object


@dataclass(frozen=True, slots=True)
class Subscription:
    """What is known of a durable subscription besides that a worker has it. Most have nothing, and no entry."""

    properties: dict[str, str] = field(default_factory=dict)
    replicated: bool = False

    @property
    def is_plain(self) -> bool:
        return not self.properties and not self.replicated

    def stored_bytes(self, name: str) -> int:
        """What it takes under its name."""
        if self.is_plain:
            return 0
        return SUBSCRIPTION_OVERHEAD_BYTES + len(name.encode()) + _properties_bytes(self.properties)


@dataclass(slots=True)
class Transaction:
    """A transaction that is open, or that is decided but not yet ended at every worker."""

    id: int
    timeout_ms: int = 0
    opened_ms: int = 0  # wall clock
    owner: str = ""
    status: Status = OPEN
    topics: set[str] = field(default_factory=set)  # whole names
    subscriptions: set[tuple[str, str]] = field(default_factory=set)
    part_bytes: int = 0  # of the log, for its topics and subscriptions
    told: list[str] = field(default_factory=list)  # once it is decided: topics to end it in, by the core's names
    said: dict[str, str] | None = None  # topics by whole name that its client names in another way; not in the log


@dataclass(slots=True)
class Namespace:
    policies: Json
    topics: dict[str, Topic] = field(default_factory=dict)  # by whole name; a partitioned topic is one entry
    deleted_partitions: set[str] = field(default_factory=set)
    subscriptions: dict[str, dict[str, Subscription]] = field(default_factory=dict)  # by topic or partition, and name
    changes: int = 0  # how often its topics have changed
    is_made: bool = True  # False: nobody has made it, and it is there as long as something in it is


# A namespace with one cluster in its name of which nothing is there: topics of it can be.
_OF_UNMADE: Final[Json] = {"bundles": {"boundaries": ["0x00000000", "0xffffffff"], "numBundles": 1}}
UNMADE: Final = Namespace(_OF_UNMADE, is_made=False)


class Catalog:
    def __init__(self) -> None:
        self.broker: dict[str, Json] = {}  # of the broker as a whole, by kind: options, resource groups, ...
        self.clusters: dict[str, Json] = {}
        self.tenants: dict[str, Json] = {}
        self.namespaces: dict[str, Namespace] = {}
        self.schemas: dict[str, list[Schema]] = {}  # by a topic's whole name; partitions share those of their topic
        self.transactions: dict[int, Transaction] = {}
        self.transactions_from = 0  # no id from here on has been given out
        self.topic_count = 0
        self.described_bytes = 0  # of all of _DESCRIBED, as records
        self.schema_bytes = 0
        self.subscription_bytes = 0

    @staticmethod
    def new() -> Catalog:
        """The catalog of a new broker."""
        catalog = Catalog()
        for record in FIRST:
            catalog.apply(record)
        return catalog

    def apply(self, record: Record) -> None:
        """Applies a record. Raises CatalogError, with nothing changed."""
        try:
            change = _CHANGES[record["do"]]
        except KeyError:
            raise CatalogError(f"a record says {record.get('do')!r}, which this mq-shards does not know") from None
        try:
            growth = self.growth(record)
            change(self, record)
            self.described_bytes += growth
        except (KeyError, TypeError) as error:
            raise OutOfPlaceError(f"a record of {record['do']!r} cannot be: {error!r}") from None

    def records(self) -> Iterator[Record]:
        """Yields records that make an equal catalog, which must not change meanwhile: iterate at once, or a copy()."""
        for name, data in self.broker.items():
            yield {"do": "broker", "name": name, "data": data}
        for name, data in self.clusters.items():
            yield {"do": "cluster", "name": name, "data": data}
        for name, data in self.tenants.items():
            yield {"do": "tenant", "name": name, "data": data}
        for name, namespace in self.namespaces.items():
            if namespace.is_made:
                yield _namespace_record(name, namespace)
            for topic, what in namespace.topics.items():
                yield topic_record(name, topic, what)
            for topic in namespace.deleted_partitions:
                yield _no_partition_record(name, topic)
            for topic, subscriptions in namespace.subscriptions.items():
                for subscription, found in subscriptions.items():
                    yield subscription_record(name, topic, subscription, found)
        for topic, versions in self.schemas.items():
            for schema in versions:
                yield schema_record(topic, schema)
        if self.transactions_from:
            yield {"do": "transactions-from", "id": self.transactions_from}
        for transaction in self.transactions.values():
            yield from transaction_records(transaction)

    def copy(self) -> Catalog:
        """A copy for another thread to read. It shares only values that records never change in place."""
        copy = Catalog()
        copy.broker, copy.clusters, copy.tenants = dict(self.broker), dict(self.clusters), dict(self.tenants)
        copy.namespaces = {
            name: Namespace(
                found.policies, dict(found.topics), set(found.deleted_partitions),
                {topic: dict(subscriptions) for topic, subscriptions in found.subscriptions.items()},
                is_made=found.is_made,
            )
            for name, found in self.namespaces.items()
        }  # fmt: skip
        copy.schemas = {topic: list(versions) for topic, versions in self.schemas.items()}
        copy.transactions_from = self.transactions_from
        copy.transactions = {
            id: replace(one, topics=set(one.topics), subscriptions=set(one.subscriptions))
            for id, one in self.transactions.items()
        }
        return copy

    def growth(self, record: Record) -> int:
        """By how many bytes what strangers may describe grows: clusters, tenants, namespaces, topics and the partitions
        that are gone. Each counts as its record has bytes."""
        do, of = record["do"], record["do"].removeprefix("no-")
        if of not in _DESCRIBED:
            return 0
        before = self._described(of, record)
        stays = do == ("no-partition" if of == "partition" else of)
        return (len(encode(record)) if stays else 0) - (len(encode(before)) if before is not None else 0)

    def _described(self, of: str, record: Record) -> Record | None:
        """The record of what a record is about, as it is before."""
        name = record["name"]
        if of in ("broker", "cluster", "tenant"):
            found = {"broker": self.broker, "cluster": self.clusters, "tenant": self.tenants}[of].get(name)
            return None if found is None else {"do": of, "name": name, "data": found}
        if of == "namespace":
            namespace = self.namespaces.get(name)
            return _namespace_record(name, namespace) if namespace is not None and namespace.is_made else None
        namespace = self.namespaces.get(record["namespace"])
        if namespace is None:
            return None
        if of == "partition":
            return _no_partition_record(record["namespace"], name) if name in namespace.deleted_partitions else None
        topic = namespace.topics.get(name)
        return None if topic is None else topic_record(record["namespace"], name, topic)

    # --- questions --------------------------------------------------------------------------------------------------

    def namespace(self, name: str) -> Namespace | None:
        """A namespace in which topics can be."""
        return self.namespaces.get(name, UNMADE if is_local(name) else None)

    def topic(self, namespace: str, name: str) -> Topic | None:
        found = self.namespaces.get(namespace)
        return None if found is None else found.topics.get(name)

    def last_schema(self, topic: str) -> Schema | None:
        """The last version, which may be a deletion. None: there never was one."""
        versions = self.schemas.get(topic)
        return versions[-1] if versions else None

    def schema(self, topic: str) -> Schema | None:
        """The last version; None if there is none or it was deleted."""
        found = self.last_schema(topic)
        return None if found is None or found.is_deleted else found

    def schema_version(self, topic: str, version: int) -> Schema | None:
        """A version by its number, if it is newer than the last deletion."""
        return next((schema for schema in self.live_schemas(topic) if schema.version == version), None)

    def live_schemas(self, topic: str) -> list[Schema]:
        """The versions since the last deletion, oldest first."""
        versions = self.schemas.get(topic, [])
        deleted = next((i for i in range(len(versions) - 1, -1, -1) if versions[i].is_deleted), -1)
        return versions[deleted + 1 :]

    def next_schema(self, topic: str) -> int:
        """The number for the next version. No number is given out twice, even if versions were lost to damage."""
        versions = self.schemas.get(topic)
        return versions[-1].version + 1 if versions else 0

    def unkept(self) -> Iterator[Record]:
        """Yields records that delete the topics which end with a broker: those that are not persistent. If partitions,
        permissions or policies are known of one, it stays, so that these do."""
        for namespace, found in self.namespaces.items():
            for name, topic in found.topics.items():
                if topic == PLAIN and name.startswith(f"{NON_PERSISTENT}://"):
                    yield {"do": "no-topic", "namespace": namespace, "name": name}
                    if name in self.schemas:
                        yield {"do": "no-schemas", "topic": name}

    def namespaces_of(self, tenant: str) -> list[str]:
        """Those that somebody has made."""
        return sorted(name for name, one in self.namespaces.items() if name.startswith(tenant + "/") and one.is_made)

    # --- records ----------------------------------------------------------------------------------------------------

    def _broker(self, record: Record) -> None:
        self.broker[record["name"]] = record["data"]

    def _cluster(self, record: Record) -> None:
        self.clusters[record["name"]] = record["data"]

    def _no_cluster(self, record: Record) -> None:
        del self.clusters[record["name"]]

    def _tenant(self, record: Record) -> None:
        self.tenants[record["name"]] = record["data"]

    def _no_tenant(self, record: Record) -> None:
        del self.tenants[record["name"]]

    def _namespace(self, record: Record) -> None:
        found = self.namespaces.get(record["name"])
        if found is None:
            self.namespaces[record["name"]] = Namespace(record["policies"])
        else:
            found.policies, found.is_made = record["policies"], True

    def _no_namespace(self, record: Record) -> None:
        namespace = self.namespaces.pop(record["name"])
        self.topic_count -= len(namespace.topics)
        self._forget_described(topic_record(record["name"], *one) for one in namespace.topics.items())
        self._forget_described(_no_partition_record(record["name"], name) for name in namespace.deleted_partitions)
        for topic in list(namespace.subscriptions):
            self._forget_subscriptions(namespace, topic)

    def _holding(self, name: str) -> Namespace:
        """The namespace in which something is made."""
        if has_cluster(name) and name not in self.namespaces:
            self.namespaces[name] = Namespace(_OF_UNMADE, is_made=False)
        return self.namespaces[name]

    def _drop_unused(self, name: str) -> None:
        one = self.namespaces[name]
        if not (one.is_made or one.topics or one.deleted_partitions or one.subscriptions):
            del self.namespaces[name]

    def _topic(self, record: Record) -> None:
        topic = Topic(
            record["partitions"], record.get("properties", {}), record.get("permissions", {}),
            record.get("policies", {}),
        )  # fmt: skip
        name = record["name"]
        namespace = self._holding(record["namespace"])
        before = namespace.topics.get(name)
        namespace.topics[name] = PLAIN if topic == PLAIN else topic
        namespace.changes += 1
        if before is None:
            self.topic_count += 1
        partitions = 0 if before is None else before.partitions
        if before is None or partitions != topic.partitions:
            self._forget_partitions(record["namespace"], name, max(partitions, topic.partitions))

    def _no_topic(self, record: Record) -> None:
        namespace = self.namespaces[record["namespace"]]
        gone = namespace.topics.pop(record["name"])
        self.topic_count -= 1
        namespace.changes += 1
        self._forget_subscriptions(namespace, record["name"])
        for i in range(gone.partitions):
            self._forget_subscriptions(namespace, f"{record['name']}-partition-{i}")
        self._forget_partitions(record["namespace"], record["name"], gone.partitions)
        self._drop_unused(record["namespace"])

    def _no_partition(self, record: Record) -> None:
        namespace = self.namespaces[record["namespace"]]
        namespace.deleted_partitions.add(record["name"])
        namespace.changes += 1
        self._forget_subscriptions(namespace, record["name"])

    def _partition(self, record: Record) -> None:
        namespace = self.namespaces[record["namespace"]]
        namespace.deleted_partitions.discard(record["name"])
        namespace.changes += 1

    def _subscription(self, record: Record) -> None:
        new = Subscription(record.get("properties", {}), record.get("replicated", False))
        topic, name = record["topic"], record["name"]
        namespace = self._holding(record["namespace"])
        there = namespace.subscriptions.setdefault(topic, {})
        before = there.pop(name, None)
        self.subscription_bytes += new.stored_bytes(name) - (before.stored_bytes(name) if before is not None else 0)
        if not new.is_plain:
            there[name] = new
        elif not there:
            del namespace.subscriptions[topic]
            self._drop_unused(record["namespace"])

    def _forget_subscriptions(self, namespace: Namespace, topic: str) -> None:
        gone = namespace.subscriptions.pop(topic, {})
        self.subscription_bytes -= sum(one.stored_bytes(name) for name, one in gone.items())

    def _schema(self, record: Record) -> None:
        schema = Schema(
            record["version"], record["type"], record["data"], record["properties"], record["timestamp_ms"],
            record.get("user", ""), record.get("name", ""),
        )  # fmt: skip
        if schema.version == 0 and record["topic"] in self.schemas:  # the record of their deletion was lost to damage
            self._no_schemas(record)
        self.schemas.setdefault(record["topic"], []).append(schema)
        self.schema_bytes += schema.stored_bytes

    def _no_schemas(self, record: Record) -> None:
        self.schema_bytes -= sum(schema.stored_bytes for schema in self.schemas.pop(record["topic"]))

    def _transactions_from(self, record: Record) -> None:
        self.transactions_from = int(record["id"])

    def _transaction(self, record: Record) -> None:
        id = record["id"]
        self.transactions[id] = Transaction(id, record["timeout_ms"], record["opened_ms"], record.get("owner", ""))

    def _transaction_part(self, record: Record) -> None:
        transaction = self.transactions.get(record["id"])
        if transaction is None:  # its own record was damaged
            return
        transaction.part_bytes += len(encode(record))
        transaction.topics.update(record.get("topics", ()))
        transaction.subscriptions.update((topic, name) for topic, name in record.get("subscriptions", ()))

    def _commit(self, record: Record) -> None:
        self._decide(record, COMMITTING)

    def _abort(self, record: Record) -> None:
        self._decide(record, ABORTING)

    def _decide(self, record: Record, status: Status) -> None:
        """Logs of older versions, which did not record open transactions, decide transactions that no record began."""
        transaction = self.transactions.setdefault(record["id"], Transaction(record["id"]))
        transaction.status, transaction.told = status, record["topics"]

    def _no_transaction(self, record: Record) -> None:
        self.transactions.pop(record["id"], None)

    def _forget_partitions(self, namespace: str, topic: str, partitions: int) -> None:
        gone = self.namespaces[namespace].deleted_partitions
        names = [name for i in range(partitions if gone else 0) if (name := f"{topic}-partition-{i}") in gone]
        gone.difference_update(names)
        self._forget_described(_no_partition_record(namespace, name) for name in names)

    def _forget_described(self, records: Iterable[Record]) -> None:
        self.described_bytes -= sum(len(encode(record)) for record in records)


_DESCRIBED: Final = frozenset({"broker", "cluster", "tenant", "namespace", "topic", "partition"})
_CHANGES: Final = {
    "broker": Catalog._broker,
    "cluster": Catalog._cluster,
    "no-cluster": Catalog._no_cluster,
    "tenant": Catalog._tenant,
    "no-tenant": Catalog._no_tenant,
    "namespace": Catalog._namespace,
    "no-namespace": Catalog._no_namespace,
    "topic": Catalog._topic,
    "no-topic": Catalog._no_topic,
    "no-partition": Catalog._no_partition,
    "partition": Catalog._partition,
    "subscription": Catalog._subscription,
    "schema": Catalog._schema,
    "no-schemas": Catalog._no_schemas,
    "transactions-from": Catalog._transactions_from,
    "transaction": Catalog._transaction,
    "transaction-part": Catalog._transaction_part,
    "commit": Catalog._commit,
    "abort": Catalog._abort,
    "no-transaction": Catalog._no_transaction,
    "no-commit": Catalog._no_transaction,  # its name in older versions
}


def _namespace_record(name: str, namespace: Namespace) -> Record:
    return {"do": "namespace", "name": name, "policies": namespace.policies}


def _no_partition_record(namespace: str, name: str) -> Record:
    return {"do": "no-partition", "namespace": namespace, "name": name}


def topic_record(namespace: str, name: str, topic: Topic) -> Record:
    record: Record = {"do": "topic", "namespace": namespace, "name": name, "partitions": topic.partitions}
    if topic.properties:
        record["properties"] = topic.properties
    if topic.permissions:
        record["permissions"] = topic.permissions
    if topic.policies:
        record["policies"] = topic.policies
    return record


def subscription_record(namespace: str, topic: str, name: str, subscription: Subscription) -> Record:
    record: Record = {"do": "subscription", "namespace": namespace, "topic": topic, "name": name}
    if subscription.properties:
        record["properties"] = subscription.properties
    if subscription.replicated:
        record["replicated"] = True
    return record


def schema_record(topic: str, schema: Schema) -> Record:
    return {
        "do": "schema", "topic": topic, "version": schema.version, "type": schema.type, "data": schema.data,
        "properties": schema.properties, "timestamp_ms": schema.timestamp_ms, "user": schema.user, "name": schema.name,
    }  # fmt: skip


def transaction_record(id: int, timeout_ms: int, opened_ms: int, owner: str) -> Record:
    record: Record = {"do": "transaction", "id": id, "timeout_ms": timeout_ms, "opened_ms": opened_ms}
    return {**record, "owner": owner} if owner else record


def transaction_part_record(id: int, topics: Iterable[str], subscriptions: Iterable[tuple[str, str]]) -> Record:
    return {
        "do": "transaction-part", "id": id, "topics": sorted(topics),
        "subscriptions": [list(pair) for pair in sorted(subscriptions)],
    }  # fmt: skip


def transaction_records(one: Transaction) -> Iterator[Record]:
    yield transaction_record(one.id, one.timeout_ms, one.opened_ms, one.owner)
    if one.topics or one.subscriptions:
        yield transaction_part_record(one.id, one.topics, one.subscriptions)
    if one.status != OPEN:
        yield {"do": "commit" if one.status == COMMITTING else "abort", "id": one.id, "topics": one.told}


def with_partitions(topic: Topic, partitions: int) -> Topic:
    return replace(topic, partitions=partitions)


def encode(record: Record) -> bytes:
    return orjson.dumps(record)


def decode(payload: bytes) -> Record:
    """Decodes a record of the log. Raises CatalogError."""
    try:
        record = orjson.loads(payload)
    except orjson.JSONDecodeError as error:
        raise CatalogError(f"a record cannot be read: {error}") from None
    if not isinstance(record, dict):
        raise CatalogError("a record is not an object")
    return record
