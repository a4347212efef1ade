"""/connz: open and closed connections, filtered and sorted; one page of them in detail. Leaf nodes and hubs are among
them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from mq_shards.csrc._core import lib
from mq_shards.gateway.nats.acceptors import Acceptors, Located
from mq_shards.gateway.nats.go_values import instant, round_trip, uptime

DEFAULT_LIMIT: Final = 1024
MAX_LIMIT: Final = 65_536
GLOBAL_ACCOUNT: Final = "$G"

Row = dict[str, Any]


class Now(NamedTuple):
    wall_ns: int
    monotonic_ns: int


def _active_ns(row: Row, now: Now) -> int:
    """When it last did something."""
    return int(row.get("stop_ns", now.wall_ns) - row["idle_ns"])


def _lived_ns(row: Row, now: Now) -> int:
    """How long it has been there, or was."""
    return int(row["stop_ns"] - row["start_ns"] if "stop_ns" in row else now.monotonic_ns - row["opened_ns"])


# By the name of a sort: the key of a connection, and whether the greatest comes first.
SORTS: Final[Mapping[str, tuple[Callable[[Row, Now], Any], bool]]] = {
    "cid": (lambda row, _: row["cid"], False),
    "start": (lambda row, _: row["opened_ns"], False),
    "subs": (lambda row, _: row["subscriptions"], True),
    "pending": (lambda row, _: row["pending_bytes"], True),
    "msgs_to": (lambda row, _: row["out_messages"], True),
    "msgs_from": (lambda row, _: row["in_messages"], True),
    "bytes_to": (lambda row, _: row["out_bytes"], True),
    "bytes_from": (lambda row, _: row["in_bytes"], True),
    "last": (_active_ns, True),
    "idle": (_active_ns, False),
    "uptime": (_lived_ns, False),
    "stop": (lambda row, _: row["stop_ns"], True),
    "reason": (lambda row, _: row["reason"], False),
    "rtt": (lambda row, _: row["rtt_ns"], True),
}


class ConnzError(ValueError):
    """Options that are invalid or contradict each other; the text is nats-server's."""


@dataclass(frozen=True, slots=True)
class ConnzOptions:
    sort: str = ""
    auth: bool = False
    subs: bool = False
    subs_detail: bool = False
    offset: int = 0
    limit: int = 0
    cid: int = 0
    state: str = "open"  # open, closed, all
    user: str = ""
    account: str = ""
    mqtt_client: str = ""
    filter_subject: str = ""

    def check(self) -> None:
        """Checks that the options are valid. Raises ConnzError."""
        if self.sort and self.sort not in SORTS:
            raise ConnzError(f"invalid sorting option: {self.sort}")
        for name in ("stop", "reason"):
            if self.sort == name and self.state != "closed":
                raise ConnzError(f"sort by {name} only valid on closed connections")
        if self.filter_subject and self.filter_subject != ">" and not self.account:
            raise ConnzError("filter by subject only valid with account filtering")


async def connz(options: ConnzOptions, acceptors: Acceptors, server: Mapping[str, Any], now_ns: int) -> Row:
    """Makes the answer. `server`: the result of Acceptors.server(). Raises ConnzError."""
    options.check()
    begun_ns = time.monotonic_ns()
    limit = 1 if options.cid else options.limit if options.limit > 0 else DEFAULT_LIMIT
    offset = max(options.offset, 0)
    answer: Row = {
        "server_id": server["server_id"],
        "now": instant(now_ns),
        "num_connections": 0,
        "total": 0,
        "offset": offset,
        "limit": limit,
        "connections": [],
    }
    if options.account and options.account not in server["accounts"]:
        return {**answer, "server_id": "", "connections": None}
    found: list[Row] = []
    total = 0  # connections of the account, before other filters
    if options.state in ("open", "all"):
        rows = [_row(one) for one in await acceptors.figures() if options.account in ("", one.account)]
        leaves = [one for one in server.get("leaf_list", ()) if options.account in ("", one["account"])]
        rows += [await _leaf_row(one, options, acceptors, now_ns) for one in leaves]
        total += len(rows)
        found += await _wanted(rows, options, acceptors)
    if options.state in ("closed", "all"):
        rows = [row for row in await acceptors.closed() if _was_of(options.account, row["account"])]
        total += len(rows)
        found += [row for row in rows if options.user in ("", row["auth"].get("authorized_user", ""))]
    if options.mqtt_client:
        found = []
    if options.cid:
        found = [row for row in found if row["cid"] == options.cid]
    key, descending = SORTS[options.sort or "cid"]
    # The acceptors have told since when each is idle after `now_ns`; those that have gone told it then.
    ended_ns = time.monotonic_ns()
    now = Now(now_ns + ended_ns - begun_ns, ended_ns)
    found.sort(key=lambda row: key(row, now), reverse=descending)
    page = found[offset : offset + min(limit, MAX_LIMIT)]
    await _complete([row for row in page if "located" in row], acceptors, options)
    rows = [shown(row, options, now.wall_ns) for row in page if "row" in row]
    return {**answer, "num_connections": len(rows), "total": total, "connections": rows}


