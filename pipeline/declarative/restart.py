"""Restarts spark-pipelines with settings that hold for a whole Spark application.

Spark chooses its catalog when its JVM starts, before anything of the project is read: a setting in the spec comes too
late. So the project checks the catalog in Python, and executes the same command anew in the same process, with the
directory conf beside the spec as Spark's configuration.
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
# Spark finds the source by a module's name. The module is installed beside `mq_shards`; in a checkout it is here.
IN_CHECKOUT: Final = Path(__file__).resolve().parents[1] / "default_source"


def python_path(*before: str) -> str:
    """Joins these paths, and adds the source's folder if this is a checkout."""
    paths = [*filter(None, before), *([str(IN_CHECKOUT)] if IN_CHECKOUT.exists() else [])]
    return os.pathsep.join(dict.fromkeys(paths))


def restart(conf: Path) -> NoReturn:
    """Raises ValueError if it cannot: this is not spark-pipelines, has settings already, or has no JVM of its own."""
    if Path(sys.argv[0]).parts[-2:] != ("pipelines", "cli.py"):
        raise ValueError("this is not spark-pipelines")
    given = Path(os.environ.get(CONF_DIR, "/"), DEFAULTS)
    if given.exists():
        raise ValueError(f"{given} has settings already")
    if not (conf / DEFAULTS).exists():
        raise ValueError(f"there is no {conf / DEFAULTS}")
    try:
        # The environment and the directory as they were when the command began.
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
    """Ends the JVM by closing its standard input, and waits for its end: then its port is free again."""
    from pyspark import SparkContext

    gateway: Any = SparkContext._gateway
    if gateway is None:
        raise ValueError("the application runs elsewhere")
    gateway.proc.stdin.close()
    gateway.proc.wait(END_S)
