"""A namespace's bundles: ranges of a topic's hash, kept with its policies. There is one owner of all, so they only
choose topics."""

from __future__ import annotations

import itertools
import zlib
from bisect import bisect_right
from collections.abc import Sequence
from typing import Any, Final, TypeAlias

from mq_shards.gateway.pulsar import scalars
from mq_shards.gateway.pulsar.catalog import Json
from mq_shards.gateway.pulsar.refusals import RefusedError, precondition, too_many
from mq_shards.gateway.turns import in_pieces

# Where bundles begin, and the end of the last.
Boundaries: TypeAlias = tuple[int, ...]

KEY: Final = "bundles"
END: Final = 0xFFFFFFFF
MAX_BUNDLES: Final = 4096


def evenly(count: int) -> Boundaries:
    return (*(i * ((END + 1) // count) for i in range(count)), END)


DEFAULT: Final = evenly(4)  # as a standalone has


def boundaries_of(policies: Json) -> Boundaries:
    found = policies.get(KEY)
    return DEFAULT if found is None else tuple(int(text, 16) for text in found["boundaries"])


def shown(boundaries: Boundaries) -> Json:
    return {"boundaries": [f"0x{one:08x}" for one in boundaries], "numBundles": len(boundaries) - 1}


def range_of(low: int, high: int) -> str:
    return f"0x{low:08x}_0x{high:08x}"


def names_of(boundaries: Boundaries) -> list[str]:
    return [range_of(low, high) for low, high in itertools.pairwise(boundaries)]


def hash_of(topic: str) -> int:
    """Of the whole name."""
    return zlib.crc32(topic.encode())


def bundle_of(boundaries: Boundaries, topic: str) -> str:
    """The bundle of a topic with this whole name."""
    at = bisect_right(boundaries, hash_of(topic), 1, len(boundaries) - 1)
    return range_of(boundaries[at - 1], boundaries[at])


def given(wanted: Any, default: int) -> Json | None:  # noqa: ANN401
    """The bundles with which a namespace is made; None: the usual ones. `default`: how many, if it is not said."""
    if wanted is not None and not isinstance(wanted, dict):
        raise RefusedError(400, "MetadataError", "bundles are an object")
    count = scalars.whole((wanted or {}).get("numBundles"), "numBundles")
    if count <= 0:
        return None if default == len(DEFAULT) - 1 else shown(evenly(default))
    texts = (wanted or {}).get("boundaries") or []
    if not isinstance(texts, list):
        raise RefusedError(400, "MetadataError", "boundaries are a list")
    found = tuple(sorted({_decoded(text) for text in texts}))
    if max(count, len(found) - 1) > MAX_BUNDLES:
        raise too_many(f"a namespace has {MAX_BUNDLES} bundles at most")
    if not found:
        return shown(evenly(count))
    if (found[0], found[-1]) != (0, END):
        why = f"Input bundles do not cover the whole hash range. first:0x{found[0]:08x}, last:0x{found[-1]:08x}"
        raise RefusedError(400, "MetadataError", why)
    return shown(found)


def _decoded(text: object) -> int:
    try:
        found = int(text, 16 if text.startswith("0x") else 10) if isinstance(text, str) else -1
    except ValueError:
        found = -1
    if not 0 <= found <= END:
        raise RefusedError(400, "MetadataError", "a boundary is a number of 32 bits")
    return found


def checked(namespace: str, boundaries: Boundaries, bundle: str) -> tuple[int, int]:
    """The range that a bundle's name says. Raises RefusedError if the namespace has no such bundle."""
    if "_" not in bundle:
        raise precondition(f"Invalid bundle range: {bundle}")
    try:
        low, high = (int(text, 16) for text in bundle.split("_")[:2])
    except ValueError:
        raise precondition(f"Invalid bundle range: {bundle}") from None
    if low > high:
        raise precondition(f"Invalid range: [{low}..{high})")
    upper = dict(itertools.pairwise(boundaries)).get(low)
    named = f"{namespace}/{range_of(low, high)}"
    if upper is None:
        raise precondition(f"Cannot find bundle {named} in the bundles list")
    if upper != high:
        expected = f"Expected upper boundary of {namespace}/{range_of(low, upper)}"
        raise precondition(f"Invalid upper boundary for bundle {named}. {expected}")
    return low, high


async def in_range(low: int, high: int, topics: Sequence[str]) -> list[str]:
    """Those of the topics that are in this range, in which END is."""
    last = high if high == END else high - 1
    return [topic async for piece in in_pieces(topics) for topic in piece if low <= hash_of(topic) <= last]
