"""Requests in the system account: `$SYS.REQ.SERVER.PING[.X]`, `$SYS.REQ.SERVER.<id>.X`, `$SYS.REQ.ACCOUNT.<name>.X`.

Answers have the form of nats-server's. A request whose filters exclude this server gets no answer. Acceptors pass
requests on by calls (acceptor/protocols/nats/system.py).
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import orjson
from mq_shards.acceptor.protocols.nats import orders
from mq_shards.acceptor.protocols.nats.client import server_row
from mq_shards.acceptor.protocols.nats.json_fields import number, text
from mq_shards.acceptor.protocols.nats.system import CONNS_TYPE, event_head
from mq_shards.gateway.nats import listings
from mq_shards.gateway.nats.acceptors import UnavailableError
from mq_shards.gateway.nats.connz import ConnzError, ConnzOptions
from mq_shards.gateway.nats.go_values import dumps, instant
from mq_shards.gateway.nats.listings import HealthOptions, LeafzOptions, ListingError, RoutezOptions, SubszOptions
from mq_shards.gateway.nats.monitoring import Monitoring
from mq_shards.gateway.reloads import OrderError

Row = dict[str, Any]

STATES: Final = ("open", "closed", "all")
NO_STATE: Final = "none"
NO_ANSWER: Final = b""
TRUNCATED: Final = "unexpected end of JSON input"  # as Go says it


class System:
    def __init__(self, monitoring: Monitoring) -> None:
        self._monitoring = monitoring
        self._sequence = 0
        self._endpoints: Mapping[str, Callable[[Row], Awaitable[Row]]] = {
            "VARZ": lambda asked: self._monitoring.varz(),
            "CONNZ": self._connz,
            "SUBSZ": self._subsz,
            "ACCOUNTZ": lambda asked: self._monitoring.accountz(asked.get("account", "")),
            "ACCSTATZ": self._accstatz,
            "HEALTHZ": self._healthz,
            "ROUTEZ": self._routez,
            "LEAFZ": self._leafz,
            "GATEWAYZ": self._listing(listings.gatewayz),
            "JSZ": self._listing(listings.jsz),
            # About queues inside nats-server and JetStream's Raft groups: there are none here.
            "IPQUEUESZ": self._nothing,
            "RAFTZ": self._nothing,
        }
        self._orders: Mapping[str, Callable[[Row], Awaitable[None]]] = {
            "KICK": self._kick,
            "LDM": self._lame_duck,
            "RELOAD": lambda asked: self._monitoring.reload_all(),
        }

    async def answer(self, acceptor: int, question: bytes) -> bytes:
        asked = orjson.loads(question)
        words = asked["subject"].split(".")
        try:
            return await self._answer(words, asked["body"])
        except UnavailableError:
            return NO_ANSWER

    async def _answer(self, words: list[str], body: str) -> bytes:
        server = await self._monitoring.server(brief=True)
        what = words[4] if len(words) == 5 else "STATSZ"
        if words[2] == "SERVER" and what == "IDZ":
            # The body is ignored: filters apply to the other requests only.
            named = {"name": server["server_name"], "host": server["host"], "id": server["server_id"]}
            return dumps(named, indented=False)
        try:
            options = orjson.loads(body) if body else None
        except orjson.JSONDecodeError as error:
            return self._refused(server, TRUNCATED if error.pos >= len(body.rstrip()) else str(error))
        if options is None:
            options = {}
        if not isinstance(options, dict):
            return self._refused(server, "json: cannot unmarshal into an object")
        if is_left_out(server, options):
            return NO_ANSWER
        if words[2] == "ACCOUNT":
            return await self._about_account(server, words[3], what, options)
        if what == "JSZ" and options.get("leader_only") is True:
            return NO_ANSWER  # this server never leads JetStream
        if what == "STATSZ":
            return self._said(server, {"statsz": await self._monitoring.statsz()})
        if what in self._orders and words[3] != "PING":
            if what != "RELOAD" and not (body and isinstance(options.get("cid", 0), int)):
                return NO_ANSWER
            return await self._obeyed(server, self._orders[what](options))
        endpoint = self._endpoints.get(what)
        return NO_ANSWER if endpoint is None else await self._tried(server, lambda: endpoint(options))

    async def _about_account(self, server: Row, account: str, what: str, options: Row) -> bytes:
        if what == "CONNZ":
            return await self._tried(server, lambda: self._connz({**options, "acc": account}))
        if what == "SUBSZ":
            of_account = {**options, "account": account, "subscriptions": True}
            return await self._tried(server, lambda: self._subsz(of_account))
        if what == "INFO":
            return await self._tried(server, lambda: self._account_info(account))
        if what == "STATZ":
            is_unused_wanted = bool(options.get("include_unused"))
            wanted = options.get("accounts") or [] if account == "PING" else [account]
            found = await self._monitoring.accstatz(is_unused_wanted, wanted)
            if account != "PING" and not found["account_statz"] and not is_unused_wanted:
                return NO_ANSWER
            return self._said(server, {"data": found})
        if what == "CONNS":
            conns = await self._monitoring.account_conns(account)
            return self._said(server, conns, event_head(CONNS_TYPE))
        if what == "JSZ":
            return self._error(server, 500, "jetstream not enabled")
        of_account = options if account == "PING" else {**options, "account": account}
        return NO_ANSWER if what != "LEAFZ" else await self._tried(server, lambda: self._leafz(of_account))

    async def _tried(self, server: Row, endpoint: Callable[[], Awaitable[Row]]) -> bytes:
        try:
            return self._said(server, {"data": await endpoint()})
        except (ConnzError, ListingError) as error:
            return self._error(server, 500, str(error))

    async def _obeyed(self, server: Row, order: Awaitable[None]) -> bytes:
        try:
            await order
        except OrderError as error:
            return self._said(server, {"error": {"code": 500, "description": str(error)}})
        return self._said(server, {})

    async def _kick(self, asked: Row) -> None:
        if await self._monitoring.order("kick", number(asked, "cid")) != orders.DONE:
            raise OrderError("no such client or leafnode id")

    async def _lame_duck(self, asked: Row) -> None:
        done = await self._monitoring.order("ldm", number(asked, "cid"))
        if done == orders.NOBODY:
            raise OrderError("no such client id")
        if done == orders.CANNOT:
            raise OrderError("client does not support Lame Duck Mode or is not ready to receive the notification")

    # --- endpoints --------------------------------------------------------------------------------------------------

    async def _connz(self, asked: Row) -> Row:
        options = ConnzOptions(
            sort=text(asked, "sort"),
            auth=bool(asked.get("auth")),
            subs=bool(asked.get("subscriptions")),
            subs_detail=bool(asked.get("subscriptions_detail")),
            offset=number(asked, "offset"),
            limit=number(asked, "limit"),
            cid=number(asked, "cid"),
            state=_state(asked.get("state", 0)),
            user=text(asked, "user"),
            account=text(asked, "acc"),
            mqtt_client=text(asked, "mqtt_client"),
            filter_subject=text(asked, "filter_subject"),
        )
        return await self._monitoring.connz(options)

    async def _subsz(self, asked: Row) -> Row:
        options = SubszOptions(
            subscriptions=bool(asked.get("subscriptions")),
            offset=number(asked, "offset"),
            limit=number(asked, "limit"),
            account=text(asked, "account"),
            test=text(asked, "test"),
        )
        return await self._monitoring.subsz(options)

    async def _routez(self, asked: Row) -> Row:
        return await self._monitoring.routez(
            RoutezOptions(bool(asked.get("subscriptions")), bool(asked.get("subscriptions_detail")))
        )

    async def _leafz(self, asked: Row) -> Row:
        return await self._monitoring.leafz(LeafzOptions(bool(asked.get("subscriptions")), text(asked, "account")))

    async def _accstatz(self, asked: Row) -> Row:
        return await self._monitoring.accstatz(bool(asked.get("include_unused")), asked.get("accounts") or [])

    async def _healthz(self, asked: Row) -> Row:
        account, stream, consumer = (str(asked.get(name) or "") for name in ("account", "stream", "consumer"))
        options = HealthOptions(account, stream, consumer, asked.get("details") is True)
        status, health = await self._monitoring.healthz(options)
        return {**health, "status_code": status}

    async def _account_info(self, account: str) -> Row:
        detail: Row = (await self._monitoring.accountz(account))["account_detail"]
        return detail

    @staticmethod
    async def _nothing(asked: Row) -> Row:
        return {}

    def _listing(self, of: Callable[[Row, int], Row]) -> Callable[[Row], Awaitable[Row]]:
        async def listing(asked: Row) -> Row:
            return of(await self._monitoring.server(), time.time_ns())

        return listing

    # --- answers ----------------------------------------------------------------------------------------------------

    def _said(self, server: Row, content: Row, event: Row | None = None) -> bytes:
        self._sequence += 1
        head: Row = {**server_row(server), "seq": self._sequence, "time": instant(time.time_ns())}
        return dumps({**(event or {}), "server": head, **content}, indented=False)

    def _refused(self, server: Row, description: str) -> bytes:
        """The answer to options that are none."""
        return self._said(server, {"error": {"code": 400, "description": description}})

    def _error(self, server: Row, code: int, description: str) -> bytes:
        return self._said(server, {"data": None, "error": {"code": code, "description": description}})


def is_left_out(server: Mapping[str, Any], options: Mapping[str, Any]) -> bool:
    """Whether a filter of the request excludes this server."""
    ours = {"server_name": server["server_name"], "host": server["host"], "cluster": server.get("cluster", "")}
    for name, value in ours.items():
        wanted = text(options, name)
        if wanted and (wanted != value if options.get("exact_match") else wanted not in value):
            return True
    tags = options.get("tags") or []
    if not isinstance(tags, list) or any(one not in server.get("tags", ()) for one in tags):
        return True
    return bool(options.get("domain"))


def _state(number: object) -> str:
    if not isinstance(number, int):
        return STATES[0]
    return STATES[number] if 0 <= number < len(STATES) else NO_STATE
