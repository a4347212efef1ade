"""Names the directory of a topic in an archive: `topic=NAME`, as Spark writes it. A name that is too long for a file
system or has a NUL is replaced by its beginning and a hash; its messages then carry the full name as an attribute."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

MOST_BYTES: Final = 255 - len("topic=")
_ESCAPED: Final = r"[\x01-\x1f\x7f\"#%'*/:=?\\{\[\]^]"  # characters that Spark escapes, as three letters each
_BEGINNING: Final = 30  # letters, each of at most 4 bytes
_HASH: Final = 16
_FOLDED: Final = f"~[0-9a-f]{{{_HASH}}}$"
_ATTRIBUTE: Final = "archived_topic"
_NULL: Final = "__HIVE_DEFAULT_PARTITION__"  # Spark reads a topic of this name, and no other, as null


def folded(messages: DataFrame) -> DataFrame:
    """Returns messages as they are archived."""
    topic, attributes = sf.col("topic"), sf.col("attributes")
    others = sf.map_filter(sf.coalesce(attributes, _no_attributes()), lambda name, _: name != _ATTRIBUTE)
    named = sf.map_concat(others, sf.create_map(sf.lit(_ATTRIBUTE), topic))
    return messages.withColumns({
        "topic": sf.when(_is_unfit(topic), _short(topic)).otherwise(topic),
        "attributes": sf.when(_is_unfit(topic), named).otherwise(attributes),
    })  # fmt: skip


def unfolded(archived: DataFrame) -> DataFrame:
    """Undoes folded(). The attribute, which any producer may set, counts only where the directory is that name's."""
    topic = sf.coalesce(sf.col("topic"), sf.lit(_NULL))
    if "attributes" not in archived.columns:
        return archived.withColumn("topic", topic)
    named = sf.col("attributes")[_ATTRIBUTE]
    is_folded = sf.coalesce(_is_unfit(named) & (topic == _short(named)), sf.lit(False))
    others = sf.map_filter("attributes", lambda name, _: name != _ATTRIBUTE)
    return archived.withColumns({
        "topic": sf.when(is_folded, named).otherwise(topic),
        "attributes": sf.when(is_folded, others).otherwise(sf.col("attributes")),
    })  # fmt: skip


def where_topic(archived: DataFrame, wanted: Column) -> DataFrame:
    """As unfolded(), for topics that `wanted`, a condition on `topic`, selects; skips directories of others."""
    topic = sf.col("topic")
    return unfolded(archived.where(wanted | topic.isNull() | topic.rlike(_FOLDED))).where(wanted)


def _is_unfit(topic: Column) -> Column:
    """The length decides for most names; only in long ones are escaped letters counted."""
    size = sf.octet_length(topic)
    is_too_long = (size > MOST_BYTES // 3) & (size + 2 * sf.regexp_count(topic, sf.lit(_ESCAPED)) > MOST_BYTES)
    return is_too_long | topic.contains("\0")


def _short(topic: Column) -> Column:
    beginning = sf.substring(sf.replace(topic, sf.lit("\0")), 1, _BEGINNING)
    return sf.concat(beginning, sf.lit("~"), sf.substring(sf.sha2(topic, 256), 1, _HASH))


def _no_attributes() -> Column:
    return sf.create_map().cast("map<string,string>")
