"""What Spark starts as Python on this machine."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

import pyspark
from mq_shards.pipeline import worker_python


def test_it_imports_what_this_process_does_and_pyspark_not_out_of_its_zip(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PYTHONPATH", "PYSPARK_PYTHON", "MQ_PIPELINE_PYTHONPATH", "MQ_PIPELINE_PYTHON"):
        monkeypatch.setenv(name, "")  # put back at the end
    worker_python.use()
    first = next((Path(pyspark.__file__).parent / "python" / "lib").glob("pyspark.zip"))
    environment = {**os.environ, "PYTHONPATH": f"{first}:{os.environ['PYTHONPATH']}"}
    program = "import pyspark, mq_shards.pipeline, pyspark_mqshards; print(pyspark.__file__)"
    said = subprocess.run(
        [os.environ["PYSPARK_PYTHON"], "-c", program], env=environment, cwd="/", capture_output=True, text=True,
        check=False, timeout=60,
    )  # fmt: skip
    assert said.stdout.strip() == pyspark.__file__, said.stderr
