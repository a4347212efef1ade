"""Makes Spark yield to other programs on the broker's machine: its JVM, and the processes that the JVM starts.

nice(1) alone does not do this. By default the kernel groups processes by session (sched(7), autogroup), and ranks a
process only among those of its own session; sessions share the processors evenly, however nice their processes are. So
the JVM begins a session of its own, which is made as nice.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final

NICENESS: Final = 10  # of jobs, unless they are told otherwise
BUSY: Final = 2.0  # as many programs that want to run for each processor: of little that is left, a job gets little
AUTOGROUP: Final = Path("/proc/self/autogroup")


def be_nice(niceness: int) -> None:
    """Makes this process, and those that it starts, so nice; calling it again makes it no nicer."""
    os.nice(max(0, niceness - os.nice(0)))


def told_if_busy(niceness: int, load: float, processors: int) -> str:
    """Returns a line for who waits for a job that hardly gets on; "" on a machine that has room."""
    if niceness <= 0 or load < BUSY * processors:
        return ""
    return (
        f"mq-pipeline: the load is {load:.0f} on {processors} processors, and this job stands back behind other "
        "programs (--nice 0 gives it its share)"
    )


def begin_nice_session() -> None:
    """Called in a process that was forked a moment ago, and has its parent's niceness."""
    if (niceness := os.nice(0)) > 0:
        os.setsid()
        # Without autogroups there is no such file; the kernel also refuses it where others have just changed theirs.
        with contextlib.suppress(OSError):
            AUTOGROUP.write_text(str(niceness))
