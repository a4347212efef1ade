"""The timing wheel does what a model does that looks at every timer (wheel_model.c)."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
CORE = HERE.parent.parent / "csrc"
FLAGS = ("-std=c11", "-g", "-O2", "-Wall", "-Wextra", "-fsanitize=undefined", "-fno-sanitize-recover=all")


def test_what_is_due_comes_in_order_and_never_early_with_bounded_work_a_call(tmp_path: Path) -> None:
    compiler = os.environ.get("CC", "cc")
    if not shutil.which(compiler):
        pytest.skip("no C compiler")
    sources = [HERE / "wheel_model.c", CORE / "base/wheel.c", CORE / "base/heap.c"]
    program = tmp_path / "wheel_model"
    subprocess.run([compiler, *FLAGS, f"-I{CORE}", *map(str, sources), "-o", str(program)], check=True)
    done = subprocess.run([program, os.environ.get("WHEEL_SEEDS", "15")], capture_output=True, text=True, timeout=100)
    assert done.stdout == "ok\n", done.stderr
