"""Converts bodies of /mpub to the form of PUBLISH_MANY: each message preceded by its size in 4 bytes, big-endian.

A body may hold a million messages. The work is done in slices, between which the event loop serves other requests.
"""

from __future__ import annotations

import asyncio
import struct
from typing import Final

SLICE: Final = 4096
_SIZE: Final = struct.Struct(">I")
_SIGNED: Final = struct.Struct(">i")


class MpubError(Exception):
    """nsqd's name of the error."""


async def from_lines(body: bytes, max_message_bytes: int, max_body_bytes: int) -> tuple[int, bytes]:
    """Converts a body with a message on each line; empty lines are skipped. Returns the number of messages, and them.

    Raises MpubError. A `body` one byte longer than `max_body_bytes` is too big, unless an earlier line is too long.
    """
    count = 0
    start = 0
    out = bytearray()
    steps = 0
    while start < len(body):
        end = body.find(b"\n", start)
        past = len(body) if end < 0 else end + 1
        if past > max_body_bytes:
            raise MpubError("BODY_TOO_BIG")
        line = body[start : len(body) if end < 0 else end]
        start = past
        if len(line) > max_message_bytes:
            raise MpubError("MSG_TOO_BIG")
        if line:
            out += _SIZE.pack(len(line))
            out += line
            count += 1
        steps += 1
        if steps % SLICE == 0:
            await asyncio.sleep(0)
    return count, bytes(out)


async def from_binary(body: bytes, max_message_bytes: int, max_body_bytes: int) -> tuple[int, bytes]:
    """Converts a body like that of the TCP protocol's MPUB: a count, then each message after its size.

    Raises MpubError. Bytes after the last message are ignored, as by nsqd.
    """
    if len(body) < _SIGNED.size:
        raise MpubError("BAD_BODY")
    (count,) = _SIGNED.unpack_from(body)
    if not 0 < count <= (max_body_bytes - 4) // 5:  # a message takes 5 bytes at least: its size and one byte
        raise MpubError("BAD_BODY")
    offset = _SIGNED.size
    for step in range(count):
        if offset + _SIGNED.size > len(body):
            raise MpubError("BAD_MESSAGE")
        (size,) = _SIGNED.unpack_from(body, offset)
        offset += _SIGNED.size + size
        if not 0 < size <= max_message_bytes or offset > len(body):
            raise MpubError("BAD_MESSAGE")
        if step % SLICE == SLICE - 1:
            await asyncio.sleep(0)
    return count, body[_SIGNED.size : offset]
