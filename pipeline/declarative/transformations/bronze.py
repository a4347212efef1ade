"""Raw messages of the chosen topics, as they were published, each once."""

from __future__ import annotations

from mq_shards.pipeline.declarative.settings import check_catalog, check_source, source_options
from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

spark = SparkSession.active()
check_catalog(spark)
check_source()


@dp.table(comment="messages as they were published; read_at: the time of the micro-batch that read them")
def raw_messages() -> DataFrame:
    messages = spark.readStream.format("mqshards").options(**source_options(spark)).load()
    return messages.withColumn("read_at", sf.current_timestamp())
