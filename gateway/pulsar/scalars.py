"""Numbers and flags in bodies of Pulsar's REST API, read as a real broker reads them: its clients rely on that.

A real broker's JSON library takes "3", " 3 " and 3.7 for a whole number, "true" and 1 for a flag, and null or an empty
string for 0 and false. Anything else is refused: "3.7" for a whole number, true for a number, "yes" for a flag.
"""

from __future__ import annotations

import math
import re
from typing import Final

import orjson
from mq_shards.gateway.pulsar.refusals import RefusedError

LIMIT: Final = 1 << 63
_DIGITS: Final = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)
_NOTHING: Final = ("", "null")
_FLAGS: Final = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}


def whole(given: object, what: str) -> int:
    """A whole number, of magnitude below 2^63. Raises RefusedError."""
    found = _number(given)
    if found is None or not abs(found) < LIMIT:
        raise RefusedError(400, "MetadataError", f"{what} is not a whole number")
    return int(found)


def decimal(given: object, what: str) -> float:
    """A finite number. Raises RefusedError."""
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
    """True or false. Raises RefusedError."""
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


def strings(given: object) -> dict[str, str]:
    """An object of strings; null is an empty one. Numbers and flags are strings too. Raises RefusedError."""
    if given is None or given == "":
        return {}
    if not isinstance(given, dict) or not all(isinstance(value, str | int | float) for value in given.values()):
        raise RefusedError(400, "MetadataError", "the body is not an object of strings")
    return {name: value if isinstance(value, str) else orjson.dumps(value).decode() for name, value in given.items()}


def _number(given: object) -> int | float | None:
    """None: not a number, nor a string of digits."""
    if given is None:
        return 0
    if isinstance(given, str):
        text = given.strip()
        if text in _NOTHING:
            return 0
        return int(text) if _DIGITS.fullmatch(text) else None
    return given if isinstance(given, int | float) and not isinstance(given, bool) else None
