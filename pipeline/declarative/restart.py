"""spark-pipelines, begun again with settings that hold for a whole Spark application.

Which catalog Spark has is settled when its JVM starts, before anything of the project is read: what is in a spec comes
too late for that. So the project finds out in Python, and begins the same command anew in the same process, with the
directory conf beside the spec as Spark's.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final, NoReturn

CONF_DIR: Final = "SPARK_CONF_DIR"
DEFAULTS: Final = "spark-defaults.conf"
END_S: Final = 60.0
# Spark finds the source by a module's name. Installed, that is beside `mq_shards`; in a checkout it is here.
IN_CHECKOUT: Final = Path(__file__).resolve().parents[1] / "default_source"


def python_path(*before: str) -> str:
    """With the folder of a checkout, if this is one."""
    paths = [*filter(None, before), *([str(IN_CHECKOUT)] if IN_CHECKOUT.exists() else [])]
    return os.pathsep.join(dict.fromkeys(paths))


def restart(conf: Path) -> NoReturn:
    """Raises ValueError where it cannot be done: it is not spark-pipelines that runs, or with a JVM of its own."""
    if Path(sys.argv[0]).parts[-2:] != ("pipelines", "cli.py"):
        raise ValueError("this is not spark-pipelines")
    given = Path(os.environ.get(CONF_DIR, "/"), DEFAULTS)
    if given.exists():
        raise ValueError(f"{given} has settings already")
    if not (conf / DEFAULTS).exists():
        raise ValueError(f"there is no {conf / DEFAULTS}")
    try:
        # Both as they were when it began.
        words = os.fsdecode(Path("/proc/self/environ").read_bytes()).split("\0")
        directory = Path(f"/proc/{os.getppid()}/cwd").readlink()
        _end_jvm()
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ValueError(str(error)) from error
    print(f"Beginning again with the settings of {conf}: the tables need a catalog that persists.", flush=True)
    os.chdir(directory)
    environment = dict(word.split("=", 1) for word in words if "=" in word)
    path = python_path(*environment.get("PYTHONPATH", "").split(os.pathsep))
    os.execve(sys.executable, sys.orig_argv, environment | {CONF_DIR: str(conf), "PYTHONPATH": path})


def _end_jvm() -> None:
    """It ends when Python says no more; its port is free again then."""
    from pyspark import SparkContext

    gateway: Any = SparkContext._gateway
    if gateway is None:
        raise ValueError("the application runs elsewhere")
    gateway.proc.stdin.close()
    gateway.proc.wait(END_S)
