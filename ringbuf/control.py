"""Control messages between the supervisor and a child: a JSON object and the descriptors that go with it.

One message is one packet of a SOCK_SEQPACKET socket pair, so there is no framing, and descriptors arrive with the
message they belong to. A message too large for a packet travels in memory of its own, whose descriptor is sent. This is
the control plane only: a few messages at start, restart and stop of a process, and never one per queued message.

The receiver of a descriptor owns and closes it; the sender keeps its own copy.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
from collections.abc import Iterator, Sequence
from typing import Any, Final, TypeAlias

PACKET_BYTES: Final = 128 << 10  # below the usual net.core.wmem_max, so that one packet always fits a socket buffer
MESSAGE_BYTES: Final = 2 << 20
MESSAGE_FDS: Final = 8
ELSEWHERE: Final = b"elsewhere"  # the packet of a message that is in the memory of its first descriptor
SEND_TIMEOUT_S: Final = 5.0
STDERR: Final = 2  # the descriptor that the message "stderr" replaces

Message: TypeAlias = dict[str, Any]


class ControlError(Exception):
    """The other side is not reading, or what arrived is not a control message."""


class Control:
    """One end of a control socket.

    >>> here, there = Control.pair()
    >>> here.send({"do": "stop"})
    >>> there.receive()
    ({'do': 'stop'}, [])
    """

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        sock.setblocking(False)

    @classmethod
    def pair(cls) -> tuple[Control, Control]:
        first, second = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        return cls(first), cls(second)

    @property
    def socket(self) -> socket.socket:
        return self._socket

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, message: Message, fds: Sequence[int] = (), timeout_s: float = SEND_TIMEOUT_S) -> None:
        """Sends one message; waits for a receiver that is behind, but no longer than `timeout_s`.

        Raises ControlError when it stays behind, BrokenPipeError or ConnectionError when it is gone.
        """
        data = json.dumps(message).encode()
        if len(data) > MESSAGE_BYTES or len(fds) > MESSAGE_FDS:
            raise ControlError(f"a control message of {len(data)} bytes and {len(fds)} descriptors is too large")
        if len(data) <= PACKET_BYTES:
            self._send(data, fds, timeout_s)
        else:
            with _in_memory(data) as fd:
                self._send(ELSEWHERE, [fd, *fds], timeout_s)

    def _send(self, data: bytes, fds: Sequence[int], timeout_s: float) -> None:
        while True:
            try:
                socket.send_fds(self._socket, [data], list(fds), socket.MSG_NOSIGNAL)
                return
            except BlockingIOError:
                if not self._wait(select.POLLOUT, timeout_s):
                    raise ControlError(f"the receiver has not read for {timeout_s:g} s") from None

    def receive(self, timeout_s: float | None = None) -> tuple[Message, list[int]]:
        """The next message; waits for it as long as it takes, or raises TimeoutError after `timeout_s`.

        Raises EOFError when the other side is gone and everything it sent has been read.
        """
        while True:
            arrived = self.receive_now()
            if arrived is not None:
                return arrived
            if not self._wait(select.POLLIN, timeout_s):
                raise TimeoutError(f"no control message within {timeout_s:g} s")

    def receive_now(self) -> tuple[Message, list[int]] | None:
        """The next message, or None when there is none now. Raises EOFError as receive() does."""
        while True:
            try:
                packet, fds, flags, _ = socket.recv_fds(self._socket, PACKET_BYTES, MESSAGE_FDS + 1)
                break
            except BlockingIOError:
                return None
            except ConnectionResetError:
                # Said once, first, if the other side has ended with messages of ours unread. Its own are still there.
                continue
        if not packet:
            raise EOFError("the control socket is closed")
        if flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC):
            raise ControlError(f"a control message was cut off (flags {flags:#x})")
        try:
            message = json.loads(_from_memory(fds.pop(0)) if packet == ELSEWHERE else packet)
        except ValueError as error:
            raise ControlError(f"not a control message: {error}") from None
        if not isinstance(message, dict):
            raise ControlError("a control message must be a JSON object")
        return message, fds

    def close(self) -> None:
        self._socket.close()

    def _wait(self, events: int, timeout_s: float | None) -> bool:
        poll = select.poll()
        poll.register(self._socket, events)
        return bool(poll.poll(None if timeout_s is None else timeout_s * 1000))


@contextlib.contextmanager
def _in_memory(data: bytes) -> Iterator[int]:
    fd = os.memfd_create("control")
    try:
        with open(fd, "wb", closefd=False) as memory:
            memory.write(data)
        yield fd
    finally:
        os.close(fd)


def _from_memory(fd: int) -> bytes:
    try:
        return os.pread(fd, MESSAGE_BYTES, 0)
    finally:
        os.close(fd)
