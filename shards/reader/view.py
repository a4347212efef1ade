"""A data directory as readers see it: topics by name, ranges by seq, times. May be used by several threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from mq_shards.shards import erased
from mq_shards.shards.checksum import crc32c
from mq_shards.shards.erased import Erasure, Mark
from mq_shards.shards.reader.changes import Changes, Listing
from mq_shards.shards.reader.runs import MAX_FILES, Asked, Files, Runs, runs_of
from mq_shards.shards.reader.scan import Columns
from mq_shards.shards.reader.segment import Damage
from mq_shards.shards.reader.shard import ChangedError, ShardView, Topic
from mq_shards.shards.readers import MAX_SEQ

# Between two looks at a shard retention may drop what the first one saw; not for ever.
TRIES: Final = 10
MAX_FILES_OF_MANY: Final = 256  # most segments in an answer to many ranges
MAX_STRETCHES_IN_ALL: Final = 65536  # after this many stretches no further range is looked at


@dataclass(frozen=True, slots=True)
class Range:
    """The answer for one range. The runs must be closed. `damage`: damaged places in their segments."""

    topic: Topic
    runs: Runs
    damage: list[tuple[int, Damage]]

    def is_refused(self, asked: Asked) -> bool:
        """Whether there was no room even for the first message."""
        first = max(asked.first, self.topic.earliest)
        is_first = self.runs.next in (asked.first, first)
        return not self.runs.runs and is_first and first < min(asked.until, self.topic.latest)


@dataclass(frozen=True, slots=True)
class Ranges:
    """The answers for as many ranges, from the first on, as there was room for; None: there is no such topic. The files
    must be closed."""

    parts: list[Range | None]
    files: Files


@dataclass(frozen=True, slots=True)
class Place:
    """The place of a time in a topic. `seq`: the first message of that time or later (`latest`: there is none). From
    `until` on, no message is older. The two are equal unless the clock was set back."""

    seq: int
    until: int


class DataView:
    def __init__(self, directory: Path, shards: int) -> None:
        """Reads what was erased; logs are read when needed. Raises ErasedError."""
        columns = Columns()
        self.shards: Final = shards
        self._directory = directory
        self._erased = erased.load(directory)
        self._views = [ShardView(directory, shard, shards, columns) for shard in range(shards)]
        self._changes = Changes()
        self._listed: list[object] = [None] * shards  # each shard's state when its topics were last looked at
        self._lock = threading.Lock()

    def shard_of(self, topic: str) -> int | None:
        """The shard of a topic; None: the name is not possible."""
        try:
            return int(crc32c(topic.encode("latin-1"))) % self.shards
        except UnicodeEncodeError:
            return None

    def topics(self) -> list[Topic]:
        """The topics of all shards, by name. Raises OSError."""
        return self.listing("").topics

    def listing(self, token: str) -> Listing:
        """What changed since the listing with this token, or everything: see Changes.listing. Raises OSError."""
        for shard, view in enumerate(self._views):
            with self._lock:
                view.refresh()
                if (state := view.state()) != self._listed[shard]:
                    self._changes.take(shard, self._shown_of(view.topics()))
                    self._listed[shard] = state
        with self._lock:
            return self._changes.listing(token)

    def topic(self, name: str) -> Topic | None:
        shard = self.shard_of(name)
        if shard is None:
            return None
        with self._lock:
            self._views[shard].refresh()
            return self._shown(self._views[shard].topic(name))

    def unread(self, topic: Topic, first: int) -> int:
        """How many of its messages have seqs from `first` on. They are counted where seqs have jumped."""
        seqs = max(0, topic.latest - first)
        if seqs <= topic.records:
            return seqs
        with self._lock:
            return self._views[topic.shard].records_from(topic.name, max(first, topic.earliest))

    def place_of(self, name: str, timestamp_ns: int) -> Place | None:
        """The place of a time; None: no such topic. Raises OSError."""
        topic = self.topic(name)
        if topic is None:
            return None
        view = self._views[topic.shard]
        for _ in range(TRIES):
            with self._lock:
                try:
                    later, older = view.place_of(name, timestamp_ns)
                    return Place(
                        topic.latest if later is None else max(topic.earliest, min(later, topic.latest)),
                        topic.earliest if older is None else max(topic.earliest, min(older, topic.latest)),
                    )
                except FileNotFoundError:
                    view.refresh()
                except ChangedError as error:
                    view.forget(error.segment)
                    view.refresh()
        raise OSError(f"the segments of shard {topic.shard} vanish as they are read")

    def records(self, name: str, first: int, until: int | None, max_bytes: int) -> Range | None:
        """The records of seqs [first, until); None: no such topic. Raises OSError."""
        found = self.records_of([Asked(name, first, MAX_SEQ if until is None else until)], max_bytes)
        if found.parts[0] is None:
            found.files.close()
        return found.parts[0]

    def records_of(self, asked: Sequence[Asked], max_bytes: int) -> Ranges:
        """The records of as many ranges, from the first on, as there is room for. Raises OSError."""
        found = Ranges([], Files(MAX_FILES if len(asked) == 1 else MAX_FILES_OF_MANY))
        room, stretches = max_bytes, MAX_STRETCHES_IN_ALL
        seen: set[int] = set()
        try:
            for which in asked:
                part = self._records(which, room, found, seen)
                if found.parts and part is not None and part.is_refused(which):
                    break
                found.parts.append(part)
                if part is not None:
                    room -= part.runs.size
                    stretches -= part.runs.spans
                if room <= 0 or stretches <= 0:
                    break
        except BaseException:
            found.files.close()
            raise
        return found

    def _records(self, asked: Asked, room: int, found: Ranges, seen: set[int]) -> Range | None:
        """`seen`: shards that were refreshed for this answer already; each is refreshed once."""
        shard = self.shard_of(asked.topic)
        if shard is None:
            return None
        view = self._views[shard]
        for _ in range(TRIES):
            with self._lock:
                if shard not in seen:
                    view.refresh()
                    seen.add(shard)
                topic = self._shown(view.topic(asked.topic))
                if topic is None:
                    return None
                first = max(asked.first, self._floor(topic))
                until = max(first, min(asked.until, topic.latest))
                try:
                    clipped = Asked(asked.topic, first, until)
                    runs = runs_of(view, clipped, room, found.files, alone=not found.parts)
                except (FileNotFoundError, ChangedError) as error:
                    if isinstance(error, ChangedError):
                        view.forget(error.segment)
                    seen.discard(shard)
                    found.files.set_aside(shard)
                    continue
                return Range(topic, runs, view.damage(runs.segments))
        raise OSError(f"the segments of shard {shard} vanish as they are read")

    # --- what was erased --------------------------------------------------------------------------------------------

    def erasures(self) -> dict[str, Erasure]:
        """The erasures, by topic, of which the log still has, or may have, erased messages. Raises OSError."""
        with self._lock:
            return self._still()

    def _still(self) -> dict[str, Erasure]:
        for view in self._views:
            view.refresh()
        whole = {view.shard for view in self._views if view.is_whole()}
        there = {topic.name: topic for view in self._views for topic in view.topics()}
        return {
            topic: erasure
            for topic, erasure in self._erased.items()
            if self.shard_of(topic) not in whole or (topic in there and there[topic].earliest < erasure.until)
        }

    def erase(self, name: str, by: str, *, soon: bool) -> Topic | None:
        """Hides everything that the topic has now from all readers, durably. `soon`: the segments that have it may go
        before history does. Returns the topic as it was; None: it had nothing. Raises ErasedError, OSError."""
        for view in self._views:  # one at a time, so that readers need not wait for all
            with self._lock:
                view.refresh()
        found = self.topic(name)
        if found is None:
            return None
        self._views[found.shard].sync()
        with self._lock:
            still = self._still()
            now = still | {name: Erasure(found.latest, found.log_began_ns, time.time_ns(), by)}
            erased.check_room(now)
            last = max(self._views[found.shard].segments)
            mark = Mark(last, found.log_began_ns, last if soon else 0)
            with erased.marked(self._directory, found.shard, mark):
                erased.save(self._directory, now)
            self._erased = now
            self._listed[found.shard] = None
        return found

    def _floor(self, topic: Topic) -> int:
        erasure = self._erased.get(topic.name)
        return erasure.until if erasure is not None and erasure.log_began_ns == topic.log_began_ns else 0

    def _shown(self, topic: Topic | None) -> Topic | None:
        """The topic without what was erased; None: nothing is left."""
        if topic is None or (floor := self._floor(topic)) <= topic.earliest:
            return topic
        if floor >= topic.latest:
            return None
        records = min(topic.records, topic.latest - floor)
        return replace(
            topic, earliest=floor, complete=max(floor, topic.complete), records=records,
            bytes=topic.bytes * records // max(1, topic.records),
        )  # fmt: skip

    def _shown_of(self, topics: Iterable[Topic]) -> list[Topic]:
        return [shown for topic in topics if (shown := self._shown(topic)) is not None]
