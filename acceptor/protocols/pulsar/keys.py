"""Which consumer a Failover subscription of a topic without partitions prefers: on a ring of hashes each consumer has a
hundred points, and whose point comes first behind the topic's own is the active one."""

from __future__ import annotations

from typing import Final

from mq_shards.csrc._core import ffi, lib

POINTS: Final = 100


def murmur3(text: str) -> int:
    """Murmur3_32 with the seed 0."""
    data = text.encode()
    return int(lib.pulsar_murmur(ffi.from_buffer(data), len(data)))


def failover_order(topic: str, consumer: str) -> int:
    """The way from the topic's place on the ring to the consumer's first: the least is the first."""
    begin = murmur3(topic)
    return min((murmur3(f"{consumer}{point}") - begin) % (1 << 32) for point in range(POINTS))
