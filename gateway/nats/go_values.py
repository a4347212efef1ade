"""Values as Go's libraries read them in queries, and write them in answers of monitoring."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import orjson
from mq_shards.acceptor.protocols.go_quote import quoted
from mq_shards.acceptor.protocols.go_time import instant as instant
from mq_shards.ringbuf.time_units import SECOND_NS

_BOOLEANS: Final = {
    **dict.fromkeys(("1", "t", "T", "TRUE", "true", "True"), True),
    **dict.fromkeys(("0", "f", "F", "FALSE", "false", "False"), False),
}
_UNITS: Final = ((1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "µs"))


class ParameterError(ValueError):
    """A parameter that cannot be read; the text is Go's."""


def boolean(fields: dict[str, str], name: str) -> bool:
    text = fields.get(name, "")
    if not text:
        return False
    if text not in _BOOLEANS:
        why = f"strconv.ParseBool: parsing {quoted(text.encode())}: invalid syntax"
        raise ParameterError(f"Error decoding boolean for '{name}': {why}")
    return _BOOLEANS[text]


def integer(fields: dict[str, str], name: str, *, unsigned: bool = False) -> int:
    text = fields.get(name, "")
    if not text:
        return 0
    kind, function = ("uint64", "ParseUint") if unsigned else ("int", "Atoi")
    if re.fullmatch(r"[0-9]{1,20}" if unsigned else r"[-+]?[0-9]{1,20}", text) is None:
        why = f"strconv.{function}: parsing {quoted(text.encode())}: invalid syntax"
        raise ParameterError(f"Error decoding {kind} for '{name}': {why}")
    value = int(text)
    if not (0 <= value < 1 << 64 if unsigned else -(1 << 63) <= value < 1 << 63):
        why = f"strconv.{function}: parsing {quoted(text.encode())}: value out of range"
        raise ParameterError(f"Error decoding {kind} for '{name}': {why}")
    return value


def dumps(value: Mapping[str, Any], *, indented: bool) -> bytes:
    """JSON in which <, > and & are escaped as Go does, so that it is safe inside HTML."""
    data = orjson.dumps(value, option=orjson.OPT_INDENT_2 if indented else 0)
    return data.replace(b"<", b"\\u003c").replace(b">", b"\\u003e").replace(b"&", b"\\u0026")


def written(value: Any) -> Any:  # noqa: ANN401
    """A value with its numbers as Go writes them: without a fraction of 0."""
    if isinstance(value, dict):
        return {name: written(one) for name, one in value.items()}
    return int(value) if isinstance(value, float) and value.is_integer() else value


def uptime(ns: int) -> str:
    """
    >>> uptime(90_061 * SECOND_NS)
    '1d1h1m1s'
    """
    seconds = max(ns, 0) // SECOND_NS
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    parts = [(days // 365, "y"), (days % 365 if days >= 365 else days, "d"), (hours % 24, "h"), (minutes % 60, "m")]
    while parts and parts[0][0] == 0:
        parts.pop(0)
    return "".join(f"{count}{unit}" for count, unit in parts) + f"{seconds % 60}s"


def duration(ns: int) -> str:
    """A duration as Go's time.Duration prints it.

    >>> duration(1_500_000), duration(437_000), duration(61 * SECOND_NS)
    ('1.5ms', '437µs', '1m1s')
    """
    if ns == 0:
        return "0s"
    if ns >= 60 * SECOND_NS:
        minutes, rest = divmod(ns, 60 * SECOND_NS)
        hours, minutes = divmod(minutes, 60)
        return (f"{hours}h" if hours else "") + f"{minutes}m" + _with_fraction(rest, SECOND_NS, "s")
    for size, unit in _UNITS:
        if ns >= size:
            return _with_fraction(ns, size, unit)
    return f"{ns}ns"


def _with_fraction(ns: int, size: int, unit: str) -> str:
    whole, rest = divmod(ns, size)
    digits = len(str(size)) - 1
    fraction = f".{rest:0{digits}d}".rstrip("0") if rest else ""
    return f"{whole}{fraction}{unit}"


def round_trip(ns: int) -> str:
    """A round-trip time as monitoring shows it: in whole microseconds below a millisecond."""
    return duration(ns // 1000 * 1000 if 1000 < ns < 1_000_000 else ns)
