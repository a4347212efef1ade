"""Transactions on the raw wire: what is done in one counts as a whole, or not at all, whoever dies."""

from __future__ import annotations

import itertools
import os
import signal
import time
from collections.abc import Iterator
from typing import Final

import pytest
from mq_shards.acceptor.protocols.pulsar.names import ASSIGN
from mq_shards.gateway.pulsar.transactions import LATE_S

from tests.pulsar.record_roles import request
from tests.pulsar.servers import PulsarServer, running
from tests.pulsar.wire import MAX, Wire, batch_of, entry_of, metadata, payload_of, send_frame
from tests.servers import wait_until

TIMEOUT_S: Final = 60
COMMIT, ABORT = 0, 1
INVALID_STATUS, NOT_ALLOWED, CONFLICT, NOT_FOUND = 21, 22, 23, 24
_sequences = itertools.count()


def begin(wire: Wire, timeout_ms: int = 60_000) -> int:
    return int(wire.ask("newTxn", "newTxnResponse", txn_ttl_seconds=timeout_ms, tc_id=0).txnid_least_bits)


def ids(txn: int) -> dict[str, object]:
    return {"txnid_least_bits": txn, "txnid_most_bits": 0}


def whole(topic: str) -> str:
    return f"persistent://public/default/{topic}"


def join(wire: Wire, txn: int, *topics: str) -> None:
    answer = wire.ask(
        "addPartitionToTxn", "addPartitionToTxnResponse", partitions=[whole(t) for t in topics], **ids(txn)
    )
    assert not answer.HasField("error"), answer


def join_subscription(wire: Wire, txn: int, topic: str, name: str = "s") -> None:
    answer = wire.ask(
        "addSubscriptionToTxn", "addSubscriptionToTxnResponse",
        subscription=[{"topic": whole(topic), "subscription": name}], **ids(txn),
    )  # fmt: skip
    assert not answer.HasField("error"), answer


def end(wire: Wire, txn: int, action: int = COMMIT) -> int:
    """The error, or 0."""
    return int(wire.ask("endTxn", "endTxnResponse", txn_action=action, **ids(txn)).error)


def send(wire: Wire, payload: bytes, txn: int | None = None, producer: int = 1) -> tuple[int, int]:
    """Where its receipt says it is."""
    sequence = next(_sequences)
    of_txn = {} if txn is None else ids(txn)
    entry = entry_of(metadata(sequence_id=sequence, **of_txn), payload)
    wire.raw(send_frame(producer, sequence, entry, **of_txn))
    place = wire.expect("send_receipt").message_id
    return int(place.ledgerId), int(place.entryId)


def received(wire: Wire, count: int) -> list[bytes]:
    return [payload_of(wire.until(lambda frame: frame.name == "message")) for _ in range(count)]


def silent(wire: Wire) -> None:
    """Behind an answer of the topic's worker nothing is on its way that was there before."""
    wire.ask("getLastMessageId", "getLastMessageIdResponse", consumer_id=1)
    assert not [frame for frame in wire.frames if frame.name == "message"]


@pytest.fixture
def joined(wire: Wire, topic: str) -> Wire:
    """With a producer and a consumer of the topic."""
    wire.subscribe(topic, initialPosition=1)
    wire.producer(topic)
    wire.flow(1000)
    return wire


def test_nobody_gets_what_is_not_committed_nor_what_comes_behind_it(joined: Wire, topic: str) -> None:
    before = send(joined, b"0")
    assert received(joined, 1) == [b"0"]
    txn = begin(joined)
    join(joined, txn, topic)
    places = [before, send(joined, b"1", txn), send(joined, b"2"), send(joined, b"3", txn)]
    assert [entry for _, entry in places] == [0, 1, 2, 3]
    silent(joined)
    last = joined.ask("getLastMessageId", "getLastMessageIdResponse", consumer_id=1).last_message_id
    assert last.entryId == 0, "the last that may be read"
    assert end(joined, txn) == 0
    frames = [joined.until(lambda frame: frame.name == "message") for _ in range(3)]
    assert [payload_of(frame) for frame in frames] == [b"1", b"2", b"3"]
    assert [frame.body.message_id.entryId for frame in frames] == [1, 2, 3], "each where its receipt said"


