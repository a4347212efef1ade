"""What a project does for PySpark 4.2, which looks at the columns of a flow as soon as the flow is defined.

The server of 4.2 resolves a deduplication at once, so the table that it reads must exist by then. It then takes that
table for the flow's input, and no longer sees that one flow must wait for the other. Later versions resolve all flows
together, when they run.
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
    """Creates the table, empty, before anything that reads it is defined."""
    columns = [f"`{field.name}` {field.dataType.simpleString()}" for field in SCHEMA]
    spark.sql(f"CREATE TABLE IF NOT EXISTS raw_messages ({', '.join(columns)}, {READ_AT}) USING {table_format}")


def behind(found: DataFrame, other: DataFrame, columns: Sequence[str]) -> DataFrame:
    """Adds no row of `other`: it makes the flow wait for that of `other`."""
    return found.union(other.where("false").select(*columns))
