"""analyzeBacklog: what a subscription has not finished, counted. The numbers are those of a real broker."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest
from mq_shards.acceptor.engine import Answer, WorkerRequest
from mq_shards.csrc._core import ffi, lib
from mq_shards.gateway.pulsar import core as core_module
from mq_shards.gateway.pulsar.core import MAX_BACKLOGS, Core

from tests.pulsar.record_admin import play
from tests.pulsar.servers import PulsarServer
from tests.pulsar.wire import Wire, batch_of, entry_of, message_class, metadata, send_frame

SHARED = 1
FAR_MS = 2_000_000_000_000


def counted(server: PulsarServer, topic: str, at: object = None) -> tuple[int, int, str | None, str | None]:
    """Entries, messages, and the entries of the first and the last one."""
    found: dict[str, Any] = play(
        server.http, ("POST", f"persistent/public/default/{topic}/subscription/s/analyzeBacklog", at)
    )["json"]
    assert found["filterAcceptedEntries"] == found["entries"] and found["filterAcceptedMessages"] == found["messages"]
    assert not found["aborted"]
    first, last = (found.get(key, ":").rpartition(":")[2] or None for key in ("firstMessageId", "lastMessageId"))
    return found["entries"], found["messages"], first, last


def batch(wire: Wire, sequence: int, count: int) -> None:
    head = metadata(sequence_id=sequence, num_messages_in_batch=count)
    entry = entry_of(head, batch_of(*[b"m"] * count))
    wire.raw(send_frame(1, sequence, entry, num_messages=count))
    wire.expect("send_receipt")


def one(wire: Wire, sequence: int, **fields: object) -> None:
    wire.send(b"m", sequence=sequence, **fields)
    wire.expect("send_receipt")


def test_what_is_not_acknowledged_is_counted_batches_by_their_messages(
    server: PulsarServer, wire: Wire, topic: str
) -> None:
    wire.subscribe(topic, kind=SHARED)
    wire.producer(topic)
    assert counted(server, topic) == (0, 0, None, None)
    batch(wire, 0, 3)
    one(wire, 1)
    batch(wire, 2, 4)
    one(wire, 3)
    one(wire, 4, deliver_at_time=FAR_MS)
    assert counted(server, topic) == (5, 10, "0", "4")
    wire.flow(100)
    ids = [frame.body.message_id for frame in wire.messages(4)]
    wire.ack(ids[1])
    assert counted(server, topic) == (4, 9, "0", "4")
    half = message_class("MessageId")(ledgerId=ids[2].ledgerId, entryId=2, ack_set=[0b1100], batch_size=4)
    wire.ack(half)
    assert counted(server, topic) == (4, 9, "0", "4"), "a batch counts until all of it is acknowledged"
    wire.ack(ids[0])
    assert counted(server, topic) == (3, 6, "2", "4")
    at = {"ledgerId": ids[2].ledgerId, "entryId": 3}
    assert counted(server, topic, at) == (2, 2, "3", "4")
    assert counted(server, topic, {"ledgerId": ids[2].ledgerId, "entryId": 0}) == (5, 10, "0", "4"), "also what is done"
    assert counted(server, topic, {"ledgerId": ids[2].ledgerId + 1, "entryId": 0}) == (0, 0, None, None)


def test_long_backlogs_are_counted_in_pieces(server: PulsarServer, wire: Wire, topic: str) -> None:
    wire.subscribe(topic)
    wire.producer(topic)
    for sequence in range(1200):
        wire.send(b"m", sequence=sequence)
    for _ in range(1200):
        wire.expect("send_receipt")
    assert counted(server, topic) == (1200, 1200, "0", "1199")


def test_a_count_ends_though_nearly_all_that_is_looked_at_is_finished(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[int]()

    class Worker:
        """Has 5,120 messages, of which the first one is not finished."""

        asked = most = 0

        def bind(self, topic: bytes) -> int:
            return 1

        def worker_of_topic(self, topic: int) -> int:
            return 0

        async def ask(self, worker: int, request: WorkerRequest, *, looks: bool = False) -> Answer:
            asked.append(request.ttr_ns)
            self.asked += 1
            self.most = max(self.most, self.asked)
            await asyncio.sleep(0)
            self.asked -= 1
            entries = int(request.ttr_ns == 0)
            figures: Any = ffi.new("struct backlog_figures *", {"entries": entries, "messages": entries})
            return Answer(
                request.kind, lib.STATUS_OK, 0, 0, bytes(ffi.buffer(figures)), min(request.ttr_ns + 512, 5120), 7
            )

    worker = Worker()
    core = Core(cast(Any, worker), cast(Any, worker))
    assert asyncio.run(core.backlog("t", "s", 0, 0, 10)).whole and len(asked) == 11
    monkeypatch.setattr(core_module, "MAX_BACKLOG_REQUESTS", 4)
    asked.clear()
    found = asyncio.run(core.backlog("t", "s", 0, 0, 10))
    assert (found.entries, found.first, found.whole) == (1, (7, 0), False)
    assert asked == [0, 512, 1024, 1536]

    async def many() -> None:
        await asyncio.gather(*(core.backlog("t", "s", 0, 0, 10) for _ in range(20)))

    asyncio.run(many())
    assert worker.most == MAX_BACKLOGS
