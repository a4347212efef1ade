"""Where the files of a data directory are.

DIR/meta.json                       what was fixed when it was made (meta.py)
DIR/lock                            locked by the broker that uses the directory
DIR/shard-0007/0000000001.log       segments of shard 7; the layout of one is in csrc/log/log.h
DIR/shard-0007/0000000001.names     copies of the names in it; csrc/log/copies.h
DIR/shard-0007/0000000001.heads     what a start reads instead of it; csrc/log/heads.h
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

META: Final = "meta.json"
META_NEW: Final = "meta.json.new"
LOCK: Final = "lock"
SEGMENT_NAME: Final = re.compile(r"(\d{10})\.log")
SHARD_NAME: Final = re.compile(r"shard-\d{4}")
COPIES_NAME: Final = re.compile(r"\d{10}\.names")
HEADS_NAME: Final = re.compile(r"(\d{10})\.heads(\.new)?")
BESIDE: Final = ".beside"  # suffix of a segment that is about to be put back under its own name,
BACK: Final = ".back"  # and of one that is being put back
# What a shard's folder may hold: .torn and .odd were put aside, .index is the readers'.
KNOWN_NAME: Final = re.compile(
    r"\d{10}\.(log(\.new)?|names|(index|heads)(\.new)?|torn|odd\d*)|manifest\.(json(\.new)?|(json\.)?odd\d*)"
)


def shard_path(directory: Path, shard: int) -> Path:
    return directory / f"shard-{shard:04d}"


def segment_name(segment: int) -> str:
    return f"{segment:010d}.log"


def copies_name(segment: int) -> str:
    return f"{segment:010d}.names"


def heads_name(segment: int) -> str:
    return f"{segment:010d}.heads"
