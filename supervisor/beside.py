"""Does something in a process of its own, while this one goes on."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from typing import NoReturn

from mq_shards.supervisor.child import SUPERVISOR_SIGNALS, die_with


@contextlib.contextmanager
def beside(work: Callable[[], object]) -> Iterator[None]:
    """Forks a process that does `work` while the block runs, and waits for it at the end of the block. Whether it could
    is not said, nor why not: what needs the work looks, and does it itself. Only for a process of one thread."""
    supervisor = os.getpid()
    # It must not tell this process of signals that it gets.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SUPERVISOR_SIGNALS)
    pid = 0
    try:
        with contextlib.suppress(OSError):  # processes or memory are short
            pid = os.fork()
            if pid == 0:
                _work(work, supervisor)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    try:
        yield
    finally:
        if pid:
            os.waitpid(pid, 0)


def _work(work: Callable[[], object], supervisor: int) -> NoReturn:
    try:
        die_with(supervisor)
        work()
    finally:
        os._exit(0)