def test_what_is_aborted_never_was(server: PulsarServer, joined: Wire, topic: str) -> None:
    txn = begin(joined)
    join(joined, txn, topic)
    for payload in (b"1", b"2"):
        send(joined, payload, txn)
    send(joined, b"3")
    silent(joined)
    assert end(joined, txn, ABORT) == 0
    assert received(joined, 1) == [b"3"]
    txn = begin(joined)
    send(joined, b"4", txn)
    join(joined, txn, topic)
    assert end(joined, txn, ABORT) == 0
    last = joined.ask("getLastMessageId", "getLastMessageIdResponse", consumer_id=1).last_message_id
    assert last.entryId == 2, "what never was is not the last"
    with Wire(server.port) as other:
        other.connect().subscribe(topic, "new", initialPosition=1)
        other.flow(10)
        assert received(other, 1) == [b"3"]
        silent(other)


def test_the_earliest_of_all_waits_for_the_first_transaction(server: PulsarServer, wire: Wire, topic: str) -> None:
    wire.producer(topic)
    txn = begin(wire)
    join(wire, txn, topic)
    send(wire, b"1", txn)
    with Wire(server.port) as late:
        late.connect().subscribe(topic, "late", initialPosition=1)
        late.flow(10)
        silent(late)
        assert end(wire, txn) == 0
        assert received(late, 1) == [b"1"]


def test_transactions_end_in_any_order_and_deliver_in_that_of_their_messages(joined: Wire, topic: str) -> None:
    first, second = begin(joined), begin(joined)
    assert second > first
    for txn in (first, second):
        join(joined, txn, topic)
    for payload, txn in ((b"1", first), (b"2", second), (b"3", first)):
        send(joined, payload, txn)
    assert end(joined, second) == 0
    silent(joined)
    assert end(joined, first) == 0
    assert received(joined, 3) == [b"1", b"2", b"3"]


def test_several_topics_are_committed_as_one(server: PulsarServer, wire: Wire, topic: str) -> None:
    txn = begin(wire)
    topics = [f"{topic}-{i}" for i in range(4)]
    for i, name in enumerate(topics):
        wire.subscribe(name, consumer=i + 1, initialPosition=1)
        wire.producer(name, producer=i + 1)
        wire.flow(10, i + 1)
        join(wire, txn, name)
        send(wire, b"x", txn, producer=i + 1)
    silent(wire)
    assert end(wire, txn) == 0
    assert received(wire, 4) == [b"x"] * 4


# --- acknowledgements -----------------------------------------------------------------------------------------------


def deliver(wire: Wire, count: int) -> list[dict[str, object]]:
    for i in range(count):
        send(wire, str(i).encode())
    places = [wire.expect("message").message_id for _ in range(count)]
    return [{"ledgerId": place.ledgerId, "entryId": place.entryId} for place in places]


def waits(server: PulsarServer, topic: str, kind: int = 0) -> list[int]:
    """Entries that the subscription still has, to whoever comes next."""
    with Wire(server.port) as other:
        other.connect().subscribe(topic, "s", kind, consumer=1)
        other.flow(100)
        # The worker may answer the first in the turn in which it has the permits, before it delivers.
        for _ in range(2):
            other.ask("getLastMessageId", "getLastMessageIdResponse", consumer_id=1)
        return [frame.body.message_id.entryId for frame in other.frames if frame.name == "message"]


@pytest.mark.parametrize("action", [COMMIT, ABORT])
def test_an_acknowledgement_counts_when_its_transaction_does(
    server: PulsarServer, joined: Wire, topic: str, action: int
) -> None:
    places = deliver(joined, 3)
    txn = begin(joined)
    join_subscription(joined, txn, topic)
    for place in places[:2]:
        assert not joined.ack(place, **ids(txn)).HasField("error")
    # Neither comes again while it is pending, ...
    joined.say("redeliverUnacknowledgedMessages", consumer_id=1)
    assert received(joined, 1) == [b"2"]
    silent(joined)
    # ... and after that as it was decided.
    assert end(joined, txn, action) == 0
    if action == ABORT:
        assert sorted(received(joined, 2)) == [b"0", b"1"]
    joined.ask("close_consumer", consumer_id=1)
    assert sorted(waits(server, topic)) == ([2] if action == COMMIT else [0, 1, 2])


