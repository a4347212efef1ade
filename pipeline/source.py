"""The Spark data source `mqshards`: its name, its columns, its readers and its writers."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, ClassVar, Final

import pyspark
from mq_shards.pipeline.arriving import Arrives, ArrivesItself
from mq_shards.pipeline.batch import BatchReader, PlainBatchReader
from mq_shards.pipeline.columns import SCHEMA
from mq_shards.pipeline.options import OptionError, ReadOptions
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

if TYPE_CHECKING:
    from mq_shards.pipeline.stream import StreamReader
    from mq_shards.pipeline.write import BatchWriter, StreamWriter

# PySpark 4.0 takes a batch without columns for one without rows: count() would be 0.
COUNTS_NO_COLUMNS: Final = tuple(map(int, pyspark.__version__.split(".")[:2])) >= (4, 1)


class MqShards(Arrives, DataSource, metaclass=ArrivesItself):
    """Topics of mq-shards brokers (docs/pipeline.md). A schema that has only some of the columns reads only those."""

    reader_type: ClassVar[type[PlainBatchReader]] = BatchReader

    @classmethod
    def name(cls) -> str:
        return "mqshards"

    def schema(self) -> StructType:
        return SCHEMA

    def reader(self, schema: StructType) -> PlainBatchReader:
        return self.reader_type(ReadOptions.parse(self.options, streaming=False), _checked(schema))

    def streamReader(self, schema: StructType) -> StreamReader:  # noqa: N802
        options = ReadOptions.parse(self.options, streaming=True)
        if find_spec("pyspark.sql.streaming.datasource") is None:
            from mq_shards.pipeline.stream_without_place import StreamReaderWithoutPlace

            return StreamReaderWithoutPlace(options, _checked(schema))
        from mq_shards.pipeline.stream_with_place import StreamReaderWithPlace

        return StreamReaderWithPlace(options, _checked(schema))

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        if overwrite:
            raise OptionError("mode overwrite: what is in a topic stays; append is wanted")
        # Loaded only here: Spark begins processes for each query that reads, and this is half of what they would load.
        from mq_shards.pipeline.write import BatchWriter
        from mq_shards.pipeline.write_options import WriteOptions

        return BatchWriter(WriteOptions.parse(self.options, streaming=False), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: N802
        from mq_shards.pipeline.write import StreamWriter
        from mq_shards.pipeline.write_options import WriteOptions

        # In complete mode, which overwrites, each micro-batch publishes the whole result; as with Kafka's sink.
        return StreamWriter(WriteOptions.parse(self.options, streaming=True), schema)


class Unfiltered(MqShards):
    """Takes no filters: Spark applies them to what was read."""

    reader_type = PlainBatchReader


def _checked(schema: StructType) -> StructType:
    if not schema.fields and not COUNTS_NO_COLUMNS:
        text = f"PySpark {pyspark.__version__} counts no rows without columns; name one, as seq long"
        raise OptionError(f"schema: {text}")
    columns = {field.name: field.dataType for field in SCHEMA}
    for field in schema:
        if columns.get(field.name) != field.dataType:
            wanted = f"{field.name} of type {field.dataType.simpleString()}"
            raise OptionError(f"mqshards has no column {wanted}; it has {SCHEMA.simpleString()}")
    return schema
