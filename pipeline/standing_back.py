"""Spark on the machine that the broker runs on: its JVM, and what that starts, come behind other programs.

nice(1) alone does not see to it. Where the kernel groups processes by session (sched(7), autogroup), as it does by
default, it ranks a process only among those of its own session; sessions share the processors evenly, however nice
their processes are. So the JVM begins a session, and that is as nice.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final

AUTOGROUP: Final = Path("/proc/self/autogroup")


def be_nice(niceness: int) -> None:
    """This process, and what it begins. One that is asked again is no nicer."""
    os.nice(max(0, niceness - os.nice(0)))


def begin_nice_session() -> None:
    """In a process that was forked a moment ago, which has its niceness from who did so."""
    if (niceness := os.nice(0)) > 0:
        os.setsid()
        # Without autogroups there is no such file; the kernel also refuses where others have just changed theirs.
        with contextlib.suppress(OSError):
            AUTOGROUP.write_text(str(niceness))
