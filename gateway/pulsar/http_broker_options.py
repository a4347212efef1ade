"""REST: options of a real broker that are set while it runs (broker_options.py), and those that it runs with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from mq_shards.gateway.http_answers import Answer
from mq_shards.gateway.pulsar.broker_options import KEY, OPTIONS
from mq_shards.gateway.pulsar.catalog import CLUSTER
from mq_shards.gateway.pulsar.control import Control
from mq_shards.gateway.pulsar.http_tenants import Urls
from mq_shards.gateway.pulsar.refusals import precondition
from mq_shards.gateway.pulsar.requests import Call, Routes, json_of
from mq_shards.ringbuf.time_units import SECOND_NS

_CONFIGURATION: Final = "/admin/v2/brokers/configuration"


class HttpBrokerOptions:
    def __init__(self, control: Control, urls: Urls, settings: Mapping[str, Any]) -> None:
        self._control = control
        self._fixed = _fixed(urls, settings)
        self.routes: Routes = {
            _CONFIGURATION: {"GET": self._list},
            f"{_CONFIGURATION}/values": {"GET": self._values},
            f"{_CONFIGURATION}/runtime": {"GET": self._runtime},
            f"{_CONFIGURATION}/{{option}}": {"DELETE": self._unset},
            f"{_CONFIGURATION}/{{option}}/{{value}}": {"POST": self._set},
        }

    async def _list(self, _: Call) -> Answer:
        return json_of(list(OPTIONS))

    async def _values(self, _: Call) -> Answer:
        self._control.store.check()
        await self._control.store.settled()
        return json_of(self._control.options.set)

    async def _runtime(self, _: Call) -> Answer:
        """Also tools learn from it, as which cluster this is."""
        self._control.store.check()
        return json_of({**self._fixed, **{name: self._control.options.text(name) for name in OPTIONS}})

    async def _set(self, call: Call) -> Answer:
        name, value = call.names["option"], call.names["value"]
        option = OPTIONS.get(name)
        if option is None:
            raise precondition("Can't update non-dynamic configuration")
        try:
            option.read(value)
        except (ValueError, KeyError):
            raise precondition("Invalid dynamic-config value") from None
        return await self._put({**self._control.options.set, name: value})

    async def _unset(self, call: Call) -> Answer:
        name = call.names["option"]
        if name not in OPTIONS:
            raise precondition("Can't delete non-dynamic configuration")
        return await self._put({one: value for one, value in self._control.options.set.items() if one != name})

    async def _put(self, options: dict[str, str]) -> Answer:
        await self._control.set_broker(KEY, options)
        self._control.all_policies_changed()
        return Answer(200)


def _fixed(urls: Urls, settings: Mapping[str, Any]) -> dict[str, str | None]:
    """Options of a real broker that do not change while this one runs."""

    def port(url: str) -> str | None:
        return url.rpartition(":")[2] or None

    def flag(name: str) -> str:
        return "true" if settings[name] else "false"

    return {
        "clusterName": CLUSTER,
        "brokerServicePort": port(urls.broker), "brokerServicePortTls": port(urls.broker_tls),
        "webServicePort": port(urls.web), "webServicePortTls": port(urls.web_tls),
        "maxMessageSize": str(settings["max-message-size"]),
        "keepAliveIntervalSeconds": str(settings["keep-alive"] // SECOND_NS),
        "backlogQuotaCheckIntervalInSeconds": str(settings["policies-interval"] // SECOND_NS),
        "brokerDeduplicationEnabled": flag("deduplication"),
        "authorizationEnabled": flag("authorization-enabled"),
    }  # fmt: skip
