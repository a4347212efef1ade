"""The block `resolver` of nats-server's configuration file: accounts whose JWTs are in a directory.

The caller stores the result in Conf.content["operator"]["directory"]; directory.py and claims_requests.py read it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from mq_shards.acceptor.protocols.nats.conf import Value
from mq_shards.acceptor.protocols.nats.conf_takers import Conf
from mq_shards.acceptor.protocols.nats.directory import CACHE, FULL

INTERVAL_NS: Final = 60_000_000_000
TIMEOUT_NS: Final = 1_900_000_000
KEYS: Final = ("type", "dir", "limit", "ttl", "interval", "timeout", "allow_delete", "hard_delete")


def directory(conf: Conf, value: Value) -> Mapping[str, Any] | None:
    """Reads the block; None when it says that accounts are in memory."""
    block = value.block()
    for key, item in block.items():
        if key not in KEYS and not item.referenced:
            conf.warn(item, f'"{key}" is no key of a resolver')
    kind = block["type"].text().lower() if "type" in block else ""
    if kind in ("mem", "memory"):
        return None
    if kind not in (FULL, CACHE):
        raise value.error("a resolver is MEMORY, URL(http://...) or a block with a dir and a type, full or cache")
    _check(value, kind)
    limit = block["limit"].whole() if "limit" in block else 0
    return {
        "type": kind,
        "dir": _place(value, block["dir"].text() if "dir" in block else ""),
        "limit": max(limit, 0),
        "ttl_ns": _duration_ns(value, "ttl", 0),
        "interval_ns": _duration_ns(value, "interval", INTERVAL_NS) or INTERVAL_NS,
        "timeout_ns": _timeout_ns(value),
        "deletes": _deletes(value, kind),
    }


def _check(value: Value, kind: str) -> None:
    block = value.block()
    for key in ("interval", "allow_delete", "hard_delete") if kind == CACHE else ("ttl",):
        # A key that turns something off does no harm, except hard_delete, which makes no sense without deletion.
        if key in block and (block[key].content or key == "hard_delete"):
            raise block[key].error(f"{kind.upper()} does not accept {key}")
    if kind == FULL and "hard_delete" in block and not _flag(value, "allow_delete"):
        raise block["hard_delete"].error("hard_delete has no effect without delete")


def _flag(value: Value, key: str) -> bool:
    block = value.block()
    return key in block and block[key].flag()


def _deletes(value: Value, kind: str) -> str:
    if kind == CACHE:
        return "hard"
    if not _flag(value, "allow_delete"):
        return ""
    return "hard" if _flag(value, "hard_delete") else "rename"


def _duration_ns(value: Value, key: str, unsaid_ns: int) -> int:
    block = value.block()
    return block[key].duration_ns() if key in block else unsaid_ns


def _timeout_ns(value: Value) -> int:
    found = _duration_ns(value, "timeout", TIMEOUT_NS)
    if found <= 0:
        raise value.block()["timeout"].error("a fetch takes longer")
    return found


def _place(value: Value, path: str) -> str:
    if not path:
        raise value.error("dir has no value and needs to point to a directory")
    wanted = there = Path.cwd() / path
    while not os.path.lexists(there):
        there = there.parent
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        raise value.block()["dir"].error("dir needs to point to an accessible directory")
    return str(wanted)
