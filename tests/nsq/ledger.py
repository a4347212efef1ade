"""What publishers and consumers know of their messages while the broker may die, and whether it kept its word.

A message is known by its body. Whether it must be there, may be, or must not, follows from what was answered:
a publish by its OK; a FIN, which has no answer, by that of a TOUCH of the same message sent right after it.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import threading
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from tests.nsq import frames
from tests.nsq.frames import ERROR, HEARTBEAT, MESSAGE, OK, Message, parse_message
from tests.nsq.servers import NsqServer
from tests.nsq.wire import Wire, consumer

CHANNELS = ("a", "b")
RDY = 40
HELD = 15
QUIET_SECONDS = 0.4


@dataclass
class Queue:
    """What is known of one channel of one topic."""

    topic: str
    channel: str
    attempts: dict[bytes, int] = field(default_factory=dict)  # the greatest seen, by body
    finishing: set[bytes] = field(default_factory=set)  # may come again, or not
    finished: set[bytes] = field(default_factory=set)  # must not


@dataclass
class Ledger:
    topics: list[str] = field(default_factory=lambda: [f"ledger-{n}" for n in range(6)])
    lock: threading.Lock = field(default_factory=threading.Lock)
    sent: dict[str, set[bytes]] = field(default_factory=dict)  # by topic: must be there or may be
    acknowledged: dict[str, set[bytes]] = field(default_factory=dict)  # by topic: must be there
    ids: dict[bytes, bytes] = field(default_factory=dict)  # by body
    bodies: dict[bytes, bytes] = field(default_factory=dict)  # by id
    queues: list[Queue] = field(default_factory=list)
    # Odd while a worker may be dead: a FIN that was under way then may be lost.
    outages: int = 0
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def __post_init__(self) -> None:
        for topic in self.topics:
            self.sent[topic], self.acknowledged[topic] = set(), set()
            self.queues += [Queue(topic, channel) for channel in CHANNELS]

    def make_channels(self, server: NsqServer) -> None:
        for queue in self.queues:
            consumer(server, queue.topic, queue.channel).close()

    def new_bodies(self, topic: str, draw: random.Random) -> list[bytes]:
        with self.lock:
            bodies = [
                b"%d:%s" % (next(self._numbers), draw.randbytes(draw.choice([0, 1, 50, 700])))
                for _ in range(draw.choice([1, 1, 5, 20]))
            ]
            self.sent[topic].update(bodies)
        return bodies

    def published(self, topic: str, bodies: list[bytes]) -> None:
        with self.lock:
            self.acknowledged[topic].update(bodies)

    def received(self, queue: Queue, message: Message, *, late: bool = False) -> bool:
        """False for a delivery of a worker that is dead: read `late`, when another consumer has had the next one."""
        body = message.body
        with self.lock:
            assert body in self.sent[queue.topic], f"{body[:30]!r} is nobody's in {queue.topic}"
            before = queue.attempts.get(body, 0)
            if message.attempts <= before and late and self.outages:
                return False
            assert message.attempts > before, f"attempt {message.attempts} after {before} of {body[:30]!r}"
            assert body not in queue.finished, f"{body[:30]!r} was finished after {before} and is back"
            queue.attempts[body] = message.attempts
            assert self.ids.setdefault(body, message.id) == message.id, f"{body[:30]!r} has another id"
            assert self.bodies.setdefault(message.id, body) == body, f"{message.id!r} is two messages"
        return True

    def count(self) -> tuple[int, int]:
        """Acknowledged publishes and certain finishes so far."""
        with self.lock:
            return sum(map(len, self.acknowledged.values())), sum(len(queue.finished) for queue in self.queues)

    def drain(self, server: NsqServer) -> None:
        """Takes all messages out: none is missing, none was finished before, none comes twice."""
        with contextlib.ExitStack() as stack, ThreadPoolExecutor(len(self.queues)) as pool:
            wires = [
                stack.enter_context(consumer(server, queue.topic, queue.channel, rdy=500)) for queue in self.queues
            ]
            for drained in [pool.submit(self._drain, *each) for each in zip(self.queues, wires, strict=True)]:
                drained.result()

    def _drain(self, queue: Queue, wire: Wire) -> None:
        must = self.acknowledged[queue.topic] - queue.finished - queue.finishing
        until = time.monotonic() + 30
        while True:
            for message in wire.messages_until_quiet(QUIET_SECONDS if not must else 0.05):
                self.received(queue, message)
                queue.finished.add(message.body)
                must.discard(message.body)
            if not must and wire.is_quiet(0):
                break
            assert time.monotonic() < until, f"lost in {queue.topic} {queue.channel}: {sorted(must)[:5]!r}"


class Client:
    """A thread that works until it is stopped or cut off."""

    def __init__(self, server: NsqServer, ledger: Ledger, seed: int) -> None:
        self.server = server
        self.ledger = ledger
        self.draw = random.Random(seed)
        self.failure: BaseException | None = None
        self.was_cut_off = False
        self.is_at_work = threading.Event()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(30)
        assert not self._thread.is_alive(), f"{type(self).__name__} waits in vain for an answer"
        if self.failure is not None:
            raise self.failure

    def _run(self) -> None:
        try:
            self._work()
        except ConnectionError:
            self.was_cut_off = True
        except BaseException as error:
            self.failure = error

    def _work(self) -> None:
        raise NotImplementedError


class Publisher(Client):
    """Publishes to all topics ahead of the answers.

    With `outages` it connects again after an E_PUB_FAILED, of which it may see no more than that it was cut off.
    """

    def __init__(self, server: NsqServer, ledger: Ledger, seed: int, *, outages: bool = False) -> None:
        self.outages = outages
        super().__init__(server, ledger, seed)

    def _work(self) -> None:
        while not self._stop.is_set():
            with Wire(self.server) as wire:
                self.is_at_work.set()
                try:
                    self._publish(wire)
                except ConnectionError:
                    if not self.outages:
                        raise

    def _publish(self, wire: Wire) -> None:
        waiting: deque[tuple[str, list[bytes]]] = deque()
        while not self._stop.is_set() or waiting:
            if not self._stop.is_set():
                for _ in range(self.draw.randint(1, 20)):
                    topic = self.draw.choice(self.ledger.topics)
                    bodies = self.ledger.new_bodies(topic, self.draw)
                    waiting.append((topic, bodies))
                    wire.send(frames.pub(topic, bodies[0]) if len(bodies) == 1 else frames.mpub(topic, bodies))
            while len(waiting) > (0 if self._stop.is_set() else 20):
                frame = wire.frame()
                if frame.kind == ERROR and self.outages:
                    assert frame.data.split()[0] in (b"E_PUB_FAILED", b"E_MPUB_FAILED"), frame
                    return
                assert frame == OK
                self.ledger.published(*waiting.popleft())


class Consumer(Client):
    """Finishes most of what it gets, requeues some, and holds some."""

    def __init__(self, server: NsqServer, ledger: Ledger, seed: int, queue: Queue) -> None:
        self.queue = queue
        self._held: list[Message] = []
        super().__init__(server, ledger, seed)

    def _work(self) -> None:
        with consumer(self.server, self.queue.topic, self.queue.channel, RDY) as wire:
            self.is_at_work.set()
            # By message id: what was finished, and in which count of outages.
            finishing: dict[bytes, tuple[bytes, int]] = {}
            while not self._stop.is_set():
                try:
                    frame = wire.frame(0.02)
                except TimeoutError:
                    continue
                if frame.kind == MESSAGE:
                    message = parse_message(frame)
                    if self.ledger.received(self.queue, message, late=True):
                        self._handle(wire, message, finishing)
                elif frame.kind == ERROR:
                    self._failed(frame.data, finishing)
                else:
                    assert frame.data == HEARTBEAT

    def _handle(self, wire: Wire, message: Message, finishing: dict[bytes, tuple[bytes, int]]) -> None:
        if len(self._held) < HELD and self.draw.random() < 0.1:
            self._held.append(message)
        elif self.draw.random() < 0.15:
            wire.req(message, self.draw.choice([0, 0, 10, 300]))
        else:
            with self.ledger.lock:
                self.queue.finishing.add(message.body)
                finishing[message.id] = (message.body, self.ledger.outages)
            wire.send(frames.fin(message.id) + frames.touch(message.id))

    def _failed(self, text: bytes, finishing: dict[bytes, tuple[bytes, int]]) -> None:
        """The TOUCH after a FIN fails, as it must; if the FIN failed too, that has been told before."""
        name, _, message_id = text.split()[:3]
        if message_id not in finishing:
            # A FIN or REQ of what a dead worker had given out; the TOUCH after a FIN that failed.
            assert name in (b"E_FIN_FAILED", b"E_REQ_FAILED", b"E_TOUCH_FAILED"), text
            return
        body, outages = finishing.pop(message_id)
        if name == b"E_TOUCH_FAILED":
            with self.ledger.lock:
                if outages == self.ledger.outages and outages % 2 == 0:
                    self.queue.finishing.discard(body)
                    self.queue.finished.add(body)
