"""What was read from files for other processes, and is more than a control message holds: other servers'
configuration files, for acceptors, and who may do what."""

from __future__ import annotations

import os
from collections.abc import Mapping

from mq_shards.acceptor.access.rights import Users
from mq_shards.ringbuf.control import Message
from mq_shards.supervisor.child import Child


def configure(acceptor: Child, contents: Mapping[str, bytes]) -> None:
    """`contents` are by protocol. May be said again, of a file that was read anew."""
    for protocol, content in contents.items():
        _send(acceptor, {"do": "configure", "protocol": protocol}, content)


def tell_users(child: Child, users: Users | None) -> None:
    """An acceptor or the gateway. May be said again; never, where there are none."""
    if users is not None:
        _send(child, {"do": "users"}, users.encode())


def _send(child: Child, message: Message, content: bytes) -> None:
    fd = os.memfd_create("configuration", os.MFD_CLOEXEC)
    try:
        with open(fd, "wb", closefd=False) as file:
            file.write(content)
        os.lseek(fd, 0, os.SEEK_SET)
        child.send(message, [fd])
    finally:
        os.close(fd)
