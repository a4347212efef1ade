"""REST: resource groups, and which one a namespace is in."""

from __future__ import annotations

from typing import Final

from mq_shards.gateway.http_answers import Answer
from mq_shards.gateway.pulsar.control import Control
from mq_shards.gateway.pulsar.refusals import not_found, precondition, too_many
from mq_shards.gateway.pulsar.requests import NO_CONTENT, Call, Routes, json_of, object_of, required, text_of
from mq_shards.gateway.pulsar.resource_groups import KEY, MAX_GROUPS, OF_NAMESPACE, UNLIMITED, all_of, changed

_GROUP: Final = "/admin/v2/resourcegroups/{group}"
_OF_NAMESPACE: Final = "/admin/v2/namespaces/{tenant}/{namespace}/resourcegroup"
NO_GROUP: Final = "ResourceGroup does not exist"
NO_POLICIES: Final = "Namespace policies does not exist"


class HttpResourceGroups:
    def __init__(self, control: Control) -> None:
        self._control = control
        self.routes: Routes = {
            "/admin/v2/resourcegroups": {"GET": self._list},
            _GROUP: {"GET": self._get, "PUT": self._put, "DELETE": self._delete},
            _OF_NAMESPACE: {"GET": self._of_namespace, "DELETE": self._no_group},
            f"{_OF_NAMESPACE}/{{group}}": {"POST": self._set_group},
        }

    async def _list(self, _: Call) -> Answer:
        self._control.store.check()
        await self._control.store.settled()
        return json_of(sorted(all_of(self._control.store.catalog)))

    async def _get(self, call: Call) -> Answer:
        self._control.store.check()
        found = all_of(self._control.store.catalog).get(call.names["group"])
        if found is None:
            raise not_found(NO_GROUP)
        await self._control.store.settled()
        return json_of(found)

    async def _put(self, call: Call) -> Answer:
        """Makes a group, or changes the rates that are given."""
        given = object_of(required(await call.json()))
        self._control.store.check()
        name, groups = call.names["group"], all_of(self._control.store.catalog)
        if name not in groups and len(groups) >= MAX_GROUPS:
            raise too_many("there are as many resource groups as there may be")
        group = changed(groups.get(name, UNLIMITED), given)
        await self._control.set_broker(KEY, {**groups, name: group})
        self._control.all_policies_changed()
        return NO_CONTENT

    async def _delete(self, call: Call) -> Answer:
        self._control.store.check()
        name, catalog = call.names["group"], self._control.store.catalog
        if name not in all_of(catalog):
            raise not_found(NO_GROUP)
        if any(found.policies.get(OF_NAMESPACE) == name for found in catalog.namespaces.values()):
            raise precondition("ResourceGroup is in use")
        left = {one: group for one, group in all_of(catalog).items() if one != name}
        await self._control.set_broker(KEY, left)
        return NO_CONTENT

    # --- of a namespace ---------------------------------------------------------------------------------------------

    async def _of_namespace(self, call: Call) -> Answer:
        found = self._control.namespace(call.namespace, "Namespace does not exist").policies.get(OF_NAMESPACE)
        await self._control.store.settled()
        return json_of(None) if found is None else text_of(found)

    async def _set_group(self, call: Call) -> Answer:
        policies, name = self._control.namespace(call.namespace, NO_POLICIES).policies, call.names["group"]
        if name not in all_of(self._control.store.catalog):
            raise precondition(NO_GROUP)
        await self._control.set_policies(call.namespace, {**policies, OF_NAMESPACE: name})
        return NO_CONTENT

    async def _no_group(self, call: Call) -> Answer:
        policies = self._control.namespace(call.namespace, NO_POLICIES).policies
        left = {name: value for name, value in policies.items() if name != OF_NAMESPACE}
        await self._control.set_policies(call.namespace, left)
        return NO_CONTENT