def test_what_is_in_one_transaction_is_not_acknowledged_in_another(joined: Wire, topic: str) -> None:
    (first, second) = deliver(joined, 2)
    one, other = begin(joined), begin(joined)
    for txn in (one, other):
        join_subscription(joined, txn, topic)
    assert not joined.ack(first, **ids(one)).HasField("error")
    assert joined.ack(first, **ids(one)).error == CONFLICT, "in the same one again, too"
    assert joined.ack(first, **ids(other)).error == CONFLICT
    joined.ack(second)
    assert joined.ack(second, **ids(other)).error == CONFLICT, "it is acknowledged already"
    assert end(joined, one, ABORT) == 0
    assert received(joined, 1) == [b"0"]
    assert not joined.ack(first, **ids(other)).HasField("error"), "now it is free"
    assert end(joined, other) == 0


def deliver_batch(wire: Wire, size: int) -> dict[str, object]:
    sequence = next(_sequences)
    entry = entry_of(
        metadata(sequence_id=sequence, num_messages_in_batch=size), batch_of(*(b"%d" % i for i in range(size)))
    )
    wire.raw(send_frame(1, sequence, entry, num_messages=size))
    wire.expect("send_receipt")
    place = wire.expect("message").message_id
    return {"ledgerId": place.ledgerId, "entryId": place.entryId}


def sets_again(wire: Wire) -> list[list[int]]:
    """The ack sets of all that comes again when it is asked for."""
    wire.say("redeliverUnacknowledgedMessages", consumer_id=1)
    wire.ask("getLastMessageId", "getLastMessageIdResponse", consumer_id=1)
    again, wire.frames = [frame for frame in wire.frames if frame.name == "message"], []
    return [[word % (1 << 64) for word in frame.body.ack_set] for frame in again]


def test_parts_of_a_batch_are_acknowledged_in_transactions_of_their_own(joined: Wire, topic: str) -> None:
    place = deliver_batch(joined, 3)
    one, other = begin(joined), begin(joined)
    assert not joined.ack({**place, "ack_set": [0b110]}, **ids(one)).HasField("error")
    assert joined.ack({**place, "ack_set": [0b010]}, **ids(other)).error == CONFLICT, "the first is in the other"
    assert joined.ack(place, **ids(other)).error == CONFLICT
    assert not joined.ack({**place, "ack_set": [0b101]}, **ids(other)).HasField("error")
    assert sets_again(joined) == [[0b100]], "of the pending ones nothing comes again"
    for txn in (one, other):
        join_subscription(joined, txn, topic)
    assert end(joined, one, COMMIT) == 0
    assert end(joined, other, ABORT) == 0
    assert sets_again(joined)[-1] == [0b110], "the first is finished, the second is there again"
    last = begin(joined)
    join_subscription(joined, last, topic)
    assert not joined.ack({**place, "ack_set": [0b001]}, **ids(last)).HasField("error")
    assert sets_again(joined) == []
    assert end(joined, last, COMMIT) == 0
    assert sets_again(joined) == []


def test_an_acknowledgement_of_all_up_to_a_message_is_of_each_of_them(joined: Wire, topic: str) -> None:
    places = deliver(joined, 5)
    for action in (ABORT, COMMIT):
        txn = begin(joined)
        join_subscription(joined, txn, topic)
        assert not joined.ack(places[2], cumulative=True, **ids(txn)).HasField("error")
        assert end(joined, txn, action) == 0
        if action == ABORT:
            assert sorted(received(joined, 3)) == [b"0", b"1", b"2"]
    joined.say("redeliverUnacknowledgedMessages", consumer_id=1)
    assert received(joined, 2) == [b"3", b"4"]


