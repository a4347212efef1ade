"""Tells systemd how the service is doing (the sd_notify protocol, see sd_notify(3)).

The service manager names a datagram socket in NOTIFY_SOCKET; a name that begins with "@" is in the abstract
namespace. Without it, all of this does nothing.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import MutableMapping


class Notifier:
    def __init__(self, address: str | None, watched: bool = False) -> None:
        self._socket: socket.socket | None = None
        self._watched = watched
        self._address = ""
        if address and address[0] in "/@":
            self._address = "\0" + address[1:] if address[0] == "@" else address
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self._socket.setblocking(False)

    @classmethod
    def from_environment(cls, environment: MutableMapping[str, str] = os.environ) -> Notifier:
        """Takes it out of the environment, so that no child speaks for the service."""
        # Another's, if it was meant for one that has started this.
        ours = environment.pop("WATCHDOG_PID", None) in (None, str(os.getpid()))
        watched = environment.pop("WATCHDOG_USEC", None) is not None and ours
        return cls(environment.pop("NOTIFY_SOCKET", None), watched)

    def ready(self, status: str) -> None:
        self._send("READY=1", f"STATUS={status}")

    def status(self, status: str) -> None:
        self._send(f"STATUS={status}")

    def stopping(self, status: str) -> None:
        self._send("STOPPING=1", f"STATUS={status}")

    def alive(self) -> None:
        """Where the service manager watches (WatchdogSec=): who does not say this in time is started anew."""
        if self._watched:
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
