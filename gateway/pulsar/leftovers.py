"""Whether a data directory has a catalog in which anything was made. If so the gateway must run: policies may take
effect with time, and transactions may be open or being ended."""

from __future__ import annotations

from pathlib import Path
from typing import Final

NEW_BYTES: Final = 361  # the size of a log that holds only catalog.FIRST
FILE: Final = Path("pulsar") / "catalog"


def are_in(data_dir: str | None) -> bool:
    """True also if the file cannot be examined."""
    if data_dir is None:
        return False
    try:
        return (Path(data_dir) / FILE).stat().st_size > NEW_BYTES
    except FileNotFoundError:
        return False
    except OSError:
        return True
