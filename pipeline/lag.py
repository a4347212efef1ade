"""How far a streaming query is behind its brokers, out of the progress that Spark reports.

Spark's Kafka source reports minOffsetsBehindLatest and its like as metrics of a source; a source in Python can report
none. What they are made of is in every progress: the end of the micro-batch, and the latest offset there was.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson
from mq_shards.pipeline.client import Client
from mq_shards.pipeline.offsets import Offset
from mq_shards.pipeline.options import connection_of
from mq_shards.pipeline.topics import Key

PATIENCE_S: Final = 30.0


@dataclass(frozen=True)
class Lag:
    """Messages that are there and not read yet, by broker and topic."""

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
    """`progress`: `query.lastProgress`, or what a listener is given. Sources of other kinds count for nothing."""
    found: dict[Key, int] = {}
    for source in progress["sources"]:
        latest, end = _seqs(source["latestOffset"]), _seqs(source["endOffset"])
        for key in latest:
            # A topic that has just come begins with the next micro-batch.
            found[key] = max(0, latest[key] - end.get(key, 0))
    return Lag(found)


def unread(connection: Mapping[str, str], subscription: str) -> Lag:
    """What brokers keep for a named reader. Raises BrokerError."""
    found: dict[Key, int] = {}
    for address in connection_of(connection):
        with Client(address, PATIENCE_S) as client:
            broker = client.identify()
            for reader in client.readers():
                if reader.name == subscription:
                    found |= {Key(broker, topic): count for topic, count in reader.unread.items()}
    return Lag(found)


def _seqs(offset: Any) -> Mapping[Key, int]:  # noqa: ANN401
    """Of an offset as Spark reports it: a text, or what the text says."""
    try:
        found = orjson.loads(offset) if isinstance(offset, str) else offset
    except ValueError:
        return {}
    return Offset.decode(found, {}).seqs if isinstance(found, dict) and "brokers" in found else {}
