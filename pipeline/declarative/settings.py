"""The settings of the project: keys under spark.mqshards in the configuration of its session."""

from __future__ import annotations

import os
import pkgutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import orjson
from mq_shards.pipeline.declarative.restart import IN_CHECKOUT, restart
from mq_shards.pipeline.fields import FORMATS, Fields
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as sf

PREFIX: Final = "spark.mqshards."
# Options of the source that are passed on unchanged; an empty one counts as not given.
_SOURCE: Final = (
    "brokers", "topics", "topicPattern", "assign", "subscription", "startingOffsets", "maxOffsetsPerTrigger",
    "maxBytesPerTrigger", "minPartitions", "failOnDataLoss", "pollTimeoutMs", "tlsCa", "tlsCert", "tlsKey",
    "tokenFile",
)  # fmt: skip

# All settings of ours once more, in JSON and hexadecimal: Spark Connect answers that there is no setting if its key or
# its value looks like a secret (spark.redaction.regex), such as `tokenFile`, or the topic `password-resets`.
_ENCODED: Final = PREFIX + "encoded"


def with_encoded(configuration: Mapping[str, str]) -> dict[str, str]:
    """Returns the configuration with the settings of ours in a form that Spark does not hide."""
    ours = {key: value for key, value in configuration.items() if key.startswith(PREFIX)}
    return {**configuration, _ENCODED: orjson.dumps(ours).hex()}


def setting(spark: SparkSession, name: str, default: str) -> str:
    key = PREFIX + name
    if encoded := spark.conf.get(_ENCODED, ""):
        found: dict[str, str] = orjson.loads(bytes.fromhex(encoded))
        return found.get(key) or default
    return spark.conf.get(key, default) or default


def source_options(spark: SparkSession) -> dict[str, str]:
    return source_options_in({PREFIX + name: setting(spark, name, "") for name in _SOURCE})


def source_options_in(configuration: Mapping[str, str]) -> dict[str, str]:
    """Returns the options of the source in a spec's configuration."""
    found = {name: configuration.get(PREFIX + name, "") for name in _SOURCE}
    return {name: value for name, value in found.items() if value}


def check_catalog(spark: SparkSession) -> None:
    """Restarts the application with the settings of conf/ if its catalog forgets the tables: a second run would refuse
    to go on with their files. Raises ValueError if it cannot. The setting `catalog` is `own` if the spec names another
    catalog than spark_catalog."""
    forgets = spark.conf.get("spark.sql.catalogImplementation", "in-memory") == "in-memory"
    if not forgets or setting(spark, "catalog", "") == "own":
        return
    conf = Path("conf").resolve()  # beside the spec: that is where definitions are loaded
    try:
        restart(conf)
    except ValueError as error:
        raise ValueError(
            f"the project needs a catalog that persists: set SPARK_CONF_DIR to {conf}, which has one ({error})"
        ) from error


def check_source() -> None:
    """Raises ValueError if Spark does not find the source `mqshards` by itself. A source registered with the session
    would not do: whenever Spark plans one, its Python reports profiler results (even none) to the session. PySpark 4.3
    passes them to the client that follows a run, which then ends with UNKNOWN_RESPONSE though all went well."""
    found = next((module for module in pkgutil.iter_modules() if module.name == "pyspark_mqshards"), None)
    if found is None:
        raise ValueError(
            "Spark does not find the source mqshards: install mq-shards[spark] or pyspark_mqshards where the driver's "
            f"Python is; from a checkout, PYTHONPATH={IN_CHECKOUT} does"
        )
    # Spark Connect's server starts its Python processes in a directory of the session's.
    python, where = os.environ.get("PYSPARK_PYTHON", ""), str(getattr(found.module_finder, "path", ""))
    given = [("PYSPARK_PYTHON", python)] if os.sep in python else []
    if where not in (paths := os.environ.get("PYTHONPATH", "").split(os.pathsep)):
        given += [("PYTHONPATH", path) for path in paths if where.endswith(os.sep + os.path.normpath(path))]
    for name, path in given:
        if not Path(path).is_absolute():
            raise ValueError(f"{name}={path}: a path from / on is wanted: Spark's Python runs in another directory")


def fields(spark: SparkSession) -> Fields:
    """`fields.id`, `fields.time`, `fields.source`: names, separated by commas."""
    usual = Fields()
    return Fields(
        id=_names(setting(spark, "fields.id", ""), usual.id),
        time=_names(setting(spark, "fields.time", ""), usual.time),
        source=_names(setting(spark, "fields.source", ""), usual.source),
    )


def formats(spark: SparkSession) -> dict[str, str]:
    """`formats`: JSON that maps patterns for the whole name of a topic to its format. Raises ValueError."""
    found = orjson.loads(setting(spark, "formats", "{}"))
    if not isinstance(found, dict) or any(value not in FORMATS for value in found.values()):
        raise ValueError(f'{PREFIX}formats: wanted is JSON, as {{"orders-.*": "json"}}, of {", ".join(FORMATS)}')
    return found


def identity(spark: SparkSession) -> Column:
    """`duplicates`: what makes two messages of a topic one event: `body` (the id, or the body if there is none), or
    `id` (only the id). Raises ValueError."""
    given = setting(spark, "duplicates", "body")
    if given == "body":
        otherwise = sf.concat(sf.lit("body:"), sf.sha2(sf.col("body"), 256))
    elif given == "id":
        otherwise = sf.concat_ws(":", sf.lit("seq"), "seq", sf.unix_micros("timestamp"))
    else:
        raise ValueError(f"{PREFIX}duplicates: {given!r} is neither body nor id")
    return sf.coalesce(sf.concat(sf.lit("id:"), sf.col("event_id")), otherwise)


def duplicates_window(spark: SparkSession) -> str:
    return setting(spark, "duplicates.window", "1 day")


def top(spark: SparkSession) -> int:
    """`top`: how many talkers of each topic are listed."""
    return int(setting(spark, "top", "10"))


def _names(text: str, usual: Sequence[str]) -> Sequence[str]:
    return [name.strip() for name in text.split(",") if name.strip()] or usual