def test_an_acknowledgement_of_all_up_to_a_message_goes_beyond_the_last_one(joined: Wire, topic: str) -> None:
    places = deliver(joined, 3)
    batch = deliver_batch(joined, 70)
    txn = begin(joined)
    join_subscription(joined, txn, topic)

    def refused(place: dict[str, object], *left: int) -> bool:
        given = {**place, "ack_set": list(left)}
        answer = joined.ack(given, cumulative=True, **ids(txn))
        assert answer.error == (CONFLICT if answer.HasField("error") else 0)
        return bool(answer.HasField("error"))

    assert [refused(places[n]) for n in (1, 0, 1, 2, 1)] == [False, True, True, False, True]
    most = (1 << 63) - 1
    sets = [(-2, most), (-2, most), (-8, most), (-4, most), (0, 4), (0, 2), (), (0, 4), ()]
    assert [refused(batch, *left) for left in sets] == [False, True, False, True, False, True, False, True, True]
    assert end(joined, txn) == 0
    assert sets_again(joined) == []


def test_of_what_is_acknowledged_up_to_a_part_of_a_batch_the_rest_is_left(joined: Wire, topic: str) -> None:
    first, second = (deliver_batch(joined, 3) for _ in range(2))
    for action in (ABORT, COMMIT):
        one, other = begin(joined), begin(joined)
        for txn in (one, other):
            join_subscription(joined, txn, topic)
        # Further and further: to the first, the second, all of the first batch's, and the first two of the second's.
        for place, left in ((first, [0b110]), (first, [0b100]), (first, []), (second, [0b100])):
            assert not joined.ack({**place, "ack_set": left}, cumulative=True, **ids(one)).HasField("error")
        assert joined.ack(second, cumulative=True, **ids(other)).error == CONFLICT, "one at a time"
        joined.frames = []  # what came again after the last answer of the round before
        assert end(joined, one, action) == 0
        assert end(joined, other, ABORT) == 0
        assert sets_again(joined)[-2:] == ([[], []] if action == ABORT else [[0b100]])
    txn = begin(joined)
    join_subscription(joined, txn, topic)
    assert not joined.ack(second, cumulative=True, **ids(txn)).HasField("error"), "the others are over"
    assert end(joined, txn) == 0
    assert sets_again(joined) == []


# --- the coordinator ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("half", [{"txnid_least_bits": 7}, {"txnid_most_bits": 0}])
def test_half_an_id_is_of_no_transaction(joined: Wire, topic: str, half: dict[str, int]) -> None:
    joined.flow(10)
    joined.raw(send_frame(1, 0, entry_of(metadata(sequence_id=0), b"x"), **half))
    place = joined.message().body.message_id
    assert not joined.ack({"ledgerId": place.ledgerId, "entryId": place.entryId}, **half).HasField("error")
    ends = joined.ask("getLastMessageId", "getLastMessageIdResponse", consumer_id=1)
    assert ends.consumer_mark_delete_position.entryId == place.entryId, "it is finished"


def test_a_receipt_in_a_transaction_has_the_highest_sequence_id_as_it_was_said(joined: Wire, topic: str) -> None:
    of_txn = ids(begin(joined))
    for said in ({}, {"highest_sequence_id": 2}, {"highest_sequence_id": 9}):
        joined.raw(send_frame(1, 5, entry_of(metadata(sequence_id=5, **of_txn), b"x"), **of_txn, **said))
        assert joined.expect("send_receipt").highest_sequence_id == said.get("highest_sequence_id", 0)


