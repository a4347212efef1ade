"""A namespace's bundles: ranges of a topic's hash. There is one owner of all, so they only choose topics."""

from __future__ import annotations

import itertools
import zlib
from bisect import bisect
from collections.abc import Sequence
from typing import Final

from mq_shards.gateway.pulsar.refusals import precondition
from mq_shards.gateway.turns import in_pieces

# As many as a standalone makes.
BOUNDARIES: Final = ("0x00000000", "0x40000000", "0x80000000", "0xc0000000", "0xffffffff")
BUNDLES: Final = {"boundaries": list(BOUNDARIES), "numBundles": len(BOUNDARIES) - 1}
BUNDLE_NAMES: Final = tuple(f"{low}_{high}" for low, high in itertools.pairwise(BOUNDARIES))
_BORDERS: Final = tuple(int(text, 16) for text in BOUNDARIES[1:-1])  # each begins another bundle


def bundle_of(topic: str) -> str:
    """The bundle of a topic with this whole name."""
    return BUNDLE_NAMES[bisect(_BORDERS, zlib.crc32(topic.encode()))]


async def in_bundle(namespace: str, bundle: str, topics: Sequence[str]) -> list[str]:
    """Those of the topics that are in the bundle. Raises RefusedError if the namespace has no such bundle."""
    low, _, high = bundle.partition("_")
    upper = dict(itertools.pairwise(BOUNDARIES)).get(low)
    if upper is None:
        raise precondition(f"Invalid lower boundary for bundle {namespace}/{bundle}")
    if upper != high:
        expected = f"Expected upper boundary of {namespace}/{low}_{upper}"
        raise precondition(f"Invalid upper boundary for bundle {namespace}/{bundle}. {expected}")
    return [topic async for piece in in_pieces(topics) for topic in piece if bundle_of(topic) == bundle]
