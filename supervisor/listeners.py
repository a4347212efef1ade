"""The listening sockets, all bound by the supervisor: one for each acceptor and address, or one for the gateway.

With SO_REUSEPORT the kernel spreads connections over the acceptors. The supervisor keeps every socket open, so that
what waits in the queue of a process that has died is served by its successor.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from mq_shards.supervisor.options.options import MAX_LISTENS, Listen

BACKLOG: Final = 4096


class ListenError(Exception):
    """One line for the operator: which address cannot be had, and why."""


@dataclass(frozen=True, slots=True)
class Listener:
    address: Listen  # as bound: a numeric host, and the port that was found for port 0
    sockets: tuple[socket.socket, ...]  # one for each acceptor; of what the gateway serves, one

    def close(self) -> None:
        for sock in self.sockets:
            sock.close()


def listen_on(wanted: Sequence[Listen], acceptors: int) -> list[Listener]:
    """Listens on every address that a name stands for. Raises ListenError, with nothing left open."""
    listeners: list[Listener] = []
    try:
        for listen in wanted:
            listeners.extend(_bind_name(listen, 1 if listen.by_gateway else acceptors))
        if len(listeners) > MAX_LISTENS:
            raise ListenError(f"cannot listen on {len(listeners)} addresses, at most {MAX_LISTENS} are possible")
    except ListenError:
        for listener in listeners:
            listener.close()
        raise
    return listeners


def _bind_name(listen: Listen, sockets: int) -> list[Listener]:
    try:
        found = socket.getaddrinfo(listen.host, listen.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (socket.gaierror, UnicodeError) as error:
        reason = error.strerror if isinstance(error, socket.gaierror) else "not a host name"
        raise ListenError(f"cannot listen on {listen}: {reason}") from None
    listeners: list[Listener] = []
    absent: OSError | None = None
    for family, address in dict.fromkeys((entry[0], entry[4]) for entry in found):
        try:
            listeners.append(_bind(listen.protocol, family, address, sockets))
        except OSError as error:
            # A name such as localhost may stand for an IPv6 address that this host has not got.
            if error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                for listener in listeners:
                    listener.close()
                raise ListenError(f"cannot listen on {listen}: {os.strerror(error.errno or 0)}") from None
            absent = error
    if not listeners and absent is not None:
        raise ListenError(f"cannot listen on {listen}: {os.strerror(absent.errno or 0)}")
    return listeners


def _bind(protocol: str, family: int, address: tuple[object, ...], count: int) -> Listener:
    # SO_REUSEPORT would also let us in beside another broker of the same user, and the kernel would split the clients
    # between the two: a socket without it finds out whether the port is free.
    with _socket(family, reuse_port=False) as probe:
        probe.bind(address)
    sockets: list[socket.socket] = []
    try:
        for _ in range(count):
            sock = _socket(family, reuse_port=True)
            sockets.append(sock)
            sock.bind(address)
            sock.listen(BACKLOG)
            address = sock.getsockname()  # the others share the port that the first was given
    except OSError:
        for sock in sockets:
            sock.close()
        raise
    return Listener(Listen(protocol, str(address[0]), int(str(address[1]))), tuple(sockets))


def _socket(family: int, reuse_port: bool) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if reuse_port:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    if family == socket.AF_INET6:
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)  # so that 0.0.0.0 and [::] may both be given
    return sock
