"""Reads topics as a stream. An offset (offsets.py) has, for each topic of each broker, the seq of the next message to
read; Spark's checkpoint keeps the offsets. If retention had removed messages among others before the query came to a
topic, the offset also has the seq up to which that is no loss: [seq, complete], until seq has reached it.

A topic that appears later enters the offsets at its first message, and is read from the next micro-batch on. So the two
offsets of a micro-batch alone say what it reads, and it reads the same when it is run again. A topic of an added broker
enters in the same way, and one whose log was lost and begun anew, if the query is to go on without what was in it.

A broker forgets a topic whose messages have all gone. When new ones come it counts on from where it was, so the offset
stays. If the broker has forgotten more topics than it remembers since, or is an older one, the topic counts on from a
higher seq, and only a query that has seen it go knows that nothing was lost. The offset then becomes [seq, GONE], and
the topic comes back as one that appears later does.
"""

from __future__ import annotations

import logging
import math
import secrets
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import pyarrow as pa
from mq_shards.pipeline import identity
from mq_shards.pipeline.arriving import Arrives
from mq_shards.pipeline.client import CONFLICT, BrokerError
from mq_shards.pipeline.columns import to_arrow
from mq_shards.pipeline.offsets import GONE, Json, Offset
from mq_shards.pipeline.options import AtSeq, OptionError, ReadOptions
from mq_shards.pipeline.ranges import ends
from mq_shards.pipeline.reading import DataLossError, Range
from mq_shards.pipeline.task import Task, read, tasks
from mq_shards.pipeline.topics import Brokers, Key, Stream, places
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

Seqs = dict[Key, int]
# The remedy where no micro-batch has been begun, so that the query may be moved.
_MOVE: Final = (
    "; mq-pipeline offsets --checkpoint DIR --move-to earliest --topics {} goes on with what is there now, and with "
    "the option `subscription` a broker forgets no topic of the query"
)
_READ_ON: Final = (
    "; mq-pipeline offsets --checkpoint DIR --move-to latest --topics {} goes on with what is published from then on"
)
_AWAY: Final = (
    "; if it answers at another address, name that in `brokers`: a checkpoint knows a broker by what it stores, and "
    "keeps the place of one that is left out"
)

log = logging.getLogger(__name__)


