"""What a process has said to the supervisor, or passed on, counts, however it ended."""

from __future__ import annotations

import os
import socket

import pytest
from mq_shards.ringbuf.control import Control
from mq_shards.ringbuf.handover import Handover


@pytest.mark.parametrize("unread", [0, 1, 3])
def test_the_last_messages_of_a_process_that_read_no_more_are_heard_and_so_are_their_descriptors(unread: int) -> None:
    here, there = Control.pair()
    for _ in range(unread):
        here.send({"do": "ping"})
    reading, writing = os.pipe()
    there.send({"did": "keep"}, [reading])
    there.send({"did": "refused"})
    os.write(writing, b"kept")
    for fd in (reading, writing):
        os.close(fd)
    there.close()
    said, (kept,) = here.receive()
    assert said == {"did": "keep"} and os.read(kept, 9) == b"kept"
    os.close(kept)
    assert here.receive() == ({"did": "refused"}, [])
    with pytest.raises(EOFError):
        here.receive()
    here.close()


def test_a_connection_that_was_passed_on_at_last_is_there_though_who_passed_it_took_no_more() -> None:
    here, there = map(Handover, Handover.pair())
    client, accepted = socket.socketpair()
    with client, accepted:
        assert here.give(accepted.fileno(), b"not taken") and there.give(accepted.fileno(), b"received")
        there.close()
        taken = here.take()
        assert taken is not None and taken[1] == b"received"
        taken[0].sendall(b"served")
        assert client.recv(9) == b"served"
        taken[0].close()
    with pytest.raises(EOFError):
        here.take()
    here.close()
