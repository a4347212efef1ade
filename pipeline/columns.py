"""The columns of the source, as Spark and as Arrow have them."""

from __future__ import annotations

from typing import Final

import pyarrow as pa
from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

SCHEMA: Final = StructType(
    [
        StructField("topic", StringType()),
        StructField("shard", IntegerType()),
        StructField("seq", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("body", BinaryType()),
        StructField("id", StringType()),
        StructField("attributes", MapType(StringType(), StringType())),
        StructField("broker", StringType()),
        StructField("batch_index", IntegerType()),
    ]
)
_ARROW: Final = {
    "topic": pa.string(),
    "shard": pa.int32(),
    "seq": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "body": pa.binary(),
    "id": pa.string(),
    "attributes": pa.map_(pa.string(), pa.string()),
    "broker": pa.string(),
    "batch_index": pa.int32(),
}


def to_arrow(schema: StructType) -> pa.Schema:
    """Returns the Arrow schema of a Spark schema that has some of these columns."""
    return pa.schema([pa.field(field.name, _ARROW[field.name], field.nullable) for field in schema])
