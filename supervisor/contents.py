"""What was read from other servers' configuration files, for acceptors: more than a control message holds."""

from __future__ import annotations

import os
from collections.abc import Mapping

from mq_shards.supervisor.child import Child


def configure(acceptor: Child, contents: Mapping[str, bytes]) -> None:
    """`contents` are by protocol. May be said again, of a file that was read anew."""
    for protocol, content in contents.items():
        fd = os.memfd_create("configuration", os.MFD_CLOEXEC)
        try:
            with open(fd, "wb", closefd=False) as file:
                file.write(content)
            os.lseek(fd, 0, os.SEEK_SET)
            acceptor.send({"do": "configure", "protocol": protocol}, [fd])
        finally:
            os.close(fd)
