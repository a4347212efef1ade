"""Connections handed from one process to another: the socket, and the bytes received from it that are not yet used.

A `Handover` is one end of a socket pair that the supervisor keeps open when one of the processes dies. So the other
process does not notice, and connections in between wait for the next process, as in the queue of a listening socket.
"""

from __future__ import annotations

import errno
import os
import socket
from typing import Final

# The packet holds how the connection arrived, and the bytes received; if these are too many, a memfd that is sent with
# the packet holds them.
ARRIVAL_BYTES: Final = 16 << 10
PACKET_BYTES: Final = 32 << 10
MOST_BYTES: Final = 4 << 20
# Errors that pass: the socket pair is full, or memory or descriptors are short.
_LATER: Final = (errno.EAGAIN, errno.ETOOMANYREFS, errno.ENOBUFS, errno.ENOMEM, errno.EMFILE, errno.ENFILE)


class Handover:
    def __init__(self, sock: socket.socket) -> None:
        """Takes over the socket."""
        self._socket = sock
        sock.setblocking(False)

    @classmethod
    def pair(cls) -> tuple[socket.socket, socket.socket]:
        return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)

    def fileno(self) -> int:
        return self._socket.fileno()

    def give(self, fd: int, received: bytes, arrival: bytes = b"") -> bool:
        """Sends a connected socket, which stays open here. False if there is no room now, with nothing done."""
        if len(received) > MOST_BYTES or len(arrival) > ARRIVAL_BYTES:
            raise ValueError(f"{len(received)} bytes have come from a connection that is handed over")
        before = len(arrival).to_bytes(2, "big") + arrival
        try:
            if len(received) <= PACKET_BYTES:
                socket.send_fds(self._socket, [b"+", before, received], [fd], socket.MSG_NOSIGNAL)
                return True
            file = os.memfd_create("mq-received", os.MFD_CLOEXEC)
            try:
                _write(file, received)
                socket.send_fds(self._socket, [b"f", before], [fd, file], socket.MSG_NOSIGNAL)
            finally:
                os.close(file)
            return True
        except OSError as error:
            if error.errno in _LATER:
                return False
            raise

    def take(self) -> tuple[socket.socket, bytes, bytes] | None:
        """The next socket, the bytes received, and how it arrived; None if there is none now. A connection that cannot
        be taken, because descriptors are short, is thereby closed."""
        while True:
            try:
                data, fds, flags, _ = socket.recv_fds(self._socket, 3 + ARRIVAL_BYTES + PACKET_BYTES, 2)
            except BlockingIOError:
                return None
            except ConnectionResetError:
                continue  # said once, if the other end has gone without taking all: what it has passed is still there
            if not data:
                raise EOFError("the other end is gone")
            expected = 2 if data[:1] == b"f" else 1
            if flags & socket.MSG_CTRUNC or len(fds) != expected:
                for fd in fds:
                    os.close(fd)
                continue
            end = 3 + int.from_bytes(data[1:3], "big")
            arrival, received = data[3:end], data[end:]
            if expected == 2:
                with os.fdopen(fds[1], "rb") as file:
                    received = file.read(MOST_BYTES)
            return socket.socket(fileno=fds[0]), received, arrival

    def close(self) -> None:
        self._socket.close()


def _write(file: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.pwrite(file, view, len(data) - len(view)) :]
