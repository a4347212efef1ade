"""The topics that a query reads, of all its brokers, and where in them it begins and ends.

A broker is known by the id of its data directory, and not by the address at which it answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from mq_shards.pipeline.client import Address, BrokerError, Client, Topic
from mq_shards.pipeline.options import EARLIEST, LATEST, AtSeq, AtTime, Bound, OptionError, ReadOptions

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
    streams: Mapping[str, Stream]  # those that the query selects, by topic; another mapping when one has changed
    counts_on: bool


class Brokers:
    """Connections of a query's driver to all brokers."""

    def __init__(self, options: ReadOptions) -> None:
        self._clients = {address: Client(address, options.timeout_s) for address in options.brokers}
        self._by_id: dict[str, Address] = {}
        self._selection = options.selection
        self._known: dict[Address, _Known] = {}
        self._streams: dict[Key, Stream] = {}

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

    def leave_out_silent(self) -> dict[Address, BrokerError]:
        """Goes on without the brokers that do not answer, or refuse us, and returns why, for those who only show what
        is known. All are asked at once, since each is waited for."""
        silent: dict[Address, BrokerError] = {}

        def ask(address: Address) -> None:
            try:
                self._clients[address].identify()
            except BrokerError as error:
                silent[address] = error

        with ThreadPoolExecutor(len(self._clients)) as threads:
            list(threads.map(ask, self._clients))
        for address in silent:
            self._clients.pop(address).close()
        return dict(sorted(silent.items()))

    def streams(self) -> dict[Key, Stream]:
        """Returns the streams that the query selects, in the order of keys: the same dict as before if nothing has
        changed, which most looks find. Raises BrokerError, OptionError."""
        before = self._known
        now = {address: self._look(address, client) for address, client in self._clients.items()}
        self._by_id = by_id([(known.broker, address) for address, known in now.items()])
        self._known = now
        if not before or any(known.streams is not before[address].streams for address, known in now.items()):
            found = {stream.key: stream for known in now.values() for stream in known.streams.values()}
            self._streams = dict(sorted(found.items()))
        return self._streams

    def _look(self, address: Address, client: Client) -> _Known:
        """Asks a broker, which may have many topics, only for what has changed."""
        before, selection = self._known.get(address), self._selection
        names, prefix = selection.asked
        found = client.listing(before.changes if before else "", names, prefix)
        streams = {
            topic.topic: Stream(found.broker, address, topic)
            for topic in found.topics
            if selection.has(topic.topic) and selection.takes(address, found.broker, topic.topic)
        }
        if before is not None and not found.whole:
            gone = before.streams.keys() & found.gone
            if not streams and not gone:
                return replace(before, changes=found.changes)
            streams = {name: stream for name, stream in before.streams.items() if name not in gone} | streams
        return _Known(found.broker, found.changes, streams, found.counts_on)


def told_missing(options: ReadOptions) -> str:
    """Returns a line about topics that are named and that no broker has: perhaps a name is wrong. "" if there is none,
    or a broker does not answer just now."""
    brokers = Brokers(replace(options, timeout_s=0))
    try:
        there = {key.topic for key in brokers.streams()}
    except BrokerError:
        return ""
    finally:
        brokers.close()
    names = [name for name in options.selection.names if name not in there]
    found = f"no broker has a topic {', '.join(names)} yet{or_hidden(options)}: it is read when it comes"
    return found if names else ""


def or_hidden(options: ReadOptions) -> str:
    """What a topic that is missing may also be, where there are users: nobody is shown what he may not read."""
    return " (or this user may not read it)" if any(address.logs_in for address in options.brokers) else ""


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
    """Returns the seq of a bound, that of the options that begin with `name`, in each stream. Raises OptionError."""
    if bound.by_topic is not None:
        missing = {key.topic for key in streams} - set(bound.by_topic)
        if missing:
            option = f"{name}Offsets{'ByTimestamp' if isinstance(bound, AtTime) else ''}"
            raise OptionError(f"{option}: must speak of all topics; nothing is said of {', '.join(sorted(missing))}")
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
