"""Where a topic's messages of a time begin."""

from __future__ import annotations

from mq_shards.acceptor.protocols.pulsar.position import Position
from mq_shards.gateway.pulsar import metadata
from mq_shards.gateway.pulsar.core import Core, Entry
from mq_shards.ringbuf.time_units import MS_NS


def published_ms(entry: Entry) -> int:
    """When a message was published, as its producer says; else when it was stored."""
    said = metadata.read(entry.headers) if entry.tag == metadata.PULSAR_TAG else None
    return entry.time_ns // MS_NS if said is None else said.publish_time_ms


async def first_at(core: Core, topic: str, where: Position, at_ms: int) -> int:
    """The seq of the first message that was published at this time or later; that of the next one if none was. By
    bisection, as times mostly rise."""
    first, behind = where.first_seq, where.next_seq
    while first < behind:
        middle = (first + behind) // 2
        entry = await core.entry(topic, middle, or_next=True, head=True)
        if entry is not None and entry.seq < behind and published_ms(entry) < at_ms:
            first = entry.seq + 1
        else:
            behind = middle
    return first