def _was_of(asked: str, account: str) -> bool:
    """Whether a closed connection is shown for the account. Like nats-server, never for the global account."""
    return not asked or (asked == account != GLOBAL_ACCOUNT)


async def _wanted(rows: list[Row], options: ConnzOptions, acceptors: Acceptors) -> list[Row]:
    """Filters open connections. Asks for more than their figures only if a filter needs it."""
    if not options.user and not options.filter_subject:
        return rows
    await _complete(rows, acceptors, options)
    rows = [row for row in rows if "row" in row]
    if options.user:
        rows = [row for row in rows if row["auth"].get("authorized_user", "") == options.user]
    if options.filter_subject:
        rows = [row for row in rows if any(_overlap(options.filter_subject, sub["subject"]) for sub in row["subs"])]
    return rows


def _row(one: Located) -> Row:
    return {**one.figures._asdict(), "cid": one.figures.client_id, "located": one}


async def _leaf_row(leaf: Row, options: ConnzOptions, acceptors: Acceptors, now_ns: int) -> Row:
    """A leaf node or a hub: a row of /leafz that is completed at once."""
    subs: list[Row] = await acceptors.wanted(leaf) if _with_subs(options) else []
    for sub in subs:
        sub["cid"] = leaf["id"]
    return {
        **{name: leaf[name] for name in ("account", "auth", "idle_ns", "row", "rtt_ns", "subscriptions")},
        "cid": leaf["id"],
        "start_ns": leaf["started_wall_ns"],
        "opened_ns": time.monotonic_ns() - (now_ns - leaf["started_wall_ns"]),
        "pending_bytes": leaf["pending_size"],
        **{f"{way}_messages": leaf[f"{way}_msgs"] for way in ("in", "out")},
        **{f"{way}_bytes": leaf[f"{way}_bytes"] for way in ("in", "out")},
        "subs": subs,
    }


def _overlap(one: str, other: str) -> bool:
    first, second = one.encode(), other.encode()
    return bool(lib.subject_overlaps(first, len(first), second, len(second)))


async def _complete(rows: list[Row], acceptors: Acceptors, options: ConnzOptions) -> None:
    """Adds what Python knows of connections besides their figures, unless they have been closed."""
    incomplete = [row for row in rows if "row" not in row]
    by_cid = {row["cid"]: row for row in incomplete}
    located = [row["located"] for row in incomplete]
    async for figures, known in acceptors.clients(located, subs=_with_subs(options)):
        by_cid[figures.client_id].update(known)


def _with_subs(options: ConnzOptions) -> bool:
    return options.subs or options.subs_detail or bool(options.filter_subject)


def shown(row: Row, options: ConnzOptions, now_ns: int) -> Row:
    """A connection in the form of nats-server's /connz."""
    end_ns = row.get("stop_ns", now_ns)
    known: Row = row["row"]
    found: Row = {
        "cid": row["cid"],
        "kind": known.get("kind", "Client"),
        **({"type": known["type"]} if "type" in known else {}),
        "ip": known["ip"],
        "port": known["port"],
        "start": instant(row["start_ns"]),
        "last_activity": instant(end_ns - row["idle_ns"]),
    }
    if "stop_ns" in row:
        found |= {"stop": instant(row["stop_ns"]), "reason": row["reason"]}
    found |= {
        "rtt": round_trip(row["rtt_ns"]),
        "uptime": uptime(end_ns - row["start_ns"]),
        "idle": uptime(row["idle_ns"]),
        "pending_bytes": row["pending_bytes"],
        "in_msgs": row["in_messages"],
        "out_msgs": row["out_messages"],
        "in_bytes": row["in_bytes"],
        "out_bytes": row["out_bytes"],
        "subscriptions": row["subscriptions"],
        **{name: value for name, value in known.items() if name not in ("kind", "type", "ip", "port")},
    }
    subs = row.get("subs") or []
    auth: Row = {}
    if options.auth:
        auth = dict(row["auth"])
        if "authorized_user" in auth:
            found["authorized_user"] = auth.pop("authorized_user")
        if row["account"] != GLOBAL_ACCOUNT:
            found["account"] = row["account"]
        elif "stop_ns" in row:
            auth.pop("name_tag", None)  # as nats-server does
    if subs and options.subs_detail:
        account = {"account": row["account"], "account_tag": row["account"]} if "stop_ns" in row else {}
        found["subscriptions_list_detail"] = [{**account, **sub} for sub in subs]
    elif subs and options.subs:
        found["subscriptions_list"] = [sub["subject"] for sub in subs]
    return found | auth
