"""What is published through the gateway, for those who listen live: clients of a protocol without queues, which are at
the acceptors. One of these is told, and tells the others; its answer is waited for, so nobody publishes faster than
they hear.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Sequence
from typing import Final

from mq_shards.gateway.calls import AcceptorCalls

ACCEPTOR: Final = 0  # any would do, but those of one topic in their order
SIZE: Final = struct.Struct(">I")

log = logging.getLogger(__name__)


class Live:
    def __init__(self, calls: AcceptorCalls, patterns: Sequence[str]) -> None:
        self._calls = calls
        self._patterns = [pattern.split(".") for pattern in patterns]
        self._missed = 0

    def wants(self, topic: str) -> bool:
        tokens = topic.split(".")
        return any(matches(pattern, tokens) for pattern in self._patterns)

    async def tell(self, topic: str, bodies: bytes) -> None:
        """`bodies`: each behind its size. Whoever cannot be told misses them, as one who is not there does."""
        name = topic.encode()
        reply = await self._calls.ask(ACCEPTOR, "published", SIZE.pack(len(name)) + name + bodies)
        if reply.ok:
            self._missed = 0
        elif not self._missed:
            log.warning("acceptor %d does not hear what is published: live subscribers miss it", ACCEPTOR)
        self._missed += not reply.ok


def with_size(body: bytes) -> bytes:
    return SIZE.pack(len(body)) + body


def matches(pattern: Sequence[str], tokens: Sequence[str]) -> bool:
    """
    >>> [matches("a.*.>".split("."), topic.split(".")) for topic in ("a.b.c", "a.b.c.d", "a.b", "b.b.c")]
    [True, True, False, False]
    """
    for place, wanted in enumerate(pattern):
        if wanted == ">":
            return len(tokens) > place
        if place == len(tokens) or wanted not in ("*", tokens[place]):
            return False
    return len(pattern) == len(tokens)
