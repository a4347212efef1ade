"""Numbers and flags in bodies of Pulsar's REST API, taken as a real broker takes them: its clients rely on it.

Its library for JSON takes "3", " 3 " and 3.7 where a whole number is due, "true" and 1 where a flag is, and null or an
empty string for 0 and false. What says something else is refused: "3.7", true for a number, "yes".
"""

from __future__ import annotations

import math
import re
from typing import Final

from mq_shards.gateway.pulsar.refusals import RefusedError

LIMIT: Final = 1 << 63
_DIGITS: Final = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)
_NOTHING: Final = ("", "null")
_FLAGS: Final = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}


def whole(given: object, what: str) -> int:
    """Of less than 2^63. Raises RefusedError."""
    found = _number(given)
    if found is None or not abs(found) < LIMIT:
        raise RefusedError(400, "MetadataError", f"{what} is not a whole number")
    return int(found)


def decimal(given: object, what: str) -> float:
    """Raises RefusedError."""
    found = _number(given)
    if found is None and isinstance(given, str):
        try:
            found = float(given)
        except ValueError:
            found = None
    if found is None or not math.isfinite(found):
        raise RefusedError(400, "MetadataError", f"{what} is not a number")
    return float(found)


def flag(given: object, what: str) -> bool:
    """Raises RefusedError."""
    if given is None:
        return False
    if isinstance(given, int):
        return bool(given)
    if isinstance(given, str):
        text = given.strip()
        if text in _NOTHING:
            return False
        if text in _FLAGS:
            return _FLAGS[text]
    raise RefusedError(400, "MetadataError", f"{what} is neither true nor false")


def _number(given: object) -> int | float | None:
    """None: it is none, or a string of something else than digits."""
    if given is None:
        return 0
    if isinstance(given, str):
        text = given.strip()
        if text in _NOTHING:
            return 0
        return int(text) if _DIGITS.fullmatch(text) else None
    return given if isinstance(given, int | float) and not isinstance(given, bool) else None
