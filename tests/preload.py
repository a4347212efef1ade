"""Libraries for LD_PRELOAD, which come between a broker and the C library."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest


def compiled(source: Path, folder: Path, *more: str) -> Path:
    """Skips the test where there is no compiler."""
    compiler = os.environ.get("CC", "cc")
    if not shutil.which(compiler):
        pytest.skip("no C compiler")
    target = folder / source.with_suffix(".so").name
    flags = ["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-pthread"]
    subprocess.run([compiler, *flags, *more, str(source), "-o", str(target)], check=True)
    return target
