"""Tells systemd how the service is doing (the sd_notify protocol, see sd_notify(3)).

The service manager names a datagram socket in NOTIFY_SOCKET; a name that begins with "@" is in the abstract
namespace. Without it, all of this does nothing.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import MutableMapping
from typing import Final

ALIVE_S: Final = 1.0  # the longest time between two signs of life
PER_LIMIT: Final = 3  # signs of life within the time that the service manager waits


class Notifier:
    def __init__(self, address: str | None, watched_s: float | None = None) -> None:
        """`watched_s`: how long the service manager waits for a sign of life; None: it waits for none."""
        self._socket: socket.socket | None = None
        self._every_s = None if watched_s is None else min(ALIVE_S, watched_s / PER_LIMIT)
        # When the next sign of life is due, on the clock of the caller of alive(); None: never.
        self.alive_at = None if watched_s is None else 0.0
        self._address = ""
        if address and address[0] in "/@":
            self._address = "\0" + address[1:] if address[0] == "@" else address
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self._socket.setblocking(False)

    @classmethod
    def from_environment(cls, environment: MutableMapping[str, str] = os.environ) -> Notifier:
        """Removes the variables from the environment, so that no child speaks for the service."""
        # With another pid, the watchdog was meant for a process that started this one.
        ours = environment.pop("WATCHDOG_PID", None) in (None, str(os.getpid()))
        limit = environment.pop("WATCHDOG_USEC", "")
        watched = ours and limit.isascii() and limit.isdigit() and int(limit) > 0
        return cls(environment.pop("NOTIFY_SOCKET", None), int(limit) / 1e6 if watched else None)

    def ready(self, status: str) -> None:
        self._send("READY=1", f"STATUS={status}")

    def status(self, status: str) -> None:
        self._send(f"STATUS={status}")

    def stopping(self, status: str) -> None:
        self._send("STOPPING=1", f"STATUS={status}")

    def alive(self, now: float) -> None:
        """Sends a sign of life, if one is due: with WatchdogSec= the service manager restarts a service that sends none
        in time. To be called when `alive_at` has come, or before."""
        if self._every_s is not None and self.alive_at is not None and self.alive_at <= now:
            self.alive_at = now + self._every_s
            self._send("WATCHDOG=1")

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _send(self, *assignments: str) -> None:
        if self._socket is None:
            return
        # A service manager that is gone or busy is no reason to stop serving.
        with contextlib.suppress(OSError):
            lines = (assignment.replace("\n", " ") for assignment in assignments)
            self._socket.sendto("\n".join(lines).encode(), self._address)
