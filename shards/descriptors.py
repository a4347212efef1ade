"""Whether a worker may have as many file descriptors as its shards need: one without would serve some of them only, and
end as soon as it wants another."""

from __future__ import annotations

import resource
from pathlib import Path
from typing import Final

from mq_shards.shards.store import StoreError

OF_A_SEGMENT: Final = 2  # its log, and the copies of its names
SPARE: Final = 16  # for files that are opened for a while


def check_descriptors(shards: int, missing_segments: int) -> None:
    """Behind recovery, before `missing_segments` are made that a log cannot begin without. Raises StoreError."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    needed = len(list(Path("/proc/self/fd").iterdir())) + OF_A_SEGMENT * missing_segments + SPARE
    if most != resource.RLIM_INFINITY and needed > most:
        raise StoreError(
            f"its {shards} shards need {needed} file descriptors, and it may have {most}: "
            "raise the limit (LimitNOFILE=, ulimit -n), or have more workers"
        )
