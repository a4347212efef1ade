"""The topics that a query reads, of all its brokers, and where in them it begins and ends."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from mq_shards.pipeline.client import Address, Client, Topic
from mq_shards.pipeline.options import EARLIEST, LATEST, AtSeq, Bound, OptionError, ReadOptions, Selection

MS_NS: Final = 1_000_000

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Stream:
    """A topic on one broker, as of now. `key` names it among the query's, in Spark's checkpoint too: the topic, and
    with several brokers topic@host:port."""

    key: str
    broker: Address
    topic: Topic


class Brokers:
    """Connections to all brokers of a query, for what its driver asks."""

    def __init__(self, options: ReadOptions) -> None:
        self._clients = {address: Client(address, options.patience_s) for address in options.brokers}

    def close(self) -> None:
        for client in self._clients.values():
            client.close()

    def client(self, broker: Address) -> Client:
        return self._clients[broker]

    def key(self, broker: Address, topic: str) -> str:
        return topic if len(self._clients) == 1 else f"{topic}@{broker}"

    def of_key(self, key: str) -> tuple[Address, str]:
        """Raises OptionError: the checkpoint is of a query of other brokers."""
        if len(self._clients) == 1:
            return next(iter(self._clients)), key
        topic, _, broker = key.rpartition("@")
        for address in self._clients:
            if str(address) == broker:
                return address, topic
        raise OptionError(f"brokers: the checkpoint has {key!r}, which is of none of them")

    def streams(self, selection: Selection) -> dict[str, Stream]:
        """By key; in the order of keys."""
        found = {
            key: Stream(key, broker, topic)
            for broker, client in self._clients.items()
            for topic in client.topics()
            if selection.has(topic.topic)
            for key in [self.key(broker, topic.topic)]
        }
        return dict(sorted(found.items()))


def places(name: str, bound: Bound, streams: Mapping[str, Stream], brokers: Brokers) -> dict[str, int]:
    """Where a bound, that of the option `name`, lies in each stream. Raises OptionError."""
    if bound.by_topic is not None:
        missing = {s.topic.topic for s in streams.values()} - set(bound.by_topic)
        if missing:
            raise OptionError(f"{name}: must speak of all topics; nothing is said of {', '.join(sorted(missing))}")
    return {key: _seq(name, bound, stream, brokers) for key, stream in streams.items()}


def _seq(name: str, bound: Bound, stream: Stream, brokers: Brokers) -> int:
    topic = stream.topic
    value = bound.all if bound.by_topic is None else bound.by_topic[topic.topic]
    if isinstance(bound, AtSeq):
        return {EARLIEST: topic.earliest, LATEST: topic.latest}.get(value, value)
    seq = brokers.client(stream.broker).place_of(topic.topic, value * MS_NS).seq
    if seq >= topic.latest and not bound.or_latest:
        raise OptionError(
            f"{name}: topic {topic.topic} has no message at or after {value}; "
            f"{name}OffsetsByTimestampStrategy latest begins behind the last"
        )
    return min(seq, topic.latest)
