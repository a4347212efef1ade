"""Clients of all protocols at the same topics, which go on whatever dies, and a ledger of what they were told.

Each message has a body of its own, sent once. It must come to each queue of its topic if its publisher was told that it
is kept, and to none for which its consumer was told that it is finished: on no connection that was made after that, as
before it may have been on its way. In one queue it has one id, whatever happens.
"""

from __future__ import annotations

import itertools
import random
import socket
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from tests.beanstalk.wire import Wire as BeanstalkWire
from tests.nsq import frames
from tests.nsq.wire import Wire as NsqWire
from tests.pulsar.campaign import SHARED, Line, LostError
from tests.pulsar.servers import PulsarServer
from tests.pulsar.wire import entry_of, metadata, payload_of, send_frame

TOPICS: Final = ("t0", "t1", "t2")
TIMEOUT_S: Final = 120
SOME: Final = 5  # messages in flight of a publisher


@dataclass
class Queue:
    topic: str
    name: str
    finishing: set[bytes] = field(default_factory=set)  # may come again, or not
    finished: dict[bytes, float] = field(default_factory=dict)  # must not: since when that is certain
    ids: dict[bytes, object] = field(default_factory=dict)


class Ledger:
    def __init__(self) -> None:
        self.queues = {(topic, name): Queue(topic, name) for topic in TOPICS for name in ("channel", "tube", "shared")}
        self._sent: dict[str, set[bytes]] = {topic: set() for topic in TOPICS}
        self._kept: dict[str, set[bytes]] = {topic: set() for topic in TOPICS}
        self._numbers: Iterator[int] = itertools.count()
        self._lock = threading.Lock()

    def new(self, topic: str, draw: random.Random) -> bytes:
        with self._lock:
            body = b"%d:%s" % (next(self._numbers), draw.randbytes(draw.choice([0, 1, 200, 3000])))
            self._sent[topic].add(body)
        return body

    def is_kept(self, topic: str, body: bytes) -> None:
        with self._lock:
            self._kept[topic].add(body)

    def came(self, queue: Queue, body: bytes, message: object, since: float) -> None:
        with self._lock:
            assert body in self._sent[queue.topic], f"{body[:20]!r} is nobody's in {queue.topic}"
            over = queue.finished.get(body, since)
            assert over >= since, f"{body[:20]!r} of {queue.topic} {queue.name} was finished before, and is back"
            known = queue.ids.setdefault(body, message)
            assert known == message, f"{body[:20]!r} of {queue.topic} {queue.name} is there twice"

    def may_be_finished(self, queue: Queue, body: bytes) -> None:
        with self._lock:
            queue.finishing.add(body)

    def is_finished(self, queue: Queue, body: bytes) -> None:
        with self._lock:
            queue.finished.setdefault(body, time.monotonic())

    def kept(self) -> int:
        with self._lock:
            return sum(map(len, self._kept.values()))

    def left(self) -> int:
        """What is kept and still to come, in all queues."""
        with self._lock:
            return sum(len(self._kept[queue.topic] - queue.finishing) for queue in self.queues.values())


class Client(ABC):
    """A thread, and a connection that it makes anew whenever it is lost."""

    def __init__(self, broker: Callable[[], PulsarServer], ledger: Ledger, seed: int) -> None:
        self.broker, self.ledger, self.draw = broker, ledger, random.Random(seed)
        self.stopping = threading.Event()
        self.failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def finish(self) -> None:
        self.stopping.set()
        self._thread.join(TIMEOUT_S)
        if self.failure is not None:
            raise self.failure
        assert not self._thread.is_alive(), f"{self} does not come to an end"

    def _run(self) -> None:
        try:
            while not self.stopping.is_set():
                try:
                    self.serve()
                except (LostError, OSError):
                    time.sleep(0.05)
        except BaseException as error:
            self.failure = error

    @abstractmethod
    def serve(self) -> None:
        """On one connection."""


