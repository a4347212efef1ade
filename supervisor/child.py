"""One child process: how it is started, what it must be before its own code runs, and how it ends.

A Child is a place (acceptor 2, worker 0) that a succession of processes fills; its eventfd belongs to the place, so
that those who wake it need not know that it was restarted.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import logging
import multiprocessing
import os
import signal
import socket
import sys
from collections import deque
from collections.abc import Sequence
from multiprocessing import resource_tracker
from multiprocessing.context import SpawnProcess
from typing import Final

from mq_shards.ringbuf.control import Control, ControlError, Message
from mq_shards.supervisor import journal

PR_SET_PDEATHSIG: Final = 1
PR_SET_NAME: Final = 15
MAX_DEATHS: Final = 64  # that are remembered
# The supervisor alone decides what these mean. A terminal and systemd send them to every process of the group.
SUPERVISOR_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)

log = logging.getLogger(__name__)


def name_process(name: str) -> None:
    """What ps and top show (at most 15 bytes)."""
    ctypes.CDLL(None).prctl(PR_SET_NAME, ctypes.create_string_buffer(name.encode()), 0, 0, 0)


def die_with(supervisor: int) -> None:
    """The kernel kills this process when its parent, `supervisor`, ends, however that ends."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != supervisor:  # it ended before the kernel knew
        os._exit(1)


class Child:
    def __init__(self, role: str, index: int, entry: str, title: str | None = None) -> None:
        """`entry` is the dotted name of a function that takes a Control and returns when told to stop."""
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
        self._entry = entry
        self._process: SpawnProcess | None = None

    @property
    def alive(self) -> bool:
        """There is a process that has not been reaped."""
        return self._process is not None

    @property
    def pid(self) -> int:
        return self._process.pid or 0 if self._process is not None else 0

    @property
    def sentinel(self) -> int:
        """A descriptor that becomes readable when the process ends."""
        assert self._process is not None
        return self._process.sentinel

    def start(self, log_level: str, log_json: bool) -> None:
        assert self._process is None
        self.restart_at = None
        self.serving = False
        self.control, theirs = Control.pair()
        process = multiprocessing.get_context("spawn").Process(
            target=_run,
            args=(self._entry, theirs.socket, self.title, log_level, log_json, os.getpid()),
            name=self.title,
        )
        resource_tracker.ensure_running()  # else start() does it, and unblocks our signals
        # Blocked until the child has said that it ignores them, or a ^C would end it half started.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, SUPERVISOR_SIGNALS)
        try:
            process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            theirs.close()
        self._process = process

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
        if self._process is not None:
            self._process.kill()

    def close_control(self) -> None:
        if self.control is not None:
            self.control.close()
            self.control = None

    def reap(self) -> str:
        """Waits for the end of the process and says how it ended; "" if as it should."""
        assert self._process is not None
        self._process.join()
        status = self._process.exitcode or 0
        self._process.close()
        self._process = None
        self.serving = False
        self.kill_at = None
        self.close_control()
        if status < 0:
            return f"was killed by {signal.Signals(-status).name}"
        return f"ended with status {status}" if status else ""

    def close(self) -> None:
        os.close(self.wake_fd)


def _run(entry: str, sock: socket.socket, title: str, log_level: str, log_json: bool, supervisor: int) -> None:
    """The first code of ours in a new process."""
    name_process(title)
    die_with(supervisor)
    for number in SUPERVISOR_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SUPERVISOR_SIGNALS)
    journal.configure(log_level, log_json, title)
    module, _, function = entry.rpartition(".")
    try:
        getattr(importlib.import_module(module), function)(Control(sock))
    except EOFError:
        sys.exit(1)  # the supervisor is gone
    except Exception:
        log.exception("ends because of an unexpected error")
        sys.exit(1)
