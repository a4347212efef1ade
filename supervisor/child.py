"""One child process: how it is started, what it must be before its own code runs, and how it ends.

A Child is a place (acceptor 2, worker 0) that one process after another fills. The eventfd belongs to the place, so
the processes that wake it need not know that it was restarted.

A process is forked from the supervisor, which has one thread and has loaded the modules that its children share: so
they share that memory, and start at once. Of the supervisor's descriptors a child keeps its control socket, stdin,
stdout and stderr. It never returns into the supervisor's frames, so it never closes or removes what these own.
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
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NoReturn

from mq_shards.csrc._core import lib
from mq_shards.ringbuf.control import Control, ControlError, Message
from mq_shards.supervisor import journal

MAX_DEATHS: Final = 64  # how many times of death are remembered
# Only the supervisor acts on these; a terminal and systemd send them to every process of the group.
SUPERVISOR_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP)

log = logging.getLogger(__name__)


def name_process(name: str) -> None:
    """Sets the name that ps and top show (at most 15 bytes)."""
    lib.process_name(name.encode())


def die_with(supervisor: int) -> None:
    """Has the kernel kill this process when its parent, the process `supervisor`, ends for whatever reason."""
    lib.process_dies_with_parent()
    if os.getppid() != supervisor:  # the parent ended before the kernel was asked
        os._exit(1)


def raise_descriptor_limit() -> None:
    """Raises the limit to the hard one: each connection and each segment takes a descriptor. Children inherit it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def preload(entries: Iterable[str], loads: Iterable[Callable[[], object]]) -> None:
    """Loads the modules of all children (see Child.entry) in the supervisor, so that they share the memory, and calls
    `loads`, which load more. To be called before the first fork of one that stays: what loading touches is shared then,
    too, while afterwards each process would have a copy of it."""
    for entry in entries:
        with contextlib.suppress(Exception):  # the child fails at the same import, logs why, and dies
            _load(entry)
    for load in loads:
        with contextlib.suppress(Exception):
            load()


class Child:
    def __init__(self, role: str, index: int, entry: str, title: str | None = None) -> None:
        """`entry`: dotted name of a function that takes a Control and returns when told to stop."""
        self.role: Final = role
        self.index: Final = index
        self.title: Final = title or f"mq-{role}-{index}"
        self.wake_fd: Final = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self.control: Control | None = None
        self.serving = False  # whether it has said "ready" or "recovered"
        self.started_at = 0.0
        self.deaths: deque[float] = deque(maxlen=MAX_DEATHS)  # the times of its last deaths
        self.refused = False  # whether the last start was refused
        self.refusals = 0  # in a row
        self.restart_at: float | None = None
        self.kill_at: float | None = None
        self.was_killed = False  # whether the last process ended by SIGKILL, so not by a fault of its own
        self.entry: Final = entry
        self._abandoned = False
        self._pid = 0
        self._pidfd = -1

    @property
    def alive(self) -> bool:
        """Whether there is a process that has not been reaped."""
        return self._pid != 0

    @property
    def has_to_answer(self) -> bool:
        """Whether it answers soon unless it hangs: it serves, or is a gateway that loads. Recovery may take long."""
        return self.serving or (self.role == "gateway" and self.alive)

    @property
    def pid(self) -> int:
        return self._pid

    @property
    def sentinel(self) -> int:
        """A descriptor that becomes readable when the process ends."""
        assert self._pidfd >= 0
        return self._pidfd

    def start(self, log_level: str, log_json: bool) -> None:
        """Raises OSError, with no process left, when processes, memory or descriptors are short."""
        assert not self.alive
        self.restart_at = None
        self.serving = False
        self.refused = False
        self.was_killed = False
        self._abandoned = False
        lib.process_trim()  # a child that allocated out of pages it shares would copy them
        supervisor = os.getpid()
        self.control, theirs = Control.pair()
        # Blocked until the child ignores them: otherwise a ^C would end it half started.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, SUPERVISOR_SIGNALS)
        try:
            pid = os.fork()
            if pid == 0:
                _run(self.entry, theirs, self.title, log_level, log_json, supervisor)
            self._pidfd = _pidfd(pid)
            self._pid = pid
        except OSError:
            self.close_control()
            raise
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            theirs.close()

    def send(self, message: Message, fds: Sequence[int] = ()) -> None:
        """Sends a message; does nothing if the process is gone. A process that does not read its messages is killed."""
        if self.control is None:
            return
        try:
            # The sentinel reports a process that has just died.
            with contextlib.suppress(BrokenPipeError, ConnectionError):
                self.control.send(message, fds)
        except ControlError as error:
            log.error("%s (pid %d): %s; killing it", self.title, self.pid, error)
            self.kill()

    def kill(self) -> None:
        if self.alive:
            os.kill(self._pid, signal.SIGKILL)  # not reaped yet, so the pid cannot be another process

    def abandon(self) -> None:
        """Kills a process that could not be told all that it needs. It does not count as one that was healthy."""
        self._abandoned = True
        self.kill()

    def close_control(self) -> None:
        if self.control is not None:
            self.control.close()
            self.control = None

    def reap(self) -> str:
        """Waits for the process to end and returns how it ended; "": with status 0."""
        assert self.alive
        _, waited = os.waitpid(self._pid, 0)
        status = os.waitstatus_to_exitcode(waited)
        os.close(self._pidfd)
        self._pid, self._pidfd = 0, -1
        self.serving = False
        self.kill_at = None
        self.close_control()
        self.was_killed = status == -signal.SIGKILL and not self._abandoned
        if status < 0:
            return f"was killed by {signal.Signals(-status).name}"
        return f"ended with status {status}" if status else ""

    def close(self) -> None:
        os.close(self.wake_fd)


def _pidfd(pid: int) -> int:
    """Raises OSError, with the process ended, when there is no descriptor for it."""
    try:
        return os.pidfd_open(pid)
    except OSError:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        raise


def _run(entry: str, control: Control, title: str, log_level: str, log_json: bool, supervisor: int) -> NoReturn:
    """The whole life of a new process: the first and the last of our code that it runs."""
    status = 1
    try:
        status = _live(entry, control, title, log_level, log_json, supervisor)
    finally:
        with contextlib.suppress(Exception):
            sys.stderr.flush()
        os._exit(status)


def _live(entry: str, control: Control, title: str, log_level: str, log_json: bool, supervisor: int) -> int:
    """Runs the process after the fork, and returns its exit status."""
    name_process(title)
    die_with(supervisor)
    _close_what_is_the_supervisors(control.fileno())
    signal.set_wakeup_fd(-1)
    for number in SUPERVISOR_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SUPERVISOR_SIGNALS)
    gc.freeze()  # the collector leaves inherited objects alone: touching them would copy their pages
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
    """Closes all descriptors but 0 to 2 and `kept`. The objects that own them are never freed here: see above."""
    os.closerange(3, kept)
    os.closerange(kept + 1, resource.getrlimit(resource.RLIMIT_NOFILE)[1])


def _load(entry: str) -> Callable[[Control], None]:
    module, _, function = entry.rpartition(".")
    found: Callable[[Control], None] = getattr(importlib.import_module(module), function)
    return found
