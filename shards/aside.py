"""What lies where something else should be, in a data directory, gets another name: it is kept, and in nobody's way."""

from __future__ import annotations

import os
from pathlib import Path


def is_no_file(path: Path) -> bool:
    return os.path.lexists(path) and not path.is_file()


def put_aside(path: Path) -> Path:
    """Gives it a name that nothing has, and returns that. Raises OSError."""
    names = (path.with_suffix(f".odd{n or ''}") for n in range(1 << 16))
    return path.rename(next(name for name in names if not os.path.lexists(name)))
