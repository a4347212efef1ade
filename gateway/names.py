"""Names of topics, of any protocol."""

from __future__ import annotations

from typing import Final

from mq_shards.csrc._core import lib

# The longest topic name in any protocol.
MAX_TOPIC_BYTES: Final[int] = lib.TOPIC_NAME_BYTES


def bytes_of(topic: str) -> bytes:
    """The bytes of a topic name of any protocol, in which bytes that are not UTF-8 are surrogates
    (console/names.py)."""
    return topic.encode(errors="surrogateescape")
