"""A core that was built of another version than the Python beside it is noticed before anything is done with it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from mq_shards.csrc import _core

PACKAGE = Path(_core.__file__).parent


def import_copy(directory: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(directory)}
    command = [sys.executable, "-c", "import beside._core as core; print(core.lib.CORE_SURFACE)"]
    return subprocess.run(command, env=environment, cwd=directory, capture_output=True, text=True, check=False)


def make_copy(directory: Path) -> Path:
    package = directory / "beside"
    package.mkdir()
    shutil.copy(PACKAGE / "__init__.py", package)
    shutil.copytree(PACKAGE / "surface", package / "surface")
    (package / Path(_core.__file__).name).symlink_to(_core.__file__)
    return package


def test_a_core_of_another_version_is_said_in_one_line(tmp_path: Path) -> None:
    package = make_copy(tmp_path)
    whole = import_copy(tmp_path)
    assert whole.returncode == 0, whole.stderr
    with (package / "surface" / "base.h").open("a") as header:
        header.write("void of_a_later_version(void);\n")
    stale = import_copy(tmp_path)
    assert stale.returncode == 1
    last = stale.stderr.splitlines()[-1]
    assert "was built of another version than lies beside it: `make setup` builds it anew" in last


def test_what_is_installed_without_its_headers_is_not_compared(tmp_path: Path) -> None:
    shutil.rmtree(make_copy(tmp_path) / "surface")
    assert import_copy(tmp_path).returncode == 0
