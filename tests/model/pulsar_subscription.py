"""What a Pulsar subscription is to do, and a client that sees whether a broker does it.

The model knows of each message what is left of it, and who has it; of each consumer what it may be sent. What a broker
chooses (which consumer, in which order) is taken from what it does, as long as it may do so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass, field

from tests.pulsar.wire import Frame, Wire, batch_of, entry_of, metadata, send_frame

EXCLUSIVE, SHARED, FAILOVER, KEY_SHARED = range(4)
KEYS = ("a", "b", "c")
NAME = "model"
PRODUCER = 99
READ_MOST = 100  # entries


def words_of(parts: Set[int]) -> list[int]:
    """As an ack set has them: 64-bit numbers with signs."""
    bits = sum(1 << part for part in parts)
    words = [bits >> at & (1 << 64) - 1 for at in range(0, bits.bit_length(), 64)]
    return [word - (1 << 64) if word >> 63 else word for word in words]


@dataclass
class Entry:
    size: int  # of its batch; 0: it is none
    key: str
    left: set[int]
    times: int = 0  # that it was asked for again
    kept: int = 0  # and how often a worker that has died since may remember

    @property
    def words(self) -> list[int]:
        """As an ack set has it; nothing where all is left."""
        return [] if not self.size or len(self.left) == self.size else words_of(self.left)


@dataclass
class Consumer:
    permits: int = 0
    entries_left: int = 0  # of a read, at most
    held: set[int] = field(default_factory=set)


class Subscription:
    """A topic with one subscription, in the model and at the broker."""

    def __init__(self, connect: Callable[[], Wire], topic: str, kind: int) -> None:
        self._connect, self._topic, self.kind = connect, topic, kind
        self.entries: list[Entry] = []
        self.consumers: dict[int, Consumer] = {}
        self._next = 0
        self._counted = kind in (SHARED, KEY_SHARED)
        self._ledger = 0
        self._changed = False  # who is there, since somebody was seen to take over
        self._begin()

    def _begin(self) -> None:
        self.wire = self._connect()
        self.wire.producer(self._topic, PRODUCER)

    # --- what clients do --------------------------------------------------------------------------------------------

    def join(self) -> None:
        if len(self.consumers) == (1 if self.kind == EXCLUSIVE else 3):
            return
        self._next += 1
        self.wire.subscribe(self._topic, NAME, self.kind, self._next, consumer_name=f"c{self._next}", initialPosition=1)
        self.consumers[self._next] = Consumer()
        self._changed = True
        self._settle()

    def leave(self, which: int) -> None:
        number = self._chosen(which)
        self.consumers[number].held.clear()
        self.wire.ask("close_consumer", consumer_id=number)
        self._take()
        del self.consumers[number]
        self._changed = True
        self._settle()

    def send(self, size: int, key: int) -> None:
        name, number = KEYS[key % len(KEYS)], len(self.entries)
        fields = {"num_messages_in_batch": size} if size else {}
        payload = batch_of(*[b"%d" % i for i in range(size)]) if size else b"alone"
        head = metadata(sequence_id=number, partition_key=name, **fields)
        self.wire.raw(send_frame(PRODUCER, number, entry_of(head, payload)))
        self._ledger = self.wire.expect("send_receipt").message_id.ledgerId
        self.entries.append(Entry(size, name, set(range(size or 1))))
        self._settle()

    def flow(self, which: int, permits: int) -> None:
        number = self._chosen(which)
        self.wire.flow(permits, number)
        self.consumers[number].permits += permits
        self._settle()

    def ack(self, which: int, at: int, parts: Set[int]) -> None:
        """Of any that was ever delivered, whoever has it."""
        number, chosen = self._chosen(which), self._delivered(at)
        if chosen is None:
            return
        entry = self.entries[chosen]
        if entry.size and (rest := set(range(entry.size)) - parts):
            self.wire.ack(self._id(chosen, ack_set=words_of(rest)), consumer=number)
            entry.left &= rest
        else:
            self.wire.ack(self._id(chosen), consumer=number)
            entry.left.clear()
        self._forget_finished()
        self._settle()

    def ack_upto(self, which: int, at: int) -> None:
        number, chosen = self._chosen(which), self._delivered(at)
        if chosen is None:
            return
        self.wire.ack(self._id(chosen), consumer=number, cumulative=True)
        if not self._counted:
            for entry in self.entries[: chosen + 1]:
                entry.left.clear()
        self._forget_finished()
        self._settle()

    def ack_beyond(self, which: int, further: int) -> None:
        """Up to an entry that is not there yet: that finishes nothing."""
        if not self.entries:
            return
        self.wire.ack(self._id(len(self.entries) + further), consumer=self._chosen(which), cumulative=True)
        self._settle()

    def redeliver(self, which: int, some: set[int]) -> None:
        number = self._chosen(which)
        held = self.consumers[number].held
        chosen = {at for at in held if at % 4 in some} if self._counted and some else set(held)
        ids = [self._id(at) for at in sorted(chosen)] if some else []
        if some and not chosen:
            return
        self.wire.say("redeliverUnacknowledgedMessages", consumer_id=number, message_ids=ids)
        for at in chosen:
            self.entries[at].times += 1
        held -= chosen
        self._settle()

    def seek(self, at: int) -> None:
        """Everybody is sent away; what lies before the place is finished, all else is to come."""
        if not self.entries or not self.consumers:
            return
        place = at % len(self.entries)
        self.wire.ask("seek", consumer_id=next(iter(self.consumers)), message_id=self._id(place))
        self.wire.frames.clear()
        for number, entry in enumerate(self.entries):
            entry.left = set(range(entry.size or 1)) if number >= place else set()
            entry.times = entry.kept = 0
        self.consumers.clear()
        self.join()

    def restart(self, kill: Callable[[], None]) -> None:
        """A worker dies: its clients come back to what was acknowledged, and to nothing else."""
        kill()
        self.wire.socket.close()
        self._begin()
        self.consumers.clear()
        for entry in self.entries:
            entry.kept += entry.times + 1  # at most; what was on its way counts as asked for once more
            entry.times = 0
        self.join()

    # --- what the broker does ---------------------------------------------------------------------------------------

    def drain(self) -> None:
        """Whoever is there may have all: nothing is left behind."""
        if not self.consumers:
            self.join()
        for number, consumer in self.consumers.items():
            self.wire.flow(10_000, number)
            consumer.permits += 10_000
        self._settle()
        while held := set().union(*(consumer.held for consumer in self.consumers.values())):
            for at in held:
                self.wire.ack(self._id(at), consumer=next(iter(self.consumers)))
                self.entries[at].left.clear()
            self._forget_finished()
            self._settle()
        assert not [number for number, entry in enumerate(self.entries) if entry.left], "nothing is left behind"

    def _settle(self) -> None:
        """All that is to come has come, and may. Answers come behind what was sent before; a worker sends at the end of
        its turn."""
        for _ in range(2 if self.consumers else 0):
            self.wire.ask("getLastMessageId", "getLastMessageIdResponse", consumer_id=next(iter(self.consumers)))
        self._take()
        for number in self._idle():
            assert not self._deliverable(), f"{number} may be sent what nobody has: {sorted(self._deliverable())}"

    def _take(self) -> None:
        frames, self.wire.frames = self.wire.frames, []
        for frame in frames:
            if frame.name == "message":
                self._delivered_now(frame)
            else:
                assert frame.name == "active_consumer_change", frame

    def _delivered_now(self, frame: Frame) -> None:
        number, at = frame.body.consumer_id, frame.body.message_id.entryId
        entry, consumer = self.entries[at], self.consumers[number]
        assert entry.left, f"{at} is acknowledged"
        self._read_by(number)
        # Who acknowledged nothing of a batch, by name, may have it said.
        assert list(frame.body.ack_set) in (entry.words, words_of(entry.left)), f"{at} has {entry.words}"
        if self.kind == FAILOVER:
            self._taken_over(consumer, at)
        held = set().union(*(one.held for one in self.consumers.values()))
        assert at not in held, f"{at} is held"
        if self.kind == SHARED:
            before = [n for n in range(at) if self.entries[n].left and n not in held]
            assert not before, f"{at} comes before {before}"
        if self._counted:
            count = frame.body.redelivery_count
            assert entry.times <= count <= entry.times + entry.kept, f"{at} was asked for {entry.times} times"
        else:
            assert frame.body.redelivery_count == 0
            before = [n for n in range(at) if self.entries[n].left and n not in consumer.held]
            assert not before, f"{at} comes before {before}"
        if self.kind == KEY_SHARED:
            same = {n for n, other in enumerate(self.entries) if other.key == entry.key and other.left}
            assert not any(one.held & same for one in self.consumers.values() if one is not consumer), "another has it"
            assert not [n for n in same if n < at and n not in consumer.held], f"{at} overtakes one of its key"
        consumer.permits -= len(entry.left) if entry.size else 1
        consumer.held.add(at)

    def _read_by(self, number: int) -> None:
        """Where the order counts, who has n permits reads n entries, and they take what they take."""
        consumer = self.consumers[number]
        if self.kind != SHARED:
            consumer.entries_left = max(consumer.entries_left, min(consumer.permits, READ_MOST))
        assert consumer.permits > 0 or consumer.entries_left > 0, f"{number} has no permits"
        consumer.entries_left -= 1

    def _taken_over(self, by: Consumer, at: int) -> None:
        """Who becomes the active one has all that was not finished, also what it had before another was so."""
        another = any(other.held for other in self.consumers.values() if other is not by)
        if another or (self._changed and at in by.held):
            self._changed = False
            for other in self.consumers.values():
                other.held.clear()

    def _idle(self) -> Iterator[int]:
        """Consumers that would be sent what there is: of keys it is not known whose they are."""
        able = [number for number, consumer in self.consumers.items() if consumer.permits > 0]
        if self.kind in (FAILOVER, KEY_SHARED) and len(able) < len(self.consumers):
            return iter(())
        return iter(able)

    def _deliverable(self) -> set[int]:
        held = set().union(*(consumer.held for consumer in self.consumers.values()))
        waiting = {at for at, entry in enumerate(self.entries) if entry.left and at not in held}
        if self.kind != KEY_SHARED:
            return waiting
        # A key whose owner is another now waits until what the one before has of it is acknowledged.
        keys = {self.entries[at].key for at in held}
        return {at for at in waiting if self.entries[at].key not in keys}

    # --- names ------------------------------------------------------------------------------------------------------

    def _chosen(self, which: int) -> int:
        if not self.consumers:
            self.join()
        return list(self.consumers)[which % len(self.consumers)]

    def _delivered(self, at: int) -> int | None:
        held = sorted(set().union(*(consumer.held for consumer in self.consumers.values())))
        return held[at % len(held)] if held else None

    def _forget_finished(self) -> None:
        for consumer in self.consumers.values():
            consumer.held = {at for at in consumer.held if self.entries[at].left}

    def _id(self, at: int, **fields: object) -> dict[str, object]:
        return {"ledgerId": self._ledger, "entryId": at, **fields}
