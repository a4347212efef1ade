"""Which consumer a Failover subscription prefers on a topic without partitions: each consumer has a hundred points on a
ring of hashes, and the one whose point is the next behind the topic's hash is the active one."""

from __future__ import annotations

from typing import Final

from mq_shards.csrc._core import ffi, lib

POINTS: Final = 100


def murmur3(text: str) -> int:
    """Murmur3_32 with the seed 0."""
    data = text.encode()
    return int(lib.pulsar_murmur(ffi.from_buffer(data), len(data)))


def failover_order(topic: str, consumer: str) -> int:
    """The distance from the topic's hash to the consumer's next point. The lowest is preferred."""
    begin = murmur3(topic)
    return min((murmur3(f"{consumer}{point}") - begin) % (1 << 32) for point in range(POINTS))
