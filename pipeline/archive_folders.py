"""What a topic's directory in an archive is called: `topic=NAME`, as Spark writes it, unless that is too long for a
file system or has a NUL. Then it is the name's beginning and a hash, and each message has it among its attributes."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

MOST_BYTES: Final = 255 - len("topic=")
_ESCAPED: Final = r"[\x01-\x1f\x7f\"#%'*/:=?\\{\[\]^]"  # by Spark, as three letters
_BEGINNING: Final = 30  # letters, of which one is 4 bytes at most
_HASH: Final = 16
_FOLDED: Final = f"~[0-9a-f]{{{_HASH}}}$"
_ATTRIBUTE: Final = "archived_topic"
_NULL: Final = "__HIVE_DEFAULT_PARTITION__"  # a topic of this name is a null; nothing else is, as each message has one


def folded(messages: DataFrame) -> DataFrame:
    """As they are archived."""
    topic, attributes = sf.col("topic"), sf.col("attributes")
    others = sf.map_filter(sf.coalesce(attributes, _no_attributes()), lambda name, _: name != _ATTRIBUTE)
    named = sf.map_concat(others, sf.create_map(sf.lit(_ATTRIBUTE), topic))
    return messages.withColumns({
        "topic": sf.when(_is_unfit(topic), _short(topic)).otherwise(topic),
        "attributes": sf.when(_is_unfit(topic), named).otherwise(attributes),
    })  # fmt: skip


def unfolded(archived: DataFrame) -> DataFrame:
    """As they were. An attribute that anybody may have given counts only where the directory is that name's."""
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
    """As unfolded, only topics that are wanted, by the column `topic`: other directories are not read."""
    topic = sf.col("topic")
    return unfolded(archived.where(wanted | topic.isNull() | topic.rlike(_FOLDED))).where(wanted)


def _is_unfit(topic: Column) -> Column:
    """For most it is said by their length; letters are looked at where there are many."""
    size = sf.octet_length(topic)
    is_too_long = (size > MOST_BYTES // 3) & (size + 2 * sf.regexp_count(topic, sf.lit(_ESCAPED)) > MOST_BYTES)
    return is_too_long | topic.contains("\0")


def _short(topic: Column) -> Column:
    beginning = sf.substring(sf.replace(topic, sf.lit("\0")), 1, _BEGINNING)
    return sf.concat(beginning, sf.lit("~"), sf.substring(sf.sha2(topic, 256), 1, _HASH))


def _no_attributes() -> Column:
    return sf.create_map().cast("map<string,string>")
