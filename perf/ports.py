"""Ports for servers that are to be told where to listen.

They are not of those that the kernel gives to clients, and each is given once in a round of some ten thousand: what is
free stays so until the server is there. Several processes begin at different places.
"""

from __future__ import annotations

import contextlib
import itertools
import secrets
import socket
from typing import Final

LOWEST: Final = 10_000
COUNT: Final = 22_000
_numbers: Final = itertools.count(secrets.randbelow(COUNT))


def free_port() -> int:
    while True:
        port = LOWEST + next(_numbers) % COUNT
        with socket.socket() as listener, contextlib.suppress(OSError):
            listener.bind(("127.0.0.1", port))
            return port
