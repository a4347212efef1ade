"""The Makefile: two that are asked for at once in one tree do not write over each other."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.servers import ROOT

# Stands for Python and pip: says when it begins and ends, and is in no hurry.
PYTHON = """#!/bin/sh
echo begin >>said
sleep 0.1
echo end >>said
"""


@pytest.mark.parametrize("together", [2, 4])
def test_what_is_asked_for_at_once_is_made_once(tmp_path: Path, together: int) -> None:
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    for name in ("pip", "python"):
        (tmp_path / ".venv" / "bin" / name).write_text(PYTHON)
        (tmp_path / ".venv" / "bin" / name).chmod(0o755)
    command = ["make", "--no-print-directory", ".venv/.packages"]
    makes = [subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
             for _ in range(together)]  # fmt: skip
    said = [make.communicate(timeout=60)[0] for make in makes]
    assert [make.returncode for make in makes] == [0] * together, said
    found = (tmp_path / "said").read_text().split()
    assert found == ["begin", "end"] * (len(found) // 2), "one behind the other"
    assert len(found) == 4, "the packages setuptools and cffi, then this one: by the first that came"
    assert sum("installing packages" in text for text in said) == 1
