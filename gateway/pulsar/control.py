"""The operations on the catalog and on topics, for all callers: each is checked, made durable, and told to acceptors.

An operation is checked against the catalog and changes it with no await between the two. Workers do their part after
that when something is made, and before it when something is deleted. So what is interrupted halfway is still in the
catalog, and can be deleted again. Every method raises RefusedError, and StoreError when the catalog cannot be written.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import replace
from typing import Final
from weakref import WeakValueDictionary

from mq_shards.acceptor.protocols.pulsar.names import (
    ASSIGN,
    COORDINATORS,
    NON_PERSISTENT,
    PERSISTENT,
    PulsarNameError,
    TopicName,
    check_namespace,
    cluster_of,
    has_cluster,
    is_local,
    topic_name,
)
from mq_shards.gateway.catalog import Channel
from mq_shards.gateway.catalog import Topic as Figures
from mq_shards.gateway.pulsar import policies as policies_module
from mq_shards.gateway.pulsar import resource_groups, schemas
from mq_shards.gateway.pulsar.admission import Admission
from mq_shards.gateway.pulsar.broker_options import BrokerOptions
from mq_shards.gateway.pulsar.catalog import (
    CLUSTER,
    UNMADE,
    Json,
    Namespace,
    Record,
    Schema,
    Topic,
    schema_record,
    topic_record,
)
from mq_shards.gateway.pulsar.clients import Clients
from mq_shards.gateway.pulsar.core import EARLIEST, Core, durable_channels, shown_channels
from mq_shards.gateway.pulsar.listing import Listing
from mq_shards.gateway.pulsar.refusals import RefusedError, bad_name, conflict, not_found, precondition, too_many
from mq_shards.gateway.pulsar.relative_rates import RelativeRates
from mq_shards.gateway.pulsar.schema_checks import SchemaChecks
from mq_shards.gateway.pulsar.schemas import IncompatibleError, InvalidSchemaError, WrongDefaultError
from mq_shards.gateway.pulsar.store import Store
from mq_shards.gateway.pulsar.subscription_properties import SubscriptionProperties, checked

# The limits of the catalog.
MAX_TENANTS: Final = 10_000
MAX_NAMESPACES: Final = 100_000
MAX_TOPICS: Final = 1 << 20
INVALID_SCHEMA: Final = 422  # the status for one that is not valid
MAX_SCHEMA_VERSIONS: Final = 1000  # of a topic
MAX_SCHEMAS_BYTES: Final = 256 << 20
# With these a consumer has to read only what is written with the latest schema.
READ_AS_LATEST: Final = ("BACKWARD", "FORWARD", "FORWARD_TRANSITIVE", "FULL")

NAMESPACE_NOT_FOUND: Final = "Namespace not found"
NO_NAMESPACE: Final = "Namespace does not exist"
CLUSTERS: Final = "replication_clusters"
NO_CLUSTER: Final = "Cluster does not exist: cluster={}"
NO_ROOM: Final = "there are as many namespaces as there may be"

Changed = Callable[[str, list[str], list[str]], Awaitable[None]]


def is_here(namespace: str) -> bool:
    """Whether the cluster in its name, if it has one, is this one. It need not be, where nobody needs permission."""
    return cluster_of(namespace) in ("", CLUSTER)


@contextlib.contextmanager
def _refusing() -> Iterator[None]:
    """What is wrong with a schema, as it is answered."""
    try:
        yield
    except InvalidSchemaError as error:
        raise RefusedError(INVALID_SCHEMA, "IncompatibleSchema", str(error)) from None
    except IncompatibleError as error:
        raise RefusedError(409, "IncompatibleSchema", str(error)) from None
    except WrongDefaultError as error:
        raise RefusedError(500, "UnknownError", str(error)) from None


class Control:
    def __init__(
        self, store: Store, core: Core, clients: Clients, now_s: Callable[[], float] = time.time, address: str = ""
    ) -> None:
        """`address`: how error messages to clients name this broker."""
        self._address: Final = address
        self.store: Final = store
        self.core: Final = core
        self.clients: Final = clients
        self.admission: Final = Admission(core, clients)
        self.relative_rates: Final = RelativeRates(time.monotonic)
        self.options: Final = BrokerOptions(lambda: store.catalog)
        self.schema_checks: Final = SchemaChecks()
        self.subscription_properties: Final = SubscriptionProperties(store, core)
        self._listing = Listing(core)
        self._putting: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()  # held to put a topic's schema
        self.on_topics: list[Changed] = []  # called with the namespace, new topics, and deleted topics
        self.on_policies: list[Callable[[str, str | None], None]] = []
        self.on_all_policies: list[Callable[[], None]] = []
        self.on_permissions: list[Callable[[str], None]] = []  # called with the tenant
        self.now_s: Final = now_s

    # --- names ------------------------------------------------------------------------------------------------------

    def name(self, text: str) -> TopicName:
        try:
            return topic_name(text)
        except PulsarNameError as error:
            raise bad_name(str(error)) from None

    def namespace(self, name: str, reason: str = NAMESPACE_NOT_FOUND, *, made: bool = False) -> Namespace:
        """A namespace in which topics can be; `made`: one that somebody has made."""
        self.store.check()
        try:
            found = self.store.catalog.namespace(check_namespace(name))
        except PulsarNameError as error:
            raise bad_name(str(error)) from None
        if found is None or (made and not found.is_made):
            raise not_found(reason)
        if not made and has_cluster(name) and not is_local(name) and not found.policies.get(CLUSTERS):
            why = f"Namespace does not have any clusters configured : local_cluster={CLUSTER} ns={name}"
            raise RefusedError(412, "MetadataError", why)
        return found

    def _made(self, name: TopicName) -> Topic | None:
        """The topic as the catalog has it. A partition exists with its topic, unless it alone was deleted."""
        namespace = self.namespace(name.namespace)
        found = namespace.topics.get(str(name))
        if found is None and str(name) not in namespace.deleted_partitions and self._is_partition(name):
            return Topic()
        return found

    def _is_partition(self, name: TopicName) -> bool:
        """Whether it is a partition of a partitioned topic, deleted or not, and not one by its name alone."""
        base = self.namespace(name.namespace).topics.get(str(name.base))
        return base is not None and 0 <= name.partition < base.partitions

    async def exists(self, name: TopicName) -> bool:
        """Whether the catalog has it, or a client of another protocol has made it."""
        if self._made(name) is not None:
            return True
        return await self.core.figures(name.core) is not None

    async def check_exists(self, name: TopicName) -> None:
        if not await self.exists(name):
            raise not_found(f"Topic {name} not found")

    async def existing_parts(self, name: TopicName) -> list[TopicName]:
        """parts() of a topic that must exist."""
        await self.check_exists(name)
        return self.parts(name)

    # --- what acceptors ask -----------------------------------------------------------------------------------------

    async def partitions(self, name: TopicName, *, create: bool) -> int:
        """How many partitions a topic has; 0: it is not partitioned.

        With `create` the topic is made if its namespace makes partitioned topics automatically.
        """
        if str(name) == ASSIGN:
            return COORDINATORS
        namespace = self.namespace(name.namespace)
        topic = namespace.topics.get(str(name))
        if topic is None and name.partition < 0 and create:
            allowed, partitions = policies_module.auto_creation(self.of_namespace(namespace))
            if allowed and partitions and not await self.exists(name) and self._made(name) is None:
                await self.create(name, partitions)
            topic = namespace.topics.get(str(name))
        await self.store.settled()
        return 0 if topic is None else topic.partitions

    def may_make(self, name: TopicName) -> bool:
        """Whether a client that uses a topic that does not exist makes it."""
        namespace = self.store.catalog.namespace(name.namespace)
        if namespace is None:
            return False
        return policies_module.auto_creation(self.of_namespace(namespace))[0] and not self._beyond(namespace, name)

    async def open(self, name: TopicName, *, create: bool, asked: Json | None = None) -> Json:
        """Opens a topic for a client, and makes it if need be. For a producer or a consumer `asked` describes it."""
        namespace = self.store.catalog.namespace(name.namespace)
        self.store.check()
        if namespace is None:
            bundle = f"Namespace bundle ({name.namespace}/0x00000000_0xffffffff) for topic ({name})"
            why = f"{bundle} not served by this instance:{self._address}. Please redo the lookup."
            raise RefusedError(404, "ServiceNotReady", why)
        if not await self.exists(name):
            consumes = asked is not None and asked["action"] == "consume"
            why = f"Topic {name} does not exist" if consumes else f"Topic not found {name}"
            if not create or not self.may_make(name):
                raise not_found(why)
            if self._made(name) is None:
                await self.create(name, 0)
        await self.store.settled()
        has_schema = self.store.catalog.schema(str(name.base)) is not None
        policies = policies_module.told(self.policies_of(name))
        if asked is not None:
            await self.admission.check(name, asked, policies, has_schema=has_schema)
        of_namespace = self.of_namespace(namespace)
        own = policies_module.told_of_topic(of_namespace, self.own_policies(name))
        return {"policies": policies_module.told(of_namespace), "topic_policies": own, "schema": has_schema}

    async def _make(self, name: TopicName) -> None:
        await self.core.make(name.core)
        if policies_module.is_kept(self.policies_of(name)):
            await self.core.keep(name.core)

    def policies_of(self, name: TopicName) -> Json:
        """A topic's policies in stored form: its own over its namespace's. A partition has those of its topic."""
        return policies_module.of_topic(self.of_namespace(self.namespace(name.namespace)), self.own_policies(name))

    def of_namespace(self, namespace: Namespace) -> Json:
        """What holds for a namespace: its own policies, and the broker's options where it does not say otherwise."""
        found, defaults = namespace.policies, self.options.policies
        if defaults:
            found = {**defaults, **found}
        limits = resource_groups.limits_of(self.store.catalog, found)
        return found if limits is None else {**found, "resource_group": limits}

    def own_policies(self, name: TopicName) -> Json:
        topics = self.namespace(name.namespace).topics
        topic = topics.get(str(name)) or topics.get(str(name.base))
        found, published = topic.policies if topic is not None else {}, self.relative_rates.of(name)
        return {**found, **published} if published else found

    @staticmethod
    def _beyond(namespace: Namespace, name: TopicName) -> bool:
        """Whether the name is that of a partition beyond those that the topic has."""
        base = namespace.topics.get(str(name.base))
        return name.partition >= 0 and base is not None and 0 < base.partitions <= name.partition

    # --- topics -----------------------------------------------------------------------------------------------------

    async def create(self, name: TopicName, partitions: int, properties: dict[str, str] | None = None) -> None:
        """Makes a topic; 0 partitions: not partitioned. The caller has checked that it does not exist."""
        namespace = self.namespace(name.namespace)
        self._check_last_part(name, partitions)
        self._check_room(namespace, max(partitions, 1))
        if str(name) in namespace.deleted_partitions:
            self.store.change({"do": "partition", "namespace": name.namespace, "name": str(name)})
        else:
            topic = Topic(partitions, checked(properties))
            self.store.change(topic_record(name.namespace, str(name), topic))
        await self.store.settled()
        made = [name.of_partition(i) for i in range(partitions)] if partitions else [name]
        for one in made:
            if one.domain == PERSISTENT:
                await self._make(one)
        await self._tell_topics(name.namespace, [str(one) for one in made], [])

    async def create_new(self, name: TopicName, partitions: int, properties: dict[str, str] | None = None) -> None:
        self.namespace(name.namespace)
        if await self.exists(name) or self._made(name) is not None:
            raise conflict("This topic already exists")
        await self.create(name, partitions, properties)

    def check_partitions(self, partitions: int) -> None:
        if partitions <= 0:
            raise RefusedError(406, "NotAllowedError", "Number of partitions should be more than 0")
        limit = policies_module.MAX_PARTITIONS
        most = min(self.options.of("maxNumPartitionsPerPartitionedTopic") or limit, limit)
        if partitions > most:
            reason = f"Number of partitions should be less than or equal to {most}"
            raise RefusedError(406, "NotAllowedError", reason)

    def _check_last_part(self, name: TopicName, partitions: int) -> None:
        """Each partition is a topic, whose name is longer."""
        if partitions:
            self.name(str(name.of_partition(partitions - 1)))

    def _check_room(self, namespace: Namespace, more: int) -> None:
        most = int(self.of_namespace(namespace).get("max_topics_per_namespace") or 0)
        there_are = sum(max(topic.partitions, 1) for topic in namespace.topics.values()) if most else 0
        if most and there_are + more > most:
            raise conflict("Exceed maximum number of topics in namespace.")
        if self.store.catalog.topic_count >= MAX_TOPICS:
            raise too_many(f"there are {MAX_TOPICS} topics already")
        if namespace is UNMADE and len(self.store.catalog.namespaces) >= MAX_NAMESPACES:
            raise too_many(NO_ROOM)

    async def grow(self, name: TopicName, partitions: int) -> None:
        topic = self.namespace(name.namespace, NO_NAMESPACE, made=True).topics.get(str(name))
        if topic is None or topic.partitions == 0:
            raise conflict(f"Topic {name} is not the partitioned topic.")
        if partitions < topic.partitions:
            reason = f"Desired partitions {partitions} can't be less than the current partitions {topic.partitions}."
            raise RefusedError(422, "NotAllowedError", reason)
        most = self.options.of("maxNumPartitionsPerPartitionedTopic")
        if 0 < most < partitions:
            reason = f"Desired partitions {partitions} can't be greater than the maximum partitions per topic {most}."
            raise RefusedError(422, "NotAllowedError", reason)
        self.check_partitions(partitions)
        self._check_last_part(name, partitions)
        new = [name.of_partition(i) for i in range(topic.partitions, partitions)]
        await self._make_more(new, await self.subscriptions(name, durable_channels))
        now = self.namespace(name.namespace).topics.get(str(name))
        if now is None or now.partitions == 0:  # it was deleted meanwhile
            raise conflict(f"Topic {name} is not the partitioned topic.")
        if now.partitions < partitions:
            self.store.change(topic_record(name.namespace, str(name), replace(now, partitions=partitions)))
        await self.store.settled()
        await self._tell_topics(name.namespace, [str(one) for one in new], [])

    async def _make_more(self, new: list[TopicName], subscriptions: list[str]) -> None:
        """Makes partitions before the catalog has them: who publishes to one finds all subscriptions there, also when
        this is cut short and done again."""
        for one in new:
            if one.domain == PERSISTENT:
                await self._make(one)
                for subscription in subscriptions:
                    await self.core.begin_subscription(one.core, subscription, EARLIEST)

    async def delete(self, name: TopicName, *, force: bool) -> None:
        """Deletes a topic that is not partitioned, or one partition."""
        namespace = self.namespace(name.namespace)
        topic = namespace.topics.get(str(name))
        if topic is not None and topic.partitions:
            if has_cluster(name.namespace):
                raise not_found(f"Topic {name} not found")
            raise conflict(
                f"{name} is a partitioned topic, instead of calling delete topic, please call delete-partitioned-topic."
            )
        await self.check_exists(name)
        await self._delete_data([name], force=force)
        records: list[Record] = []
        if str(name) in namespace.topics:
            records.append({"do": "no-topic", "namespace": name.namespace, "name": str(name)})
            records += self._no_schemas(name)
        elif self._is_partition(name):
            records.append({"do": "no-partition", "namespace": name.namespace, "name": str(name)})
        if records:
            await self.store.commit(*records)
        await self._tell_topics(name.namespace, [], [str(name)])

    async def delete_partitioned(self, name: TopicName, *, force: bool) -> None:
        topic = self.namespace(name.namespace).topics.get(str(name))
        if topic is None:
            raise not_found(f"Topic {name} not found.")
        if topic.partitions == 0:
            raise conflict(
                f"{name} is a non-partitioned topic. Instead of calling delete-partitioned-topic please call delete."
            )
        parts = [name.of_partition(i) for i in range(topic.partitions)]
        await self._delete_data(parts, force=force)
        gone: Record = {"do": "no-topic", "namespace": name.namespace, "name": str(name)}
        await self.store.commit(gone, *self._no_schemas(name))
        await self._tell_topics(name.namespace, [], [str(part) for part in parts])

    async def delete_topics(self, namespace: str) -> None:
        """Deletes all topics of a namespace, whoever uses them."""
        for text in list(self.namespace(namespace).topics):
            name = self.name(text)
            topic = self.namespace(namespace).topics.get(text)
            with contextlib.suppress(RefusedError):  # somebody else has deleted it
                if topic is not None and topic.partitions:
                    await self.delete_partitioned(name, force=True)
                elif topic is not None:
                    await self.delete(name, force=True)
        for text in await self.topics_of_mode(namespace, "ALL"):  # those that are not in the catalog
            with contextlib.suppress(RefusedError):
                await self.delete(self.name(text), force=True)

    async def delete_namespace(self, name: str) -> None:
        """The caller has checked that it has no topics."""
        await self.store.commit({"do": "no-namespace", "name": name})
        self.policies_changed(name)

    async def _delete_data(self, names: list[TopicName], *, force: bool) -> None:
        connected = await self.clients.of([str(name) for name in names])
        count = sum(len(found.producers) for found in connected.values()) + await self.consumers(names)
        if count and not force:
            raise precondition(f"Topic has {count} connected producers/consumers")
        if count:
            await self.clients.close([str(name) for name in names])
        for name in names:
            await self.core.delete(name.core)

    async def consumers(self, names: Sequence[TopicName], subscription: str | None = None) -> int:
        """How many consumers, of any protocol, one subscription has, or all have."""
        found = [topic for name in names if (topic := await self.core.figures(name.core)) is not None]
        channels = [channel for topic in found for channel in topic.channels]
        return sum(one.consumer_count for one in channels if subscription is None or one.name == subscription)

    def _no_schemas(self, name: TopicName) -> list[Record]:
        return [{"do": "no-schemas", "topic": str(name)}] if str(name) in self.store.catalog.schemas else []

    async def set_properties(self, name: TopicName, properties: dict[str, str]) -> None:
        topic = self.namespace(name.namespace).topics.get(str(name))
        if topic is None:
            raise not_found(f"Topic {name} not found")
        record = topic_record(name.namespace, str(name), replace(topic, properties=checked(properties)))
        await self.store.commit(record)

    def parts(self, name: TopicName) -> list[TopicName]:
        """The partitions of a topic; if it is not partitioned, itself."""
        topic = self.namespace(name.namespace).topics.get(str(name))
        if topic is None or topic.partitions == 0:
            return [name]
        gone = self.namespace(name.namespace).deleted_partitions
        return [part for i in range(topic.partitions) if str(part := name.of_partition(i)) not in gone]

    async def topics(self, namespace_name: str, domain: str, *, partitioned: bool = False) -> list[str]:
        """Whole names, sorted: all topics, with each partition by itself, or only the partitioned topics."""
        namespace = self.namespace(namespace_name, NO_NAMESPACE)
        if not partitioned:
            return await self._listing.of(namespace_name, namespace, domain)
        prefix = f"{domain}://"
        return sorted(name for name, topic in namespace.topics.items() if topic.partitions and name.startswith(prefix))

    async def topics_of_mode(self, namespace: str, mode: str) -> list[str]:
        found: list[str] = []
        if mode != "PERSISTENT":  # its name sorts before "persistent"
            found += await self.topics(namespace, NON_PERSISTENT)
        if mode != "NON_PERSISTENT":
            found += await self.topics(namespace, PERSISTENT)
        return found

    async def subscriptions(
        self, name: TopicName, which: Callable[[Figures], list[Channel]] = shown_channels
    ) -> list[str]:
        found: set[str] = set()
        for part in self.parts(name):
            figures = await self.core.figures(part.core)
            if figures is not None:
                found.update(channel.name for channel in which(figures))
        return sorted(found)

    # --- schemas ----------------------------------------------------------------------------------------------------

    def strategy(self, name: TopicName) -> str:
        """The topic's own; else that of its namespace, else the broker's."""
        for policies in (self.own_policies(name), self.namespace(name.namespace).policies):
            found = str(policies.get("schema_compatibility_strategy", "UNDEFINED"))
            if found != "UNDEFINED":
                return found
        return schemas.DEFAULT_STRATEGY

    async def schema_version(self, name: TopicName, wanted: Schema) -> int:
        """The version that equals `wanted`; -1: there is none."""
        return await self.schema_checks.version(wanted, self.store.catalog.live_schemas(str(name.base)))

    async def check_schema(self, name: TopicName, new: Schema, strategy: str | None = None) -> None:
        live = self.store.catalog.live_schemas(str(name.base))
        with _refusing():
            await self.schema_checks.check(new, live, strategy or self.strategy(name))

    async def _check_defaults(self, name: TopicName, new: Schema) -> None:
        with _refusing():
            await self.schema_checks.defaults(new, self.store.catalog.live_schemas(str(name.base)))

    async def put_schema(self, name: TopicName, new: Schema, *, by_admin: bool = False) -> int:
        """Adds a schema, unless the topic has it already. Returns its version. `by_admin`: also where clients may not
        add one."""
        key = str(name.base)
        lock = self._putting.get(key)
        if lock is None:
            lock = self._putting[key] = asyncio.Lock()
        async with lock:  # a second request for the same topic waits while the first is checked
            while True:
                versions = self.store.catalog.schemas.get(key)
                count = len(versions or ())
                await self._check_defaults(name, new)
                version = await self.schema_version(name, new)
                if version < 0:
                    await self.check_schema(name, new)
                if self.store.catalog.schemas.get(key) is versions and len(versions or ()) == count:
                    break
            if version < 0:
                version = self._add_schema(name, new, count, by_admin=by_admin)
        await self.store.settled()
        return version

    def _add_schema(self, name: TopicName, new: Schema, count: int, *, by_admin: bool) -> int:
        policies = self.of_namespace(self.namespace(name.namespace))
        if not by_admin and not policies.get("is_allow_auto_update_schema", True):
            raise RefusedError(409, "IncompatibleSchema", "Schema not found and schema auto updating is disabled.")
        self._check_schema_room(new, count)
        version = self.store.catalog.next_schema(str(name.base))
        stored = replace(new, version=version, timestamp_ms=int(self.now_s() * 1000))
        self.store.change(schema_record(str(name.base), stored))
        return version

    async def consumer_schema(self, name: TopicName, new: Schema, *, idle: bool) -> int:
        """Checks a consumer's schema: it becomes the first of an idle topic, or must be able to read what is there."""
        if self.store.catalog.schema(str(name.base)) is None and idle:
            return await self._first_schema(name, new)
        live = self.store.catalog.live_schemas(str(name.base))
        if not live:
            why = f"Failed to add schema to an active topic with empty(BYTES) schema: new schema type {new.type}"
            raise RefusedError(409, "IncompatibleSchema", why)
        strategy = self.strategy(name)
        if strategy in READ_AS_LATEST:
            strategy = "BACKWARD"
        with _refusing():
            schemas.check_type(new, schemas.followed(live, strategy))
        await self.check_schema(name, new, strategy)
        await self.store.settled()
        return max(await self.schema_version(name, new), 0)

    async def _first_schema(self, name: TopicName, new: Schema) -> int:
        """A consumer's. As at a real broker one that is not valid is not put, and the consumer comes nevertheless."""
        try:
            return await self.put_schema(name, new)
        except RefusedError as error:
            if error.status != INVALID_SCHEMA:
                raise
            return -1

    def _check_schema_room(self, new: Schema, count: int) -> None:
        """For one more schema of a topic that has so many. Raises RefusedError."""
        if count >= MAX_SCHEMA_VERSIONS or self.store.catalog.schema_bytes + new.stored_bytes > MAX_SCHEMAS_BYTES:
            raise too_many("there are as many schemas as there may be")

    async def delete_schema(self, name: TopicName, *, force: bool = False) -> int:
        """Returns the version that records the deletion, also for a topic that had no schema. `force` leaves no record
        of any version, and returns -1."""
        if force:
            await self.store.commit(*self._no_schemas(name.base))
            return -1
        gone = Schema(self.store.catalog.next_schema(str(name.base)), "", "", {}, int(self.now_s() * 1000))
        self._check_schema_room(gone, len(self.store.catalog.schemas.get(str(name.base), ())))
        await self.store.commit(schema_record(str(name.base), gone))
        return gone.version

    # --- telling ----------------------------------------------------------------------------------------------------

    async def set_policies(self, namespace: str, policies: Json) -> None:
        await self.store.commit({"do": "namespace", "name": namespace, "policies": policies})
        self.policies_changed(namespace)

    async def set_broker(self, kind: str, data: Json) -> None:
        """What is kept of the broker as a whole (catalog.py)."""
        await self.store.commit({"do": "broker", "name": kind, "data": data})

    def all_policies_changed(self) -> None:
        """What holds for many namespaces has changed."""
        for changed in self.on_all_policies:
            changed()

    def policies_changed(self, namespace: str, topic: str | None = None) -> None:
        """`topic`: only the policies of this topic have changed."""
        for changed in self.on_policies:
            changed(namespace, topic)

    def permissions_changed(self, tenant: str) -> None:
        for changed in self.on_permissions:
            changed(tenant)

    async def _tell_topics(self, namespace: str, new: list[str], gone: list[str]) -> None:
        for changed in self.on_topics:
            await changed(namespace, new, gone)
