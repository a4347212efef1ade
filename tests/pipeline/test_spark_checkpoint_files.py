"""Spark writes checkpoints on a file system of this machine without starting programs for it."""

from __future__ import annotations

from pathlib import Path

import pyspark
import pytest
from mq_shards.pipeline import archive, checkpoint_files
from mq_shards.pipeline.project import Project

KNOWN = pytest.mark.skipif(not pyspark.__version__.startswith(checkpoint_files.VERSION), reason="another Spark")
OURS = {checkpoint_files.SETTING: checkpoint_files.CLASS}


@KNOWN
def test_only_where_all_is_on_a_file_system_of_this_machine(tmp_path: Path) -> None:
    assert checkpoint_files.settings_for([tmp_path, tmp_path]) == OURS
    assert checkpoint_files.settings_for([tmp_path, archive.local_directory("hdfs://a/b")]) == {}


def test_not_where_spark_may_have_the_class_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyspark, "__version__", "4.2.0")
    assert checkpoint_files.settings_for([tmp_path]) == {}


@KNOWN
def test_a_project_may_say_otherwise(tmp_path: Path) -> None:
    assert OURS.items() <= Project(tmp_path).running_settings().items()
    elsewhere = Project(tmp_path, {"spark.sql.warehouse.dir": "hdfs://a/b"})
    assert checkpoint_files.SETTING not in elsewhere.running_settings()
    # A setting of the session's, as this one is, goes into the spec, which counts for each flow.
    own = Project(tmp_path, {checkpoint_files.SETTING: "own"})
    assert own.spec()["configuration"][checkpoint_files.SETTING] == "own"
