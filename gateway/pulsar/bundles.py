"""A namespace's bundles: ranges of a topic's hash. There is one owner of all, so they only choose topics."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Iterable
from typing import Final

from mq_shards.gateway.pulsar.refusals import precondition

# As many as a standalone makes.
BOUNDARIES: Final = ("0x00000000", "0x40000000", "0x80000000", "0xc0000000", "0xffffffff")
BUNDLES: Final = {"boundaries": list(BOUNDARIES), "numBundles": len(BOUNDARIES) - 1}


def bundle_of(topic: str) -> str:
    """The bundle of a topic with this whole name."""
    hashed = zlib.crc32(topic.encode())
    ranges = list(itertools.pairwise(BOUNDARIES))
    low, high = next((pair for pair in ranges if hashed < int(pair[1], 16)), ranges[-1])
    return f"{low}_{high}"


def in_bundle(namespace: str, bundle: str, topics: Iterable[str]) -> list[str]:
    """Those of the topics that are in the bundle. Raises RefusedError if the namespace has no such bundle."""
    low, _, high = bundle.partition("_")
    upper = dict(itertools.pairwise(BOUNDARIES)).get(low)
    if upper is None:
        raise precondition(f"Invalid lower boundary for bundle {namespace}/{bundle}")
    if upper != high:
        expected = f"Expected upper boundary of {namespace}/{low}_{upper}"
        raise precondition(f"Invalid upper boundary for bundle {namespace}/{bundle}. {expected}")
    return [topic for topic in topics if bundle_of(topic) == bundle]
