"""More of admin_scenes.py: bundles, and what a standalone keeps and shows of clusters and brokers."""

from __future__ import annotations

from typing import Any, Final

Step = tuple[str, str] | tuple[str, str, Any]

N: Final = "namespaces/public"
BUNDLES: Final[tuple[Any, ...]] = (
    {"numBundles": 4}, {"numBundles": 16}, {"numBundles": 1}, {"numBundles": 0}, {"numBundles": -1}, {"numBundles": 3},
    {"numBundles": "8"}, {"numBundles": 8.9}, None, {},
    {"boundaries": ["0x00000000", "0x80000000", "0xffffffff"], "numBundles": 2},
    {"boundaries": ["0x00000000", "0x80000000", "0xffffffff"]},
    {"boundaries": ["0x00000000", "0x80000000", "0xffffffff"], "numBundles": 7},
    {"boundaries": ["0x10000000", "0x80000000", "0xffffffff"], "numBundles": 2},
    {"boundaries": ["0xffffffff", "0x80000000", "0x00000000"], "numBundles": 2},
    {"boundaries": [], "numBundles": 2},
)  # fmt: skip


def _made() -> list[Step]:
    found: list[Step] = []
    for i, bundles in enumerate(BUNDLES):
        path = f"{N}/ranges{i}"
        found += [("PUT", path, {"bundles": bundles}), ("GET", f"{path}/bundles"), ("DELETE", path)]
    return found


def _split(what: str) -> list[Step]:
    return [("PUT", f"{N}/split/{what}"), ("GET", f"{N}/split/bundles")]


SCENES: Final[dict[str, list[Step]]] = {
    "bundles": _made(),
    "splitting": [
        ("PUT", f"{N}/split", {"bundles": {"numBundles": 2}}),
        *_split("0x00000000_0x80000000/split"),
        *_split("0x00000000_0x80000000/split"),
        *_split("0x00000000_0x40000000/split?unload=true"),
        *_split("0x80000000_0xffffffff/split?splitAlgorithmName=range_equally_divide"),
        *_split("0x20000000_0x40000000/split?splitAlgorithmName=nonsense"),
        *_split("0x20000000_0x40000000/split?splitAlgorithmName=topic_count_equally_divide"),
        *_split("0x20000000_0x40000000/split?splitAlgorithmName=specified_positions_divide"),
        *_split("junk/split"),
        *_split("0x80000000_0x00000000/split"),
        *_split("0_0x20000000/split"),
        ("PUT", f"{N}/nosplit/0x00000000_0x20000000/split"),
        ("DELETE", f"{N}/split/0x00000000_0x30000000"),
        ("DELETE", f"{N}/split/junk"),
        ("DELETE", f"{N}/nosplit/0x00000000_0x20000000"),
        ("GET", f"{N}/split/junk/topicHashPositions"),
        ("GET", f"{N}/nosplit/junk/topicHashPositions"),
        ("DELETE", f"{N}/split"),
    ],
    "splitting by topics": [
        ("PUT", f"{N}/counted", {"bundles": {"numBundles": 1}}),
        *(("PUT", f"persistent/public/counted/t{i}") for i in range(6)),
        ("PUT", f"{N}/counted/LARGEST/split?splitAlgorithmName=specified_positions_divide", [0x80000000, 0x60000000]),
        ("GET", f"{N}/counted/bundles"),
        ("GET", "/lookup/v2/topic/persistent/public/counted/t1/bundle"),
        ("GET", "/lookup/v2/topic/persistent/public/counted/t2/bundle"),
        ("GET", "/lookup/v2/topic/persistent/public/counted/t3/bundle"),
        ("GET", "persistent/public/counted?bundle=0x80000000_0xffffffff"),
        ("GET", "persistent/public/counted?bundle=0x80000000"),
        ("DELETE", f"{N}/counted/0x80000000_0xffffffff"),
        *(("DELETE", f"persistent/public/counted/t{i}") for i in range(6)),
        ("DELETE", f"{N}/counted"),
    ],
}
