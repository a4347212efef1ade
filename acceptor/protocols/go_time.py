"""Times as Go writes them in JSON."""

from __future__ import annotations

import time

from mq_shards.ringbuf.time_units import SECOND_NS


def instant(wall_ns: int) -> str:
    """The time in UTC, to the nanosecond, without trailing zeros.

    >>> instant(1_500_000_000)
    '1970-01-01T00:00:01.5Z'
    """
    seconds, rest = divmod(wall_ns, SECOND_NS)
    fraction = f".{rest:09d}".rstrip("0") if rest else ""
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + fraction + "Z"