class Publisher(Client):
    kept = 0

    def serve(self) -> None:
        while not self.stopping.is_set():
            topic = self.draw.choice(TOPICS)
            for body in self.publish(topic, [self.ledger.new(topic, self.draw) for _ in range(SOME)]):
                self.ledger.is_kept(topic, body)
                self.kept += 1
            time.sleep(0.02)

    @abstractmethod
    def publish(self, topic: str, bodies: list[bytes]) -> list[bytes]:
        """Those that are kept, as it was told."""


class BeanstalkPublisher(Publisher):
    def serve(self) -> None:
        with BeanstalkWire(self.broker().beanstalk_port) as self.wire:
            super().serve()

    def publish(self, topic: str, bodies: list[bytes]) -> list[bytes]:
        self.wire.ask(f"use {topic}")
        self.wire.send(b"".join(b"put 0 0 600 %d\r\n%s\r\n" % (len(body), body) for body in bodies))
        return [body for body in bodies if self.wire.reply().line.startswith(b"INSERTED")]


class NsqPublisher(Publisher):
    def serve(self) -> None:
        with NsqWire(self.broker().other_port) as self.wire:
            super().serve()

    def _is_ok(self) -> bool:
        while (frame := self.wire.frame()).data == frames.HEARTBEAT:
            self.wire.send(b"NOP\n")
        return frame == frames.OK

    def publish(self, topic: str, bodies: list[bytes]) -> list[bytes]:
        if self.draw.random() < 0.5:
            self.wire.send(frames.mpub(topic, bodies))
            return bodies if self._is_ok() else []
        self.wire.send(b"".join(frames.pub(topic, body) for body in bodies))
        return [body for body in bodies if self._is_ok()]


class PulsarPublisher(Publisher):
    def serve(self) -> None:
        with Line(self.broker().port) as self.line:
            self.name, self.sent = f"of {self.draw.getrandbits(64)}", itertools.count()
            for number, topic in enumerate(TOPICS):
                self.line.producer(topic, number, producer_name=f"{self.name} {topic}")
            super().serve()

    def publish(self, topic: str, bodies: list[bytes]) -> list[bytes]:
        sent = dict(zip(self.sent, bodies, strict=False))
        for sequence, body in sent.items():
            head = metadata(producer_name=f"{self.name} {topic}", sequence_id=sequence)
            self.line.raw(send_frame(TOPICS.index(topic), sequence, entry_of(head, body)))
        return [sent[int(self.line.expect("send_receipt").sequence_id)] for _ in bodies]


class NatsPublisher(Publisher):
    """To subjects that are topics too, as requests."""

    def __init__(self, broker: Callable[[], PulsarServer], port: Callable[[], int], ledger: Ledger, seed: int) -> None:
        self._port = port
        super().__init__(broker, ledger, seed)

    def serve(self) -> None:
        with (
            socket.create_connection(("127.0.0.1", self._port()), 30) as self.sock,
            self.sock.makefile("rb") as self.file,
        ):
            self.sock.sendall(b'CONNECT {"verbose":false}\r\nSUB answer.* 1\r\n')
            super().serve()

    def _answer(self) -> tuple[int, bytes]:
        while True:
            line = self.file.readline()
            if not line:
                raise LostError("the connection was closed")
            if line == b"PING\r\n":
                self.sock.sendall(b"PONG\r\n")
            if line.startswith(b"MSG "):
                words = line.split()
                return int(words[1].removeprefix(b"answer.")), self.file.read(int(words[-1]) + 2)

    def publish(self, topic: str, bodies: list[bytes]) -> list[bytes]:
        pub = b"PUB %s answer.%d %d\r\n%s\r\n"
        self.sock.sendall(b"".join(pub % (topic.encode(), n, len(body), body) for n, body in enumerate(bodies)))
        answers = [self._answer() for _ in bodies]
        return [bodies[number] for number, answer in answers if b'"error"' not in answer]


