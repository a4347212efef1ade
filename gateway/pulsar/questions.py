"""Answers the questions that acceptors ask of the catalog, over calls. docs/pulsar-catalog.md lists them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final
from urllib.parse import quote_plus

import orjson
from mq_shards.acceptor.protocols.pulsar.names import TopicName, cluster_of
from mq_shards.gateway.calls import AcceptorCalls, Handler
from mq_shards.gateway.pulsar import policies
from mq_shards.gateway.pulsar.admission import SubscriptionNotFoundError
from mq_shards.gateway.pulsar.catalog import Json, Schema
from mq_shards.gateway.pulsar.control import NO_CLUSTER, Control, is_here
from mq_shards.gateway.pulsar.core import EARLIEST
from mq_shards.gateway.pulsar.listing import matching, topics_hash
from mq_shards.gateway.pulsar.refusals import RefusedError, not_found, subscription_name, too_many
from mq_shards.gateway.pulsar.roles import CONSUME, Roles, Who
from mq_shards.gateway.pulsar.store import StoreError
from mq_shards.gateway.pulsar.transactions import Coordinator
from mq_shards.gateway.pulsar.watches import ForeignDomainError, Matcher, Watches
from mq_shards.gateway.turns import in_pieces

# An acceptor that is asked waits 5 s for a sign of life from its client.
LOOK_NS: Final = 6_000_000_000
# The most bytes of names in one answer, and the bytes that precede each name in a frame.
MAX_TOPICS_BYTES: Final = 5 << 20
NAME_HEAD_BYTES: Final = 4
NOT_WATCHED: Final = "Exception occurred while trying to handle command WatchTopicList"
MODES: Final = ("PERSISTENT", "NON_PERSISTENT", "ALL")

# By the status of a schema that is valid and refused: what a real broker calls its exception.
_UNLIKE_OTHERS: Final = {
    409: "org.apache.pulsar.broker.service.schema.exceptions.IncompatibleSchemaException",
    500: "org.apache.avro.AvroTypeException",
}

Answer = Callable[[int, Json], Awaitable[Json]]


class Questions:
    def __init__(
        self, control: Control, calls: AcceptorCalls, watches: Watches, roles: Roles, coordinator: Coordinator
    ) -> None:
        self._control = control
        self._calls = calls
        self._watches = watches
        self._roles = roles
        for what, answer in {
            "pulsar.partitions": self._partitions,
            "pulsar.open": self._open,
            "pulsar.made": self._made,
            "pulsar.policies": self._policies,
            "pulsar.lookup": self._lookup,
            "pulsar.may": self._may,
            "pulsar.topics": self._topics,
            "pulsar.watch": self._watch,
            "pulsar.unwatch": self._unwatch,
            "pulsar.get-schema": self._get_schema,
            "pulsar.put-schema": self._put_schema,
            "pulsar.alive": self._alive,
            "pulsar.txn-begin": lambda _acceptor, asked: coordinator.begin(asked),
            "pulsar.txn-add": lambda _acceptor, asked: coordinator.add(asked),
            "pulsar.txn-end": lambda _acceptor, asked: coordinator.end(asked),
        }.items():
            calls.serve(what, self._serving(answer))
        control.on_topics.append(watches.changed)
        control.on_policies.append(self._tell_policies)
        control.on_all_policies.append(calls.tell_lost)
        control.on_permissions.append(self._tell_permissions)
        control.store.on_undone.append(calls.tell_lost)

    def _serving(self, answer: Answer) -> Handler:
        async def serve(acceptor: int, body: bytes) -> bytes:
            await self._control.store.opened()
            try:
                asked: Any = orjson.loads(body)
                found = await answer(acceptor, asked)
            except RefusedError as error:
                found = {"error": error.error, "reason": error.reason}
            except StoreError as error:
                found = {"error": "ServiceNotReady", "reason": str(error)}
            return orjson.dumps(found)

        return serve

    async def _alive(self, _acceptor: int, asked: Json) -> Json:
        """Whether a connection of another acceptor is alive; yes unless that acceptor denies it."""
        if not 0 <= asked["acceptor"] < len(self._calls.ends):
            return {"alive": True}
        reply = await self._calls.ask(asked["acceptor"], "pulsar.look", orjson.dumps(asked), timeout_ns=LOOK_NS)
        return {"alive": not reply.ok or bool(orjson.loads(reply.body)["alive"])}

    def _tell_policies(self, namespace: str, topic: str | None) -> None:
        found = self._control.store.catalog.namespace(namespace)
        of_namespace = self._control.of_namespace(found) if found is not None else {}
        said: Json = {"namespace": namespace, "policies": None if found is None else policies.told(of_namespace)}
        if found is not None and topic is not None:
            own = self._control.own_policies(self._control.name(topic))
            said |= {"topic": topic, "topic_policies": policies.told_of_topic(of_namespace, own)}
        self._calls.tell("pulsar.policies", orjson.dumps(said))

    async def _policies(self, acceptor: int, asked: Json) -> Json:
        """Those of a namespace, and of some of its topics."""
        self._control.store.check()
        found = self._control.store.catalog.namespaces.get(asked["namespace"])
        if found is None:
            return {"policies": None, "topics": {}}
        of_namespace, control = self._control.of_namespace(found), self._control
        own = {topic: control.own_policies(control.name(topic)) for topic in asked["topics"]}
        topics = {topic: policies.told_of_topic(of_namespace, its) for topic, its in own.items()}
        return {"policies": policies.told(of_namespace), "topics": topics}

    def _tell_permissions(self, tenant: str) -> None:
        if self._roles.enabled:
            self._calls.tell("pulsar.permissions", orjson.dumps({"tenant": tenant}))

    # --- permission ---------------------------------------------------------------------------------------------------

    def _may_open(self, asked: Json, name: TopicName) -> bool:
        """Whether the client may produce or consume, whichever its `action` says."""
        operation = "CONSUME" if asked["action"] == CONSUME else "PRODUCE"
        return self._roles.may_with_topic(_who(asked), name, operation, asked.get("subscription") or "")

    async def _may(self, acceptor: int, asked: Json) -> Json:
        """Which of these connected clients may stay."""
        return {"may": [self._may_open(one, self._control.name(one["topic"])) for one in asked["asked"]]}

    def _is_of_nobody(self, who: Who, tenant: str) -> bool:
        """Whether nobody can say what the client may do: there is no such tenant. A real broker finds that on its way,
        and says so in each place in other words."""
        return self._roles.enabled and not self._roles.is_super(who) and not self._roles.has_tenant(tenant)

    async def _lookup(self, acceptor: int, asked: Json) -> Json:
        name, who = self._control.name(asked["topic"]), _who(asked)
        if self._is_of_nobody(who, name.tenant):
            raise _unauthorized("Exception occurred while trying to authorize lookup")
        if not self._roles.may_with_topic(who, name, "LOOKUP"):
            raise _unauthorized("Client is not authorized to Lookup")
        if self._roles.enabled and not is_here(name.namespace):
            raise RefusedError(404, "ServiceNotReady", NO_CLUSTER.format(cluster_of(name.namespace)))
        self._control.namespace(name.namespace)
        return {}

    # --- topics -----------------------------------------------------------------------------------------------------

    async def _partitions(self, acceptor: int, asked: Json) -> Json:
        name = self._control.name(asked["topic"])
        if self._is_of_nobody(_who(asked), name.tenant):
            raise not_found(f"Tenant or namespace or topic does not exist: {name.namespace}")
        if not self._roles.may_with_topic(_who(asked), name, "LOOKUP"):
            raise _unauthorized("Client is not authorized to Get Partition Metadata")
        create = bool(asked["create"])
        if not create and self._control.store.catalog.namespace(name.namespace) is None:
            raise not_found("")
        partitions = await self._control.partitions(name, create=create)
        exists = partitions > 0 or await self._control.exists(name)
        if not exists and not (create and self._control.may_make(name)):
            raise not_found("")  # a real broker gives no reason
        return {"partitions": partitions, "exists": exists}

    async def _open(self, acceptor: int, asked: Json) -> Json:
        name = self._control.name(asked["topic"])
        if self._is_of_nobody(_who(asked), name.tenant):
            raise _unauthorized("org.apache.pulsar.common.util.RestException: HTTP 404 Not Found")
        if not self._may_open(asked, name):
            action = "subscribe" if asked["action"] == CONSUME else "Produce"
            raise _unauthorized(f"Client is not authorized to {action}")
        subscription_name(asked.get("subscription") or asked.get("initial") or "")  # before anything keeps it
        opened = await self._control.open(name, create=bool(asked["create"]), asked=asked)
        if asked.get("initial"):
            await self._make_initial(name, asked["initial"])
        if asked["action"] == CONSUME and asked.get("durable"):
            properties, replicated = asked.get("properties") or {}, bool(asked.get("replicated"))
            await self._control.subscription_properties.begin(
                name, asked["subscription"], properties, replicated=replicated
            )
        return opened

    async def _made(self, acceptor: int, asked: Json) -> Json:
        """A subscription that was admitted was made: it counts as long as it exists."""
        self._control.admission.was_made(self._control.name(asked["topic"]), asked["subscription"])
        return {}

    async def _make_initial(self, name: TopicName, subscription: str) -> None:
        """Makes a producer's initial subscription, unless it exists. It begins with the topic's first message."""
        control = self._control
        await control.core.make(name.core)
        told = policies.told(control.policies_of(name))
        try:
            await control.admission.check_subscription(name, subscription, told, durable=True)
        except SubscriptionNotFoundError:
            why = "Could not create the initial subscription due to the auto subscription creation is not allowed."
            raise RefusedError(405, "NotAllowedError", why) from None
        try:
            await control.subscription_properties.begin(name, subscription, {}, replicated=False)
            await control.core.begin_subscription(name.core, subscription, EARLIEST)
        finally:
            control.admission.was_made(name, subscription)

    async def _topics(self, acceptor: int, asked: Json) -> Json:
        if self._is_of_nobody(_who(asked), asked["namespace"].partition("/")[0]):
            raise _unauthorized("Exception occurred while trying to authorize GetTopicsOfNamespace")
        if not self._roles.may_in_namespace(_who(asked), asked["namespace"], "GET_TOPICS"):
            raise _unauthorized("Client is not authorized to GetTopicsOfNamespace")
        pattern = asked.get("pattern")
        matches = None if pattern is None else Matcher(pattern)
        names = await self._names(asked["namespace"], asked.get("mode", "PERSISTENT"), matches)
        found = await topics_hash(names)
        changed = found != asked.get("hash")
        if changed:
            await _check_size(names)
        return {
            "topics": names if changed else [], "hash": found, "changed": changed, "filtered": matches is not None
        }  # fmt: skip

    async def _names(self, namespace: str, mode: str, matches: Matcher | None) -> list[str]:
        if mode not in MODES:
            raise RefusedError(412, "MetadataError", f"there is no mode {mode}")
        self._control.store.check()
        if self._control.store.catalog.namespace(namespace) is None:
            if mode == "PERSISTENT":
                return []  # so does a real broker for a namespace that does not exist
            raise RefusedError(404, "MetadataError", "org.apache.pulsar.broker.web.RestException: Namespace not found")
        names = await self._control.topics_of_mode(namespace, mode)
        await self._control.store.settled()
        return names if matches is None else await matching(names, matches)

    async def _watch(self, acceptor: int, asked: Json) -> Json:
        namespace, number = asked["namespace"], int(asked["watcher"])
        if self._is_of_nobody(_who(asked), namespace.partition("/")[0]):
            raise _unauthorized(NOT_WATCHED)
        if not self._roles.may_in_namespace(_who(asked), namespace, "GET_TOPICS"):
            raise _unauthorized("Proxy Client is not authorized to watchTopicList")  # to all clients, proxies or not
        try:
            matches = Matcher(asked["pattern"])
        except ForeignDomainError:
            raise _unauthorized(NOT_WATCHED) from None
        except RefusedError as error:
            raise RefusedError(error.status, "InvalidTopicName", f"Invalid topics pattern: {error.reason}") from None
        self._watches.watch(acceptor, number, namespace, matches)
        try:
            names = self._watches.listed(acceptor, number, matches, await self._names(namespace, "PERSISTENT", matches))
            found = await topics_hash(names)
            if found != asked.get("hash"):
                await _check_size(names)
        except Exception:
            self._watches.unwatch(acceptor, number, matches)
            raise
        return {"topics": [] if found == asked.get("hash") else names, "hash": found}

    async def _unwatch(self, acceptor: int, asked: Json) -> Json:
        self._watches.unwatch(acceptor, int(asked["watcher"]))
        return {}

    # --- schemas ----------------------------------------------------------------------------------------------------

    def _check_schema(self, asked: Json, name: TopicName) -> None:
        """A user who may neither produce nor consume may not see or put schemas. A real broker has no such check."""
        if self._roles.has_users and not self._roles.may_with_topic(_who(asked), name, "LOOKUP"):
            raise _unauthorized("Client is not authorized to get or create a schema")

    async def _get_schema(self, acceptor: int, asked: Json) -> Json:
        name = self._control.name(asked["topic"])
        self._check_schema(asked, name)
        self._control.store.check()
        await self._control.store.settled()
        catalog, topic, version = self._control.store.catalog, str(name.base), asked.get("version")
        # The last one may be a deletion: like a real broker, answer with a schema of type NONE.
        schema = catalog.last_schema(topic) if version is None else catalog.schema_version(topic, version)
        if schema is None:
            raise not_found(f"Topic not found or no-schema {name}")
        return {
            "version": schema.version, "type": schema.type or "NONE", "name": _schema_name(name),
            "data": schema.data, "properties": schema.properties,
        }  # fmt: skip

    async def _put_schema(self, acceptor: int, asked: Json) -> Json:
        name = self._control.name(asked["topic"])
        self._check_schema(asked, name)
        new = Schema(
            -1, asked["type"], asked["data"], dict(asked.get("properties") or {}), 0,
            asked.get("user", ""), asked.get("name", ""),
        )  # fmt: skip
        with self._control.schema_checks.room(new):
            if asked.get("consumer"):
                return {"version": await self._control.consumer_schema(name, new, idle=bool(asked.get("idle")))}
            return {"version": await self._put_producers(name, new)}

    async def _put_producers(self, name: TopicName, new: Schema) -> int:
        self._control.store.check()
        known = self._control.store.catalog.namespace(name.namespace) is not None
        if not known or not await self._control.exists(name):
            raise not_found(f"Topic not found {name}")
        try:
            return await self._control.put_schema(name, new)
        except RefusedError as error:
            if error.status not in _UNLIKE_OTHERS:
                raise
            # As a real broker writes its exception and the cause.
            why = f"{_UNLIKE_OTHERS[error.status]}: {error.reason}"
            raise RefusedError(error.status, error.error, f"{why} caused by {why}") from None


async def _check_size(names: list[str]) -> None:
    """Refuses names that do not fit into a frame, which clients could not read. Raises RefusedError."""
    size = 0
    async for piece in in_pieces(names):
        size += len("".join(piece).encode()) + NAME_HEAD_BYTES * len(piece)
        if size > MAX_TOPICS_BYTES:
            raise too_many(f"the names of these topics are more than {MAX_TOPICS_BYTES} bytes: ask for some of them")


def _schema_name(name: TopicName) -> str:
    """As a real broker has it: without a cluster."""
    namespace = name.namespace_local.rpartition("/")[2]
    return f"{name.tenant}/{namespace}/{quote_plus(name.base.local, safe='*')}"


def _who(asked: Json) -> Who:
    return Who(asked.get("role") or "", asked.get("original") or "", bool(asked.get("open")))


def _unauthorized(reason: str) -> RefusedError:
    return RefusedError(401, "AuthorizationError", reason)