class StreamReader(Arrives, DataSourceStreamReader):
    """At the driver it lives as long as the query. A pickled copy reads in the tasks: it must hold no connection.

    How Spark asks for the end of a micro-batch depends on its version: stream_with_place.py, stream_without_place.py.
    """

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._brokers: Brokers | None = None
        self._target: Seqs | None = None  # where Trigger.AvailableNow ends
        self._streams: dict[Key, Stream] = {}  # all streams seen so far, as they were last
        self._gone: set[Key] = set()  # topics that were read to the end when their brokers forgot them
        self._first: list[Json] = []  # offsets that Spark may use as the first one
        self._committed: Json | None = None
        self._decoded: list[tuple[Json, Offset]] = []  # the last ones: each comes several times, and may be large
        self._idle: tuple[Json, dict[Key, Stream]] | None = None  # where nothing came next, and what there was then
        # The owner that this checkpoint will have: a query with another owner is another query. Made once, because
        # Spark may ask for the first offset more than once.
        self._new_owner = "" if options.subscription is None else secrets.token_hex(8)
        self._triggered_s = -math.inf  # when the last micro-batch with messages in it was begun

    def _connected(self) -> Brokers:
        if self._brokers is None:
            self._brokers = Brokers(self._options)
        return self._brokers

    def _look(self) -> dict[Key, Stream]:
        try:
            found = self._connected().streams()
        except BrokerError as error:
            if isinstance(error.__cause__, OSError):
                raise BrokerError(str(error) + _AWAY) from error.__cause__
            raise
        self._streams |= found
        return found

    # --- what Spark's driver asks, in this order --------------------------------------------------------------------

    def initialOffset(self) -> Json:  # noqa: N802
        """Commits nothing: the first micro-batch may be one that is done again, which begins where it began."""
        self._first.append(self._initial().encode())
        return self._first[-1]

    def _initial(self) -> Offset:
        found = self._look()
        seqs = places("starting", self._options.starting, found, self._connected())
        for key, seq in seqs.items():
            self._check(found[key], seq)
        explicit = isinstance(self._options.starting, AtSeq) and self._options.starting.by_topic is not None
        complete = {} if explicit else {key: stream.topic.complete for key, stream in found.items()}
        return identity.of_now(Offset(seqs, complete, owner=self._new_owner), found, self._connected().by_id)

    def _end(self, start: Json, *, limited: bool, done: bool) -> Json:
        """Returns where a micro-batch that begins at `start` is to end. `done`: all before `start` has been read."""
        found = self._look()
        if self._idle is not None and self._idle[1] is found and self._idle[0] == start:
            return start
        offset = identity.with_brokers(self._decode(start), self._connected().by_id, self._lost)
        anew = identity.begun_anew(offset, found, self._lost)
        owner = offset.owner or self._new_owner
        if done:
            self._commit(replace(offset, owner=owner), begin=not offset.owner or start in self._first)
        seqs, complete = self._next(offset, found, anew, limited)
        if limited and self._waits(offset, seqs):
            return start
        end = identity.of_now(replace(offset, seqs=seqs, complete=complete, owner=owner), found, {})
        if end.encode() == start:
            self._idle = start, found
            return start
        return replace(end, begin=offset if start in self._first else None).encode()

    def _next(self, offset: Offset, found: dict[Key, Stream], anew: set[Key], limited: bool) -> tuple[Seqs, Seqs]:
        """Returns the next seqs, and the seqs up to which gaps are no loss."""
        seqs, complete = dict(offset.seqs), dict(offset.complete)
        back: set[Key] = set()
        for key, seq in seqs.items():
            if complete.get(key) == GONE or key in anew:
                continue
            if key in found:
                if key in self._gone and seq < found[key].topic.earliest:
                    complete[key] = GONE
                    back.add(key)  # its first message is for the next micro-batch, which begins there
                else:
                    self._check(found[key], seq)
                self._gone.discard(key)
            elif key.broker not in offset.absent and (gone := self._streams.pop(key, None)) is not None:
                if seq < gone.topic.latest:
                    self._lost(f"{gone} is gone with messages {seq} to {gone.topic.latest - 1}")
                if self._connected().counts_on(key.broker):
                    self._gone.add(key)
                else:
                    complete[key] = GONE
        there = {key: seq for key, seq in seqs.items() if complete.get(key) != GONE and key not in anew}
        # If the broker has lost its last messages this goes back: their seqs are given to others.
        latest = {key: self._latest(key, found, seq) for key, seq in there.items()}
        end = seqs | (self._limited(there, latest) if limited else latest)
        for key, stream in found.items():
            if key not in there and key not in back and (self._target is None or key in self._target):
                end[key], complete[key] = stream.topic.earliest, stream.topic.complete
        return end, complete

    def partitions(self, start: Json, end: Json) -> list[InputPartition]:
        until, begin = self._decode(end), self._decode(start)
        if until.begin is not None:  # the first micro-batch, perhaps repeated: Spark's first offset may be another now
            begin = until.begin
        elif start in self._first:  # begun by an older release: that offset may lie behind its end
            seqs = {key: min(seq, until.seqs[key]) for key, seq in begin.seqs.items() if key in until.seqs}
            begin = replace(begin, seqs=seqs)
        if start in self._first:
            self._commit(replace(begin, owner=until.owner or self._new_owner), begin=True)
        moved = [key for key, end_seq in until.seqs.items() if begin.seqs.get(key, end_seq) < end_seq]
        if any(key not in self._streams for key in moved):
            self._look()  # a micro-batch that is run again after a restart
        there = {key: self._streams[key] for key in moved if key in self._streams}
        anew = identity.begun_anew(until, there, self._lost)
        ranges = [r for key in moved if key not in anew and (r := self._range(key, begin, until)) is not None]
        sizes = {r.key: self._streams[r.key].topic.message_bytes for r in ranges}
        return [*tasks(ranges, sizes, self._options.min_partitions, self._options.max_records_per_partition)]

    def _range(self, key: Key, begin: Offset, until: Offset) -> Range | None:
        end = until.seqs[key]
        start = end if begin.complete.get(key) == GONE else begin.seqs.get(key, end)
        if start >= end:
            return None
        if key.broker not in self._connected().by_id:
            self._lost(identity.missing(until, key.broker))
            return None
        stream = self._streams.get(key)
        if stream is None:
            self._lost(f"topic {key.topic} of {key.broker} is gone with messages {start} to {end - 1}")
            return None
        if identity.is_other_log(begin, until, stream):
            return None  # the end is the first message of another log, and what was not read of this one is gone
        return Range.of(stream, start, end, min(end, max(start, begin.complete.get(key, start))))

    def commit(self, end: Json) -> None:
        """Lets brokers know that this query needs nothing before `end` any more."""
        if self._options.subscription is not None and end != self._committed:
            self._commit(self._decode(end))

    def stop(self) -> None:
        if self._brokers is not None:
            self._brokers.close()

    # --- in the tasks -----------------------------------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Task)
        return read(partition, to_arrow(self._schema), self._options)

    # --- the named reader -------------------------------------------------------------------------------------------

    def _commit(self, offset: Offset, *, begin: bool = False) -> None:
        """`begin`: takes over the reader's name; another query that still uses it is told when it commits."""
        name, said = self._options.subscription, offset.encode()
        if name is None or said == self._committed:
            return
        begin = begin or not offset.owner  # of version 1
        brokers = self._connected()
        for broker in brokers.by_id:
            seqs = {key.topic: seq for key, seq in offset.seqs.items() if key.broker == broker}
            if not seqs:
                continue
            try:
                brokers.client(broker).commit(name, seqs, offset.owner, begin=begin)
            except BrokerError as error:
                if error.status != CONFLICT:
                    raise
                raise OptionError(
                    f"subscription: another query reads as {name} since this one began ({error}): give each a name of "
                    "its own, or end one, so that the broker keeps for both what they have not read"
                ) from error
        self._committed = said

    # --- how far ----------------------------------------------------------------------------------------------------

    def _decode(self, offset: Json) -> Offset:
        for said, known in self._decoded:
            if said == offset:
                return known
        found = Offset.decode(offset, self._connected().by_id)
        self._decoded = [*self._decoded[-2:], (offset, found)]
        return found

    def _latest(self, key: Key, found: dict[Key, Stream], start: int) -> int:
        latest = found[key].topic.latest if key in found else start
        return latest if self._target is None else min(latest, self._target.get(key, start))

    def _limited(self, start: Seqs, latest: Seqs) -> Seqs:
        """Applies both limits if both are given; Spark knows only one."""
        jumps = {key: s.topic.jumps for key in start if (s := self._streams.get(key)) is not None and s.topic.jumps}
        if (messages := self._options.max_offsets_per_trigger) is not None:
            latest = ends(start, latest, dict.fromkeys(start, 1.0), messages, jumps)
        if (count := self._options.max_bytes_per_trigger) is not None:
            streams = {key: self._streams.get(key) for key in start}
            sizes = {key: s.topic.message_bytes if s else 1.0 for key, s in streams.items()}
            latest = ends(start, latest, sizes, count, jumps)
        return latest

    def _waits(self, start: Offset, end: Seqs) -> bool:
        """Whether too little has come for a micro-batch. Trigger.AvailableNow does not wait for more."""
        least = self._options.min_offsets_per_trigger
        if least is None or self._target is not None:
            return False
        # All that is there counts, also beyond what the limits let a micro-batch have.
        come = sum(
            stream.topic.messages(seq, stream.topic.latest)
            for key, seq in start.seqs.items()
            if end[key] > seq and (stream := self._streams.get(key)) is not None
        )
        now = time.monotonic()
        if 0 < come < least and now - self._triggered_s < self._options.max_trigger_delay_s:
            return True
        if come > 0:
            self._triggered_s = now
        return False

    def _check(self, stream: Stream, seq: int) -> None:
        topic = stream.topic
        if seq > topic.latest:
            gone = f"{stream} has lost messages {topic.latest} to {seq - 1}, which this query has read"
            why = "its log was cut off, or its directory was restored from a backup"
            self._lost(f"{gone}: {why}", _READ_ON.format(topic.topic))
        if seq < topic.earliest:
            gone = f"{stream}: messages {seq} to {topic.earliest - 1} are gone (past retention, or erased)"
            never = "or never were, if it was forgotten when all of it had gone, and has come back since"
            self._lost(f"{gone}, {never}", _MOVE.format(topic.topic))

    def _lost(self, text: str, remedy: str = "") -> None:
        if self._options.fail_on_data_loss:
            raise DataLossError(f"{text}; failOnDataLoss is true{remedy}")
        log.warning("%s", text)
