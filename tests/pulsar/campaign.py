"""Clients that go on whatever dies, and keep a ledger of what they were promised.

Producers with deduplication, consumers that transform what they get in transactions, a reader that must never see what
is not committed, and one that compacts.

Each has a thread, and a connection that it makes anew whenever it is lost.
"""

from __future__ import annotations

import contextlib
import http.client
import random
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Final

from tests.pulsar.servers import PulsarServer
from tests.pulsar.wire import MAX, Frame, Message, Wire, entry_of, metadata, payload_of, send_frame

TIMEOUT_S: Final = 60
WINDOW: Final = 50
COMMIT, ABORT = 0, 1
NOT_FOUND: Final = 24
EXCLUSIVE, SHARED = 0, 1
FIRST_MS: Final = 1_700_000_000_000  # when message 0 was published; each next one is a millisecond later
NEVER: Final = b"never "  # what is in a transaction that its owner aborts

Place = tuple[int, int]


class LostError(Exception):
    """The connection, or what was open on it; or a request was refused for now."""


class Line(Wire):
    """Says LostError where a Wire fails."""

    def __init__(self, port: int) -> None:
        super().__init__(port)
        self.socket.settimeout(TIMEOUT_S)
        self.connect()

    def receive(self) -> Frame | None:
        frame = super().receive()
        if frame is None:
            raise LostError("the connection was closed")
        if frame.name in ("close_producer", "close_consumer", "error", "send_error"):
            raise LostError(str(frame))
        return frame

    def tell(self, name: str, answer: str, **fields: object) -> Message:
        found = self.ask(name, answer, **fields)
        if found.HasField("error"):
            raise LostError(str(found))
        return found

    def received(self, wait_s: float) -> Frame | None:
        """The next message, if one comes soon."""
        self.socket.settimeout(wait_s)
        try:
            return self.until(lambda frame: frame.name == "message")
        except TimeoutError:
            return None
        finally:
            self.socket.settimeout(TIMEOUT_S)


class Actor(ABC):
    def __init__(self, server: Callable[[], PulsarServer]) -> None:
        self.server = server
        self.stopping = threading.Event()
        self.failure: BaseException | None = None
        self.losses = 0
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def finish(self) -> None:
        """What it has begun is done when this returns."""
        self.stopping.set()
        self._thread.join(TIMEOUT_S)
        if self.failure is not None:
            raise self.failure
        assert not self._thread.is_alive(), f"{self} does not come to an end"

    def _run(self) -> None:
        try:
            while not self.is_done():
                try:
                    with Line(self.server().port) as line:
                        self.serve(line)
                except (LostError, OSError):
                    self.losses += 1
                    time.sleep(0.05)
        except BaseException as error:
            self.failure = error

    def is_done(self) -> bool:
        return self.stopping.is_set()

    @abstractmethod
    def serve(self, line: Line) -> None:
        """Until it is done, or LostError."""


class Producer(Actor):
    """Numbers its messages and sends again what has no receipt: each is in the topic once, in order."""

    def __init__(self, server: Callable[[], PulsarServer], topic: str, keys: int = 0, pause_s: float = 0.002) -> None:
        super().__init__(server)
        self.topic, self._keys, self._pause_s = topic, keys, pause_s
        self.count = 0  # those that there are
        self.places: dict[int, Place] = {}  # of those with a receipt; (MAX, MAX): it was a duplicate

    def is_done(self) -> bool:
        return super().is_done() and len(self.places) == self.count

    def key(self, number: int) -> str:
        return f"k{number % self._keys}"

    def _send(self, line: Line, number: int) -> None:
        fields: dict[str, object] = {"partition_key": self.key(number)} if self._keys else {}
        self.send_entry(line, number, str(number).encode(), fields)

    def send_entry(self, line: Line, number: int, payload: bytes, fields: dict[str, object]) -> None:
        said = {"producer_name": "of " + self.topic, "sequence_id": number, "publish_time": FIRST_MS + number}
        line.raw(send_frame(1, number, entry_of(metadata(**said, **fields), payload)))

    def serve(self, line: Line) -> None:
        line.producer(self.topic, producer_name="of " + self.topic)
        sent = self.count
        for number in range(self.count):
            if number not in self.places:
                self._send(line, number)
        while not self.is_done():
            if not self.stopping.is_set() and sent - len(self.places) < WINDOW:
                self.count = sent = sent + 1
                self._send(line, sent - 1)
                time.sleep(self._pause_s)
                if sent % WINDOW:
                    continue
            receipt = line.expect("send_receipt")
            place = int(receipt.message_id.ledgerId), int(receipt.message_id.entryId)
            self.places.setdefault(int(receipt.sequence_id), place)


