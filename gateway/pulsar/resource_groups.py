"""Resource groups: how fast the topics of all their namespaces together may be published to. How fast they may be
consumed from is kept and shown, as by a real 4.0.7, which does not limit that either."""

from __future__ import annotations

from typing import Any, Final

from mq_shards.gateway.pulsar import scalars
from mq_shards.gateway.pulsar.catalog import Catalog, Json

KEY: Final = "resource-groups"  # under which the catalog keeps them
OF_NAMESPACE: Final = "resource_group_name"  # among a namespace's policies
PUBLISHING: Final = "publishRateInMsgs", "publishRateInBytes"
FIELDS: Final = (*PUBLISHING, "dispatchRateInMsgs", "dispatchRateInBytes")
UNLIMITED: Final[Json] = dict.fromkeys(FIELDS, -1)
MAX_GROUPS: Final = 1000


def all_of(catalog: Catalog) -> dict[str, Json]:
    found: dict[str, Json] = catalog.broker.get(KEY, {})
    return found


def changed(before: Json, given: Json) -> Json:
    """A group, with the rates that are given. Raises RefusedError."""
    new = {name: scalars.whole(given[name], name) for name in FIELDS if given.get(name) is not None}
    return {**before, **new}


def limits_of(catalog: Catalog, policies: Json) -> list[Any] | None:
    """The name of the group that a namespace with these policies is in, and messages and bytes a second (0: any
    number); None: nothing is limited."""
    name = policies.get(OF_NAMESPACE)
    group = all_of(catalog).get(name) if name else None
    rates = [max(0, group[field]) for field in PUBLISHING] if group is not None else []
    return [name, *rates] if any(rates) else None