def test_the_coordinator_answers_as_a_real_one(server: PulsarServer, wire: Wire, topic: str) -> None:
    found = wire.ask("partitionMetadata", "partitionMetadataResponse", topic=ASSIGN)
    assert found.partitions == 1
    for more in ("", "?checkAllowAutoCreation=true"):  # of clients with an http:// URL
        path = f"{ASSIGN.replace('://', '/')}/partitions{more}"
        assert request(server.http, "", "", "GET", path)["json"] == {"partitions": 1, "deleted": False}
    assert not wire.ask("tcClientConnectRequest", "tcClientConnectResponse", tc_id=0).HasField("error")
    assert wire.ask("tcClientConnectRequest", "tcClientConnectResponse", tc_id=7).error == 6
    assert wire.ask("newTxn", "newTxnResponse", txn_ttl_seconds=1000, tc_id=7).error == 20
    txn = begin(wire)
    assert begin(wire) == txn + 1
    assert end(wire, txn) == 0
    assert end(wire, txn) == NOT_FOUND, "it is over"
    unknown = ids(1 << 40)
    assert wire.ask("endTxn", "endTxnResponse", txn_action=COMMIT, **unknown).error == NOT_FOUND
    answer = wire.ask("addPartitionToTxn", "addPartitionToTxnResponse", partitions=[whole(topic)], **unknown)
    assert answer.error == NOT_FOUND
    answer = wire.ask("newTxn", "newTxnResponse", txn_ttl_seconds=1 << 40, tc_id=0)
    assert answer.error == NOT_ALLOWED


def test_figures_of_transactions_are_as_a_real_brokers(server: PulsarServer, joined: Wire, topic: str) -> None:
    def get(path: str) -> dict[str, object]:
        return request(server.http, "", "", "GET", f"/admin/v3/transactions/{path}")

    txn = begin(joined)
    join(joined, txn, topic)
    join_subscription(joined, txn, topic)
    assert [one["id"] for one in get("coordinators")["json"]] == [0]
    assert get("coordinatorStats")["json"]["0"]["state"] == "Ready"
    assert get("coordinatorStats?coordinatorId=0")["json"]["leastSigBits"] == txn
    assert get("coordinatorStats?coordinatorId=77")["status"] == 404
    found = get(f"transactionMetadata/0/{txn}")["json"]
    assert (found["txnId"], found["status"], found["timeoutAt"]) == (f"(0,{txn})", "OPEN", 60_000)
    assert found["producedPartitions"] == {whole(topic): {"aborted": False}}
    before = get(f"transactionBufferStats/public/default/{topic}")["json"]
    assert (before["state"], before["ongoingTxnSize"], before["maxReadPosition"][-3:]) == ("NoSnapshot", 0, ":-1")
    start = "{}:{}".format(*send(joined, b"in it", txn))
    send(joined, b"in it too", txn)
    found = get(f"transactionMetadata/0/{txn}")["json"]
    assert found["producedPartitions"] == {whole(topic): {"startPosition": start, "aborted": False}}
    assert get("slowTransactions/0")["json"][f"(0,{txn})"] == found
    ongoing = get(f"transactionBufferStats/public/default/{topic}?lowWaterMarks=true")["json"]
    assert (ongoing["state"], ongoing["ongoingTxnSize"], ongoing["lowWaterMarks"]) == ("Ready", 1, {})
    assert ongoing["maxReadPosition"] == before["maxReadPosition"], "nothing of it may be read yet"
    pending = get(f"pendingAckStats/public/default/{topic}/s")["json"]
    assert (pending["state"], pending["ongoingTxnSize"]) == ("Ready", 1)
    assert found["ackedPartitions"] == {whole(topic): {"s": {}}}
    assert f"(0,{txn})" in get("slowTransactions/0")["json"]
    assert f"(0,{txn})" not in get("slowTransactions/100000")["json"]
    assert get(f"transactionInBufferStats/public/default/{topic}/0/{txn}")["json"] == {
        "startPosition": start, "aborted": False,
    }  # fmt: skip
    assert get(f"transactionInPendingAckStats/public/default/{topic}/s/0/{txn}")["json"] == {}
    assert end(joined, txn) == 0
    after = get(f"transactionBufferStats/public/default/{topic}")["json"]
    assert (after["ongoingTxnSize"], after["maxReadPosition"][-2:]) == (0, ":1")
    for path in ("transactionBufferStats", "pendingAckStats", "transactionInBufferStats"):
        behind = {"pendingAckStats": "/s", "transactionInBufferStats": "/0/0"}.get(path, "")
        found = get(f"{path}/public/default/{topic}-none{behind}")
        assert found == {"status": 404, "json": {"reason": f"Topic not found {whole(topic)}-none"}}
    missing = {"reason": f"The transaction with this txdID `(0,{txn})`not found "}
    assert get(f"transactionMetadata/0/{txn}") == {"status": 404, "json": missing}


