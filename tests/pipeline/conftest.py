"""One Spark session for all tests of the pipeline, a gateway of our own for each. Without PySpark they are skipped."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.servers import ROOT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.pipeline.serving import Gateway

# Modules that cannot be imported without it; test_installed.py says that they are left out.
MISSING = [name for name in ("numpy", "pyarrow", "pyspark") if importlib.util.find_spec(name) is None]
MISSING += [name for name in ("java",) if shutil.which(name) is None]
collect_ignore_glob = ["test_re*.py", "test_spark_*.py"] if MISSING else []


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    from pyspark.sql import SparkSession

    import pipeline

    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    directory = tmp_path_factory.mktemp("spark")
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.warehouse.dir", str(directory / "warehouse"))
        .config("spark.local.dir", str(directory))
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    pipeline.register(session)
    yield session
    session.stop()


@pytest.fixture
def gateway() -> Iterator[Gateway]:
    from tests.pipeline.serving import serving

    with serving() as gateway:
        yield gateway
