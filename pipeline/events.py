"""Makes events of messages' bodies: the kind of content, its fields, and whether it is of its topic's format.

Everything here is an expression that Spark computes; no message reaches Python.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from mq_shards.pipeline.fields import AUTO, BINARY, JSON, TEXT, Fields
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

# Times that are numbers are seconds, milli-, micro- or nanoseconds since 1970. Their size tells which, rightly so for
# the years 1973 to 5138.
_UNITS: Final = ((1e11, 1e6), (1e14, 1e3), (1e17, 1.0), (1e20, 1e-3))


def decoded(
    messages: DataFrame, fields: Fields, formats: Mapping[str, str] | None = None, *, keep: Sequence[str] = ()
) -> DataFrame:
    """The columns `keep` of messages, and `kind` (json, text, binary), `payload` (variant, of JSON), `text` (of text),
    `event_id`, `event_time`, `source`, `bytes`, and `reason`: why the body is not of its topic's format, else null.
    `formats`: the format of topics, by patterns for their whole name; auto for all others.

    Uses only select. While a declarative pipeline is defined it must not look at columns, as `withColumn` does: it
    would take a table of its own that an earlier run has left for another's."""
    looked_at = messages.select("*", sf.length("body").alias("bytes"), _text().alias("_text"))
    looked_at = looked_at.select(
        "*", sf.col("_text").rlike(r"^\s*[\[{]").alias("_json"), _format(formats or {}).alias("_format")
    )
    tried = sf.when((sf.col("_format") == JSON) | (sf.col("_format") == AUTO) & sf.col("_json"), sf.col("_text"))
    parsed = looked_at.select("*", sf.try_parse_json(tried).alias("payload"))
    told = parsed.select("*", _kind().alias("kind"), _reason().alias("reason"))
    return told.select(
        *keep,
        "bytes",
        "kind",
        "payload",
        sf.when(sf.col("kind") == TEXT, sf.col("_text")).alias("text"),
        _first(fields.id).alias("event_id"),
        sf.coalesce(*(_time(name) for name in fields.time)).alias("event_time"),
        _first(fields.source).alias("source"),
        "reason",
    )


def delay_ms(published: str = "timestamp") -> Column:
    """Milliseconds from an event's own time to its publication; null if the event has no time."""
    micros = sf.unix_micros(sf.col(published)).cast("double") - sf.unix_micros("event_time").cast("double")
    return micros / 1000


def _text() -> Column:
    text = sf.col("body").cast("string")
    return sf.when(sf.is_valid_utf8(text), text)


def _format(formats: Mapping[str, str]) -> Column:
    found = sf.lit(AUTO)
    for pattern, name in reversed(list(formats.items())):
        found = sf.when(sf.col("topic").rlike(f"^(?:{pattern})$"), sf.lit(name)).otherwise(found)
    return found


def _kind() -> Column:
    return (
        sf.when(sf.col("payload").isNotNull(), sf.lit(JSON))
        .when((sf.col("_format") == BINARY) | sf.col("_text").isNull(), sf.lit(BINARY))
        .otherwise(sf.lit(TEXT))
    )


def _reason() -> Column:
    json, text = sf.col("_format") == JSON, sf.col("_format") == TEXT
    no_json = sf.col("payload").isNull()
    return (
        sf.when((json | text) & sf.col("_text").isNull(), sf.lit("not UTF-8"))
        .when(json & (sf.trim("_text") == ""), sf.lit("empty, but JSON is wanted"))
        .when(json & no_json, sf.lit("not JSON"))
        .when((sf.col("_format") == AUTO) & sf.col("_json") & no_json, sf.lit("begins like JSON, but is none"))
    )


def _first(names: Sequence[str]) -> Column:
    return sf.coalesce(*(_field(name, "string") for name in names))


def _field(name: str, kind: str) -> Column:
    return sf.try_variant_get("payload", f"$['{name}']", kind)


def _time(name: str) -> Column:
    number = _field(name, "double")
    epoch = sf.when(number < 0, sf.lit(None).cast("timestamp"))
    for below, factor in _UNITS:
        epoch = epoch.when(number < below, sf.timestamp_micros((number * factor).cast("long")))
    return sf.coalesce(epoch, sf.try_to_timestamp(_field(name, "string")))
