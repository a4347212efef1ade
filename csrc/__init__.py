"""The C half of mq-shards, which does all that is done once per message. `surface/` is all that Python sees of it.

When a checkout was updated but not built again, the core is older than the Python code: the import fails and says so.
"""

from __future__ import annotations

import importlib
import zlib
from pathlib import Path


def _compare() -> None:
    surface = Path(__file__).resolve().parent / "surface"
    if not surface.is_dir():  # installed: core and Python code came together
        return
    try:
        core = importlib.import_module(f"{__name__}._core")
    except ImportError:  # not built: whoever imports the core gets the error
        return
    beside = zlib.crc32(b"".join(part.read_bytes() for part in sorted(surface.glob("*.h"))))
    if getattr(core.lib, "CORE_SURFACE", None) != beside:
        wrong = "was built of another version than lies beside it: `make setup` builds it anew"
        raise ImportError(f"{core.__file__} {wrong}")


_compare()
