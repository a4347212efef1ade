"""What a topic with transactions and a compacted view is to show, and a client that sees whether a broker's does.

The model has each message with the state that its transaction gives it, and of a Shared subscription what is
acknowledged, and in which transaction. Nothing in it knows how a broker keeps that.
"""

from __future__ import annotations

import http.client
import itertools
import socket
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from typing import Final

from tests.nsq import frames
from tests.pulsar.campaign import COMMIT, MAX, Line, compact, compacted, read_all
from tests.pulsar.servers import PulsarServer
from tests.pulsar.wire import Frame, entry_of, metadata, payload_of, send_frame
from tests.servers import wait_until

TIMEOUT_S: Final = 60
SHARED: Final = 1
MOST_OPEN: Final = 4
NAME: Final = "model"
CONFLICT: Final = 23
DELAY_MS: Final = 3_600_000
_names = itertools.count()


@dataclass
class Entry:
    key: str | None
    txn: int | None  # open
    payload: bytes
    is_delayed: bool = False  # for longer than the play lasts: a Shared subscription does not get it, readers do
    gone: bool = False  # aborted
    acknowledged: bool = False
    pending: int | None = None  # in which transaction it is acknowledged


@dataclass
class Topic:
    entries: list[Entry] = field(default_factory=list)
    horizon: int = 0
    view: set[int] = field(default_factory=set)  # of what lies before the horizon

    def end(self) -> int:
        """From here on nothing is delivered."""
        return next((i for i, entry in enumerate(self.entries) if entry.txn is not None), len(self.entries))

    def readable(self) -> list[int]:
        return [i for i in range(self.end()) if not self.entries[i].gone]

    def compacted(self) -> list[int]:
        return [i for i in self.readable() if i >= self.horizon or i in self.view]

    def waiting(self) -> list[int]:
        """What the subscription has for whoever comes."""
        entries = self.entries
        return [i for i in self.deliverable() if not entries[i].acknowledged and entries[i].pending is None]

    def deliverable(self) -> list[int]:
        return [i for i in self.readable() if not self.entries[i].is_delayed]

    def compact(self) -> None:
        self.horizon = self.end()
        last = {self.entries[i].key: i for i in self.readable()}
        last.pop(None, None)
        self.view = set(last.values())

    def end_transaction(self, txn: int, *, commit: bool) -> None:
        for entry in self.entries:
            if entry.txn == txn:
                entry.txn, entry.gone = None, not commit
            if entry.pending == txn:
                entry.pending, entry.acknowledged = None, commit or entry.acknowledged


