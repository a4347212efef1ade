"""Units of time. Times are in nanoseconds, unless their names say otherwise, as in C (csrc/base/time_units.h)."""

from __future__ import annotations

from typing import Final

MS_NS: Final = 1_000_000
SECOND_NS: Final = 1_000_000_000
