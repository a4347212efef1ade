"""Tells live subscribers, which are clients of a protocol without queues, what is published through the gateway. The
gateway tells one acceptor, which tells the others. It waits for the acceptor's answer, so that no client publishes
faster than subscribers are told.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Iterator, Sequence
from typing import Final

from mq_shards.csrc._core import ffi
from mq_shards.csrc.structs import struct_in
from mq_shards.gateway.calls import AcceptorCalls
from mq_shards.gateway.names import bytes_of

ACCEPTOR: Final = 0  # always the same one, which keeps the order of messages
SIZE: Final = struct.Struct(">I")
# In one call: an acceptor delivers all messages of a call in one turn, and must not keep other clients waiting.
PIECE_MESSAGES: Final = 256
PIECE_BYTES: Final = 256 << 10
HEADERS_BYTES: Final[int] = ffi.sizeof("struct headers")
# The message is published already, so its publisher waits only this long for an acceptor that is being restarted.
TIMEOUT_NS: Final = 500_000_000

log = logging.getLogger(__name__)


class Live:
    def __init__(self, calls: AcceptorCalls, patterns: Sequence[str]) -> None:
        self._calls = calls
        self._patterns = [pattern.split(".") for pattern in patterns]
        self._hears = True

    def wants(self, topic: str) -> bool:
        tokens = topic.split(".")
        return any(matches(pattern, tokens) for pattern in self._patterns)

    async def tell(self, topic: str, bodies: bytes | memoryview) -> None:
        """`bodies`: each behind its size. Subscribers that cannot be told miss them, as if they were not connected."""
        name = with_size(bytes_of(topic))
        for piece in pieces(bodies):
            reply = await self._calls.ask(ACCEPTOR, "published", name + piece, timeout_ns=TIMEOUT_NS)
            if not reply.ok:
                if self._hears:
                    log.warning("acceptor %d does not hear what is published: live subscribers miss it", ACCEPTOR)
                self._hears = False
                return
            self._hears = True


def with_size(body: bytes | memoryview) -> bytes:
    return SIZE.pack(len(body)) + body


def without_headers(bodies: bytes | memoryview) -> bytes:
    """Removes the headers before each message."""
    found, at = [], 0
    while at < len(bodies):
        end = at + SIZE.size + int.from_bytes(bodies[at : at + SIZE.size], "big")
        begin = at + SIZE.size
        begin += HEADERS_BYTES + struct_in("headers", bodies, begin).bytes
        found.append(with_size(bodies[begin:end]))
        at = end
    return b"".join(found)


def pieces(bodies: bytes | memoryview) -> Iterator[bytes | memoryview]:
    """Splits into pieces of whole messages, small enough for one turn of an acceptor.

    >>> [len(piece) for piece in pieces(with_size(b"x") * 600)]
    [1280, 1280, 440]
    """
    begin = at = messages = 0
    while at < len(bodies):
        size = SIZE.size + int.from_bytes(bodies[at : at + SIZE.size], "big")
        if messages and (messages == PIECE_MESSAGES or at + size - begin > PIECE_BYTES):
            yield bodies[begin:at]
            begin, messages = at, 0
        at += size
        messages += 1
    yield bodies[begin:]


def matches(pattern: Sequence[str], tokens: Sequence[str]) -> bool:
    """Whether a topic's tokens match a pattern, with * for one token and > for one or more at the end.

    >>> [matches("a.*.>".split("."), topic.split(".")) for topic in ("a.b.c", "a.b.c.d", "a.b", "b.b.c")]
    [True, True, False, False]
    """
    for place, wanted in enumerate(pattern):
        if wanted == ">":
            return len(tokens) > place
        if place == len(tokens) or wanted not in ("*", tokens[place]):
            return False
    return len(pattern) == len(tokens)
