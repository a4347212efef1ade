"""Whether a data directory has a catalog in which anybody has made anything: what policies take effect on with time, or
transactions that are open or being ended."""

from __future__ import annotations

from pathlib import Path
from typing import Final

NEW_BYTES: Final = 361  # a log of nothing but catalog.FIRST
FILE: Final = Path("pulsar") / "catalog"


def are_in(data_dir: str | None) -> bool:
    """True also when that cannot be told."""
    if data_dir is None:
        return False
    try:
        return (Path(data_dir) / FILE).stat().st_size > NEW_BYTES
    except FileNotFoundError:
        return False
    except OSError:
        return True
