"""An archive of the classes that Spark loads, as the JVM maps them: `python -m tests.pipeline.class_archive` makes it.

The long tests start dozens of JVMs, and each would spend four of its first eight seconds unpacking and checking the
same classes. One that finds the archive does not fit (another Java, another Spark) does without.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
ARCHIVE: Final = ROOT / "build" / "spark-classes.jsa"
LIMIT_S: Final = 900  # on a machine that does other things too
# Half of the processor time of a JVM that lives for a minute is its optimizing compiler's. With the usual sizes it
# would collect all garbage whenever some more classes are loaded, and clear out compiled code that is needed again. To
# verify Spark's classes takes half as long as to load them.
SHORT_LIVED: Final = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:MetaspaceSize=400m -XX:ReservedCodeCacheSize=256m "
    "-XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote "
    "-Xlog:disable -Xlog:all=error:stderr"
)


def java_options() -> str:
    return f"{SHORT_LIVED} -XX:SharedArchiveFile={ARCHIVE}" if ARCHIVE.exists() else SHORT_LIVED


def make() -> None:
    """Runs what most tests run, so that its classes are loaded, and writes them down at its end."""
    ARCHIVE.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=ARCHIVE.parent) as directory:
        made = Path(directory) / ARCHIVE.name
        environment = {
            **os.environ,
            "JAVA_TOOL_OPTIONS": f"{SHORT_LIVED} -XX:ArchiveClassesAtExit={made}",
            "PYSPARK_PYTHON": sys.executable,
        }
        command = [sys.executable, "-m", "tests.pipeline.class_queries", directory]
        with subprocess.Popen(
            command, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True, start_new_session=True
        ) as running:
            try:
                said = running.communicate(timeout=LIMIT_S)[1]
            except subprocess.TimeoutExpired:
                os.killpg(running.pid, signal.SIGKILL)  # the JVM too
                made.unlink(missing_ok=True)  # of the JVM that only starts the other one
                said = f"not within {LIMIT_S} s\n{running.communicate()[1]}"
        if made.exists():
            made.replace(ARCHIVE)
        else:
            print(f"no archive of Spark's classes: tests of the pipeline take longer\n{said[-400:]}")


if __name__ == "__main__":
    if not ARCHIVE.exists():
        make()
