"""How Spark writes the files of checkpoints, of state, and of a file sink's log.

Its usual way asks the file system through other programs (chmod, readlink), ten for each file: half of the processor
time of a small micro-batch. The other one does not. Both look whether the name is taken and then rename; on an object
store or HDFS the usual one is safer, so this is for file systems of this machine, or mounted on it.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Final

import pyspark

SETTING: Final = "spark.sql.streaming.checkpointFileManagerClass"
# Other versions of Spark have the class elsewhere.
CLASS: Final = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
VERSION: Final = "4.3."


def settings_for(directories: Collection[Path | None]) -> dict[str, str]:
    """`directories`: all in which a job's streams keep such files; None: one that is not on a file system of this
    machine."""
    known = pyspark.__version__.startswith(VERSION)
    return {SETTING: CLASS} if known and None not in directories else {}
