"""Formats of the declarative project's tables besides Parquet: the settings and packages that Spark needs for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

SCALA: Final = "2.13"
PARQUET: Final = "parquet"


class TableFormatError(Exception):
    """One line: which package of a table format is missing."""


@dataclass(frozen=True)
class TableFormat:
    package: str
    """Its Maven group and artifact, whose name goes on with the version of Spark that it was built for."""
    settings: Mapping[str, str]


FORMATS: Final[Mapping[str, TableFormat]] = {
    "delta": TableFormat(
        "io.delta:delta-spark",
        {
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        },
    ),
    "iceberg": TableFormat(
        "org.apache.iceberg:iceberg-spark-runtime",
        {
            "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
            "spark.sql.catalog.spark_catalog": "org.apache.iceberg.spark.SparkSessionCatalog",
            "spark.sql.catalog.spark_catalog.type": "hive",
        },
    ),
}


def settings_of(name: str, given: Mapping[str, str], version: str) -> dict[str, str]:
    """Returns the settings of a project whose tables have this format. `given`: its other settings. `version`: Spark's.
    Raises TableFormatError if these name no package for this Spark: one built for another would fail during a run."""
    if name == PARQUET:
        return {}
    wanted = FORMATS[name]
    artifact = f"{wanted.package}_{'.'.join(version.split('.')[:2])}_{SCALA}"
    jars = f"{given.get('spark.jars.packages', '')},{given.get('spark.jars', '')}"
    if artifact.partition(":")[2] not in jars:
        raise TableFormatError(
            f"--table-format {name}: this is PySpark {version}, and neither spark.jars.packages nor spark.jars names "
            f"what {name} has for it: --conf spark.jars.packages={artifact}:VERSION"
        )
    return {**wanted.settings, "spark.sql.sources.default": name}
