"""How much is received at a time: less when what many connections send takes long to be worked off."""

from __future__ import annotations

import contextlib
import fcntl
import socket
import struct
import termios
from typing import Final

from tests.acceptor.bench import BEANSTALK, SECOND, Bench

FLOODING: Final = 100
AT_MOST: Final = 64 << 10  # RECEIVE_BYTES, csrc/acceptor/bounds.h
COMMANDS: Final = b"touch x\r\n" * 50_000


class Flood:
    """Has as many commands waiting in its socket as that takes, and reads what comes."""

    def __init__(self, bench: Bench) -> None:
        self.socket, theirs = socket.socketpair()
        self.socket.setblocking(False)
        self._its_fd = theirs.detach()
        self._sent = 0
        self.number = bench.acceptor.adopt(self._its_fd, BEANSTALK)

    def go_on(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while self.socket.recv(1 << 20):
                pass
        with contextlib.suppress(BlockingIOError):
            self._sent = (self._sent + self.socket.send(COMMANDS[self._sent :])) % len(COMMANDS)

    def unreceived(self) -> int:
        (waiting,) = struct.unpack("i", fcntl.ioctl(self._its_fd, termios.FIONREAD, bytes(4)))
        return int(waiting)


def received_in_a_turn(bench: Bench, floods: list[Flood]) -> int:
    """By each. A command that Python answers ends `run` after the turn that it came in."""
    asking = bench.clients[0]
    for flood in floods:
        flood.go_on()
    before = floods[0].unreceived()
    asking.socket.send(b"list-tube-used\r\n")
    assert bench.acceptor.run(5 * SECOND) == 1
    received = before - floods[0].unreceived()
    for upcall in bench.acceptor.upcalls():
        bench.beanstalk.command(upcall.conn, upcall.line)
    return received


def test_less_is_received_from_many_that_flood_and_more_again_when_few_are_left(bench: Bench) -> None:
    bench.client()
    floods = [Flood(bench) for _ in range(FLOODING)]
    received = [received_in_a_turn(bench, floods) for _ in range(20)]
    assert max(received) == AT_MOST
    assert max(received[10:]) < AT_MOST / 2
    for flood in floods[1:]:
        flood.socket.close()
    bench.turn()
    for _ in range(1000):
        received.append(received_in_a_turn(bench, floods[:1]))
        if received[-1] >= AT_MOST / 2:
            break
    assert received[-1] >= AT_MOST / 2, "all of it only where the machine has nothing else to do"
    floods[0].socket.close()
