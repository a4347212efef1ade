"""A process that stands still: rings to it fill up, who publishes into them waits, nobody else, and nothing is lost."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import time
from collections.abc import Iterator

from tests.nats.scenes import QUIET
from tests.nats.servers import NatsServer, running
from tests.nats.test_mesh import all_children
from tests.nats.wire import Wire
from tests.ready import writable
from tests.servers import comm_of, wait_until

RING_BYTES = 64 << 10
BODY_BYTES = 2000
MESSAGES = 8_000  # of each publisher: more than rings and sockets hold
STALLED_S = 0.5  # as long as nothing is taken of a publisher
# However slow the machine is, nobody is cut off or replaced meanwhile.
PATIENT = ["nats.write-deadline=5m", "broker.hang-timeout=0"]


def acceptor_of(wire: Wire) -> int:
    """Client ids of an acceptor have its number in their lowest bits."""
    number: int = json.loads(wire.info[len("INFO ") :])["client_id"]
    return number % 64


def client_of(server: NatsServer, acceptor: int, said: bytes = b"") -> Wire:
    """The kernel spreads connections over the acceptors."""
    for _ in range(200):
        wire = Wire(server.port)
        if acceptor_of(wire) == acceptor:
            wire.send(QUIET + said)
            wire.barrier()
            return wire
        wire.close()
    raise AssertionError("no connection was that acceptor's")


@contextlib.contextmanager
def standing_still(server: NatsServer, comm: str) -> Iterator[None]:
    pid = next(pid for pid in all_children(server.process.pid) if comm_of(pid) == comm)
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


class Publisher:
    """Sends its numbers, as far as they are taken."""

    def __init__(self, wire: Wire, subject: bytes, name: bytes) -> None:
        self.wire = wire
        self.said = [(b"%s %d " % (name, n)).ljust(BODY_BYTES, b".") for n in range(MESSAGES)]
        self._left = memoryview(b"".join(b"PUB %s %d\r\n%s\r\n" % (subject, len(one), one) for one in self.said))
        wire.socket.setblocking(False)

    @property
    def is_done(self) -> bool:
        return not self._left

    def push(self) -> bool:
        """Whether anything was taken."""
        before = len(self._left)
        with contextlib.suppress(BlockingIOError):
            while self._left:
                self._left = self._left[self.wire.socket.send(self._left[: 1 << 16]) :]
        return len(self._left) < before

    def push_until_stalled(self) -> None:
        last = time.monotonic()
        while not self.is_done and time.monotonic() - last < STALLED_S:
            if self.push():
                last = time.monotonic()
            writable([self.wire.socket], 0.05)


class Listener:
    """Takes in much, without looking at it each time."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self._pieces = [wire.heard.data]
        self.bytes = len(wire.heard.data)
        wire.socket.setblocking(False)

    def receive(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while piece := self.wire.socket.recv(1 << 20):
                self._pieces.append(piece)
                self.bytes += len(piece)
            raise AssertionError("it was cut off")

    def bodies(self) -> list[bytes]:
        return re.findall(rb"MSG [^\r]+\r\n([^\r]*)\r\n", b"".join(self._pieces))


def check_all_come_in_order(listeners: list[Listener], publishers: list[Publisher]) -> None:
    messages = sum(len(one.said) for one in publishers)

    def all_there() -> bool:
        for one in publishers:
            one.push()
        for listener in listeners:
            listener.receive()
        much = all(listener.bytes > messages * BODY_BYTES for listener in listeners)
        return much and all(len(listener.bodies()) >= messages for listener in listeners)

    wait_until(all_there, "all has come", 120)
    for listener in listeners:
        heard = listener.bodies()
        assert len(heard) == messages
        for publisher in publishers:
            assert [body for body in heard if body.startswith(publisher.said[0][:2])] == publisher.said


def test_an_acceptor_that_stands_still_holds_up_who_publishes_to_its_clients_and_nobody_else() -> None:
    with running(3, [f"broker.mesh-ring-bytes={RING_BYTES}", *PATIENT]) as server:
        listeners = [Listener(client_of(server, acceptor, b"SUB news 1\r\n")) for acceptor in range(3)]
        publishers = [Publisher(client_of(server, n), b"news", b"%d" % n) for n in (0, 2)]
        near = client_of(server, 0, b"SUB near 1\r\n")
        with standing_still(server, "mq-acceptor-1"):
            for one in publishers:
                one.push_until_stalled()
                assert not one.is_done
            near.send(b"PUB near 2\r\nhi\r\n")
            wait_until(lambda: _hears(near, b"MSG near 1 2\r\nhi\r\n"), "others are served")
        check_all_come_in_order(listeners, publishers)


def test_a_worker_that_stands_still_holds_up_who_publishes_to_its_topics_and_nobody_else() -> None:
    with running(1, ["nats.topics=kept.>", f"broker.ring-bytes={RING_BYTES}", *PATIENT]) as server:
        listener = Listener(client_of(server, 0, b"SUB kept.> 1\r\n"))
        one = Publisher(client_of(server, 0), b"kept.a", b"0")
        near = client_of(server, 0, b"SUB near 1\r\nSUB _INBOX.a 2\r\n")
        with standing_still(server, "mq-worker-0"):
            one.push_until_stalled()
            assert not one.is_done
            near.send(b"PUB near 2\r\nhi\r\n")
            wait_until(lambda: _hears(near, b"MSG near 1 2\r\nhi\r\n"), "others are served")
        check_all_come_in_order([listener], [one])
        near.send(b"PUB kept.a _INBOX.a 2\r\nhi\r\n")
        wait_until(lambda: _hears(near, b'"seq":%d' % MESSAGES), "all were kept before it")


def _hears(wire: Wire, what: bytes) -> bool:
    wire.receive_what_is_there()
    return what in wire.heard.data
