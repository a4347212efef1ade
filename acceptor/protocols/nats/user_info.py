"""Describes a client: to itself, when it asks `$SYS.REQ.USER.INFO`, and to services that it sends requests to.

As with nats-server, which copies what it holds, a user without limits has `permissions` only if they are configured.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import orjson
from mq_shards.acceptor.protocols.go_time import instant
from mq_shards.acceptor.protocols.nats.client import Client, go_json
from mq_shards.acceptor.protocols.nats.who import Limits, Permissions

Row = dict[str, Any]


def answer(server: Mapping[str, Any], sequence: int, client: Client) -> bytes:
    user, account = client.user, client.account
    # Without authentication: the name in CONNECT.
    name = user.nkey or user.name if user is not None else client.options.get("user", "")
    said: Row = {"user": name, "account": account, "account_name": account}
    if user is not None and user.permissions is not None:
        said["permissions"] = permissions_row(user.permissions)
    stamp = {"seq": sequence, "time": instant(time.time_ns())}
    return go_json({"server": {**server, **stamp}, "data": said})


def permissions_row(permissions: Permissions) -> Row:
    responses = permissions.responses
    found: Row = {
        "publish": _limits_row(permissions.publish),
        "subscribe": _limits_row(permissions.subscribe),
    }
    if responses is not None:
        found["responses"] = {"max": responses.max or -1, "ttl": responses.expires_ns}
    return found


def _limits_row(limits: Limits) -> Row:
    rows = {"allow": sorted(limits.allow or ()), "deny": sorted(limits.deny)}
    return {name: patterns for name, patterns in rows.items() if patterns}


def asker(client: Client, server_name: str, cluster: str) -> bytes:
    """What services of other accounts are told of the client, or of a leaf node or hub with that name: JSON in two
    parts, between which the codec puts the round-trip time."""
    options = client.options
    started = datetime.fromtimestamp(client.connected_wall_ns / 1e9, UTC).isoformat().replace("+00:00", "Z")
    first = {
        "start": started, "host": client.host, "id": client.client_id,
        "acc": client.account, "user": client.user.name or client.user.nkey if client.user else "",
        "name": options.get("name", ""), "lang": options.get("lang", ""), "ver": options.get("version", ""),
    }  # fmt: skip
    last = {
        "server": server_name, "cluster": cluster, **_token_row(client),
        "kind": "Leafnode" if client.is_leaf else "Client",
        "client_type": "" if client.is_leaf else "websocket" if client.is_websocket else "nats",
    }  # fmt: skip
    before = orjson.dumps({key: value for key, value in first.items() if value}).rstrip(b"}")
    behind = orjson.dumps({key: value for key, value in last.items() if value}).replace(b"{", b",", 1)
    return before + b"\n" + behind


def _token_row(client: Client) -> Row:
    """What is known of a client by its JWT."""
    user = client.user
    if user is None or not user.issuer:
        return {}
    jwt = "" if user.is_called_out else client.options.get("jwt", "")
    return {"jwt": jwt, "issuer_key": user.issuer, "name_tag": user.token_name, "tags": list(user.tags)}