class Consumer(Client):
    """Finishes most of what it gets, gives some back, and holds some until its connection ends."""

    def __init__(self, broker: Callable[[], PulsarServer], ledger: Ledger, seed: int, queue: Queue) -> None:
        self.queue = queue
        super().__init__(broker, ledger, seed)

    def serve(self) -> None:
        self.until = time.monotonic() + self.draw.uniform(0.5, 4)
        self.consume(time.monotonic())

    def goes_on(self) -> bool:
        return not self.stopping.is_set() and time.monotonic() < self.until

    def what_becomes(self, body: bytes) -> str:
        becomes = self.draw.choices(["finish", "give back", "hold"], [88, 6, 6])[0]
        if becomes == "finish":
            self.ledger.may_be_finished(self.queue, body)
        return becomes

    @abstractmethod
    def consume(self, since: float) -> None:
        """As long as it goes on."""


class ChannelConsumer(Consumer):
    """A FIN has no answer: a TOUCH behind it fails, and if it was not done that is told before."""

    def consume(self, since: float) -> None:
        finishing: dict[bytes, bytes] = {}
        with NsqWire(self.broker().other_port) as wire:
            wire.send(b"SUB %s %s\nRDY 50\n" % (self.queue.topic.encode(), self.queue.name.encode()))
            while self.goes_on():
                try:
                    frame = wire.frame(0.2)
                except TimeoutError:
                    continue
                if frame.kind == frames.ERROR:
                    self._failed(frame.data, finishing)
                elif frame.kind == frames.MESSAGE:
                    message = frames.parse_message(frame)
                    self.ledger.came(self.queue, message.body, message.id, since)
                    becomes = self.what_becomes(message.body)
                    if becomes == "finish":
                        finishing[message.id] = message.body
                        wire.send(frames.fin(message.id) + frames.touch(message.id))
                    elif becomes == "give back":
                        wire.req(message, self.draw.choice([0, 100, 1500]))

    def _failed(self, text: bytes, finishing: dict[bytes, bytes]) -> None:
        name, *rest = text.split()
        body = finishing.pop(rest[1], None) if name in (b"E_FIN_FAILED", b"E_TOUCH_FAILED") else None
        if body is not None and name == b"E_TOUCH_FAILED":
            self.ledger.is_finished(self.queue, body)


class TubeConsumer(Consumer):
    def consume(self, since: float) -> None:
        with BeanstalkWire(self.broker().beanstalk_port) as wire:
            for command in (f"use {self.queue.topic}", f"watch {self.queue.topic}", "ignore default"):
                wire.ask(command)
            while self.goes_on():
                reply = wire.exchange("reserve-with-timeout 1")
                if not reply.line.startswith(b"RESERVED"):
                    continue
                job = reply.line.split()[1].decode()
                assert reply.body is not None
                self.ledger.came(self.queue, reply.body, job, since)
                becomes = self.what_becomes(reply.body)
                if becomes == "finish":
                    if wire.ask(f"delete {job}") == b"DELETED":
                        self.ledger.is_finished(self.queue, reply.body)
                elif becomes == "give back":
                    wire.ask(self.draw.choice([f"release {job} 0 0", f"release {job} 0 1", f"bury {job} 0"]))
                    wire.ask("kick 100")


class SharedConsumer(Consumer):
    def consume(self, since: float) -> None:
        with Line(self.broker().port) as line:
            line.subscribe(self.queue.topic, self.queue.name, SHARED, initialPosition=1)
            line.flow(100)
            while self.goes_on():
                frame = line.received(0.2)
                if frame is None:
                    continue
                body, place = payload_of(frame), frame.body.message_id
                self.ledger.came(self.queue, body, (int(place.ledgerId), int(place.entryId)), since)
                line.flow(1)
                becomes = self.what_becomes(body)
                if becomes == "finish":
                    if not line.ack(place).HasField("error"):
                        self.ledger.is_finished(self.queue, body)
                elif becomes == "give back":
                    line.say("redeliverUnacknowledgedMessages", consumer_id=1, message_ids=[place])


CONSUMERS: Final = {"channel": ChannelConsumer, "tube": TubeConsumer, "shared": SharedConsumer}
