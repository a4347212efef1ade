"""Compression of routes: the modes, and how two servers agree on them.

The accepting side sends INFO with its configured mode. The connecting side answers with the mode that results, and both
compress from then on. Each side has a mode of its own, for what it sends.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from mq_shards.acceptor.option_kinds import MS, Kind, Text, TextList, parse_duration

NOT_SUPPORTED: Final = "not supported"
OFF: Final = "off"
ACCEPT: Final = "accept"
AUTO: Final = "s2_auto"
UNCOMPRESSED: Final = "s2_uncompressed"
FAST: Final = "s2_fast"
BETTER: Final = "s2_better"
BEST: Final = "s2_best"

# The levels of s2_auto by round-trip time, each up to its threshold; the last one above the last threshold.
LEVELS: Final = (UNCOMPRESSED, FAST, BETTER, BEST)
THRESHOLDS_NS: Final = (10 * MS, 50 * MS, 100 * MS)
MAX_THRESHOLDS: Final = 4

# Names of modes in nats-server's configuration file.
NAMES: Final[Mapping[str, str]] = {
    **dict.fromkeys((NOT_SUPPORTED, "not_supported"), NOT_SUPPORTED),
    **dict.fromkeys((OFF, "disabled", "false"), OFF),
    ACCEPT: ACCEPT,
    **dict.fromkeys((AUTO, "auto"), AUTO),
    **dict.fromkeys((FAST, "fast", "on", "enabled", "true"), FAST),
    **dict.fromkeys((BETTER, "better"), BETTER),
    **dict.fromkeys((BEST, "best"), BEST),
}

RTT_OPTION: Final = TextList(
    "how long an answer takes at most where s2_auto does not compress, is fast, better, best (10ms, 50ms, 100ms)",
    "a duration", lambda text: parse_duration(text) is not None,
)  # fmt: skip
OPTIONS: Final[Mapping[str, Kind]] = {
    "cluster-compression": Text(
        ACCEPT, "of what is sent to other servers", "accept, off, s2_auto, s2_fast, s2_better or s2_best",
        lambda text: text.lower() in NAMES, "if the other server wants it",
    ),
    "cluster-compression-rtt": RTT_OPTION,
}  # fmt: skip
LEAF_OPTIONS: Final[Mapping[str, Kind]] = {
    "leaf-compression": Text(
        AUTO, "of what is sent to leaf nodes, and to hubs of leaf-remotes",
        "accept, off, s2_auto, s2_fast, s2_better or s2_best",
        lambda text: text.lower() in NAMES, "by how long an answer takes",
    ),
    "leaf-compression-rtt": RTT_OPTION,
}  # fmt: skip


def mode_of(settings: Mapping[str, Any], prefix: str = "cluster-") -> str:
    return NAMES[settings[f"{prefix}compression"].lower()]


def level_of(mode: str) -> int:
    """The level for Engine.compress(): enum s2_level, csrc/base/s2.h."""
    return LEVELS.index(mode)


def thresholds_of(settings: Mapping[str, Any], prefix: str = "cluster-") -> tuple[int, ...]:
    """Thresholds in ns; 0: that level is not used. Raises ValueError, with a message of one line."""
    return thresholds([parse_duration(text) or 0 for text in settings[f"{prefix}compression-rtt"]], prefix)


def thresholds(durations_ns: Sequence[int], prefix: str) -> tuple[int, ...]:
    """Checks thresholds. Raises ValueError, with a message of one line."""
    found = [max(duration, 0) for duration in durations_ns]
    if not found:
        return THRESHOLDS_NS
    set_ones = [one for one in found if one]
    if set_ones != sorted(set_ones):
        raise ValueError(f"nats.{prefix}compression-rtt: they are to rise")
    while found and not found[-1]:
        found.pop()
    if not 0 < len(found) <= MAX_THRESHOLDS:
        raise ValueError(f"nats.{prefix}compression-rtt: it is 1 to {MAX_THRESHOLDS} durations, not all of them 0")
    return tuple(found)


def is_negotiated(mode: str) -> bool:
    return mode not in (OFF, NOT_SUPPORTED)


def select(ours: str, theirs: str) -> str:
    """The mode that this side uses after both have named theirs; `ours` is a negotiated one. Raises ValueError.

    >>> select("accept", "accept"), select("accept", "s2_auto"), select("s2_best", "accept"), select("s2_fast", "")
    ('off', 's2_fast', 's2_best', 'not supported')
    """
    if theirs in ("", NOT_SUPPORTED):
        return NOT_SUPPORTED
    if theirs == OFF:
        return OFF
    if theirs not in (ACCEPT, AUTO, *LEVELS):
        raise ValueError(f'unsupported route compression mode "{theirs}"')
    if ours != ACCEPT:
        return ours
    return {ACCEPT: OFF, AUTO: FAST}.get(theirs, theirs)


def by_rtt(rtt_ns: int, thresholds: Sequence[int]) -> str:
    """
    >>> [by_rtt(ms * MS, THRESHOLDS_NS) for ms in (0, 10, 11, 99, 101)]
    ['s2_uncompressed', 's2_uncompressed', 's2_fast', 's2_better', 's2_best']
    >>> by_rtt(1, (0, 0, 20 * MS)), by_rtt(1 << 60, (10 * MS, 20 * MS))
    ('s2_better', 's2_fast')
    """
    for level, threshold in zip(LEVELS, thresholds, strict=False):
        if rtt_ns <= threshold:
            return level
    return BEST if len(thresholds) >= len(LEVELS) - 1 else LEVELS[len(thresholds) - 1]
