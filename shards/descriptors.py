"""Whether a worker may have as many file descriptors as its shards need: with fewer it would serve only some of its
shards, and die as soon as it needs one more."""

from __future__ import annotations

import resource
from pathlib import Path
from typing import Final

from mq_shards.shards.store import StoreError

OF_A_SEGMENT: Final = 2  # its log, and the copies of its names
SPARE: Final = 16  # for files that are opened for a while


def check_descriptors(shards: int, missing_segments: int) -> None:
    """To be called after recovery, before `missing_segments` shards get their first segments. Raises StoreError."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    needed = len(list(Path("/proc/self/fd").iterdir())) + OF_A_SEGMENT * missing_segments + SPARE
    if most != resource.RLIM_INFINITY and needed > most:
        raise StoreError(
            f"its {shards} shards need {needed} file descriptors, and it may have {most}: "
            "raise the limit (LimitNOFILE=, ulimit -n), or have more workers"
        )
