"""Reads one range of a topic from its broker, batch by batch: what a Spark task does.

When the broker breaks off, reading goes on after the messages that have come. Missing or corrupt messages are an error
that names them, or, without `fail_on_data_loss`, a warning.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
from mq_shards.pipeline.client import Address, BrokenOffError, BrokerError, Client, Part, Records
from mq_shards.pipeline.decode import Decoder
from mq_shards.pipeline.decoding import Bytes, DecodeError, Progress
from mq_shards.pipeline.jumps import jumped
from mq_shards.pipeline.topics import Key, Stream
from pyspark.sql.datasource import InputPartition

REPLY_BYTES: Final = 64 << 20  # most bytes asked for at once
PIECE_BYTES: Final = 512 << 10  # most bytes read at once: small enough for the processor's cache
SMALL_RECORD_BYTES: Final = 16 << 10  # buffer for each message of a small range: it grows when one needs more
MAX_RECORD_BYTES: Final = (1 << 30) + (64 << 10)  # the largest body a broker takes, and its frame
CORRUPT_TRIES: Final = 3
NOT_FOUND: Final = 404
PAUSE_S: Final = 0.02
_STRICT: Final = "failOnDataLoss is true; with false the query goes on"

log = logging.getLogger(__name__)


class DataLossError(Exception):
    """Messages that were to be read are gone or corrupt."""


@dataclass(frozen=True)
class Range(InputPartition):
    """Messages `start` to `end` - 1 of a topic. Gaps before `gaps_from` were there when the query began. `jumps`: see
    client.Topic."""

    broker: str  # its id
    address: Address
    topic: str
    shard: int
    incarnation: str
    start: int
    end: int
    gaps_from: int
    jumps: tuple[tuple[int, int], ...] = ()

    @staticmethod
    def of(stream: Stream, start: int, end: int, gaps_from: int) -> Range:
        topic = stream.topic
        return Range(
            stream.broker, stream.address, topic.topic, topic.shard, topic.incarnation, start, end, gaps_from,
            topic.jumps,
        )  # fmt: skip

    @property
    def key(self) -> Key:
        return Key(self.broker, self.topic)

    @property
    def messages(self) -> int:
        """So many at most."""
        return self.end - self.start - jumped(self.jumps, self.start, self.end)

    def __str__(self) -> str:
        return f"topic {self.topic} of {self.address}, shard {self.shard}"


class RangeReader:
    """Reads a range into the batches of a decoder, which others may use before and after it, not meanwhile."""

    def __init__(self, of: Range, decoder: Decoder, *, fail_on_data_loss: bool, timeout_s: float) -> None:
        self._range = of
        self._fail_on_data_loss = fail_on_data_loss
        self._timeout_s = timeout_s
        self._decoder = decoder
        self._buffer: Bytes = np.empty(min(PIECE_BYTES, (of.end - of.start) * SMALL_RECORD_BYTES), np.uint8)
        self._filled = 0
        self._missing = 0
        self._damage = ""
        decoder.turn_to(of.topic, of.shard, of.start, of.end, of.gaps_from)

    def part(self, records: Part | None) -> Iterator[pa.RecordBatch]:
        """Reads what a call for many ranges has brought of this one; None: the topic is gone. `next_seq` says how far
        that went. Raises DataLossError, BrokenOffError, DecodeError."""
        if records is not None:
            yield from self._reply(records)
        else:
            self._gone()

    @property
    def next_seq(self) -> int:
        return self._decoder.next_seq

    def batches(self, client: Client) -> Iterator[pa.RecordBatch]:
        """Asks for the range until all of it has come; the decoder may still hold its last messages. `client`: of the
        range's broker. Raises DataLossError, BrokerError."""
        give_up, tries = time.monotonic() + self._timeout_s, CORRUPT_TRIES
        while (start := self._decoder.next_seq) < self._range.end:
            broken: Exception | None = None
            try:
                with client.records(self._range.topic, start, self._range.end, REPLY_BYTES) as records:
                    yield from self._reply(records)
            except BrokerError as error:
                if error.status != NOT_FOUND:
                    raise
                self._gone()
                break
            except (BrokenOffError, DecodeError) as error:
                broken = error
            progress = self._decoder.next_seq > start
            if broken is None and not progress:
                broken = BrokenOffError("a reply has nothing and says nothing of what comes next")
            if isinstance(broken, BrokenOffError):
                if not progress and time.monotonic() > give_up:
                    raise BrokerError(f"{self._range}: {broken}") from broken
            elif broken is not None:
                tries = CORRUPT_TRIES if progress else tries - 1
                if tries == 0:
                    self._skip_corrupt(broken)
            if progress:
                give_up = time.monotonic() + self._timeout_s
            elif broken is not None:
                time.sleep(PAUSE_S)

    def _gone(self) -> None:
        """Gives up the rest of the range: all of the topic has gone since the range was planned."""
        start = self._decoder.next_seq
        self._decoder.skip_to(self._range.end)
        self._lost(start, self._range.end)

    def _reply(self, records: Records | Part) -> Iterator[pa.RecordBatch]:
        if records.incarnation != self._range.incarnation:
            raise DataLossError(f"{self._range}: its log was begun anew while it was read")
        # Below gaps_from gaps are no loss, but what retention has taken since the query began is one.
        self._lost(self._decoder.next_seq, min(records.earliest, self._range.end, self._range.gaps_from))
        self._damage = records.damage
        self._decoder.begin()
        self._filled = 0
        while count := records.readinto(self._buffer[self._filled :].data):
            self._filled += count
            try:
                yield from self._decode()
            finally:
                self._check_gaps()
        if self._filled or not self._decoder.between_runs:
            raise BrokenOffError("it ends within a run")
        self._pass_over(min(records.next, self._range.end))

    def _decode(self) -> Iterator[pa.RecordBatch]:
        at = 0
        while True:
            progress, used = self._decoder.decode(self._buffer[at : self._filled])
            at += used
            if progress is Progress.MORE:
                break
            if (batch := self._decoder.take()) is not None:
                yield batch
        rest = self._buffer[at : self._filled]
        if self._decoder.needs > self._buffer.size:
            if self._decoder.needs > MAX_RECORD_BYTES:
                raise DecodeError(f"behind seq {self._decoder.next_seq - 1}: the record is corrupt")
            self._buffer = np.empty(self._decoder.needs, np.uint8)
        # The rest may overlap with its new place: numpy takes care of that.
        self._buffer[: rest.size] = rest
        self._filled = rest.size

    def _pass_over(self, end: int) -> None:
        """Skips to `end`: what lies before it has come, or is missing."""
        start = self._decoder.next_seq
        if end > start:
            self._decoder.skip_to(end)
            self._lost(max(start, self._range.gaps_from), end)

    def _check_gaps(self) -> None:
        if (more := self._decoder.missing - self._missing) > 0:
            self._missing += more
            self._lost(*self._decoder.take_gap(), more)

    def _skip_corrupt(self, error: Exception) -> None:
        seq = self._decoder.next_seq
        if self._fail_on_data_loss:
            raise DataLossError(f"{self._range}: {error}; {_STRICT}") from error
        log.warning("%s: %s; it is left out", self._range, error)
        self._decoder.skip_to(seq + 1)

    def _lost(self, start: int, end: int, of: int = 0) -> None:
        """`of`: how many messages are missing in all gaps, if there are others."""
        jumps = self._range.jumps
        missing = max(of, end - start) - jumped(jumps, start, max(end, self._decoder.next_seq) if of else end)
        if start >= end or missing <= 0:
            return
        here = end - start - jumped(jumps, start, end)
        text = f"{self._range}: messages {start} to {end - 1} are gone"
        if missing > here:
            text += f", and {missing - here} of those behind"
        if self._damage:
            text += f", and the broker has damage at {self._damage} (shard/segment/bytes)"
        if self._fail_on_data_loss:
            raise DataLossError(f"{text}; {_STRICT}")
        log.warning("%s; they are left out", text)
