"""Makes a catalog from the records of its log, even if some were lost to damage: other records tell what was lost.

The record of a topic shows that its namespace existed, and a namespace shows that its tenant did. Both are made again,
without their policies and roles. The few that every broker begins with cannot be lost. A record about something else
that is unknown is left out.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from mq_shards.gateway.pulsar.catalog import CLUSTER, FIRST, Catalog, OutOfPlaceError, Record


@dataclass(slots=True)
class Replayed:
    catalog: Catalog = field(default_factory=Catalog)
    left_out: list[str] = field(default_factory=list)  # for each record left out, why
    made_again: list[str] = field(default_factory=list)  # names of namespaces and tenants

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
