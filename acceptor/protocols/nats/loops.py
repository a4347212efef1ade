"""How loops of leaf nodes are found: each server announces a subject of its own in every account. A server that another
one sends this subject is part of a loop."""

from __future__ import annotations

import base64
import hashlib


def loop_of(server_id: str, account: str) -> str:
    """The subject that this server announces to all leaf nodes and hubs of an account.

    >>> loop_of("N1", "A") == loop_of("N1", "A") != loop_of("N1", "B")
    True
    """
    digest = hashlib.sha256(f"{server_id} {account}".encode(errors="surrogateescape")).digest()
    return "$LDS." + base64.b32encode(digest).decode()[:22]
