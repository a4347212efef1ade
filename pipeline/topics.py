"""The topics that a query reads, of all its brokers, and where in them it begins and ends.

A broker is known by what it stores, its data directory's id, and not by the address at which it answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from mq_shards.pipeline.client import Address, Client, Topic
from mq_shards.pipeline.options import EARLIEST, LATEST, AtSeq, Bound, OptionError, ReadOptions, Selection

MS_NS: Final = 1_000_000


class Key(NamedTuple):
    """Names a stream among a query's, in Spark's checkpoint too."""

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


class Brokers:
    """Connections to all brokers of a query, for what its driver asks."""

    def __init__(self, options: ReadOptions) -> None:
        self._clients = {address: Client(address, options.patience_s) for address in options.brokers}
        self._by_id: dict[str, Address] = {}

    def close(self) -> None:
        for client in self._clients.values():
            client.close()

    @property
    def by_id(self) -> Mapping[str, Address]:
        """Which brokers there are, as of the last look at their topics. Raises BrokerError, OptionError."""
        if not self._by_id:
            self._by_id = by_id([(client.identify(), address) for address, client in self._clients.items()])
        return self._by_id

    def client(self, broker: str) -> Client:
        """Of a broker's id."""
        return self._clients[self.by_id[broker]]

    def streams(self, selection: Selection) -> dict[Key, Stream]:
        """In the order of keys. Raises BrokerError, OptionError."""
        listed = {address: client.listing() for address, client in self._clients.items()}
        self._by_id = by_id([(listing.broker, address) for address, listing in listed.items()])
        found = {
            Key(listing.broker, topic.topic): Stream(listing.broker, address, topic)
            for address, listing in listed.items()
            for topic in listing.topics
            if selection.has(topic.topic)
        }
        return dict(sorted(found.items()))


def by_id(found: list[tuple[str, Address]]) -> dict[str, Address]:
    """Raises OptionError: what two of them have would be read twice."""
    result: dict[str, Address] = {}
    for broker, address in found:
        if (other := result.setdefault(broker, address)) != address:
            raise OptionError(
                f"brokers: {other} and {address} have the same data directory, {broker}. If they are one broker, name "
                "it once; if one has a copy of the other's directory, leave it out"
            )
    return result


def places(name: str, bound: Bound, streams: Mapping[Key, Stream], brokers: Brokers) -> dict[Key, int]:
    """Where a bound, that of the option `name`, lies in each stream. Raises OptionError."""
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
