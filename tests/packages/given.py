"""What a script of the shell is given: files by name, in a folder beside the one that a root is mounted on."""

from __future__ import annotations

import shutil
from pathlib import Path


def lay_out(directory: Path, script: str, files: dict[str, Path]) -> tuple[Path, Path]:
    """The folder with the files and the script, and the one to mount on."""
    given, mounted = directory / "given", directory / "mounted"
    given.mkdir()
    mounted.mkdir()
    for name, path in files.items():
        shutil.copy(path, given / name)
    (given / "script").write_text(script)
    return given, mounted
