"""Sockets that the service manager has bound and hands over (socket activation, see sd_listen_fds(3)).

LISTEN_PID holds the pid that they are meant for, LISTEN_FDS their number, LISTEN_FDNAMES their names with ":" between;
the first is descriptor 3.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, MutableMapping
from dataclasses import dataclass
from typing import Final

FIRST_FD: Final = 3


@dataclass(slots=True, eq=False, repr=False)
class Inherited:
    """A socket that the service manager has handed over."""

    name: str
    sock: socket.socket
    taken: bool = False

    @property
    def is_stream(self) -> bool:
        """Whether this is a stream socket that listens."""
        return self.sock.type == socket.SOCK_STREAM and bool(
            self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
        )


def take(environment: MutableMapping[str, str] = os.environ, first_fd: int = FIRST_FD) -> list[Inherited]:
    """Returns the sockets, and removes the variables from the environment, so that no child takes them for its own."""
    pid, count = environment.pop("LISTEN_PID", ""), environment.pop("LISTEN_FDS", "")
    names = environment.pop("LISTEN_FDNAMES", "").split(":")
    if pid != str(os.getpid()) or not count.isascii() or not count.isdigit():
        return []
    found: list[Inherited] = []
    for number in range(int(count)):
        fd = first_fd + number
        try:
            sock = socket.socket(fileno=fd)
        except OSError:
            continue  # not a socket
        os.set_inheritable(fd, False)
        sock.setblocking(False)
        found.append(Inherited(names[number] if number < len(names) else "", sock))
    return found


def by_address(sockets: Iterable[Inherited], family: int, address: object) -> Inherited | None:
    """The untaken socket that is bound to `address`; None: there is none."""
    for one in sockets:
        if not one.taken and one.is_stream and one.sock.family == family and _same(one.sock.getsockname(), address):
            return one
    return None


def by_name(sockets: Iterable[Inherited], name: str) -> Inherited | None:
    """The first untaken socket of that name, or of any name if it is ""; None: there is none."""
    for one in sockets:
        if not one.taken and one.is_stream and name in ("", one.name):
            return one
    return None


def _same(bound: object, wanted: object) -> bool:
    if isinstance(bound, tuple) and isinstance(wanted, tuple):
        return bound[:2] == wanted[:2]
    return bound == wanted
