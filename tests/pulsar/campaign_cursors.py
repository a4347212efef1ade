"""Clients that move cursors back and acknowledge parts of batches, whatever dies, and know what must come next."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

from tests.pulsar.campaign import EXCLUSIVE, FIRST_MS, SHARED, Actor, Line, LostError, Place, Producer
from tests.pulsar.servers import PulsarServer
from tests.pulsar.wire import Frame, batch_of, payload_of

PARTS: Final = 8
ALL: Final = (1 << PARTS) - 1
# How long a consumer waits for a message that must come.
COMES_S: Final = 30


def place_of(frame: Frame) -> Place:
    return int(frame.body.message_id.ledgerId), int(frame.body.message_id.entryId)


def id_of(place: Place) -> dict[str, int]:
    return {"ledgerId": place[0], "entryId": place[1]}


class Seeker(Actor):
    """Reads some of a producer's messages, acknowledges up to one or seeks to one, and reads on: the next message is
    the one that it was told, and behind it come all others, in order.

    Where the answer to one of its commands was lost both the old place and the new one may be right."""

    def __init__(self, server: Callable[[], PulsarServer], producer: Producer, seed: int) -> None:
        super().__init__(server)
        self._producer, self._draw, self._name = producer, random.Random(seed), f"seeks-{seed}"
        self._may_be = {0}  # numbers of the message that may come first
        self._consumers = 0
        self._places: dict[int, Place] = {}
        self.seeks = 0

    def serve(self, line: Line) -> None:
        while not self.is_done():
            self._consumers += 1
            line.subscribe(self._producer.topic, self._name, EXCLUSIVE, self._consumers, initialPosition=1)
            line.flow(1_000_000, self._consumers)
            self._read_and_move(line)

    def _read_and_move(self, line: Line) -> None:
        """Until it has sought, and its consumer is closed."""
        last: int | None = None
        while not self.is_done():
            for _ in range(self._draw.randrange(1, 40)):
                last = self._next(line, last)
                if last is None:
                    return  # nothing came, and it is over
            assert last is not None
            if self._draw.random() < 0.4:
                self._may_be.add(last + 1)
                line.ack(id_of(self._places[last]), consumer=self._consumers, cumulative=True)
                self._may_be = {last + 1}
                continue
            self._seek(line, self._draw.randrange(last + 1))
            return

    def _next(self, line: Line, last: int | None) -> int | None:
        while (frame := line.received(0.2)) is None:
            if self.is_done():
                return None
            if self._producer.failure is not None:
                raise self._producer.failure
        number, place = int(payload_of(frame)), place_of(frame)
        assert self._places.setdefault(number, place) == place, f"message {number} has two ids"
        if last is None:
            assert number in self._may_be, f"{number} comes first, and not one of {self._may_be}"
        else:
            assert number == last + 1, f"{number} comes behind {last}"
        return number

    def _seek(self, line: Line, to: int) -> None:
        self._may_be.add(to)
        if self._draw.random() < 0.5:
            where: dict[str, object] = {"message_id": id_of(self._places[to])}
        else:
            where = {"message_publish_time": FIRST_MS + to}
        seek(line, self._consumers, where)
        self._may_be = {to}
        self.seeks += 1

    def all_again(self) -> list[int]:
        """Everything from the first message on, when nobody publishes any more."""
        with Line(self.server().port) as line:
            line.subscribe(self._producer.topic, self._name, EXCLUSIVE, 1, initialPosition=1)
            seek(line, 1, {"message_publish_time": 0})
            line.subscribe(self._producer.topic, self._name, EXCLUSIVE, 2)
            line.flow(1_000_000, 2)
            found: list[int] = []
            while len(found) < self._producer.count:
                frame = line.received(COMES_S)
                assert frame is not None, f"nothing comes behind {found[-1:]}"
                found.append(int(payload_of(frame)))
            return found


def seek(line: Line, consumer: int, where: dict[str, object]) -> None:
    """Its consumer is closed by that, and may be before the answer comes."""
    line.requests += 1
    number = line.requests
    line.say("seek", request_id=number, consumer_id=consumer, **where)
    closed = answered = False
    while not (closed and answered):
        frame = super(Line, line).receive()
        if frame is None or frame.name in ("error", "close_producer"):
            raise LostError(str(frame))
        if frame.name == "ping":
            line.say("pong")
        closed |= frame.name == "close_consumer" and frame.body.consumer_id == consumer
        answered |= frame.name == "success" and frame.body.request_id == number
    line.frames.clear()


class Batches(Producer):
    """Entry n is a batch of PARTS messages."""

    def _send(self, line: Line, number: int) -> None:
        payload = batch_of(*(b"%d/%d" % (number, part) for part in range(PARTS)))
        self.send_entry(line, number, payload, {"num_messages_in_batch": PARTS})


class PartAcker(Actor):
    """Acknowledges parts of batches, in a Shared subscription: none of them comes again, but for those behind a place
    that it seeks, which all do."""

    def __init__(self, server: Callable[[], PulsarServer], batches: Batches, seed: int) -> None:
        super().__init__(server)
        self._batches, self._draw = batches, random.Random(seed)
        self._left: dict[Place, int] = {}  # bits of the parts that are not acknowledged
        self._may_be_left: dict[Place, int] = {}  # with those of which that is not known
        self._finished_before: Place = (0, 0)  # what was sought last: nothing before it comes
        self._sought: Place | None = None  # a seek that has to be done again, as its answer was lost
        self._consumers = 0
        self.seeks = self.acks = 0

    def is_done(self) -> bool:
        return super().is_done() and self._sought is None

    def serve(self, line: Line) -> None:
        while not self.is_done():
            self._consumers += 1
            line.subscribe(self._batches.topic, "parts", SHARED, self._consumers, initialPosition=1)
            if self._sought is not None:
                seek(line, self._consumers, {"message_id": id_of(self._sought)})
                self._has_sought(self._sought)
                continue
            line.flow(1_000_000, self._consumers)
            self._work(line)

    def _work(self, line: Line) -> None:
        came: list[Place] = []
        while not self.is_done():
            frame = line.received(0.2)
            if frame is not None:
                came.append(self._came(frame))
            if len(came) < 20 and frame is not None:
                continue
            if came and self._draw.random() < 0.1:
                self._sought = self._draw.choice(came)
                return
            for place in came:
                self._acknowledge(line, place)
            came.clear()

    def _came(self, frame: Frame) -> Place:
        place = place_of(frame)
        bits = self._bits(frame)
        left, may_be = self._left.get(place, ALL), self._may_be_left.get(place, ALL)
        assert place >= self._finished_before, f"{place} comes again, and {self._finished_before} was sought"
        assert bits & ~may_be == 0, f"of {place} {bits:b} comes, and {may_be:b} is left at most"
        assert left & ~bits == 0, f"of {place} {bits:b} comes, and {left:b} is left"
        self._left[place] = self._may_be_left[place] = bits
        return place

    def _acknowledge(self, line: Line, place: Place) -> None:
        """Some of it, or gives it back: then the rest comes again."""
        bits = self._left[place] & self._draw.getrandbits(PARTS) if self._draw.random() < 0.7 else 0
        self._left[place] = bits
        line.ack({**id_of(place), **({"ack_set": [bits]} if bits else {})}, consumer=self._consumers)
        self._may_be_left[place] = bits
        self.acks += 1
        if bits:
            ids = [id_of(place)]
            line.say("redeliverUnacknowledgedMessages", consumer_id=self._consumers, message_ids=ids)

    def _has_sought(self, to: Place) -> None:
        self._sought, self._finished_before = None, to
        self.seeks += 1
        for place in self._left:
            self._left[place] = self._may_be_left[place] = ALL if place >= to else 0

    def check(self, places: list[Place]) -> None:
        """When nobody publishes any more: of all entries, which have these places, what is not acknowledged comes, and
        nothing else."""
        ahead = [place for place in places if place >= self._finished_before]
        expected = {place for place in ahead if self._left.get(place, ALL)}
        with Line(self.server().port) as line:
            line.subscribe(self._batches.topic, "parts", SHARED, 1)
            line.flow(1_000_000)
            found: dict[Place, int] = {}
            while expected - found.keys():
                frame = line.received(COMES_S)
                assert frame is not None, f"{expected - found.keys()} do not come"
                found[place_of(frame)] = self._bits(frame)
            line.quiet()
            found |= {place_of(frame): self._bits(frame) for frame in line.pending("message")}
        for place in ahead:
            bits, left, may_be = found.pop(place, 0), self._left.get(place, ALL), self._may_be_left.get(place, ALL)
            assert left & ~bits == 0, f"of {place} {bits:b} comes, and {left:b} is left"
            assert bits & ~may_be == 0, f"of {place} {bits:b} comes, and {may_be:b} is left at most"
        assert not found, "nothing comes before what was sought"

    @staticmethod
    def _bits(frame: Frame) -> int:
        return int(frame.body.ack_set[0]) if frame.body.ack_set else ALL
