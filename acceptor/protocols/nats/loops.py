"""Circles of leaf nodes, how they are found: each server says a subject that nobody else says, in every account, and
whoever is told his own has it back by way of others."""

from __future__ import annotations

import base64
import hashlib


def loop_of(server_id: str, account: str) -> str:
    """What is told to all leaf nodes and hubs of an account, and may be said by none.

    >>> loop_of("N1", "A") == loop_of("N1", "A") != loop_of("N1", "B")
    True
    """
    digest = hashlib.sha256(f"{server_id} {account}".encode(errors="surrogateescape")).digest()
    return "$LDS." + base64.b32encode(digest).decode()[:22]
