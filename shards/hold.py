"""Holding still: for the moment of a backup, no worker writes until all have said how far their logs go.

The supervisor asks all workers (supervisor/barrier.py). Each says "held" and does nothing until it is told to go on;
then it says whether it was told in time. If all were, there was a moment at which all held still. The backup has all
that any worker had written by then, and nothing that a client published after seeing a reply from later.
"""

from __future__ import annotations

import socket
import time
from pathlib import Path
from typing import Final

from mq_shards.ringbuf.control import Control, Message

HOLD_S: Final = 0.2  # no worker holds still for longer, whatever the others do


def address_of(data_dir: Path) -> bytes:
    """The address at which the directory's broker is asked for such a moment: a name in Linux's abstract namespace. So
    a killed broker leaves no file, and none is copied with the directory. Raises OSError."""
    found = data_dir.stat()
    return b"\0mq-shards/%x/%x" % (found.st_dev, found.st_ino)


def user_of(sock: socket.socket) -> int:
    """The uid of the process at the other end."""
    credentials = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    return int.from_bytes(credentials[4:8], "little")


def hold(control: Control, number: int, ends: list[list[int]]) -> list[tuple[Message, list[int]]]:
    """Holds still. `ends`: first segment, last segment, and the end of that, for each shard. Returns the other messages
    that arrived meanwhile, which the caller has to handle now. Raises EOFError."""
    control.send({"did": "held", "number": number, "ends": ends})
    until = time.monotonic() + HOLD_S
    others: list[tuple[Message, list[int]]] = []
    in_time = False
    while not in_time:
        try:
            arrived = control.receive(max(0.0, until - time.monotonic()))
        except TimeoutError:
            break
        if arrived[0] == {"do": "release", "number": number}:
            in_time = True
        else:
            others.append(arrived)
    control.send({"did": "released", "number": number, "in_time": in_time})
    return others
