"""What the name of a topic or of a channel may be: NSQ's own, and at most."""

from __future__ import annotations

from typing import Final

from mq_shards.acceptor import engine
from mq_shards.acceptor.protocols.nsq.options import EPHEMERAL, HIDDEN
from mq_shards.csrc._core import lib

# Of a topic's in any protocol: no acceptor takes a longer one.
MAX_TOPIC_BYTES: Final[int] = lib.TOPIC_NAME_BYTES
_NSQ: Final = engine.protocol_number("nsq")


def is_valid_name(name: str) -> bool:
    return engine.is_name(_NSQ, name.encode(errors="replace"))


def is_valid_channel(name: str) -> bool:
    return is_valid_name(name) and name not in HIDDEN


def is_ephemeral(name: str) -> bool:
    return name.endswith(EPHEMERAL)


def bytes_of(topic: str) -> bytes:
    """Of the name of a topic of any protocol: what is no text in it is surrogates (console/names.py)."""
    return topic.encode(errors="surrogateescape")
