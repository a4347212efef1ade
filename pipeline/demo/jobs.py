"""Jobs of mq-pipeline one after the other, in one process: `python -m mq_shards.pipeline.demo.jobs JSON`, with a list
of arguments for each job.

They share a JVM: a second job finds its classes loaded and compiled. SIGINT ends a job and begins the next one;
SIGTERM, or an error, ends all.
"""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Final

from mq_shards.pipeline.command import main

DONE: Final = (0, 128 + signal.SIGINT)


def run_in_turn(jobs: Sequence[Sequence[str]], run: Callable[[Sequence[str]], int] = main) -> int:
    """Returns the exit status of the first job that failed or was told to end, or 0."""
    for job in jobs:
        if (status := run(job)) not in DONE:
            return status
    return 0


if __name__ == "__main__":
    sys.exit(run_in_turn(json.loads(sys.argv[1])))
