"""The offsets of a stream, as Spark's checkpoint keeps them.

    {"version": 2, "owner": "5f...",
     "brokers": {"0c61...": {"at": "a:4180", "logs": {"7": "18a3..."}, "topics": {"orders": 1200, "mails": [3, 90]}}}}

Brokers are named by the ids of their data directories. `at` is where a broker last answered. `logs`, by shard, tells
when the log was begun that gave out these seqs. `topics` has the next seq of each topic, or [seq, complete]
(stream.py). `begin`, in the end of the first micro-batch, is where that micro-batch begins, which Spark does not keep.
`absent`: the query went on without this broker, whose place is kept. `owner` identifies the query to the brokers' named
readers. `jumps`, in what a query's progress tells of the latest offset only, has those of each topic (jumps.py).

Offsets with names of topics that are not ASCII are of version 3; version 2 has a letter for each byte of such names.
Version 1 was {"orders": 1200}, with several brokers {"orders@a:4180": 1200}, and named no broker.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from mq_shards.pipeline.client import Address
from mq_shards.pipeline.jumps import Jumps
from mq_shards.pipeline.options import OptionError
from mq_shards.pipeline.topics import Key

VERSION: Final = 2
GONE: Final = 1 << 62  # as the `complete` of a topic: its broker has forgotten it
VERSION_OF_TEXT: Final = 3  # if a topic's name is not ASCII: names are text, before a letter for each byte
Json = dict[str, Any]
Logs = dict[tuple[str, int], str]  # by broker and shard


@dataclass(frozen=True)
class Offset:
    """`complete`: the seq up to which gaps are no loss, for topics where it is beyond their seq."""

    seqs: Mapping[Key, int]
    complete: Mapping[Key, int] = field(default_factory=dict)
    logs: Mapping[tuple[str, int], str] = field(default_factory=dict)
    addresses: Mapping[str, str] = field(default_factory=dict)
    absent: frozenset[str] = frozenset()
    owner: str = ""
    begin: Offset | None = None
    jumps: Mapping[Key, Jumps] = field(default_factory=dict)

    def encode(self) -> Json:
        """Equal offsets give equal texts, because Spark compares texts."""
        brokers = sorted({key.broker for key in self.seqs} | set(self.addresses))
        version = VERSION if all(topic.isascii() for _, topic in self.seqs) else VERSION_OF_TEXT
        found: Json = {"version": version, "brokers": {broker: self._of(broker) for broker in brokers}}
        if self.owner:
            found["owner"] = self.owner
        if self.begin is not None:
            found["begin"] = self.begin.encode()
        return found

    def _of(self, broker: str) -> Json:
        found: Json = {"at": self.addresses.get(broker, "")}
        if broker in self.absent:
            found["absent"] = True
        found["logs"] = {str(shard): log for (of, shard), log in sorted(self.logs.items()) if of == broker}
        ours = [key for key in sorted(self.seqs) if key.broker == broker]
        topics: dict[str, int | list[int]] = {key.topic: self.seqs[key] for key in ours}
        for key, complete in self.complete.items():
            if key.broker == broker and (seq := self.seqs.get(key, complete)) < complete:
                topics[key.topic] = [seq, complete]
        found["topics"] = topics
        if jumps := {key.topic: self.jumps[key] for key in ours if self.jumps.get(key)}:
            found["jumps"] = jumps
        return found

    @staticmethod
    def decode(found: Json, brokers: Mapping[str, Address]) -> Offset:
        """`brokers`: the query's brokers by id, to which an offset of version 1 must belong. Raises OptionError."""
        if not isinstance(found.get("brokers"), dict):
            return _version_1(found, brokers)
        version = found.get("version")
        if version not in (VERSION, VERSION_OF_TEXT):
            raise OptionError(
                f"the checkpoint's offsets are of version {version!r}; this reads 1 to {VERSION_OF_TEXT}. "
                "Go on with the program that wrote them"
            )
        seqs: dict[Key, int] = {}
        complete: dict[Key, int] = {}
        logs: Logs = {}
        jumps: dict[Key, Jumps] = {}
        for broker, of in found["brokers"].items():
            logs |= {(broker, int(shard)): log for shard, log in of["logs"].items()}
            for topic, place in of["topics"].items():
                key = Key(broker, topic if version == VERSION_OF_TEXT or topic.isascii() else _text(topic))
                seqs[key] = place if isinstance(place, int) else place[0]
                if not isinstance(place, int):
                    complete[key] = place[1]
                if topic in of.get("jumps", ()):
                    jumps[key] = of["jumps"][topic]
        return Offset(
            seqs, complete, logs,
            {broker: of["at"] for broker, of in found["brokers"].items()},
            frozenset(broker for broker, of in found["brokers"].items() if of.get("absent")),
            found.get("owner", ""),
            Offset.decode(found["begin"], brokers) if "begin" in found else None,
            jumps,
        )  # fmt: skip

    def named(self, broker: str) -> str:
        """How errors name a broker."""
        at = self.addresses.get(broker)
        return f"{broker} (last at {at})" if at else broker

    def without(self, broker: str) -> Offset:
        return replace(
            self,
            seqs={key: seq for key, seq in self.seqs.items() if key.broker != broker},
            complete={key: seq for key, seq in self.complete.items() if key.broker != broker},
            logs={place: log for place, log in self.logs.items() if place[0] != broker},
            addresses={of: at for of, at in self.addresses.items() if of != broker},
            absent=self.absent - {broker},
        )


def _text(topic: str) -> str:
    """Decodes a name that has a letter for each byte."""
    try:
        return topic.encode("latin-1").decode()
    except ValueError:
        return topic


def _version_1(found: Json, brokers: Mapping[str, Address]) -> Offset:
    keys = {name: _key(name, found, brokers) for name in found}
    return Offset(
        {keys[name]: place if isinstance(place, int) else place[0] for name, place in found.items()},
        {keys[name]: place[1] for name, place in found.items() if not isinstance(place, int)},
    )


def _key(name: str, found: Json, brokers: Mapping[str, Address]) -> Key:
    """Returns which broker a topic of version 1 is of: with several brokers each name ends in one, with one in none."""
    of_several = all(_address(name) is not None for name in found)
    if not of_several:
        if len(brokers) == 1:
            return Key(next(iter(brokers)), _text(name))
        raise OptionError(
            "brokers: the checkpoint is of one broker, and does not say which. Start the query with that one alone, "
            "until it has done a micro-batch; from then on the checkpoint knows it, and others may be added"
        )
    topic, _, at = name.rpartition("@")
    for broker, address in brokers.items():
        if address == _address(name):
            return Key(broker, _text(topic))
    raise OptionError(
        f"brokers: the checkpoint has topic {topic} of {at}, which is not among them. Start the query with the brokers "
        "it had, at the addresses they had, until it has done a micro-batch; from then on the checkpoint knows them by "
        "what they store, and they may move or be left out"
    )


def _address(name: str) -> Address | None:
    _, sign, at = name.rpartition("@")
    if not sign or ":" not in at:
        return None
    try:
        return Address.parse(at)
    except ValueError:
        return None
