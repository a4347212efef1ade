"""How far a streaming query is behind its brokers, from the progress that Spark reports.

Spark's Kafka source reports minOffsetsBehindLatest and the like as metrics; a source in Python can report none. But
each progress has what they are computed from: the end of the micro-batch, and the latest offset at that time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson
from mq_shards.pipeline.client import Client
from mq_shards.pipeline.jumps import jumped
from mq_shards.pipeline.offsets import Offset
from mq_shards.pipeline.options import connection_of
from mq_shards.pipeline.topics import Key

TIMEOUT_S: Final = 30.0


@dataclass(frozen=True)
class Lag:
    """How many messages are there and not read yet, by broker and topic."""

    by_topic: Mapping[Key, int]

    @property
    def total(self) -> int:
        return sum(self.by_topic.values())

    @property
    def min(self) -> int:
        return min(self.by_topic.values(), default=0)

    @property
    def max(self) -> int:
        return max(self.by_topic.values(), default=0)

    @property
    def avg(self) -> float:
        return self.total / len(self.by_topic) if self.by_topic else 0.0


def behind(progress: Mapping[str, Any]) -> Lag:
    """`progress`: `query.lastProgress`, or what a listener is given. Sources of other kinds are ignored."""
    found: dict[Key, int] = {}
    for source in progress["sources"]:
        latest, end = _offset(source["latestOffset"]), _offset(source["endOffset"])
        for key, seq in latest.seqs.items():
            start = end.seqs.get(key, 0)  # a topic that is new is read from the next micro-batch on
            found[key] = max(0, seq - start - jumped(latest.jumps.get(key, ()), start, seq))
    return Lag(found)


def unread(connection: Mapping[str, str], subscription: str) -> Lag:
    """Returns how many messages brokers keep for a named reader. Raises BrokerError."""
    found: dict[Key, int] = {}
    for address in connection_of(connection):
        with Client(address, TIMEOUT_S) as client:
            broker = client.identify()
            for reader in client.readers():
                if reader.name == subscription:
                    found |= {Key(broker, topic): count for topic, count in reader.unread.items()}
    return Lag(found)


def _offset(offset: Any) -> Offset:  # noqa: ANN401
    """Returns an offset as Spark reports it, as text or parsed; one without seqs of another kind of source."""
    try:
        found = orjson.loads(offset) if isinstance(offset, str) else offset
    except ValueError:
        return Offset({})
    return Offset.decode(found, {}) if isinstance(found, dict) and "brokers" in found else Offset({})
