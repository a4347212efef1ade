"""Makes a catalog from the records of its log, even if some were lost to damage: other records tell what was lost.

The record of a topic shows that its namespace existed, and a namespace shows that its tenant did. Both are made again,
without their policies and roles. The few that every broker begins with cannot be lost. A record about something else
that is unknown is left out.

Earlier releases knew no namespaces with a cluster: a topic `tenant/cluster/namespace/topic` was one of the namespace
`tenant/cluster`. It comes into its own namespace, which has the policies that held for it. What is said of one whose
name no topic can have any more is left out.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from mq_shards.acceptor.protocols.pulsar.names import PulsarNameError, has_cluster, topic_name
from mq_shards.gateway.pulsar.catalog import CLUSTER, FIRST, Catalog, OutOfPlaceError, Record

_WITH_TOPIC: Final = {  # which field of a record is the topic
    "topic": "name", "no-topic": "name", "no-partition": "name", "partition": "name", "subscription": "topic",
}  # fmt: skip


@dataclass(slots=True)
class Replayed:
    catalog: Catalog = field(default_factory=Catalog)
    left_out: list[str] = field(default_factory=list)  # for each record left out, why
    made_again: list[str] = field(default_factory=list)  # names of namespaces and tenants
    moved: dict[str, str] = field(default_factory=dict)  # namespaces with a cluster: where their topics were before

    @property
    def is_whole(self) -> bool:
        return not self.left_out and not self.made_again


def replay(records: Iterable[Record], *, is_damaged: bool) -> Replayed:
    """`is_damaged`: records were lost. Raises CatalogError: a record that this version does not know."""
    found = Replayed()
    if is_damaged:
        for record in FIRST:
            found.catalog.apply(record)
    for record in records:
        _apply(found, record)
    if not found.is_whole or is_damaged:
        _make_tenants(found)
    _keep_policies(found)
    return found


def _apply(found: Replayed, record: Record) -> None:
    try:
        record = _in_its_namespace(found, record)
    except PulsarNameError as error:
        found.left_out.append(f"no client can name the topic of {record} any more: {error}")
        return
    namespace = record.get("namespace") if record.get("do") == "topic" else None
    is_lost = isinstance(namespace, str) and found.catalog.namespace(namespace) is None
    if is_lost:
        found.catalog.apply({"do": "namespace", "name": namespace, "policies": {}})
        found.made_again.append(f"namespace {namespace}")
    try:
        found.catalog.apply(record)
    except OutOfPlaceError as error:
        found.left_out.append(str(error))


def _in_its_namespace(found: Replayed, record: Record) -> Record:
    """Raises PulsarNameError."""
    topic, before = record.get(_WITH_TOPIC.get(record.get("do", ""), "")), record.get("namespace")
    if not isinstance(topic, str) or not isinstance(before, str) or has_cluster(before):
        return record
    if topic.count("/") < 5:
        return record
    namespace = topic_name(topic).namespace
    found.moved[namespace] = before
    return {**record, "namespace": namespace}


def _keep_policies(found: Replayed) -> None:
    for name, before in found.moved.items():
        namespace, one = found.catalog.namespaces.get(name), found.catalog.namespaces.get(before)
        if namespace is not None and not namespace.is_made and one is not None and one.policies:
            found.catalog.apply({"do": "namespace", "name": name, "policies": one.policies})


def _make_tenants(found: Replayed) -> None:
    there = {name.partition("/")[0] for name, one in found.catalog.namespaces.items() if one.is_made}
    for tenant in sorted(there - found.catalog.tenants.keys()):
        data = {"adminRoles": [], "allowedClusters": [CLUSTER]}
        found.catalog.apply({"do": "tenant", "name": tenant, "data": data})
        found.made_again.append(f"tenant {tenant}")
