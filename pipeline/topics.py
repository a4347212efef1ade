"""The topics that a query reads, of all its brokers, and where in them it begins and ends.

A broker is known by the id of its data directory, and not by the address at which it answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from mq_shards.pipeline.client import Address, Client, Topic
from mq_shards.pipeline.options import EARLIEST, LATEST, AtSeq, Bound, OptionError, ReadOptions

MS_NS: Final = 1_000_000


class Key(NamedTuple):
    """Names one of a query's streams, in Spark's checkpoint too."""

    broker: str  # its id
    topic: str


@dataclass(frozen=True)
class Stream:
    """A topic on one broker, as of now."""

    broker: str  # its id
    address: Address
    topic: Topic

    @property
    def key(self) -> Key:
        return Key(self.broker, self.topic.topic)

    def __str__(self) -> str:
        return f"topic {self.topic.topic} of {self.address}"


@dataclass(frozen=True)
class _Known:
    """What a broker had when it was asked last."""

    broker: str
    changes: str
    topics: Mapping[str, Topic]
    counts_on: bool


class Brokers:
    """Connections of a query's driver to all brokers."""

    def __init__(self, options: ReadOptions) -> None:
        self._clients = {address: Client(address, options.patience_s) for address in options.brokers}
        self._by_id: dict[str, Address] = {}
        self._selection = options.selection
        self._known: dict[Address, _Known] = {}

    def close(self) -> None:
        for client in self._clients.values():
            client.close()

    @property
    def by_id(self) -> Mapping[str, Address]:
        """The brokers by id, as of the last look at their topics. Raises BrokerError, OptionError."""
        if not self._by_id:
            self._by_id = by_id([(client.identify(), address) for address, client in self._clients.items()])
        return self._by_id

    def client(self, broker: str) -> Client:
        """Returns the client of the broker with this id."""
        return self._clients[self.by_id[broker]]

    def counts_on(self, broker: str) -> bool:
        """Whether its topics count on from where they were when they were forgotten, as of the last look."""
        return self._known[self.by_id[broker]].counts_on

    def streams(self) -> dict[Key, Stream]:
        """Returns the streams that the query selects, in the order of keys. Raises BrokerError, OptionError."""
        self._known = {address: self._look(address, client) for address, client in self._clients.items()}
        self._by_id = by_id([(known.broker, address) for address, known in self._known.items()])
        found = {
            Key(known.broker, topic.topic): Stream(known.broker, address, topic)
            for address, known in self._known.items()
            for topic in known.topics.values()
            if self._selection.takes(address, known.broker, topic.topic)
        }
        return dict(sorted(found.items()))

    def _look(self, address: Address, client: Client) -> _Known:
        """Asks a broker, which may have many topics, only for what has changed."""
        before = self._known.get(address)
        names, prefix = self._selection.asked
        found = client.listing(before.changes if before else "", names, prefix)
        topics = {topic.topic: topic for topic in found.topics if self._selection.has(topic.topic)}
        if before is not None and not found.whole:
            gone = set(found.gone)
            topics = {name: topic for name, topic in before.topics.items() if name not in gone} | topics
        return _Known(found.broker, found.changes, topics, found.counts_on)


def by_id(found: list[tuple[str, Address]]) -> dict[str, Address]:
    """Raises OptionError if two have one id: their messages would be read twice."""
    result: dict[str, Address] = {}
    for broker, address in found:
        if (other := result.setdefault(broker, address)) != address:
            raise OptionError(
                f"brokers: {other} and {address} have the same data directory, {broker}. If they are one broker, name "
                "it once; if one has a copy of the other's directory, leave it out"
            )
    return result


def places(name: str, bound: Bound, streams: Mapping[Key, Stream], brokers: Brokers) -> dict[Key, int]:
    """Returns the seq of a bound, that of the option `name`, in each stream. Raises OptionError."""
    if bound.by_topic is not None:
        missing = {key.topic for key in streams} - set(bound.by_topic)
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
