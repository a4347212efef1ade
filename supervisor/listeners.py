"""The sockets to listen on, all bound by the supervisor: one for each acceptor and address, or one for the gateway.

With SO_REUSEPORT the kernel spreads connections over the acceptors. A port is listened on by the process that serves it
(ringbuf/listening.py), or at once where clients of the original server wait while it starts. The supervisor keeps every
socket open, so that connections that wait in the queue of a process that has died are served by its successor. For a
socket file, and for an address that the service manager has bound, there is one socket, which the acceptors share and
which listens before they do.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from mq_shards.ringbuf import listening
from mq_shards.supervisor import inherited, unix_sockets
from mq_shards.supervisor.inherited import Inherited
from mq_shards.supervisor.options.listen import MAX_LISTENS, Listen
from mq_shards.supervisor.unix_sockets import Access

BACKLOG: Final = 4096


class ListenError(Exception):
    """One line for the operator: which address cannot be had, and why."""


class Listener(NamedTuple):
    address: Listen  # as bound: with a numeric host, and the actual port instead of 0
    sockets: tuple[socket.socket, ...]  # one for each acceptor, or one that they share
    file: tuple[int, int] | None = None  # device and inode of the socket file to remove; None: none
    inherited: bool = False  # belongs to the service manager, and keeps listening when this broker stops
    name: str = ""  # the host as it was asked for, if that is a name of the address

    def socket_of(self, acceptor: int) -> socket.socket:
        return self.sockets[acceptor % len(self.sockets)]

    def close(self) -> None:
        for sock in self.sockets:
            sock.close()
        if self.file is not None:
            unix_sockets.remove(Path(self.address.path), self.file)


def refuse(listeners: Sequence[Listener], *, served: bool) -> None:
    """Lets no new client connect, though sockets are still open. `served`: acceptors and the gateway still run.

    So a client that is cut off goes elsewhere at once, or retries until a successor listens, instead of waiting in the
    queue of a broker that stops. Sockets of a single process (the gateway) stay as they are while it runs, those of the
    service manager always.
    """
    for listener in listeners:
        for sock in () if listener.inherited or (served and listener.address.single) else listener.sockets:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RD)


def listen_on(
    wanted: Sequence[Listen], acceptors: int, access: Access | None = None, passed: Sequence[Inherited] = ()
) -> list[Listener]:
    """Takes every address that a name stands for. Raises ListenError, with nothing left open.

    `access` is for socket files. A `passed` socket is used if a wanted address is the one it is bound to, or names it;
    the others stay open, and untaken.
    """
    listeners: list[Listener] = []
    try:
        # Addresses that name a socket come first: "systemd" without a name takes the first socket that is left.
        for listen in sorted(_apart(wanted), key=lambda listen: listen.inherited == ""):
            if listen.inherited is not None:
                listeners.append(_inherit(listen, passed))
            elif listen.path:
                listeners.append(_bind_file(listen, access or Access(), passed))
            elif listen.both:
                listeners.extend(_bind_both(listen, 1 if listen.single else acceptors, passed))
            else:
                listeners.extend(_bind_name(listen, 1 if listen.single else acceptors, passed))
        if len(listeners) > MAX_LISTENS:
            raise ListenError(f"cannot listen on {len(listeners)} addresses, at most {MAX_LISTENS} are possible")
    except ListenError:
        for listener in listeners:
            listener.close()
        raise
    return listeners


def _apart(wanted: Sequence[Listen]) -> list[Listen]:
    """Makes dual-stack addresses single-stack where a plain IPv6 address is wanted on the same port as well."""
    taken = {listen.port for listen in wanted if ":" in listen.host and not listen.both and listen.port}
    return [listen._replace(both=False) if listen.port in taken else listen for listen in wanted]


def _inherit(listen: Listen, passed: Sequence[Inherited]) -> Listener:
    found = inherited.by_name(passed, listen.inherited or "")
    if found is None:
        raise ListenError(f"cannot listen on {listen}: the service manager has handed over no such socket that listens")
    return _adopt(listen, found)


def _adopt(listen: Listen, found: Inherited) -> Listener:
    found.taken = True
    name = found.sock.getsockname()
    if found.sock.family == socket.AF_UNIX:
        path = name.decode(errors="replace") if isinstance(name, bytes) else name
        return Listener(listen._replace(host="", port=0, path=path, inherited=None), (found.sock,), inherited=True)
    address = listen._replace(host=str(name[0]), port=int(name[1]), inherited=None)
    return Listener(address, (found.sock,), inherited=True)


def _bind_file(listen: Listen, access: Access, passed: Sequence[Inherited]) -> Listener:
    if (found := inherited.by_address(passed, socket.AF_UNIX, listen.path)) is not None:
        return _adopt(listen, found)
    try:
        sock = unix_sockets.bind(Path(listen.path), access)
        try:
            sock.listen(BACKLOG)
            return Listener(listen, (sock,), unix_sockets.identity(Path(listen.path)))
        except OSError:
            sock.close()
            raise
    except OSError as error:
        raise ListenError(f"cannot listen on {listen}: {os.strerror(error.errno or 0)}") from None


def _bind_name(listen: Listen, sockets: int, passed: Sequence[Inherited]) -> list[Listener]:
    try:
        name = listen.host_name or None
        found = socket.getaddrinfo(name, listen.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (socket.gaierror, UnicodeError) as error:
        reason = error.strerror if isinstance(error, socket.gaierror) else "not a host name"
        raise ListenError(f"cannot listen on {listen}: {reason}") from None
    listeners: list[Listener] = []
    absent: OSError | None = None
    for family, address in dict.fromkeys((entry[0], entry[4]) for entry in found):
        if (one := inherited.by_address(passed, family, address)) is not None:
            listeners.append(_adopt(listen, one))
            continue
        try:
            listeners.append(_bind(listen, family, address, sockets))
        except OSError as error:
            # A name such as localhost may stand for an IPv6 address that this host does not have.
            if error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                for listener in listeners:
                    listener.close()
                raise ListenError(f"cannot listen on {listen}: {os.strerror(error.errno or 0)}") from None
            absent = error
    if not listeners and absent is not None:
        raise ListenError(f"cannot listen on {listen}: {os.strerror(absent.errno or 0)}")
    return [one._replace(name=listen.host if listen.host != one.address.host else "") for one in listeners]


def _bind_both(listen: Listen, sockets: int, passed: Sequence[Inherited]) -> list[Listener]:
    """A dual-stack listener that keeps the host it was asked for; one of IPv4 where there is no IPv6."""
    addresses = (socket.AF_INET6, ("::", listen.port)), (socket.AF_INET, ("0.0.0.0", listen.port))
    passed_on = [one for family, at in addresses if (one := inherited.by_address(passed, family, at)) is not None]
    if passed_on:
        adopted = [_adopt(listen, one) for one in passed_on]
        return [one._replace(address=one.address._replace(host=listen.host)) for one in adopted]
    try:
        try:
            return [_bind(listen, *addresses[0], sockets)]
        except OSError as error:
            if error.errno == errno.EADDRINUSE or listen.host == "::":
                raise
            return [_bind(listen, *addresses[1], sockets)]
    except OSError as error:
        raise ListenError(f"cannot listen on {listen}: {os.strerror(error.errno or 0)}") from None


def _bind(listen: Listen, family: int, address: tuple[object, ...], count: int) -> Listener:
    sockets: list[socket.socket] = []
    try:
        for number in range(count):
            sock = _socket(family, both=listen.both)
            sockets.append(sock)
            # The first socket binds without SO_REUSEPORT: with it, binding would succeed beside another broker of the
            # same user, and the kernel would split the clients between the two.
            if number == 0:
                listening.hold(sock, address)
                if count > 1:
                    listening.share(sock)
            else:
                listening.hold_too(sock, address)
            address = sock.getsockname()  # the others bind to the port that the first one was given
        for sock in sockets if listen.early else ():
            listening.begin(sock, BACKLOG)
    except OSError:
        for sock in sockets:
            sock.close()
        raise
    host = listen.host if listen.both else str(address[0])
    return Listener(listen._replace(host=host, port=int(str(address[1]))), tuple(sockets))


def _socket(family: int, *, both: bool) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    if family == socket.AF_INET6:
        # So that 0.0.0.0 and [::] can both be listened on: [::] is then IPv6 only.
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, not both)
    return sock
