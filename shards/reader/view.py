"""A data directory as its readers see it: topics by name, ranges by seq, times. For a process of several threads."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mq_shards.shards.checksum import crc32c
from mq_shards.shards.reader.changes import Changes, Listing
from mq_shards.shards.reader.runs import Runs, runs_of
from mq_shards.shards.reader.scan import Columns
from mq_shards.shards.reader.segment import Damage
from mq_shards.shards.reader.shard import ChangedError, ShardView, Topic

# Between two looks at a shard retention may drop what the first one saw; not for ever.
TRIES: Final = 10


@dataclass(frozen=True, slots=True)
class Range:
    """The runs are to be closed. `damage`: of the segments that they come from."""

    topic: Topic
    runs: Runs
    damage: list[tuple[int, Damage]]


@dataclass(frozen=True, slots=True)
class Place:
    """Of a time in a topic: `seq` of the first message from then or later (`latest` if there is none); no message from
    `until` on is older. They are equal unless the clock was set back."""

    seq: int
    until: int


class DataView:
    def __init__(self, directory: Path, shards: int) -> None:
        columns = Columns()
        self.shards: Final = shards
        self._views = [ShardView(directory, shard, shards, columns) for shard in range(shards)]
        self._changes = Changes()
        self._listed: list[object] = [None] * shards  # the state in which the topics of each were looked at last
        self._lock = threading.Lock()

    def shard_of(self, topic: str) -> int | None:
        """None for what cannot be a topic's name."""
        try:
            return int(crc32c(topic.encode("latin-1"))) % self.shards
        except UnicodeEncodeError:
            return None

    def topics(self) -> list[Topic]:
        """Of all shards, by name. Raises OSError."""
        return self.listing("").topics

    def listing(self, token: str) -> Listing:
        """What has changed since the listing with this token, or all (Changes.listing). Raises OSError."""
        for shard, view in enumerate(self._views):
            with self._lock:
                view.refresh()
                if (state := view.state()) != self._listed[shard]:
                    self._changes.take(shard, view.topics())
                    self._listed[shard] = state
        with self._lock:
            return self._changes.listing(token)

    def topic(self, name: str) -> Topic | None:
        shard = self.shard_of(name)
        if shard is None:
            return None
        with self._lock:
            self._views[shard].refresh()
            return self._views[shard].topic(name)

    def place_of(self, name: str, timestamp_ns: int) -> Place | None:
        """Where a time lies; None: no such topic. Raises OSError."""
        topic = self.topic(name)
        if topic is None:
            return None
        view = self._views[topic.shard]
        for _ in range(TRIES):
            with self._lock:
                try:
                    later, older = view.place_of(name, timestamp_ns)
                    return Place(
                        topic.latest if later is None else later, topic.earliest if older is None else older
                    )
                except FileNotFoundError:
                    view.refresh()
                except ChangedError as error:
                    view.forget(error.segment)
                    view.refresh()
        raise OSError(f"the segments of shard {topic.shard} vanish as they are read")

    def records(self, name: str, first: int, until: int | None, max_bytes: int) -> Range | None:
        """What is there of seqs [first, until); None: no such topic. Raises OSError."""
        shard = self.shard_of(name)
        if shard is None:
            return None
        view = self._views[shard]
        for _ in range(TRIES):
            with self._lock:
                view.refresh()
                topic = view.topic(name)
                if topic is None:
                    return None
                end = topic.latest if until is None else min(until, topic.latest)
                try:
                    runs = runs_of(view, name, first, max(first, end), max_bytes)
                except FileNotFoundError:
                    continue
                except ChangedError as error:
                    view.forget(error.segment)
                    continue
                return Range(topic, runs, view.damage(set(runs.files)))
        raise OSError(f"the segments of shard {shard} vanish as they are read")
