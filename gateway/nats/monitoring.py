"""What nats-server's monitoring shows, for requests over HTTP and for requests of users of the system account."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from mq_shards.acceptor.engine import Engine, protocol_number
from mq_shards.gateway.calls import AcceptorCalls
from mq_shards.gateway.nats import listings
from mq_shards.gateway.nats.acceptors import Acceptors, UnavailableError
from mq_shards.gateway.nats.connz import ConnzOptions, connz
from mq_shards.gateway.nats.listings import HealthOptions, LeafzOptions, RoutezOptions, SubszOptions
from mq_shards.gateway.nats.varz import Counted, Served, Usage, varz
from mq_shards.ringbuf.control import Message

Row = dict[str, Any]


class Monitoring:
    def __init__(
        self,
        start: Message,
        engine: Engine,
        calls: AcceptorCalls,
        supervisor: int,
        reload_all: Callable[[], Awaitable[None]],
        wall_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        """`reload_all` makes the broker read its options anew. It may raise OrderError."""
        self._engine = engine
        self.reload_all = reload_all
        self._acceptors = Acceptors(calls, start["acceptors"])
        self._settings: Mapping[str, Any] = start["settings"]["nats"]
        self._started_ns: int = start["started_wall_ns"]
        self._loaded_ns = self._started_ns
        self._wall_ns = wall_ns
        self._usage = Usage(supervisor)
        self._requests: dict[str, int] = {}
        plain, secure = (_first(start["addresses"], scheme) for scheme in ("nats-http", "nats-https"))
        self._http = plain[0] or secure[0], plain[1], secure[1]

    def reload(self, settings: Mapping[str, Any]) -> None:
        self._settings = settings
        self._loaded_ns = self._wall_ns()

    def count(self, path: str) -> None:
        """Counts a request for a path, which must be one of those served."""
        self._requests[path] = self._requests.get(path, 0) + 1

    async def server(self, *, brief: bool = False) -> Row:
        """What acceptors say of the server; brief: without accounts. Raises UnavailableError."""
        return {**await self._acceptors.server(brief=brief), "loaded_ns": self._loaded_ns}

    def _counted(self) -> Counted:
        return Counted(*(self._engine.counters(protocol_number(name)) for name in ("nats", "nats-route", "nats-leaf")))

    async def varz(self) -> Row:
        served = Served(self._started_ns, self._loaded_ns, self._wall_ns(), self._http, self._requests)
        return varz(await self.server(brief=True), self._settings, self._counted(), self._usage.now(), served)

    async def connz(self, options: ConnzOptions) -> Row:
        return await connz(options, self._acceptors, await self.server(), self._wall_ns())

    async def subsz(self, options: SubszOptions) -> Row:
        return await listings.subsz(options, self._acceptors, await self.server(), self._wall_ns())

    async def routez(self, options: RoutezOptions) -> Row:
        return await listings.routez(options, self._acceptors, await self.server(), self._wall_ns())

    async def leafz(self, options: LeafzOptions) -> Row:
        return await listings.leafz(options, self._acceptors, await self.server(), self._wall_ns())

    async def accountz(self, account: str) -> Row:
        return await listings.accountz(account, self._acceptors, await self.server(), self._wall_ns())

    async def accstatz(self, unused: bool, wanted: list[str]) -> Row:
        return await listings.accstatz(unused, wanted, self._acceptors, await self.server(), self._wall_ns())

    async def statsz(self) -> Row:
        """The figures of STATSZ, which servers tell each other in the system account."""
        shown = await self.varz()
        figures = await self._acceptors.figures()
        routes = [listings.route_stat(row) for row in (await self.server()).get("route_list", [])]

        def data(name: str) -> Row:
            return {"msgs": shown[f"{name}_msgs"], "bytes": shown[f"{name}_bytes"]}

        kinds = "slow_consumer_stats", "stale_connection_stats"
        same = ("start", "mem", "cores", "cpu", "connections", "total_connections")
        return {
            **{name: shown[name] for name in same},
            "active_accounts": len({one.account for one in figures}),
            "subscriptions": shown["subscriptions"],
            "sent": data("out"),
            "sent_to_clients": data("out_client"),
            "received": data("in"),
            "received_from_clients": data("in_client"),
            "slow_consumers": shown["slow_consumers"],
            **{name: shown[name] for name in kinds if shown[name]["clients"]},
            **({"routes": routes} if routes else {}),
            "active_servers": 1 + len({route["name"] for route in routes if "name" in route}),
            "gomaxprocs": shown["gomaxprocs"],
        }

    async def order(self, what: str, cid: int) -> bytes:
        return await self._acceptors.order(what, cid)

    async def account_conns(self, account: str) -> Row:
        """The figures of an account that servers tell each other: its connections and their traffic."""
        figures = await self._acceptors.figures_of_account(account)
        leaves = listings.leaves_of(await self.server(brief=True), account)
        return listings.account_stat(account, figures.get("members", 0), leaves, figures)

    async def healthz(self, options: HealthOptions) -> tuple[int, Row]:
        """Whether clients are served: the status for HTTP, and the body of the answer."""
        if refusal := options.refusal():
            if options.details:
                return 400, {"status": "error", "errors": [{"type": "BAD_REQUEST", "error": refusal}]}
            return 400, {"status": "error", "error": refusal}
        try:
            await self.server(brief=True)
        except UnavailableError:
            return 503, {"status": "unavailable", "error": "no acceptor answers"}
        return 200, {"status": "ok"}


def _first(addresses: Sequence[Mapping[str, Any]], scheme: str) -> tuple[str, int]:
    """Host and port of the first listener of a protocol; "" and 0 if there is none."""
    return next(((one["host"], one["port"]) for one in addresses if one["protocol"] == scheme and one["port"]), ("", 0))
