"""TCP sockets that one process binds, and that listen only when the process that is to accept is ready.

A port is thus taken at once, and a client that gets through to it is served: until then the kernel refuses clients.
"""

from __future__ import annotations

import errno
import socket


def hold(sock: socket.socket, address: tuple[object, ...]) -> None:
    """Binds a new socket, without listening. No other process can bind the address from then on. Raises OSError.

    The kernel gives an address to several sockets with SO_REUSEADDR as long as none of them listens. So the socket
    has this option only from `begin()` on, when its listening keeps others off.
    """
    try:
        sock.bind(address)
        return
    except OSError as error:
        if error.errno != errno.EADDRINUSE or address[1] == 0:
            raise
    # Closed connections of an earlier broker (TIME_WAIT) keep off only sockets without SO_REUSEADDR.
    _reuse(sock, True)
    sock.bind(address)
    sock.listen(0)  # of several brokers that are here at one moment the kernel lets one pass
    _reuse(sock, False)
    sock.shutdown(socket.SHUT_RD)  # stops listening, and stays bound


def share(sock: socket.socket) -> None:
    """Lets sockets of the same user that call this too have the same address; the kernel spreads clients over them."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)


def hold_too(sock: socket.socket, address: tuple[object, ...]) -> None:
    """Binds one more socket to an address that a shared one holds. Raises OSError."""
    _reuse(sock, True)
    share(sock)
    sock.bind(address)


def begin(sock: socket.socket, backlog: int) -> None:
    """Listens. A socket that already does is left as it is: that of a process that died, or of the service manager.

    Another broker that calls hold() between the two steps gets the port, and listen() fails. The other order is no
    better: listen() fails beside closed connections (TIME_WAIT), and connections made in between do not inherit.
    """
    if sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        return
    _reuse(sock, True)  # connections inherit it, so that a successor can bind the address
    sock.listen(backlog)


def _reuse(sock: socket.socket, wanted: bool) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, wanted)
