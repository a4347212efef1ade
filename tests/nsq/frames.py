"""The bytes of the protocol: frames that a server sends, messages in them, commands that a client sends."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass

RESPONSE, ERROR, MESSAGE = 0, 1, 2
MESSAGE_HEADER = struct.Struct(">qH16s")
HEARTBEAT = b"_heartbeat_"


@dataclass(frozen=True)
class Frame:
    kind: int
    data: bytes


@dataclass(frozen=True)
class Message:
    timestamp: int  # nanoseconds since 1970, of the publish
    attempts: int
    id: bytes
    body: bytes


OK = Frame(RESPONSE, b"OK")


def error(text: str | bytes) -> Frame:
    return Frame(ERROR, text if isinstance(text, bytes) else text.encode())


def take_frame(data: bytearray) -> Frame | None:
    """Takes one whole frame off the front, if there is one."""
    if len(data) < 8:
        return None
    size, kind = struct.unpack_from(">ii", data)
    assert size >= 4 and kind in (RESPONSE, ERROR, MESSAGE), f"no frame: {bytes(data[:64])!r}"
    if len(data) < 4 + size:
        return None
    frame = Frame(kind, bytes(data[8 : 4 + size]))
    del data[: 4 + size]
    return frame


def parse_message(frame: Frame) -> Message:
    assert frame.kind == MESSAGE, frame
    timestamp, attempts, message_id = MESSAGE_HEADER.unpack_from(frame.data)
    return Message(timestamp, attempts, message_id, frame.data[MESSAGE_HEADER.size :])


def sized(body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + body


def size(value: int) -> bytes:
    """A size as it is on the wire, where it need not be true: negative ones too."""
    return struct.pack(">i", value)


def identify(**fields: object) -> bytes:
    return identify_body(json.dumps(fields).encode())


def identify_body(body: bytes) -> bytes:
    return b"IDENTIFY\n" + sized(body)


def sub(topic: str, channel: str) -> bytes:
    return f"SUB {topic} {channel}\n".encode()


def pub(topic: str, body: bytes) -> bytes:
    return f"PUB {topic}\n".encode() + sized(body)


def dpub(topic: str, delay_ms: int, body: bytes) -> bytes:
    return f"DPUB {topic} {delay_ms}\n".encode() + sized(body)


def mpub(topic: str, bodies: Sequence[bytes]) -> bytes:
    content = struct.pack(">I", len(bodies)) + b"".join(sized(body) for body in bodies)
    return f"MPUB {topic}\n".encode() + sized(content)


def rdy(count: int) -> bytes:
    return b"RDY %d\n" % count


def fin(message_id: bytes) -> bytes:
    return b"FIN %s\n" % message_id


def req(message_id: bytes, timeout_ms: int) -> bytes:
    return b"REQ %s %d\n" % (message_id, timeout_ms)


def touch(message_id: bytes) -> bytes:
    return b"TOUCH %s\n" % message_id


def auth(secret: str) -> bytes:
    return b"AUTH\n" + sized(secret.encode())
