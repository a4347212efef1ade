"""What one connection publishes to a large queue group leaves in few pieces."""

from __future__ import annotations

import os
import signal
import socket
import struct

from tests.nats.scenes import QUIET
from tests.nats.servers import running
from tests.nats.test_slow import acceptor_of, slow
from tests.nats.wire import Wire

MEMBERS = 64
MESSAGE = b"PUB it 100\r\n%s\r\n" % (b"x" * 100)
MESSAGES = 2_200  # 250 KB: four times as much as one recv() brings
DATA_SEGMENTS_IN = 152  # offset in struct tcp_info


def pieces(wire: Wire) -> int:
    info = wire.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
    return int(struct.unpack_from("I", info, DATA_SEGMENTS_IN)[0])


def all_have_theirs(clients: list[Wire]) -> None:
    for client in clients:
        client.barrier()


def test_much_input_is_taken_in_a_turn_however_many_members_its_messages_are_spread_over() -> None:
    """Whether all input is there at once is up to the kernel: one of some rounds will do. A recv() in each turn would
    give each member four pieces in all of them."""
    with running(1) as server:
        members = [slow(server, b"SUB it q 1\r\n") for _ in range(MEMBERS)]
        publisher = Wire(server.port)
        publisher.send(QUIET)
        acceptor = acceptor_of(server)

        def pieces_of_a_round() -> int:
            before = sum(map(pieces, members))
            os.kill(acceptor, signal.SIGSTOP)
            publisher.send(MESSAGE * MESSAGES)
            os.kill(acceptor, signal.SIGCONT)
            all_have_theirs([publisher, *members])
            pongs = MEMBERS
            return sum(map(pieces, members)) - before - pongs

        assert any(pieces_of_a_round() < 2 * MEMBERS for _ in range(20))
