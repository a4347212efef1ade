"""What monitoring shows besides /varz and /connz: subscriptions, accounts, routes, leaf nodes. Gateways and JetStream,
which do not exist here, are shown as unused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from mq_shards.acceptor.protocols.nats.monitor import Kept
from mq_shards.csrc._core import lib
from mq_shards.gateway.nats.acceptors import Acceptors
from mq_shards.gateway.nats.go_values import instant, round_trip, uptime, written

Row = dict[str, Any]

DEFAULT_LIMIT: Final = 1024
LISTED: Final = 100_000  # the most subscriptions that are examined


class ListingError(ValueError):
    """Options that are refused; the text is nats-server's."""


@dataclass(frozen=True, slots=True)
class SubszOptions:
    subscriptions: bool = False
    offset: int = 0
    limit: int = 0
    account: str = ""
    test: str = ""


@dataclass(frozen=True, slots=True)
class RoutezOptions:
    """Whether the subscriptions of the server behind each route are listed: their subjects, or in detail."""

    subscriptions: bool = False
    subscriptions_detail: bool = False


@dataclass(frozen=True, slots=True)
class HealthOptions:
    """Whose health is asked for, and whether each error is listed. There are no streams or consumers here."""

    account: str = ""
    stream: str = ""
    consumer: str = ""
    details: bool = False

    def refusal(self) -> str:
        """Why the options are refused; "": they are valid."""
        if self.stream and not self.account:
            return '"account" must not be empty when checking stream health'
        if self.consumer and not self.stream:
            return '"stream" must not be empty when checking consumer health'
        return ""


def head(server: Mapping[str, Any], now_ns: int, *names: str) -> Row:
    return {"server_id": server["server_id"], **{name: server[name] for name in names}, "now": instant(now_ns)}


async def subsz(options: SubszOptions, acceptors: Acceptors, server: Mapping[str, Any], now_ns: int) -> Row:
    """Makes the answer of /subsz. Raises ListingError."""
    test = options.test.encode()
    if test and (not lib.subject_pattern_is_valid(test, len(test)) or lib.subject_has_wildcard(test, len(test))):
        raise ListingError(f"invalid test subject, must be valid publish subject: {options.test}")
    offset = max(options.offset, 0)
    limit = options.limit if options.limit > 0 else DEFAULT_LIMIT
    accounts = await acceptors.accounts()
    wanted = [figures for name, figures in accounts.items() if options.account in ("", name)]
    stats = _stats(wanted, await acceptors.kept(options.account))
    answer = {**head(server, now_ns), **stats, "total": 0, "offset": offset, "limit": limit}
    if options.subscriptions:
        subs = [
            {"account": sub.pop("account"), **{name: value for name, value in sub.items() if name != "place"}}
            for sub in await acceptors.subscriptions(LISTED)
        ]
        found = [
            {"account": sub["account"], "account_tag": sub["account"], **sub}
            for sub in subs
            if options.account in ("", sub["account"]) and (not test or _covers(sub["subject"], test))
        ]
        answer["total"] = len(found)
        if page := found[offset : offset + limit]:
            answer["subscriptions_list"] = page
    return answer


def _covers(pattern: str, subject: bytes) -> bool:
    outer = pattern.encode()
    return bool(lib.subject_covers(outer, len(outer), subject, len(subject)))


def _stats(accounts: list[dict[str, int]], kept: Kept) -> Row:
    """Statistics of subscriptions of these accounts, and of the caches of matches."""

    def total(name: str) -> int:
        return sum(figures[name] for figures in accounts)

    looked, hits = total("looked"), total("hits")
    return {
        "num_subscriptions": total("subscriptions"),
        "num_cache": kept.subjects,
        "num_inserts": total("inserts"),
        "num_removes": total("removes"),
        "num_matches": looked,
        "cache_hit_rate": written(hits / looked) if looked else 0,
        "max_fanout": kept.max_fanout,
        "avg_fanout": written(kept.fanout / kept.subjects) if kept.subjects else 0,
    }


async def accountz(account: str, acceptors: Acceptors, server: Mapping[str, Any], now_ns: int) -> Row:
    """Makes the answer of /accountz. Raises ListingError."""
    answer = head(server, now_ns)
    answer |= {"system_account": server["system_account"]} if server["system_account"] else {}
    if not account:
        return {**answer, "accounts": server["accounts"]}
    if account not in server["accounts"]:
        raise ListingError(f"Account {account} does not exist")
    accounts = await acceptors.accounts()
    figures = accounts.get(account, {})
    row: Row = {
        "account_name": account,
        "update_time": instant(server["loaded_ns"]),
        **({"is_system": True} if account == server["system_account"] else {}),
        "expired": False,
        "complete": True,
        "jetstream_enabled": False,
        "leafnode_connections": leaves_of(server, account),
        "client_connections": await _connections(acceptors, account),
        "subscriptions": figures.get("subscriptions", 0),
        "name_tag": account,
        "sublist_stats": _stats([figures] if figures else [], await acceptors.kept(account)),
        **await acceptors.account(account),
    }
    return {**answer, "account_detail": row}


async def _connections(acceptors: Acceptors, account: str) -> int:
    return sum(one.account == account for one in await acceptors.figures())


