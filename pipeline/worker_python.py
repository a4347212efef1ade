"""The Python that Spark starts for workers on this machine: this interpreter, with the modules of this process.

Spark puts PySpark's zip before all of PYTHONPATH. A zip holds no bytecode, so each of the eight or so processes that
read a topic would compile PySpark again: 1 s of processor each. Where this process has PySpark from a directory, a
shell script drops what Spark has put before.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

import pyspark
from mq_shards.pipeline.declarative.restart import python_path

SCRIPT: Final = Path(__file__).with_suffix(".sh")


def use(path: str = "") -> None:
    """Sets what a JVM that is started from here on, and its Python processes, see. `path`: their PYTHONPATH; if not
    given, what this process imports from."""
    path = path or python_path(*sys.path)
    os.environ["PYTHONPATH"] = path
    os.environ["MQ_PIPELINE_PYTHONPATH"] = path
    os.environ["MQ_PIPELINE_PYTHON"] = sys.executable
    is_directory = Path(pyspark.__file__).is_file()
    os.environ["PYSPARK_PYTHON"] = str(SCRIPT) if is_directory and os.access(SCRIPT, os.X_OK) else sys.executable