def test_what_takes_part_in_a_transaction_is_shown_by_the_name_that_the_client_gave(
    server: PulsarServer, joined: Wire, topic: str
) -> None:
    txn = begin(joined)
    joined.ask("addPartitionToTxn", "addPartitionToTxnResponse", partitions=[topic], **ids(txn))
    named = [{"topic": topic, "subscription": "s"}]
    joined.ask("addSubscriptionToTxn", "addSubscriptionToTxnResponse", subscription=named, **ids(txn))
    path = f"/admin/v3/transactions/transactionMetadata/0/{txn}"
    found = request(server.http, "", "", "GET", path)["json"]
    assert found["producedPartitions"] == {topic: {"aborted": False}} and found["ackedPartitions"] == {topic: {"s": {}}}
    assert end(joined, txn) == 0


def test_figures_say_what_is_pending_and_how_far_all_is(server: PulsarServer, joined: Wire, topic: str) -> None:
    """States are those that a real broker gives."""

    def get(path: str) -> object:
        return request(server.http, "", "", "GET", f"/admin/v3/transactions/{path}")["json"]

    def state(name: str, place: tuple[int, int], index: str = "") -> object:
        found = get(f"positionStatsInPendingAck/public/default/{topic}/{name}/{place[0]}/{place[1]}{index}")
        assert isinstance(found, dict)
        return found["state"]

    joined.subscribe(topic, "all", consumer=2, initialPosition=1)
    joined.flow(1000, 2)
    places = [send(joined, b"%d" % n) for n in range(4)]
    head = metadata(sequence_id=next(_sequences), num_messages_in_batch=3)
    joined.raw(send_frame(1, 99, entry_of(head, batch_of(b"a", b"b", b"c"))))
    place = joined.expect("send_receipt").message_id
    batch = (int(place.ledgerId), int(place.entryId))
    joined.messages(5)
    joined.messages(5, 2)
    txn, other = begin(joined), begin(joined)
    for name in ("s", "all"):
        join_subscription(joined, txn, topic, name)
    joined.ack({"ledgerId": places[0][0], "entryId": places[0][1]})
    joined.ack({"ledgerId": places[2][0], "entryId": places[2][1]}, **ids(txn))
    left = {"ledgerId": batch[0], "entryId": batch[1], "ack_set": [0b101]}
    assert not joined.ack(left, **ids(txn)).HasField("error")
    third = {"ledgerId": places[2][0], "entryId": places[2][1]}
    assert not joined.ack(third, consumer=2, cumulative=True, **ids(txn)).HasField("error")
    assert [state("s", one) for one in (*places, batch)] == [
        "MarkDelete", "NotInPendingAck", "PendingAck", "NotInPendingAck", "PendingAck",
    ]  # fmt: skip
    assert [state("s", batch, f"?batchIndex={i}") for i in (0, 1, 2)] == [
        "NotInPendingAck", "PendingAck", "NotInPendingAck",
    ]  # fmt: skip
    assert state("s", places[2], "?batchIndex=0") == state("s", batch, "?batchIndex=3") == "InvalidPosition"
    assert {state("all", one) for one in places} == {"NotInPendingAck"}, "one by one nothing is"
    assert state("s", (places[0][0] + 1, 0)) == state("s", (batch[0], 500)) == "NotInPendingAck"
    upto = {"cumulativeAckPosition": "{}:{}".format(*places[2])}
    path = f"transactionInPendingAckStats/public/default/{topic}"
    assert get(f"{path}/all/0/{txn}") == upto
    assert get(f"{path}/all/0/{other}") == get(f"{path}/s/0/{txn}") == {}
    found = get(f"transactionMetadata/0/{txn}")
    assert isinstance(found, dict) and found["ackedPartitions"] == {whole(topic): {"s": {}, "all": upto}}
    assert end(joined, txn) == 0
    assert [state("s", one) for one in (places[2], batch)] == ["NotInPendingAck"] * 2
    assert state("all", places[2]) == "MarkDelete" and get(f"{path}/all/0/{txn}") == {}
    missing = f"/admin/v3/transactions/positionStatsInPendingAck/public/default/{topic}/none/0/0"
    assert request(server.http, "", "", "GET", missing)["status"] == 404