async def accstatz(
    unused: bool, wanted: list[str], acceptors: Acceptors, server: Mapping[str, Any], now_ns: int
) -> Row:
    accounts = await acceptors.accounts()
    counts: dict[str, int] = {}
    for one in await acceptors.figures():
        counts[one.account] = counts.get(one.account, 0) + 1
    rows = []
    for name in server["accounts"]:
        connections = counts.get(name, 0)
        leaves = leaves_of(server, name)
        if (wanted and name not in wanted) or (connections + leaves == 0 and not unused):
            continue
        rows.append(account_stat(name, connections, leaves, accounts.get(name, {})))
    return {**head(server, now_ns), "account_statz": rows}


def account_stat(name: str, connections: int, leaves: int, figures: Mapping[str, int]) -> Row:
    def data(what: str) -> Row:
        messages, size = figures.get(f"{what}_messages", 0), figures.get(f"{what}_bytes", 0)
        none = {"msgs": 0, "bytes": 0}
        return {"msgs": messages, "bytes": size, "gateways": none, "routes": none, "leafs": none}

    return {
        "acc": name,
        "name": name,
        "conns": connections,
        "leafnodes": leaves,
        "total_conns": connections + leaves,
        "num_subscriptions": figures.get("subscriptions", 0),
        "sent": data("given"),
        "received": data("taken"),
        "slow_consumers": figures.get("slow_consumers", 0),
    }


LEAF_FIELDS: Final = (
    "id", "name", "is_spoke", "account", "ip", "port", "rtt", "in_msgs", "out_msgs", "in_bytes", "out_bytes",
    "subscriptions", "subscriptions_list", "compression",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class LeafzOptions:
    subscriptions: bool = False
    account: str = ""


async def leafz(options: LeafzOptions, acceptors: Acceptors, server: Mapping[str, Any], now_ns: int) -> Row:
    rows = [row for row in server.get("leaf_list", ()) if options.account in ("", row["account"])]
    leaves = []
    for row in rows:
        known = {**row, "rtt": round_trip(row["rtt_ns"]) if row["rtt_ns"] else ""}
        if options.subscriptions:
            known["subscriptions_list"] = [one["subject"] for one in await acceptors.wanted(row)]
        leaves.append({name: known[name] for name in LEAF_FIELDS if known.get(name) or name in row})
    return {**head(server, now_ns), "leafnodes": len(leaves), "leafs": leaves}


def leaves_of(server: Mapping[str, Any], account: str) -> int:
    return sum(row["account"] == account for row in server.get("leaf_list", ()))


def gatewayz(server: Mapping[str, Any], now_ns: int) -> Row:
    return {**head(server, now_ns), "outbound_gateways": {}, "inbound_gateways": {}}


ROUTE_FIELDS: Final = (
    "rid", "remote_id", "remote_name", "did_solicit", "is_configured", "ip", "port", "start", "last_activity", "rtt",
    "uptime", "idle", "import", "export", "pending_size", "in_msgs", "out_msgs", "in_bytes", "out_bytes",
    "subscriptions", "subscriptions_list", "subscriptions_list_detail", "account", "compression",
)  # fmt: skip


def _route(row: Mapping[str, Any], now_ns: int) -> Row:
    """A route in the form of /routez. Like nats-server, leaves out what is not known of it."""
    began_ns, idle_ns = row["started_wall_ns"], row["idle_ns"]
    times = {
        "start": instant(began_ns),
        "last_activity": instant(now_ns - idle_ns),
        "uptime": uptime(now_ns - began_ns),
        "idle": uptime(idle_ns),
    }
    known = {**row, **times, "rtt": round_trip(row["rtt_ns"]) if row.get("rtt_ns") else ""}
    optional = ("import", "export", "account", "rtt", "compression", "subscriptions_list", "subscriptions_list_detail")
    return {name: known[name] for name in ROUTE_FIELDS if known.get(name) or name not in optional}


def route_stat(row: Mapping[str, Any]) -> Row:
    """A route in the form of STATSZ, which servers tell each other."""

    def data(which: str) -> Row:
        return {"msgs": row[f"{which}_msgs"], "bytes": row[f"{which}_bytes"]}

    name = {"name": row["remote_name"]} if row["remote_name"] else {}
    return {
        "rid": row["rid"], **name, "sent": data("out"), "received": data("in"), "pending": row["pending_size"],
    }  # fmt: skip


async def routez(options: RoutezOptions, acceptors: Acceptors, server: Mapping[str, Any], now_ns: int) -> Row:
    rows: list[Row] = list(server.get("route_list", []))
    if options.subscriptions or options.subscriptions_detail:
        for row in rows:
            wanted = await acceptors.wanted(row)
            if options.subscriptions_detail:
                row["subscriptions_list_detail"] = wanted
            else:
                row["subscriptions_list"] = [one["subject"] for one in wanted]
    routes = [_route(row, now_ns) for row in rows]
    limits = server.get("route_permissions", {})
    return {**head(server, now_ns, "server_name"), **limits, "num_routes": len(routes), "routes": routes}


def jsz(server: Mapping[str, Any], now_ns: int) -> Row:
    """The answer of /jsz of a server without JetStream."""
    return {
        "memory": 0,
        "storage": 0,
        "reserved_memory": 0,
        "reserved_storage": 0,
        "accounts": 0,
        "ha_assets": 0,
        "api": {"level": 0, "total": 0, "errors": 0},
        **head(server, now_ns),
        "disabled": True,
        "config": {"max_memory": 0, "max_storage": 0},
        "streams": 0,
        "consumers": 0,
        "messages": 0,
        "bytes": 0,
        "total": 0,
    }
