"""One child process: how it is started, what it must be before its own code runs, and how it ends.

A Child is a place (acceptor 2, worker 0) that a succession of processes fills; its eventfd belongs to the place, so
that those who wake it need not know that it was restarted.

A process is forked from the supervisor, which has one thread and has loaded what its children have in common: so they
share that memory, and begin at once. Of the supervisor's descriptors a child keeps its control socket and stderr. It
never returns into the supervisor's frames, and so never ends what these own.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import logging
import os
import resource
import signal
import sys
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NoReturn

from mq_shards.csrc._core import lib
from mq_shards.ringbuf.control import Control, ControlError, Message
from mq_shards.supervisor import journal

MAX_DEATHS: Final = 64  # that are remembered
# The supervisor alone decides what these mean. A terminal and systemd send them to every process of the group.
SUPERVISOR_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP)

log = logging.getLogger(__name__)


def name_process(name: str) -> None:
    """What ps and top show (at most 15 bytes)."""
    lib.process_name(name.encode())


def die_with(supervisor: int) -> None:
    """The kernel kills this process when its parent, `supervisor`, ends, however that ends."""
    lib.process_dies_with_parent()
    if os.getppid() != supervisor:  # it ended before the kernel knew
        os._exit(1)


def raise_descriptor_limit() -> None:
    """As many descriptors as we may have: a connection is one, and so is a segment. Children inherit it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


class Child:
    def __init__(self, role: str, index: int, entry: str, title: str | None = None, *, shared: bool = False) -> None:
        """`entry` is the dotted name of a function that takes a Control and returns when told to stop; what it needs
        is loaded in the supervisor, for several to share, or in the process itself."""
        self.role: Final = role
        self.index: Final = index
        self.title: Final = title or f"mq-{role}-{index}"
        self.wake_fd: Final = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self.control: Control | None = None
        self.serving = False  # has said that it is ready, or has recovered
        self.started_at = 0.0
        self.deaths: deque[float] = deque(maxlen=MAX_DEATHS)  # when, of late
        self.restart_at: float | None = None
        self.kill_at: float | None = None
        self.was_killed = False  # the last one, by SIGKILL: not of itself
        self._entry = entry
        self._shared = shared
        self._pid = 0
        self._pidfd = -1

    @property
    def alive(self) -> bool:
        """There is a process that has not been reaped."""
        return self._pid != 0

    @property
    def pid(self) -> int:
        return self._pid

    @property
    def sentinel(self) -> int:
        """A descriptor that becomes readable when the process ends."""
        assert self._pidfd >= 0
        return self._pidfd

    def start(self, log_level: str, log_json: bool) -> None:
        assert not self.alive
        self.restart_at = None
        self.serving = False
        if self._shared:
            with contextlib.suppress(Exception):  # what is wrong with it the process says, and dies of
                _load(self._entry)
        supervisor = os.getpid()
        self.control, theirs = Control.pair()
        # Blocked until the child has said that it ignores them, or a ^C would end it half started.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, SUPERVISOR_SIGNALS)
        try:
            pid = os.fork()
            if pid == 0:
                _run(self._entry, theirs, self.title, log_level, log_json, supervisor)
            self._pid = pid
            self._pidfd = os.pidfd_open(pid)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            theirs.close()

    def send(self, message: Message, fds: Sequence[int] = ()) -> None:
        """To a process that is gone: nothing. One that does not read its messages is killed."""
        if self.control is None:
            return
        try:
            # A process that has just died is noticed through its sentinel.
            with contextlib.suppress(BrokenPipeError, ConnectionError):
                self.control.send(message, fds)
        except ControlError as error:
            log.error("%s (pid %d): %s; killing it", self.title, self.pid, error)
            self.kill()

    def kill(self) -> None:
        if self.alive:
            os.kill(self._pid, signal.SIGKILL)  # it has not been reaped, so the number is still its own

    def close_control(self) -> None:
        if self.control is not None:
            self.control.close()
            self.control = None

    def reap(self) -> str:
        """Waits for the end of the process and says how it ended; "" if as it should."""
        assert self.alive
        _, waited = os.waitpid(self._pid, 0)
        status = os.waitstatus_to_exitcode(waited)
        os.close(self._pidfd)
        self._pid, self._pidfd = 0, -1
        self.serving = False
        self.kill_at = None
        self.close_control()
        self.was_killed = status == -signal.SIGKILL
        if status < 0:
            return f"was killed by {signal.Signals(-status).name}"
        return f"ended with status {status}" if status else ""

    def close(self) -> None:
        os.close(self.wake_fd)


def _run(entry: str, control: Control, title: str, log_level: str, log_json: bool, supervisor: int) -> NoReturn:
    """The first code of ours in a new process, and the last."""
    status = 1
    try:
        status = _live(entry, control, title, log_level, log_json, supervisor)
    finally:
        with contextlib.suppress(Exception):
            sys.stderr.flush()
        os._exit(status)


def _live(entry: str, control: Control, title: str, log_level: str, log_json: bool, supervisor: int) -> int:
    """The exit status."""
    name_process(title)
    die_with(supervisor)
    _close_what_is_the_supervisors(control.fileno())
    signal.set_wakeup_fd(-1)
    for number in SUPERVISOR_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SUPERVISOR_SIGNALS)
    gc.freeze()  # nothing of it is looked at, and so copied, any more
    journal.configure(log_level, log_json, title)
    try:
        _load(entry)(control)
    except EOFError:
        return 1  # the supervisor is gone
    except Exception:
        log.exception("ends because of an unexpected error")
        return 1
    return 0


def _close_what_is_the_supervisors(kept: int) -> None:
    """All but the standard ones and `kept`. The objects that own them are never freed here: see above."""
    os.closerange(3, kept)
    os.closerange(kept + 1, resource.getrlimit(resource.RLIMIT_NOFILE)[1])


def _load(entry: str) -> Callable[[Control], None]:
    module, _, function = entry.rpartition(".")
    found: Callable[[Control], None] = getattr(importlib.import_module(module), function)
    return found
