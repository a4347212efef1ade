"""Which names of topics and channels are valid: in NSQ, and, by length alone, in any protocol."""

from __future__ import annotations

from typing import Final

from mq_shards.acceptor import engine
from mq_shards.acceptor.protocols.nsq.options import EPHEMERAL, HIDDEN
from mq_shards.csrc._core import lib

# The longest topic name in any protocol.
MAX_TOPIC_BYTES: Final[int] = lib.TOPIC_NAME_BYTES
_NSQ: Final = engine.protocol_number("nsq")


def is_valid_name(name: str) -> bool:
    return engine.is_name(_NSQ, name.encode(errors="replace"))


def is_valid_channel(name: str) -> bool:
    return is_valid_name(name) and name not in HIDDEN


def is_ephemeral(name: str) -> bool:
    return name.endswith(EPHEMERAL)


def bytes_of(topic: str) -> bytes:
    """The bytes of a topic name of any protocol, in which bytes that are not UTF-8 are surrogates
    (console/names.py)."""
    return topic.encode(errors="surrogateescape")
