"""What a project does where Spark looks at the columns of a flow when it is defined: PySpark 4.2.

Its server resolves what is to be deduplicated at once, for which the table that it comes from has to be there, and
takes what it finds for the flow's input: it no longer sees that one flow has to wait for the other. Later ones resolve
all flows together, when they run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyspark
from mq_shards.pipeline.columns import SCHEMA
from pyspark.sql import DataFrame, SparkSession

IS_EARLY: Final = tuple(map(int, pyspark.__version__.split(".")[:2])) < (4, 3)
READ_AT: Final = "read_at TIMESTAMP"


def make_raw_messages(spark: SparkSession, table_format: str) -> None:
    """The table, of no rows, before anything is defined that reads it."""
    columns = [f"`{field.name}` {field.dataType.simpleString()}" for field in SCHEMA]
    spark.sql(f"CREATE TABLE IF NOT EXISTS raw_messages ({', '.join(columns)}, {READ_AT}) USING {table_format}")


def behind(found: DataFrame, other: DataFrame, columns: Sequence[str]) -> DataFrame:
    """With no row of `other`, whose flow it waits for."""
    return found.union(other.where("false").select(*columns))
