"""What a process has said to the supervisor, or passed on, counts, however it ended."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest
from mq_shards.ringbuf.control import MESSAGE_BYTES, PACKET_BYTES, Control, ControlError
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


def open_descriptors() -> list[str]:
    return sorted(one.name for one in Path("/proc/self/fd").iterdir())


def test_what_is_too_large_for_a_packet_arrives_in_its_turn_with_its_descriptors() -> None:
    here, there = Control.pair()
    reading, writing = os.pipe()
    large = {"do": "shared", "message": "x" * (MESSAGE_BYTES - 64)}
    before = open_descriptors()
    here.send({"do": "first"})
    here.send(large, [reading])
    here.send({"do": "last", "message": "x" * (PACKET_BYTES - 64)})
    assert there.receive() == ({"do": "first"}, [])
    message, (fd,) = there.receive()
    os.write(writing, b"passed on")
    assert message == large and os.read(fd, 9) == b"passed on"
    os.close(fd)
    assert there.receive()[0]["do"] == "last"
    assert open_descriptors() == before
    with pytest.raises(ControlError):
        here.send({"do": "x" * MESSAGE_BYTES})
    for end in (reading, writing):
        os.close(end)
    here.close()
    there.close()


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
