"""Whether a data directory holds staged messages, or decisions of writers: then the gateway may have work."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

STAGED: Final = "staged"
WRITERS: Final = "writers"


def are_in(data_dir: str | None) -> bool:
    """True also if the directory cannot be read."""
    return data_dir is not None and any(_holds_something(Path(data_dir) / name) for name in (STAGED, WRITERS))


def _holds_something(directory: Path) -> bool:
    try:
        with os.scandir(directory) as entries:
            return any(True for _ in entries)
    except FileNotFoundError:
        return False
    except OSError:
        return True
