"""Whether a worker may have as many file descriptors as its shards need: with fewer it would serve only some of its
shards, and die as soon as it needs one more.

Of each segment in memory the supervisor has a descriptor too (supervisor/kept.py), so a worker has a share of those.
"""

from __future__ import annotations

import errno
import resource
import sys
from pathlib import Path
from typing import Final

from mq_shards.shards.store_error import StoreError

OF_A_SEGMENT: Final = 2  # its log, and the copies of its names
NEEDED_OF_A_SHARD: Final = 2  # a segment in memory, and the next one
SPARE: Final = 16  # for files that are opened for a while


class Share:
    """How many segments in memory a worker may have at once, and how many it has."""

    def __init__(self, most: int = sys.maxsize) -> None:
        self.most = most
        self.taken = 0

    def take(self) -> None:
        """Counts one more. Raises StoreError, as for a full disk, if that is too many."""
        if self.taken >= self.most:
            raise StoreError(
                f"it has {self.taken} segments in memory, which is its share of the supervisor's file descriptors: "
                "raise the limit (LimitNOFILE=, ulimit -n)",
                errno.ENOSPC,
            )
        self.taken += 1

    def give(self) -> None:
        self.taken -= 1

    def check(self, shards: int) -> None:
        """Whether each of so many shards can have a segment and the next one. Raises StoreError."""
        if self.most < NEEDED_OF_A_SHARD * shards:
            raise StoreError(
                f"its {shards} shards need {NEEDED_OF_A_SHARD * shards} file descriptors of the supervisor's, and it "
                f"may have {self.most} of them: raise the limit (LimitNOFILE=, ulimit -n)"
            )


def check_descriptors(shards: int, missing_segments: int) -> None:
    """To be called after recovery, before `missing_segments` shards get their first segments. Raises StoreError."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    needed = len(list(Path("/proc/self/fd").iterdir())) + OF_A_SEGMENT * missing_segments + SPARE
    if most != resource.RLIM_INFINITY and needed > most:
        raise StoreError(
            f"its {shards} shards need {needed} file descriptors, and it may have {most}: "
            "raise the limit (LimitNOFILE=, ulimit -n), or have more workers"
        )
