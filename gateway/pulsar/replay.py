"""A catalog from the records of its log, also where some were lost to damage: what others say of the same is believed.

A topic says that there is its namespace, and that that there is its tenant; both are made again, without the policies
and roles that they had. Every broker begins with the same few of them, which so cannot be lost. What is about something
of which nothing else is known is left out.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from mq_shards.gateway.pulsar.catalog import CLUSTER, FIRST, Catalog, OutOfPlaceError, Record


@dataclass(slots=True)
class Replayed:
    catalog: Catalog = field(default_factory=Catalog)
    left_out: list[str] = field(default_factory=list)  # why
    made_again: list[str] = field(default_factory=list)  # names

    @property
    def is_whole(self) -> bool:
        return not self.left_out and not self.made_again


def replay(records: Iterable[Record], *, is_damaged: bool) -> Replayed:
    """CatalogError: a record that this version does not know."""
    found = Replayed()
    if is_damaged:
        for record in FIRST:
            found.catalog.apply(record)
    for record in records:
        _apply(found, record)
    if not found.is_whole or is_damaged:
        _make_tenants(found)
    return found


def _apply(found: Replayed, record: Record) -> None:
    namespace = record.get("namespace") if record.get("do") == "topic" else None
    is_lost = isinstance(namespace, str) and namespace not in found.catalog.namespaces
    if is_lost:
        found.catalog.apply({"do": "namespace", "name": namespace, "policies": {}})
        found.made_again.append(f"namespace {namespace}")
    try:
        found.catalog.apply(record)
    except OutOfPlaceError as error:
        found.left_out.append(str(error))


def _make_tenants(found: Replayed) -> None:
    for tenant in sorted({name.partition("/")[0] for name in found.catalog.namespaces} - found.catalog.tenants.keys()):
        data = {"adminRoles": [], "allowedClusters": [CLUSTER]}
        found.catalog.apply({"do": "tenant", "name": tenant, "data": data})
        found.made_again.append(f"tenant {tenant}")