class Transformer(Actor):
    """Takes messages of one topic and puts them into another, some at a time, in transactions: each is there once."""

    def __init__(self, server: Callable[[], PulsarServer], source: str, sink: str, seed: int) -> None:
        super().__init__(server)
        self._source, self._sink, self._random = source, sink, random.Random(seed)
        self._open: int | None = None
        self._decision = ABORT
        self._sequence = 0
        self.commits = self.aborts = 0

    def is_done(self) -> bool:
        return super().is_done() and self._open is None

    @staticmethod
    def _ids(txn: int) -> dict[str, int]:
        return {"txnid_least_bits": txn, "txnid_most_bits": 0}

    def _end(self, line: Line) -> None:
        assert self._open is not None
        found = line.ask("endTxn", "endTxnResponse", txn_action=self._decision, **self._ids(self._open))
        if found.HasField("error") and found.error != NOT_FOUND:
            raise LostError(str(found))
        # Of one that is over for long it is not said how it ended: what is in the topics says it.
        self._open = None
        self.commits += self._decision == COMMIT
        self.aborts += self._decision == ABORT
        self._decision = ABORT

    def _one(self, line: Line, frames: list[Frame], *, keep: bool) -> None:
        txn = self._open = int(line.tell("newTxn", "newTxnResponse", txn_ttl_seconds=600_000, tc_id=0).txnid_least_bits)
        ids, whole = self._ids(txn), "persistent://public/default/"
        line.tell("addPartitionToTxn", "addPartitionToTxnResponse", partitions=[whole + self._sink], **ids)
        part = {"topic": whole + self._source, "subscription": "transform"}
        line.tell("addSubscriptionToTxn", "addSubscriptionToTxnResponse", subscription=[part], **ids)
        for frame in frames:
            payload = payload_of(frame) if keep else NEVER + payload_of(frame)
            self._sequence += 1  # of what is given twice the second would be let fall
            entry = entry_of(metadata(sequence_id=self._sequence, **ids), payload)
            line.raw(send_frame(1, self._sequence, entry, **ids))
        for _ in frames:
            place = line.expect("send_receipt").message_id
            assert place.entryId != MAX, "nothing of it has been sent before"
        places = [{"ledgerId": f.body.message_id.ledgerId, "entryId": f.body.message_id.entryId} for f in frames]
        line.requests += 1
        line.say("ack", consumer_id=1, ack_type=0, message_id=places, request_id=line.requests, **ids)
        refused = line.expect("ackResponse").HasField("error")
        self._decision = COMMIT if keep and not refused else ABORT
        self._end(line)

    def serve(self, line: Line) -> None:
        if self._open is not None:
            self._end(line)
        line.producer(self._sink)
        line.subscribe(self._source, "transform", SHARED, initialPosition=1)
        line.flow(100)
        while not self.is_done():
            frames = [frame for frame in [line.received(0.2)] if frame is not None]
            while frames and len(frames) < 10 and line.frames:
                frames.append(line.message())
            if frames:
                line.flow(len(frames))
                self._one(line, frames, keep=self._random.random() < 0.7)


class Tail(Actor):
    """Reads all of a topic as it comes, from where it was when it loses the connection."""

    def __init__(self, server: Callable[[], PulsarServer], topic: str) -> None:
        super().__init__(server)
        self._topic = topic
        self.found: list[tuple[Place, bytes]] = []

    def serve(self, line: Line) -> None:
        ledger, entry = self.found[-1][0] if self.found else (MAX, MAX)
        start = {"ledgerId": ledger, "entryId": entry}
        line.subscribe(self._topic, "tail", durable=False, start_message_id=start)
        line.flow(1_000_000)
        while not self.is_done():
            frame = line.received(0.2)
            if frame is not None:
                place = int(frame.body.message_id.ledgerId), int(frame.body.message_id.entryId)
                if self.found and place == self.found[-1][0]:
                    continue  # where it begins
                self.found.append((place, payload_of(frame)))


class Compactor(Actor):
    """Has a topic compacted, again and again."""

    def __init__(self, server: Callable[[], PulsarServer], topic: str) -> None:
        super().__init__(server)
        self._topic, self.runs = topic, 0

    def serve(self, line: Line) -> None:
        while not self.is_done():
            self.runs += compact(self.server(), self._topic)
            time.sleep(0.1)


def _ask(server: PulsarServer, method: str, topic: str) -> tuple[int, bytes]:
    """Status 0: nobody answers."""
    path = f"/admin/v2/persistent/public/default/{topic}/compaction"
    with contextlib.closing(http.client.HTTPConnection(server.http, timeout=TIMEOUT_S)) as connection:
        try:
            connection.request(method, path)
            answer = connection.getresponse()
            return answer.status, answer.read()
        except (OSError, http.client.HTTPException):
            return 0, b""


def compact(server: PulsarServer, topic: str) -> bool:
    """False: it cannot be now."""
    return _ask(server, "PUT", topic)[0] == 204


def compacted(server: PulsarServer, topic: str) -> bool:
    """Whether no run is under way."""
    return b"SUCCESS" in _ask(server, "GET", topic)[1]


def read_all(server: PulsarServer, topic: str, *, compacted: bool = False) -> list[tuple[Place, Frame]]:
    """From the first message to the last that there is now."""
    found: list[tuple[Place, Frame]] = []
    with Line(server.port) as line:
        start = {"ledgerId": MAX, "entryId": MAX}
        line.subscribe(topic, "all", durable=False, start_message_id=start, read_compacted=compacted)
        last = line.ask("getLastMessageId", "getLastMessageIdResponse", consumer_id=1).last_message_id
        end = int(last.ledgerId), int(last.entryId)
        line.flow(1_000_000)
        while end != (MAX, MAX) and (not found or found[-1][0] < end):
            frame = line.message()
            found.append(((int(frame.body.message_id.ledgerId), int(frame.body.message_id.entryId)), frame))
    return found
