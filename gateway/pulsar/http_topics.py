"""REST: topics and their partitions, figures, permissions and properties."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from mq_shards.acceptor.protocols.pulsar.names import NON_PERSISTENT, PERSISTENT, TopicName
from mq_shards.acceptor.protocols.pulsar.position import Position, last_entry
from mq_shards.gateway.http_answers import Answer
from mq_shards.gateway.pulsar import bundles
from mq_shards.gateway.pulsar.catalog import Json, Topic, topic_record
from mq_shards.gateway.pulsar.compaction import Compaction
from mq_shards.gateway.pulsar.control import NO_NAMESPACE, Control
from mq_shards.gateway.pulsar.http_namespaces import MAX_ROLES, actions_of
from mq_shards.gateway.pulsar.http_tenants import NO_TENANT
from mq_shards.gateway.pulsar.refusals import RefusedError, not_found, precondition, too_many
from mq_shards.gateway.pulsar.requests import NO_CONTENT, Call, Routes, json_of
from mq_shards.gateway.pulsar.scalars import whole
from mq_shards.gateway.pulsar.stats import Stats, metadata_of
from mq_shards.gateway.pulsar.upkeep import Upkeep
from mq_shards.gateway.turns import in_pieces

TOPIC = "/admin/v2/{domain}/{tenant}/{namespace}/{topic}"


class HttpTopics:
    def __init__(self, control: Control, compaction: Compaction, upkeep: Upkeep, stats: Stats) -> None:
        self._control = control
        self._compactions = compaction
        self._upkeep = upkeep
        self._stats = stats
        self.routes: Routes = {
            "/admin/v2/{domain}/{tenant}/{namespace}": {"GET": self._list},
            "/admin/v2/{domain}/{tenant}/{namespace}/partitioned": {"GET": self._list_partitioned},
            TOPIC: {"GET": self._list_in_bundle, "PUT": self._make, "DELETE": self._delete},
            f"{TOPIC}/partitions": {
                "GET": self._partitions, "PUT": self._make_partitioned, "POST": self._grow,
                "DELETE": self._delete_partitioned,
            },
            f"{TOPIC}/stats": {"GET": self._stats_of},
            f"{TOPIC}/partitioned-stats": {"GET": self._partitioned_stats},
            f"{TOPIC}/internalStats": {"GET": self._internal},
            f"{TOPIC}/internal-info": {"GET": self._info},
            f"{TOPIC}/partitioned-internalStats": {"GET": self._partitioned_internal},
            f"{TOPIC}/unload": {"PUT": self._unload},
            f"{TOPIC}/terminate": {"POST": self._terminate},
            f"{TOPIC}/trim": {"POST": self._trim},
            f"{TOPIC}/createMissedPartitions": {"POST": self._make_missing},
            f"{TOPIC}/lastMessageId": {"GET": self._last},
            f"{TOPIC}/compaction": {"GET": self._compaction, "PUT": self._compact},
            f"{TOPIC}/offload": {"GET": self._offloaded, "PUT": self._not_here},
            f"{TOPIC}/properties": {
                "GET": self._properties, "PUT": self._set_properties, "DELETE": self._no_property,
            },
            f"{TOPIC}/permissions": {"GET": self._permissions},
            f"{TOPIC}/permissions/{{role}}": {"POST": self._grant, "DELETE": self._revoke},
        }  # fmt: skip

    # --- lists ------------------------------------------------------------------------------------------------------

    @staticmethod
    def _domain(call: Call) -> str:
        domain = call.names["domain"]
        if domain not in (PERSISTENT, NON_PERSISTENT):
            raise RefusedError(404, "TopicNotFound", "HTTP 404 Not Found")
        return domain

    async def _list(self, call: Call) -> Answer:
        self._control.namespace(call.namespace, NO_NAMESPACE, made=True)
        names = await self._control.topics(call.namespace, self._domain(call))
        bundle = call.fields.get("bundle")
        if bundle is not None:
            boundaries = bundles.boundaries_of(self._control.namespace(call.namespace).policies)
            some = in_pieces(names)
            names = [one async for piece in some for one in piece if bundles.bundle_of(boundaries, one) == bundle]
        await self._control.store.settled()
        return json_of(names)

    async def _list_in_bundle(self, call: Call) -> Answer:
        """Of topics that are not persistent those in a bundle, which is where another path has a topic."""
        if self._domain(call) == PERSISTENT:
            raise RefusedError(405, "NotAllowedError", "HTTP 405 Method Not Allowed")
        boundaries = bundles.boundaries_of(self._control.namespace(call.namespace, "Namespace does not exist").policies)
        low, high = bundles.checked(call.namespace, boundaries, call.names["topic"])
        names = await bundles.in_range(low, high, await self._control.topics(call.namespace, NON_PERSISTENT))
        await self._control.store.settled()
        return json_of(names)

    async def _list_partitioned(self, call: Call) -> Answer:
        self._control.namespace(call.namespace, NO_NAMESPACE, made=True)
        names = await self._control.topics(call.namespace, self._domain(call), partitioned=True)
        await self._control.store.settled()
        return json_of(names)

    # --- topics -----------------------------------------------------------------------------------------------------

    async def _make(self, call: Call) -> Answer:
        name = call.topic(self._control)
        properties = await call.texts()
        self._control.namespace(call.namespace)
        base = self._control.store.catalog.topic(name.namespace, str(name.base))
        if name.partition >= 0 and (base is None or not base.partitions):
            raise precondition(
                f"Can't create topic {name.local} with \"-partition-\" followed by numeric value if there isn't a "
                f"partitioned topic {name.base.local} created."
            )
        if base is not None and name.partition >= base.partitions > 0:
            raise precondition(
                f'Can\'t create topic {name.local} with "-partition-" followed by a number smaller than number of '
                f"partition of partitioned topic {name.base.local}"
            )
        await self._control.create_new(name, 0, properties)
        return NO_CONTENT

    async def _delete(self, call: Call) -> Answer:
        name = call.topic(self._control)
        await self._control.delete(name, force=call.flag("force"))
        return NO_CONTENT

    async def _partitions(self, call: Call) -> Answer:
        name = call.topic(self._control)
        create = call.flag("checkAllowAutoCreation")
        partitions = await self._control.partitions(name, create=create)
        if not partitions and not (create and self._control.may_make(name)):
            await self._control.check_exists(name)
        found: dict[str, Any] = {"partitions": partitions, "deleted": False}
        topic = self._control.store.catalog.topic(name.namespace, str(name))
        if topic is not None and topic.partitions and topic.properties:
            found["properties"] = topic.properties
        return json_of(found)

    async def _make_partitioned(self, call: Call) -> Answer:
        name = call.topic(self._control)
        partitions, properties = await self._wanted(call)
        self._control.namespace(call.namespace)
        self._control.check_partitions(partitions)
        await self._control.create_new(name, partitions, properties)
        return NO_CONTENT

    @staticmethod
    async def _wanted(call: Call) -> tuple[int, dict[str, str]]:
        """The body of a new partitioned topic: the number of partitions, or an object that also has properties."""
        found = await call.json(needed=True)
        properties: dict[str, str] = {}
        if isinstance(found, dict):
            properties, found = found.get("properties") or {}, found.get("partitions")
        return whole(found, "the number of partitions"), properties

    async def _grow(self, call: Call) -> Answer:
        name = call.topic(self._control)
        await self._control.grow(name, await call.integer())
        return NO_CONTENT

    async def _make_missing(self, call: Call) -> Answer:
        """No partition can be missing: each is made when it is used, by the number that the catalog has."""
        name = call.topic(self._control)
        topic = self._control.namespace(name.namespace).topics.get(str(name))
        if topic is None or not topic.partitions:
            raise not_found(f"Topic {name} does not exist")
        return NO_CONTENT

    async def _delete_partitioned(self, call: Call) -> Answer:
        name = call.topic(self._control)
        await self._control.delete_partitioned(name, force=call.flag("force"))
        return NO_CONTENT

    # --- figures ----------------------------------------------------------------------------------------------------

    async def _one(self, call: Call) -> TopicName:
        """The topic, which must exist and must not be partitioned."""
        name = call.topic(self._control)
        namespace = self._control.namespace(name.namespace)
        topic, base = namespace.topics.get(str(name)), namespace.topics.get(str(name.base))
        if topic is not None and topic.partitions:
            raise not_found(f"Topic {name} not found")
        if name.partition >= 0 and base is not None and name.partition >= base.partitions > 0:
            raise not_found("Topic partitions were not yet created" if namespace.is_made else NO_NAMESPACE)
        await self._control.check_exists(name)
        return name

    def _of_partitions(self, call: Call) -> tuple[TopicName, Topic]:
        name = call.topic(self._control)
        topic = self._control.namespace(name.namespace).topics.get(str(name))
        if topic is None or not topic.partitions:
            raise not_found(f"Partitioned Topic {name} not found")
        return name, topic

    async def _stats_of(self, call: Call) -> Answer:
        earliest = call.flag("getEarliestTimeInBacklog")
        found = await self._stats.topic(await self._one(call), earliest=earliest)
        return json_of(_as_asked(call, found))

    async def _partitioned_stats(self, call: Call) -> Answer:
        name, _ = self._of_partitions(call)
        per_partition = call.flag("perPartition", default=True)
        found = await self._stats.partitioned(name, per_partition=per_partition)
        for part in found["partitions"].values():
            _as_asked(call, part)
        return json_of(_as_asked(call, found, len(self._control.parts(name))))

    async def _internal(self, call: Call) -> Answer:
        return json_of(await self._stats.internal(await self._one(call)))

    async def _info(self, call: Call) -> Answer:
        name = call.topic(self._control)
        await self._control.check_exists(name)
        parts = {str(part): await self._stats.info(part) for part in self._control.parts(name)}
        return json_of({"version": 0, "partitions": parts} if parts.keys() != {str(name)} else parts[str(name)])

    async def _partitioned_internal(self, call: Call) -> Answer:
        name, topic = self._of_partitions(call)
        parts = {str(part): await self._stats.internal(part) for part in self._control.parts(name)}
        return json_of({"metadata": metadata_of(topic), "partitions": parts})

    # --- operations -------------------------------------------------------------------------------------------------

    async def _unload(self, call: Call) -> Answer:
        """Tells clients to reconnect; there is nothing else to unload."""
        name = call.topic(self._control)
        await self._control.check_exists(name)
        await self._control.clients.close([str(part) for part in self._control.parts(name)])
        return NO_CONTENT

    async def _terminate(self, call: Call) -> Answer:
        name = call.topic(self._control)
        topic = self._control.namespace(name.namespace).topics.get(str(name))
        if topic is not None and topic.partitions:
            raise RefusedError(405, "NotAllowedError", "Termination of a partitioned topic is not allowed")
        await self._control.check_exists(name)
        await self._stats.position(name)
        await self._control.core.terminate(name.core)
        await self._control.clients.terminated(str(name))
        # A real broker names the entry alone here.
        return json_of({**message_id(name, await self._stats.position(name)), "partitionIndex": -1, "batchIndex": -1})

    async def _last(self, call: Call) -> Answer:
        name = await self._one(call)
        return json_of(message_id(name, await self._stats.position(name)))

    async def _trim(self, call: Call) -> Answer:
        name = call.topic(self._control)
        await self._control.check_exists(name)
        for part in self._control.parts(name):
            await self._upkeep.trim(part)
        return Answer(200)

    async def _compaction(self, call: Call) -> Answer:
        run = self._compactions.of(await self._compactable(call))
        return json_of({"status": run.status, "lastError": run.error})

    async def _compactable(self, call: Call) -> TopicName:
        name = await self._one(call)
        if name.domain != PERSISTENT:
            raise not_found(f"Topic {name} not found")
        return name

    async def _compact(self, call: Call) -> Answer:
        """Starts compaction of a topic, or of each partition."""
        name = call.topic(self._control)
        topic = self._control.namespace(name.namespace).topics.get(str(name))
        parts = self._control.parts(name) if topic is not None and topic.partitions else [await self._compactable(call)]
        for part in parts:
            self._compactions.start(part)
        return NO_CONTENT

    async def _offloaded(self, call: Call) -> Answer:
        """Nothing ever is."""
        await self._control.check_exists(call.topic(self._control))
        return json_of({"status": "NOT_RUN", "lastError": "", "firstUnoffloadedMessage": NO_MESSAGE})

    async def _not_here(self, call: Call) -> Answer:
        await self._control.check_exists(call.topic(self._control))
        raise RefusedError(501, "NotAllowedError", "this broker cannot do that yet")

    # --- properties and permissions ---------------------------------------------------------------------------------

    def _made(self, call: Call) -> tuple[TopicName, Topic]:
        name = call.topic(self._control)
        topic = self._control.namespace(name.namespace).topics.get(str(name))
        if topic is None:
            raise not_found(f"Topic {name} not found")
        return name, topic

    async def _properties(self, call: Call) -> Answer:
        return json_of(self._made(call)[1].properties)

    async def _set_properties(self, call: Call) -> Answer:
        given = await call.texts()
        name, topic = self._made(call)
        await self._control.set_properties(name, {**topic.properties, **given})
        return NO_CONTENT

    async def _no_property(self, call: Call) -> Answer:
        name, topic = self._made(call)
        key = call.fields.get("key", "")
        await self._control.set_properties(name, {n: v for n, v in topic.properties.items() if n != key})
        return NO_CONTENT

    def _guarded(self, call: Call, reason: str) -> tuple[TopicName, Topic]:
        """A topic that permissions are about; `reason`: its namespace is not there."""
        if call.names["tenant"] not in self._control.store.catalog.tenants:
            raise not_found(NO_TENANT)
        name, topic = self._made(call)
        self._control.namespace(name.namespace, reason, made=True)
        return name, topic

    async def _permissions(self, call: Call) -> Answer:
        name, topic = self._guarded(call, NO_NAMESPACE)
        policies = self._control.namespace(name.namespace).policies
        of_namespace: dict[str, list[str]] = policies.get("auth_policies", {}).get("namespace_auth", {})
        return json_of({**of_namespace, **topic.permissions})

    async def _set_permissions(self, name: TopicName, topic: Topic, permissions: dict[str, list[str]]) -> Answer:
        if len(permissions) > MAX_ROLES:
            raise too_many("there are as many roles as there may be")
        record = topic_record(name.namespace, str(name), replace(topic, permissions=permissions))
        await self._control.store.commit(record)
        self._control.permissions_changed(name.tenant)
        return NO_CONTENT

    async def _grant(self, call: Call) -> Answer:
        actions = await actions_of(call)
        name, topic = self._guarded(call, "Topic's namespace does not exist")
        return await self._set_permissions(name, topic, {**topic.permissions, call.names["role"]: actions})

    async def _revoke(self, call: Call) -> Answer:
        name, topic = self._guarded(call, "")
        left = {role: what for role, what in topic.permissions.items() if role != call.names["role"]}
        return await self._set_permissions(name, topic, left)


NO_MESSAGE: Final = {"ledgerId": -1, "entryId": -1, "partitionIndex": -1, "batchSize": 0, "batchIndex": -1}


def message_id(name: TopicName, position: Position) -> dict[str, int]:
    """The id of the last message; entry -1 if this incarnation has none."""
    empty = position.next_seq == position.began_seq
    parts = position.last_parts
    return {
        "ledgerId": position.incarnation,
        "entryId": -1 if empty else last_entry(position),
        "partitionIndex": name.partition,
        "batchIndex": parts - 1 if parts > 0 and not empty else -1,
        "batchSize": 0,
    }


def _as_asked(call: Call, stats: Json, partitions: int = 1) -> Json:
    """Leaves out of a topic's stats what is not wanted: clients; sizes of backlogs, of each partition -1."""
    if not call.flag("subscriptionBacklogSize", default=True):
        for subscription in stats["subscriptions"].values():
            subscription["backlogSize"] = -partitions
    if call.flag("excludePublishers"):
        stats["publishers"] = []
    if call.flag("excludeConsumers"):
        for subscription in stats["subscriptions"].values():
            subscription["consumers"] = []
    return stats
