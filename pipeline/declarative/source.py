"""The source `mqshards` as `spark-pipelines` can bear it.

Whenever Spark plans a Python data source, the process that does so reports to the session what its profilers found,
nothing if nothing is profiled. PySpark 4.3 hands that to who follows a pipeline's run, which knows no such message and
ends with UNKNOWN_RESPONSE, after a run that went well. So that process has to have no profilers.
"""

from __future__ import annotations

from mq_shards.pipeline.batch import PlainBatchReader
from mq_shards.pipeline.source import MqShards
from mq_shards.pipeline.stream import StreamReader
from pyspark.accumulators import _accumulatorRegistry
from pyspark.sql.types import StructType


class PipelineSource(MqShards):
    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        _accumulatorRegistry.clear()

    def reader(self, schema: StructType) -> PlainBatchReader:
        _accumulatorRegistry.clear()
        return super().reader(schema)

    def streamReader(self, schema: StructType) -> StreamReader:  # noqa: N802
        _accumulatorRegistry.clear()
        return super().streamReader(schema)