def test_an_administrator_aborts_a_transaction(server: PulsarServer, joined: Wire, topic: str) -> None:
    txn = begin(joined)
    join(joined, txn, topic)
    send(joined, b"never", txn)
    send(joined, b"behind it")
    path = "/admin/v3/transactions/"
    assert request(server.http, "", "", "POST", f"{path}abortTransaction/0/{txn}")["status"] == 204
    assert received(joined, 1) == [b"behind it"]
    found = request(server.http, "", "", "GET", f"{path}transactionInBufferStats/public/default/{topic}/0/{txn}")
    assert found["json"] == {"aborted": True}
    assert request(server.http, "", "", "POST", f"{path}abortTransaction/0/{txn}")["status"] == 404


def test_a_transaction_that_is_open_for_too_long_is_aborted(joined: Wire, topic: str) -> None:
    began = time.monotonic()
    txn = begin(joined, timeout_ms=300)
    join(joined, txn, topic)
    send(joined, b"never", txn)
    send(joined, b"behind it")
    assert received(joined, 1) == [b"behind it"]
    assert time.monotonic() - began > 0.3 + LATE_S, "its client has to know before"
    until = time.monotonic() + TIMEOUT_S
    while (said := end(joined, txn)) == INVALID_STATUS and time.monotonic() < until:
        time.sleep(0.01)  # the topic has ended it, which has not been noted yet
    assert said == NOT_FOUND


def test_what_nobody_knows_is_aborted_and_holds_nothing_up(joined: Wire, topic: str) -> None:
    send(joined, b"of none", 1 << 50)
    send(joined, b"behind it")
    joined.socket.settimeout(TIMEOUT_S)
    assert received(joined, 1) == [b"behind it"]


def send_as_go(wire: Wire, payload: bytes, txn: int) -> None:
    """As the client in Go sends batches: only the command names a transaction, the last one of the producer."""
    sequence = next(_sequences)
    entry = entry_of(metadata(sequence_id=sequence, num_messages_in_batch=1), batch_of(payload))
    wire.raw(send_frame(1, sequence, entry, **ids(txn)))
    wire.expect("send_receipt")


@pytest.mark.parametrize("action", [COMMIT, ABORT])
def test_a_batch_whose_command_alone_names_a_transaction_is_of_it_while_that_is_open(
    server: PulsarServer, joined: Wire, topic: str, action: int
) -> None:
    txn = begin(joined)
    join(joined, txn, topic)
    send_as_go(joined, b"in it", txn)
    send(joined, b"behind it")
    silent(joined)
    path = f"/admin/v3/transactions/transactionInBufferStats/public/default/{topic}/0/{txn}"
    assert "startPosition" in request(server.http, "", "", "GET", path)["json"]
    assert end(joined, txn, action) == 0
    send_as_go(joined, b"after it", txn)
    send(joined, b"behind that")
    expected = [b"behind it", b"after it", b"behind that"]
    if action == COMMIT:
        expected.insert(0, b"in it")
    found = received(joined, len(expected))
    assert all(payload.endswith(end) for payload, end in zip(found, expected, strict=True)), found