class Play:
    """Steps, each done in the model and at the broker."""

    def __init__(self, server: Callable[[], PulsarServer], kill: Callable[[str], None]) -> None:
        self._server, self._kill = server, kill
        self._name = f"transactions-{next(_names)}"
        self._whole = f"persistent://public/default/{self._name}"
        self.topic = Topic()
        self._open: list[int] = []
        self._sequences = itertools.count()
        self._ledger = 0
        self._line = self._connected()

    def close(self) -> None:
        for txn in list(self._open):
            self._end(txn, commit=False)
        self._line.socket.close()

    def _connected(self) -> Line:
        """With a consumer that has all that waits, in the order of the topic; so it is one that holds it."""
        self._seen: set[int] = set()
        line = Line(self._server().port)
        line.producer(self._name)
        line.subscribe(self._name, NAME, SHARED, initialPosition=1)
        line.flow(100_000)
        return line

    def _anew(self) -> None:
        self._line.ask("close_consumer", consumer_id=1)
        self._line.socket.close()
        self._line = self._connected()

    def _delivered(self, at: int) -> None:
        """Only what has come is acknowledged."""
        entry = self.topic.entries[at]
        if not entry.acknowledged and entry.pending is None and at not in self._seen:
            self._seen |= {self._place(frame) for frame in self._line.frames if frame.name == "message"}
            self._line.frames = [frame for frame in self._line.frames if frame.name != "message"]
            while at not in self._seen:
                self._seen.add(self._place(self._line.message()))

    def _place(self, frame: Frame) -> int:
        self._ledger = int(frame.body.message_id.ledgerId)
        return int(frame.body.message_id.entryId)

    # --- steps ------------------------------------------------------------------------------------------------------

    def send(self, key: str, txn: int | None = None, *, is_delayed: bool = False) -> None:
        of_txn = {} if txn is None else {"txnid_least_bits": txn, "txnid_most_bits": 0}
        payload, sequence = b"%d" % len(self.topic.entries), next(self._sequences)
        later = {"deliver_at_time": time.time_ns() // 1_000_000 + DELAY_MS} if is_delayed else {}
        head = metadata(sequence_id=sequence, partition_key=key, **of_txn, **later)
        self._line.raw(send_frame(1, sequence, entry_of(head, payload), **of_txn))
        place = self._line.expect("send_receipt").message_id
        assert place.entryId == len(self.topic.entries), "no place is left out"
        self._ledger = int(place.ledgerId)
        self.topic.entries.append(Entry(key, txn, payload, is_delayed))

    def send_later(self, key: str, of: int | None) -> None:
        if of is None or self._open:
            self.send(key, None if of is None else self._open[of % len(self._open)], is_delayed=True)

    def publish(self, *, is_put: bool) -> None:
        """As a client of beanstalkd or NSQ does, who knows neither keys nor transactions."""
        payload, name, server = b"%d" % len(self.topic.entries), self._name.encode(), self._server()
        port = server.beanstalk_port if is_put else server.other_port
        said, done = b"  V2" + frames.pub(self._name, payload), b"OK"
        if is_put:
            said, done = b"use %s\r\nput 0 0 60 %d\r\n%s\r\n" % (name, len(payload), payload), b"INSERTED"
        with socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S) as client:
            client.sendall(said)
            heard = b""
            while done not in heard:
                data = client.recv(4096)
                assert data and b"E_" not in heard, heard
                heard += data
        self.topic.entries.append(Entry(None, None, payload))

    def begin(self) -> None:
        if len(self._open) == MOST_OPEN:
            return
        found = self._line.tell("newTxn", "newTxnResponse", txn_ttl_seconds=3_600_000, tc_id=0)
        txn = int(found.txnid_least_bits)
        ids = {"txnid_least_bits": txn, "txnid_most_bits": 0}
        self._line.tell("addPartitionToTxn", "addPartitionToTxnResponse", partitions=[self._whole], **ids)
        part = {"topic": self._whole, "subscription": NAME}
        self._line.tell("addSubscriptionToTxn", "addSubscriptionToTxnResponse", subscription=[part], **ids)
        self._open.append(txn)

    def send_in(self, which: int, key: str) -> None:
        if self._open:
            self.send(key, self._open[which % len(self._open)])

    def end(self, which: int, *, commit: bool) -> None:
        if self._open:
            self._end(self._open[which % len(self._open)], commit=commit)

    def _end(self, txn: int, *, commit: bool) -> None:
        ids = {"txnid_least_bits": txn, "txnid_most_bits": 0}
        self._line.tell("endTxn", "endTxnResponse", txn_action=COMMIT if commit else 1 - COMMIT, **ids)
        self._open.remove(txn)
        self.topic.end_transaction(txn, commit=commit)

    def acknowledge(self, which: int, of: int | None = None) -> None:
        """A message that was delivered; in a transaction or not."""
        known = self.topic.deliverable()
        if not known or (of is not None and not self._open):
            return
        at = known[which % len(known)]
        entry = self.topic.entries[at]
        self._delivered(at)
        place = {"ledgerId": self._ledger, "entryId": at}
        if of is None:
            if entry.pending is None:
                self._line.ack(place)
                entry.acknowledged = True
            return
        txn = self._open[of % len(self._open)]
        found = self._line.ack(place, txnid_least_bits=txn, txnid_most_bits=0)
        refused = entry.acknowledged or entry.pending is not None
        assert found.HasField("error") == refused, (at, entry, found)
        assert not refused or found.error == CONFLICT
        if not refused:
            entry.pending = txn

    def come_again(self) -> None:
        self._anew()

    def seek(self, which: int) -> None:
        """To a message, from which on nothing is acknowledged then; what a transaction has acknowledged stays so."""
        at = which % (len(self.topic.entries) + 1)
        if at == len(self.topic.entries) or not self._ledger:
            return
        self._line.requests += 1
        message_id = {"ledgerId": self._ledger, "entryId": at}
        self._line.say("seek", consumer_id=1, request_id=self._line.requests, message_id=message_id)
        number = self._line.requests
        while True:
            frame = super(Line, self._line).receive()
            assert frame is not None
            if frame.name == "success" and frame.body.request_id == number:
                break
            assert frame.name != "error", frame
        self._line.socket.close()
        self._line = self._connected()
        for i, entry in enumerate(self.topic.entries):
            entry.acknowledged = i < at

    def compact(self) -> None:
        server = self._server()
        wait_until(lambda: compact(server, self._name), "it is compacted", TIMEOUT_S)
        wait_until(lambda: compacted(server, self._name), "it is compacted", TIMEOUT_S)
        if self.topic.entries:
            self.topic.compact()

    def kill(self, victim: str) -> None:
        self._line.socket.close()
        self._kill(victim)
        self._line = self._connected()

    # --- what is seen -----------------------------------------------------------------------------------------------

    def look(self) -> None:
        server, entries = self._server(), self.topic.entries
        for compacted_view, expected in ((False, self.topic.readable()), (True, self.topic.compacted())):
            found = read_all(server, self._name, compacted=compacted_view)
            assert [(place[1], payload_of(frame)) for place, frame in found] == [
                (i, entries[i].payload) for i in expected
            ], "compacted" if compacted_view else "whole"
        self._anew()
        waiting = [self._place(self._line.message()) for _ in self.topic.waiting()]
        self._line.ask("getLastMessageId", "getLastMessageIdResponse", consumer_id=1)
        waiting += [self._place(frame) for frame in self._line.frames if frame.name == "message"]
        self._line.frames, self._seen = [], set(waiting)
        assert sorted(waiting) == self.topic.waiting(), f"{waiting} and not {self.topic.waiting()} wait"

    def figures(self) -> None:
        """What the gateway says of the transactions that are open."""
        with closing(http.client.HTTPConnection(self._server().http, timeout=TIMEOUT_S)) as connection:
            for txn in self._open:
                connection.request("GET", f"/admin/v3/transactions/transactionMetadata/0/{txn}")
                answer = connection.getresponse()
                assert answer.status == 200 and b"OPEN" in answer.read()


__all__ = ["MAX", "Play"]
