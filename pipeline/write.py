"""Writes rows into topics, once: a task stages its rows, the driver has them published.

Whatever becomes of a task, only staged rows that the driver names count; whatever becomes of the driver, the broker
publishes no batch of a writer twice (docs/pipeline-http.md).
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from mq_shards.pipeline.arriving import Arrives
from mq_shards.pipeline.client import Address, Client
from mq_shards.pipeline.contents import MAP
from mq_shards.pipeline.options import OptionError
from mq_shards.pipeline.publish import Batch, abandon, publish
from mq_shards.pipeline.staging import Stage, Staged
from mq_shards.pipeline.topics import by_id
from mq_shards.pipeline.write_columns import Columns, is_headers
from mq_shards.pipeline.write_options import WriteOptions
from pyspark import TaskContext
from pyspark.sql import datasource
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import BinaryType, DataType, IntegerType, LongType, MapType, StringType, StructType

_QUERY: Final = "sql.streaming.queryId"
_ROWS: Final = 10_000  # rows of a batch from PySpark 4.0, whose stream writers get rows and not Arrow batches

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter as _StreamWriter
else:
    _StreamWriter = getattr(datasource, "DataSourceStreamArrowWriter", datasource.DataSourceStreamWriter)


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """What a task has staged, in all."""

    writer: str
    partition: int
    staged: tuple[Staged, ...]


class BatchWriter(Arrives, DataSourceArrowWriter):
    """Holds no connection: Spark pickles it and sends it to the tasks, and has the same object commit."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        self._options = options
        self._columns = Columns.of(schema, options.topic)
        self._batch = (
            Batch(options.writer, options.batch)
            if options.writer is not None and options.batch is not None
            else Batch(f"spark-{secrets.token_hex(16)}", 0, once=True)
        )

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return _stage(iterator, self._columns, self._options, self._batch.writer)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        staged = _in_order(messages)
        # If somebody may ask for the batch later, all brokers must remember that it was published.
        brokers = _brokers_of(staged) if self._batch.once else self._options.brokers
        publish(self._batch, brokers, staged, self._options.timeout_s)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        abandon(_in_order(messages))


class StreamWriter(Arrives, _StreamWriter):
    """One object writes in the tasks; another, made anew for each micro-batch, commits at the driver."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        self._options = options
        self._columns = Columns.of(schema, options.topic)
        self._schema = schema

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        batches = _batches(iterator, self._schema)
        return _stage(batches, self._columns, self._options, self._options.writer or _writer_of_query())

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        staged = _in_order(messages)
        for writer in {message.writer for message in messages if isinstance(message, Written)}:
            batch = Batch(writer, batchId, must_follow=True)
            publish(batch, _brokers_of(staged), staged, self._options.timeout_s)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        abandon(_in_order(messages))


def _writer_of_query() -> str:
    """Returns a name that stays the same when the query is started again on its checkpoint."""
    context = TaskContext.get()
    query = context.getLocalProperty(_QUERY) if context is not None else None
    if not query:
        raise OptionError("writer: Spark does not say which query this is; give it a name with this option")
    return f"spark-{query}"


def _in_order(messages: Iterable[WriterCommitMessage | None]) -> list[Staged]:
    written = sorted((m for m in messages if isinstance(m, Written)), key=lambda m: m.partition)
    return [staged for message in written for staged in message.staged]


def _brokers_of(staged: Iterable[Staged]) -> list[Address]:
    return sorted({part.broker for part in staged})


# --- in a task ------------------------------------------------------------------------------------------------------


def broker_of(brokers: Iterable[str], topic: str) -> str:
    """Chooses a topic's broker by its id: each draws a number for the topic, and the highest counts. So addresses do
    not matter, and a broker that is added takes its share from each of the others, and nothing else changes."""
    return max(brokers, key=lambda broker: hashlib.blake2b(f"{broker} {topic}".encode(), digest_size=8).digest())


def _identified(brokers: Sequence[Address], timeout_s: float) -> dict[str, Address]:
    """Returns the brokers by id. A single one has all topics, whatever its id. Raises BrokerError, OptionError."""
    if len(brokers) == 1:
        return {"": brokers[0]}
    found = []
    for address in brokers:
        with Client(address, timeout_s) as client:
            found.append((client.identify(), address))
    return by_id(found)


def _batches(given: Iterator[Any], schema: StructType) -> Iterator[pa.RecordBatch]:
    """Yields record batches, from batches or from rows."""
    for first in given:
        if isinstance(first, pa.RecordBatch):
            yield first
            continue
        rows = [first, *islice(given, _ROWS - 1)]
        columns = [_column([row[place] for row in rows], field.dataType) for place, field in enumerate(schema)]
        yield pa.RecordBatch.from_arrays(columns, names=schema.fieldNames())


_ARROW: Final = (
    (StringType, pa.string()),
    (BinaryType, pa.binary()),
    (IntegerType, pa.int32()),
    (LongType, pa.int64()),
)


def _column(values: list[Any], kind: DataType) -> pa.Array:
    """Makes a column of its type even if all values are null. One of a type that is never written is all null."""
    if isinstance(kind, MapType) and is_headers(kind):  # dicts here, which Arrow would take for structs
        return pa.array([None if value is None else list(value.items()) for value in values], MAP)
    if is_headers(kind):  # Kafka's headers
        headers = [None if value is None else [(one[0], _bytes(one[1] or b"")) for one in value] for value in values]
        return pa.array(headers, pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])))
    for known, arrow in _ARROW:
        if isinstance(kind, known):
            return pa.array(map(_bytes, values) if known is BinaryType else values, arrow)
    return pa.nulls(len(values))


def _bytes(value: str | bytes | bytearray | None) -> bytes | None:
    return None if value is None else value.encode() if isinstance(value, str) else bytes(value)


def _stage(batches: Iterable[pa.RecordBatch], columns: Columns, options: WriteOptions, writer: str) -> Written:
    """Stages the rows of a task. After EncodeError or BrokerError nothing stays staged."""
    context = TaskContext.get()
    partition = context.partitionId() if context is not None else 0
    stages: dict[str, Stage] = {}
    homes: dict[str, str] = {}  # broker of each topic so far
    with ExitStack() as clients:
        try:
            brokers = _identified(options.brokers, options.timeout_s)
            for section in columns.sections(iter(batches), options.topic):
                if (broker := homes.get(section.topic)) is None:
                    broker = homes[section.topic] = broker_of(brokers, section.topic)
                if (stage := stages.get(broker)) is None:
                    client = clients.enter_context(Client(brokers[broker], options.timeout_s, broker))
                    stage = stages[broker] = Stage(client, f"{writer}-{partition}")
                stage.add(section)
            return Written(writer, partition, tuple(stage.finish() for stage in stages.values()))
        except BaseException:
            for stage in stages.values():
                stage.drop()
            raise
