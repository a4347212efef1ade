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
AUTOGROUP: Final = Path("/proc/self/autogroup")


def be_nice(niceness: int) -> None:
    """Makes this process, and those that it starts, so nice; calling it again makes it no nicer."""
    os.nice(max(0, niceness - os.nice(0)))


def begin_nice_session() -> None:
    """Called in a process that was forked a moment ago, and has its parent's niceness."""
    if (niceness := os.nice(0)) > 0:
        os.setsid()
        # Without autogroups there is no such file; the kernel also refuses it where others have just changed theirs.
        with contextlib.suppress(OSError):
            AUTOGROUP.write_text(str(niceness))
