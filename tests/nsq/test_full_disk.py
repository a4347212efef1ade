"""A disk without room: publishes fail with the protocol's errors, consumers go on, and so do publishes when there is
room again. mq-shards only."""

from __future__ import annotations

import os
from pathlib import Path

from tests.crash.test_full_disk import DISK_BYTES, OPTIONS, small_disk  # noqa: F401
from tests.nsq import frames
from tests.nsq.api import call
from tests.nsq.frames import ERROR, OK
from tests.nsq.servers import NsqServer, running
from tests.nsq.wire import Wire, consumer
from tests.servers import Shape, wait_until

BODY = os.urandom(500_000)
SINGLE = Shape("shards-1", "mq-shards", ("--workers", "1"))


def publish_until_refused(server: NsqServer) -> int:
    """How many were taken; the refusal closes the connection."""
    taken = 0
    with Wire(server) as wire:
        while (frame := wire.ask(frames.pub("full", BODY))) == OK:
            taken += 1
            assert taken * len(BODY) < 2 * DISK_BYTES, "the disk is never full"
        assert frame.kind == ERROR
        assert frame.data.startswith(b"E_PUB_FAILED PUB failed ")
        assert wire.is_closed()
    return taken


def test_publishes_fail_and_consumers_go_on(small_disk: Path) -> None:  # noqa: F811
    with (
        running(SINGLE, data_dir=small_disk, arguments=OPTIONS) as server,
        consumer(server, "full", rdy=20) as reader,
    ):
        count = publish_until_refused(server)
        assert count * len(BODY) > DISK_BYTES // 2, "most of the disk was used"
        for name, command in (("MPUB", frames.mpub("full", [b"x", BODY])), ("DPUB", frames.dpub("full", 1, BODY))):
            with Wire(server) as wire:
                frame = wire.ask(command)
                assert frame.kind == ERROR
                assert frame.data.startswith(f"E_{name}_FAILED {name} failed ".encode())
                assert wire.is_closed()
        nok = b"NOK - worker 0 refuses writes: the disk is full"
        wait_until(lambda: call(server, "GET", "/ping").body == nok, "that clients by TCP were refused is said")
        refused = call(server, "POST", "/pub?topic=full", BODY)
        assert (refused.status, refused.body) == (503, b'{"message":"EXITING"}')
        assert call(server, "GET", "/ping").body == nok
        first = reader.message()
        reader.req(first)
        attempts: dict[bytes, int] = {}
        for _ in range(count):
            message = reader.message()
            assert message.body == BODY, "nothing of the refused MPUB was taken"
            attempts[message.id] = message.attempts
            reader.fin(message)
        assert len(attempts) == count
        assert attempts.pop(first.id) == 2
        assert set(attempts.values()) == {1}
        assert reader.is_quiet()
        again = 0

        def there_is_room() -> bool:
            nonlocal again
            again += publish_until_refused(server)
            return again * len(BODY) > DISK_BYTES // 4

        wait_until(there_is_room, "there is room again", 20)

        def is_taken() -> bool:
            with Wire(server) as wire:
                return wire.ask(frames.pub("other", b"x")) == OK

        wait_until(is_taken, "a message is taken")
        wait_until(lambda: call(server, "GET", "/ping").body == b"OK", "who published nothing more by HTTP is told too")
        reader.close()
        server.kill()
    with (
        running(SINGLE, data_dir=small_disk, arguments=OPTIONS[2:]) as server,
        consumer(server, "full", rdy=20) as reader,
    ):
        for _ in range(again):
            message = reader.message()
            assert message.body == BODY
            reader.fin(message)
        assert reader.is_quiet()
