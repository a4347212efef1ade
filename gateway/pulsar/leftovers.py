"""Whether a data directory has a catalog in which anything was made. If so the gateway must run: policies may take
effect with time, and transactions may be open or being ended."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Final

NEW_BYTES: Final = 361  # the size of a log that holds only catalog.FIRST
FILE: Final = Path("pulsar") / "catalog"


def are_in(data_dir: str | None) -> bool:
    """True also if the file cannot be examined, or something else is in its place."""
    if data_dir is None:
        return False
    file = Path(data_dir) / FILE
    try:
        status = file.stat()
    except FileNotFoundError:
        return file.is_symlink() or file.parent.is_symlink()
    except OSError:
        return True
    return not stat.S_ISREG(status.st_mode) or status.st_size > NEW_BYTES
