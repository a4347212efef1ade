"""Raw messages of the chosen topics, as they were published, each once."""

from __future__ import annotations

from mq_shards.pipeline.declarative.settings import check_catalog, source_options
from mq_shards.pipeline.declarative.source import PipelineSource
from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

spark = SparkSession.active()
check_catalog(spark)
spark.dataSource.register(PipelineSource)


@dp.table(comment="messages as they were published; read_at: the time of the micro-batch that read them")
def raw_messages() -> DataFrame:
    messages = spark.readStream.format("mqshards").options(**source_options(spark)).load()
    return messages.withColumn("read_at", sf.current_timestamp())
