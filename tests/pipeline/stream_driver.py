"""What Spark's driver does with a stream, without Spark: asks for offsets, writes them down before it reads, reads, and
writes down that it is done. So a test may stop it anywhere, and start it again from what is written down."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mq_shards.pipeline.options import ReadOptions
from mq_shards.pipeline.source import SCHEMA
from mq_shards.pipeline.stream_with_place import StreamReaderWithPlace

Rows = list[tuple[str, int]]


@dataclass
class Checkpoint:
    """The ends of micro-batches as texts, which is how Spark keeps and compares them; so many of them are done. Where
    the first begins is not kept: it is asked for again until that is done."""

    offsets: list[str] = field(default_factory=list)
    done: int = 0

    @property
    def last(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.offsets[-1])
        return found


class Driver:
    def __init__(self, checkpoint: Checkpoint, options: Mapping[str, object]) -> None:
        given = {"startingOffsets": "earliest", "pollTimeoutMs": "2000", "topicPattern": ".*"}
        given |= {name: str(value) for name, value in options.items()}
        if "topic" in given or "assign" in given:
            del given["topicPattern"]
        self._reader = StreamReaderWithPlace(ReadOptions.parse(given, streaming=True), SCHEMA)
        self._checkpoint = checkpoint
        for _ in range(0 if checkpoint.done else 2):  # Spark does, and takes either for the first offset
            self._first = json.dumps(self._reader.initialOffset())

    def run(self) -> Rows:
        """Until nothing is new."""
        rows: Rows = []
        self.prepare()
        while True:
            rows += self.do_begun()
            if not self.begin():
                break
        self._reader.stop()
        return sorted(rows)

    def prepare(self) -> None:
        self._reader.prepareForTriggerAvailableNow()

    def begin(self) -> bool:
        """A micro-batch, if there is something new: from then on it has to be done."""
        start = self._start_of(len(self._checkpoint.offsets))
        end = json.dumps(self._reader.latestOffset(json.loads(start), self._reader.getDefaultReadLimit()))
        if end == start:
            return False
        self._checkpoint.offsets.append(end)
        return True

    def progress(self) -> dict[str, str]:
        """What Spark tells of the source after a micro-batch."""
        latest = json.dumps(self._reader.reportLatestOffset())
        return {"endOffset": self._checkpoint.offsets[-1], "latestOffset": latest}

    def _start_of(self, batch: int) -> str:
        return self._checkpoint.offsets[batch - 1] if batch else self._first

    def tasks(self) -> int:
        """Of the micro-batch that was begun last."""
        start, end = (json.loads(self._start_of(len(self._checkpoint.offsets) - 1 + n)) for n in (0, 1))
        return len(self._reader.partitions(start, end))

    def do_begun(self) -> Rows:
        """What has been begun and is not done."""
        checkpoint, rows = self._checkpoint, list[tuple[str, int]]()
        while checkpoint.done < len(checkpoint.offsets):
            start, end = (json.loads(self._start_of(checkpoint.done + n)) for n in (0, 1))
            for partition in self._reader.partitions(start, end):
                for batch in self._reader.read(partition):
                    rows += zip(batch["topic"].to_pylist(), batch["seq"].to_pylist(), strict=True)
            checkpoint.done += 1
            self._reader.commit(end)
        return rows


def run(checkpoint: Checkpoint, **options: object) -> Rows:
    return Driver(checkpoint, options).run()
