"""The body of POST /v1/publish: messages for many topics, made what PUBLISH_MANY takes for each of them.

For each message, little-endian: uint16 bytes of topic, uint32 bytes of body, topic, body.
"""

from __future__ import annotations

import asyncio
import re
import struct
from dataclasses import dataclass, field
from typing import Final

SLICE: Final = 4096
MAX_TOPICS: Final = 1024  # in one body
# One request to a worker holds so much, or one message: other clients of it do not wait long.
PART_BYTES: Final = 1 << 20
HEAD: Final = struct.Struct("<HI")
_SIZE: Final = struct.Struct(">I")
# What a client of any protocol here may call a topic.
_NAME: Final = re.compile(rb"[A-Za-z0-9+/;.$_():@-]{1,200}(?:#ephemeral)?")


class BatchError(Exception):
    """One line: what is wrong with the body."""


@dataclass(slots=True)
class Part:
    """Messages of one topic: how many, and each behind its size (4 bytes, big-endian)."""

    count: int = 0
    size: int = 0  # of the bodies
    pieces: list[bytes] = field(default_factory=list)


async def split(body: bytes, max_message_bytes: int) -> dict[str, list[Part]]:
    """By topic, its messages in their order. Raises BatchError."""
    topics: dict[bytes, list[Part]] = {}
    at = steps = 0
    end = len(body)
    while at < end:
        if end - at < HEAD.size:
            raise BatchError(f"the body ends in the middle of a message, at {at}")
        name_bytes, size = HEAD.unpack_from(body, at)
        start = at + HEAD.size + name_bytes
        name = body[at + HEAD.size : start]
        at = start + size
        if at > end:
            raise BatchError(f"the body ends in the middle of a message, at {end}")
        if size > max_message_bytes:
            raise BatchError(f"a message has {size} bytes, at most {max_message_bytes} are possible")
        parts = topics.get(name)
        if parts is None:
            parts = _add_topic(topics, name)
        part = parts[-1]
        if part.size and part.size + size > PART_BYTES:
            part = Part()
            parts.append(part)
        part.count += 1
        part.size += size
        part.pieces.append(_SIZE.pack(size))
        part.pieces.append(body[start:at])
        steps += 1
        if steps % SLICE == 0:
            await asyncio.sleep(0)
    return {name.decode(): parts for name, parts in topics.items()}


def _add_topic(topics: dict[bytes, list[Part]], name: bytes) -> list[Part]:
    if _NAME.fullmatch(name) is None:
        raise BatchError(f"{name[:80]!r} is not a topic's name")
    if len(topics) == MAX_TOPICS:
        raise BatchError(f"more than {MAX_TOPICS} topics in one body")
    parts = topics[name] = [Part()]
    return parts