@pytest.mark.parametrize("action", [COMMIT, ABORT])
def test_what_is_pending_outlives_the_worker(mortal: PulsarServer, topic: str, action: int) -> None:
    with connected(mortal) as control, connected(mortal) as wire:
        wire.subscribe(topic, initialPosition=1)
        wire.producer(topic)
        wire.flow(1000)
        whole_one, part, left = *deliver(wire, 1), deliver_batch(wire, 3), deliver(wire, 1)[0]
        txn = begin(control)
        join_subscription(control, txn, topic)
        join(control, txn, topic)
        assert not wire.ack(whole_one, **ids(txn)).HasField("error")
        assert not wire.ack({**part, "ack_set": [0b100]}, **ids(txn)).HasField("error")
        send(wire, b"new", txn)
        for worker in ("mq-worker-0", "mq-worker-1"):
            kill(mortal, worker)
        assert end(control, txn, action) == 0
    with connected(mortal) as wire:
        wire.subscribe(topic)
        wire.flow(1000)
        kept = [(part["entryId"], [0b100] if action == COMMIT else []), (left["entryId"], [])]
        expected = [*kept, (left["entryId"] + 1, [])] if action == COMMIT else [(whole_one["entryId"], []), *kept]
        places = [wire.expect("message") for _ in expected]
        assert sorted((place.message_id.entryId, list(place.ack_set)) for place in places) == expected
        silent(wire)


# --- processes that are killed --------------------------------------------------------------------------------------


def read_all(server: PulsarServer, topic: str) -> list[bytes]:
    with Wire(server.port) as wire:
        wire.socket.settimeout(TIMEOUT_S)
        wire.connect().subscribe(topic, "reader", durable=False, start_message_id={"ledgerId": MAX, "entryId": MAX})
        last = wire.ask("getLastMessageId", "getLastMessageIdResponse", consumer_id=1).last_message_id
        found: list[bytes] = []
        wire.flow(100_000)
        entry = -1
        while last.entryId != MAX and entry < last.entryId:
            frame = wire.until(lambda frame: frame.name == "message")
            entry = frame.body.message_id.entryId
            found.append(payload_of(frame))
        return found


@pytest.fixture(scope="module")
def mortal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PulsarServer]:
    with running(workers=2, data_dir=tmp_path_factory.mktemp("data")) as server:
        yield server


def kill(server: PulsarServer, victim: str) -> None:
    pid = server.pid_of(victim)
    os.kill(pid, signal.SIGKILL)

    def is_back() -> bool:
        try:
            return server.pid_of(victim) != pid
        except (StopIteration, OSError):
            return False

    wait_until(is_back, "it is back", TIMEOUT_S)


def connected(server: PulsarServer) -> Wire:
    wire = Wire(server.port)
    wire.socket.settimeout(TIMEOUT_S)
    return wire.connect()


@pytest.mark.parametrize("victim", ["mq-worker-0", "mq-gateway", "mq-acceptor-0"])
def test_all_or_nothing_whoever_is_killed(mortal: PulsarServer, topic: str, victim: str) -> None:
    """In each round a transaction over four topics is ended while somebody dies: whoever was told of the commit finds
    all of it, and nobody ever a part."""
    topics = [f"{victim}-{topic}-{i}" for i in range(4)]
    told: set[bytes] = set()
    for round in range(3):
        name = str(round).encode()
        with connected(mortal) as wire:
            txn = begin(wire, timeout_ms=5000)  # its end may be lost with the acceptor
            for i, one in enumerate(topics):
                wire.ask("producer", None, topic=one, producer_id=i + 1)
                join(wire, txn, one)
                send(wire, name, txn, producer=i + 1)
            wire.requests += 1
            wire.say("endTxn", request_id=wire.requests, txn_action=COMMIT, **ids(txn))
            kill(mortal, victim)
            while True:
                frame = wire.receive()
                if frame is None or frame.name == "endTxnResponse":
                    break
            if frame is not None and not frame.body.HasField("error"):
                told.add(name)

        def settled() -> bool:
            found = [read_all(mortal, one) for one in topics]
            return all(one == found[0] for one in found) and told <= set(found[0])

        wait_until(settled, "all topics have the same, and all that was promised", TIMEOUT_S)
        with connected(mortal) as wire:
            wire.ask("producer", None, topic=topics[0], producer_id=1)
    found = [read_all(mortal, one) for one in topics]
    assert all(one == found[0] for one in found)
    assert len(set(found[0])) == len(found[0])
