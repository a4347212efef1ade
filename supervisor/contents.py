"""Sends other processes the contents of files, which are too large for a control message: configuration files in other
servers' formats, users and their rights, and certificates, keys and the like."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mq_shards.acceptor import named_files
from mq_shards.acceptor.access.rights import Users
from mq_shards.ringbuf.control import Message
from mq_shards.supervisor.child import Child


def configure(acceptor: Child, contents: Mapping[str, bytes]) -> None:
    """Sends each protocol's configuration file; `contents` is by protocol. May be called again after a reload."""
    for protocol, content in contents.items():
        _send(acceptor, {"do": "configure", "protocol": protocol}, content)


def tell_users(child: Child, users: Users | None) -> None:
    """Sends the users to an acceptor or the gateway; nothing if `users` is None. May be called again, by a reload."""
    if users is not None:
        _send(child, {"do": "users"}, users.encode())


def start(child: Child, message: Message, fds: Sequence[int], files: named_files.Files) -> None:
    """Sends "start" with `files`: the process then uses these contents, even if the files have changed since."""
    if not files:
        child.send(message, fds)
        return
    with named_files.in_memory(named_files.encode(files)) as fd:
        child.send(message, [*fds, fd])


def reload(child: Child, message: Message, files: named_files.Files) -> None:
    """Sends "reload" with `files`, also when they are empty: there may have been files before."""
    _send(child, message, named_files.encode(files))


def _send(child: Child, message: Message, content: bytes) -> None:
    with named_files.in_memory(content) as fd:
        child.send(message, [fd])
