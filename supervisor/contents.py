"""What was read from files for other processes, and is more than a control message holds: other servers'
configuration files, for acceptors, who may do what, and certificates, keys and the like."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mq_shards.acceptor import named_files
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


def start(child: Child, message: Message, fds: Sequence[int], files: named_files.Files) -> None:
    """Files are what it finds at their paths from the first, whatever became of them meanwhile."""
    if not files:
        child.send(message, fds)
        return
    with named_files.in_memory(named_files.encode(files)) as fd:
        child.send(message, [*fds, fd])


def reload(child: Child, message: Message, files: named_files.Files) -> None:
    """There may be none any more."""
    _send(child, message, named_files.encode(files))


def _send(child: Child, message: Message, content: bytes) -> None:
    with named_files.in_memory(content) as fd:
        child.send(message, [fd])
