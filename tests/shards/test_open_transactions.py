"""Transactions that are open while the segments they were written in go, by ring messages alone: what is published
in one is there once when it is committed and never when it is aborted, and so with what is acknowledged."""

from __future__ import annotations

import os
import struct

import pytest
from mq_shards.csrc._core import lib

from tests.shards.bench import GONE, OK, SHARDS, WATCH
from tests.shards.positions import EARLIEST, LATEST, begin, finish, publish, seek, seqs
from tests.shards.subscriptions import TIMEOUT, Channels, roll
from tests.shards.test_naming import move_names
from tests.shards.test_packed import publish as publish_batch
from tests.shards.test_packed import runs
from tests.shards.test_shard_protocol import ask

MSG_TXN = 8192  # csrc/ringbuf/message.h
TXN = 7
ABORT, COMMIT = 0, 1


def of_transaction(txn: int, body: bytes) -> bytes:
    return struct.pack("<Q", txn) + body


def stage(bench: Channels, body: bytes = b"x", txn: int = TXN, due_ns: int = 0, ttr_ns: int = TIMEOUT) -> int:
    """Its seq."""
    flags = lib.MSG_DURABLE | lib.MSG_RETAIN | MSG_TXN | (lib.MSG_DUE if due_ns else 0)
    topic, id, body = bench.topic("t"), bench.next_id, of_transaction(txn, body)
    bench.next_id += SHARDS
    slot = bench.raw(
        lib.MSG_PUBLISH, 999, flags=flags, topic=topic, id=id, pri=1024, delay=due_ns, ttr=ttr_ns, body=body
    )
    answers = bench.turn()
    (answer,) = [a for a in answers if a.slot == slot]
    bench.early += [a for a in answers if a.slot != slot]
    assert answer.status == OK
    return answer.seq


def acknowledge(bench: Channels, seq: int, conn: int = 1, txn: int = TXN) -> int:
    return ask(bench, lib.MSG_TXN_ACK, conn, topic=bench.topic("t"), id=txn, ttr=seq).status


def acknowledge_upto(bench: Channels, seq: int, conn: int = 1, txn: int = TXN) -> int:
    return ask(bench, lib.MSG_TXN_ACK, conn, topic=bench.topic("t"), id=txn, ttr=seq, flags=lib.MSG_UPTO).status


def acknowledge_parts(bench: Channels, seq: int, left: int, txn: int = TXN, flags: int = 0) -> int:
    """`left`: the parts that are not acknowledged, as bits."""
    body = left.to_bytes(8, "little")
    return ask(bench, lib.MSG_TXN_ACK, 1, topic=bench.topic("t"), id=txn, ttr=seq, body=body, flags=flags).status


def end(bench: Channels, how: int, txn: int = TXN) -> None:
    slot = bench.raw(lib.MSG_TXN_END, 996, topic=bench.topic("t"), id=txn, pri=how)
    answers = bench.turn()
    assert [a.status for a in answers if a.slot == slot] == [OK]
    bench.early += [a for a in answers if a.slot != slot]


def open_ones(bench: Channels) -> bytes:
    slot = bench.raw(lib.MSG_TXN_LIST, 995)
    answers = bench.turn()
    (answer,) = [a for a in answers if a.slot == slot and a.conn == 995]
    bench.early += [a for a in answers if a is not answer]
    return answer.body


def compact(bench: Channels) -> None:
    for _ in range(100):
        if lib.worker_compact(bench.worker, 0, 1 << 20):
            break
        bench.supply()
    bench.turn()


def drop_dead(bench: Channels) -> int:
    """Compacts the oldest segment and drops it, as long as nothing lives there then. How many went."""
    dropped = 0
    while lib.worker_first_segment(bench.worker, 0) < lib.worker_active_segment(bench.worker, 0):
        compact(bench)
        if not lib.worker_dead_segments(bench.worker, 0):
            break
        first = lib.worker_first_segment(bench.worker, 0)
        move_names(bench, first)
        assert lib.worker_drop_first(bench.worker, 0)
        os.close(bench.segments[0].pop(0)[1])
        os.close(bench.names.pop((0, first)))
        dropped += 1
    return dropped


@pytest.mark.parametrize("restarts", ["never", "while open", "when over", "always"])
@pytest.mark.parametrize("how", [COMMIT, ABORT])
def test_what_is_published_in_one_outlives_segments_that_go(bench: Channels, how: int, restarts: str) -> None:
    begin(bench, 1, EARLIEST, channel="c", credit=0)
    before = publish(bench)
    staged = stage(bench, b"staged")
    behind = publish(bench)
    for _ in range(3):
        roll(bench)
        drop_dead(bench)
        if restarts in ("while open", "always"):
            bench.restart()
    assert open_ones(bench)
    end(bench, how)
    assert not open_ones(bench)
    for _ in range(3):
        if restarts in ("when over", "always"):
            bench.restart()
        roll(bench)
        assert drop_dead(bench) > 0, "nothing keeps a segment that was a transaction's"
    if restarts != "never":
        bench.restart()
    bench.turn()
    begin(bench, 2, EARLIEST, channel="c")
    came = seqs(bench.turn(), 2)
    assert came == [*before, *([staged] if how == COMMIT else []), *behind]
    finish(bench, 2, *came)
    bench.restart()
    begin(bench, 2, EARLIEST, channel="c")
    assert seqs(bench.turn(), 2) == []
    assert drop_dead(bench) >= 0


@pytest.mark.parametrize("restarts", ["never", "while open", "when over", "always"])
@pytest.mark.parametrize("how", [COMMIT, ABORT])
@pytest.mark.parametrize("other", [True, False])
def test_what_is_acknowledged_in_one_outlives_segments_that_go(
    bench: Channels, how: int, restarts: str, other: bool
) -> None:
    """`other`: another channel keeps the message."""
    if other:
        begin(bench, 3, EARLIEST, channel="other", credit=0)
    begin(bench, 1, EARLIEST, channel="c")
    first, second = publish(bench, count=2)
    assert seqs(bench.turn(), 1) == [first, second]
    roll(bench)
    assert acknowledge(bench, first) == OK
    for _ in range(3):
        roll(bench)
        assert drop_dead(bench) > 0, "it moves with its message"
        if restarts in ("while open", "always"):
            bench.restart()
    assert open_ones(bench)
    bench.raw(GONE, 1)
    bench.turn()
    begin(bench, 1, EARLIEST, channel="c")
    assert seqs(bench.turn(), 1) == [second], "it is neither finished nor to be had"
    end(bench, how)
    assert not open_ones(bench)
    again = [] if how == COMMIT else [first]
    assert seqs(bench.turn(), 1) == again
    for _ in range(3):
        if restarts in ("when over", "always"):
            bench.restart()
        roll(bench)
        assert drop_dead(bench) > 0
    bench.restart()
    begin(bench, 1, EARLIEST, channel="c")
    came = seqs(bench.turn(), 1)
    assert sorted(came) == [*again, second]
    finish(bench, 1, *came)
    assert bench.catalog()["t"].channels["c"].depth == 0


@pytest.mark.parametrize("restart", [True, False])
@pytest.mark.parametrize("by", ["beginning", "seeking"])
def test_who_stands_behind_it_does_not_get_it_though_the_segment_it_was_staged_in_is_gone(
    bench: Channels, by: str, restart: bool
) -> None:
    begin(bench, 1, EARLIEST, channel="c")
    publish(bench)
    finish(bench, 1, *seqs(bench.turn(), 1))
    staged = stage(bench)
    begin(bench, 2, LATEST if by == "beginning" else EARLIEST, channel="late", credit=0)
    if by == "seeking":
        seek(bench, LATEST, channel="late")
    roll(bench)
    end(bench, COMMIT)
    assert seqs(bench.turn(), 1) == [staged]
    assert drop_dead(bench) == 1
    if restart:
        bench.restart()
        begin(bench, 1, EARLIEST, channel="c")
        assert seqs(bench.turn(), 1) == [staged]
        begin(bench, 2, EARLIEST, channel="late", credit=0)
    assert bench.catalog()["t"].channels["late"].depth == 0
    bench.raw(lib.MSG_CREDIT, 2, id=100)
    assert seqs(bench.turn(), 2) == []
    finish(bench, 1, staged)
    roll(bench)
    assert drop_dead(bench) == 1, "nobody holds it"


@pytest.mark.parametrize("other", [True, False])
@pytest.mark.parametrize("how", [COMMIT, ABORT])
@pytest.mark.parametrize("publishes", [True, False])
def test_messages_that_move_while_a_transaction_ends_are_not_an_open_ones_after_a_restart(
    how: int, publishes: bool, other: bool
) -> None:
    """It ends piece by piece, and between two pieces its messages move. Without `other`, their segment is there yet."""
    bench = Channels(piece=8)
    if other:
        begin(bench, 3, EARLIEST, channel="other", credit=0)
    begin(bench, 1, EARLIEST, channel="c")
    of = publish(bench, count=12)
    assert seqs(bench.turn(), 1) == of
    roll(bench)
    for seq in of:
        assert acknowledge(bench, seq) == OK
    staged = [stage(bench)] if publishes else []
    roll(bench)
    slot = bench.raw(lib.MSG_TXN_END, 996, topic=bench.topic("t"), id=TXN, pri=how)
    for channel in bench.channels:
        lib.channel_publish(channel)
    lib.worker_turn(bench.worker, bench.now, bench.wall)
    while not lib.worker_compact(bench.worker, 0, 1 << 20):
        bench.supply()
    answers = bench.turn()
    assert [a.status for a in answers if a.slot == slot and a.conn == 996] == [OK], "it was cut in two"
    bench.raw(GONE, 1)
    bench.turn()
    for _ in range(2):
        assert not open_ones(bench)
        begin(bench, 1, EARLIEST, channel="c")
        came = seqs(bench.turn(), 1)
        assert sorted(came) == ([*staged] if how == COMMIT else of)
        bench.raw(GONE, 1)
        bench.turn()
        if other:
            drop_dead(bench)
        bench.restart()
    bench.dispose()


@pytest.mark.parametrize("restarts", [False, True])
def test_nothing_is_delivered_from_the_first_open_message_on_in_whatever_order_they_end(restarts: bool) -> None:
    """Transactions that lie across each other, of which one ends piece by piece."""
    bench = Channels(piece=8)
    begin(bench, 1, EARLIEST, channel="c")
    open_now: dict[int, list[int]] = {}
    for n in range(60):
        txn = n * n % 7
        open_now.setdefault(txn, []).append(stage(bench, txn=txn))
    assert sorted(open_now) == [0, 1, 2, 4]
    committed: list[int] = []
    came: list[int] = []
    for txn, how in ((2, COMMIT), (0, COMMIT), (1, ABORT), (4, COMMIT)):
        if restarts:
            bench.restart()
            begin(bench, 1, EARLIEST, channel="c")
            came.clear()
        end(bench, how, txn)
        ended = open_now.pop(txn)
        committed += ended if how == COMMIT else []
        horizon = min((first for first, *_ in open_now.values()), default=1 << 60)
        came += seqs(bench.turn(), 1)
        # What comes again after a restart is in turn with what is new.
        assert (sorted(came) if restarts else came) == sorted(seq for seq in committed if seq < horizon)
    assert not open_now
    assert not open_ones(bench)
    bench.dispose()


def test_a_topic_that_is_deleted_lets_its_transactions_go_piece_by_piece(bench: Channels) -> None:
    begin(bench, 1, EARLIEST, channel="c")
    of = publish(bench, count=100)
    assert seqs(bench.turn(), 1) == of
    for n, seq in enumerate(of):
        assert acknowledge(bench, seq, txn=n % 20) == OK
        stage(bench, txn=n % 20)
    lib.worker_longest_turn(bench.worker)
    assert bench.change(lib.CHANGE_DELETE, "t") == OK
    for _ in range(3):
        bench.turn()
    assert 0 < lib.worker_longest_turn(bench.worker) <= 2 * 4096
    assert not open_ones(bench)
    begin(bench, 1, EARLIEST, channel="c")
    after = stage(bench, b"of another life", txn=1)
    end(bench, COMMIT, 1)
    assert seqs(bench.turn(), 1) == [after]
    finish(bench, 1, after)
    roll(bench)
    assert drop_dead(bench) > 0
    bench.restart()
    assert not open_ones(bench)


@pytest.mark.parametrize("how", [COMMIT, ABORT])
def test_a_batch_that_others_have_message_by_message_is_no_transactions(bench: Channels, how: int) -> None:
    """And one of which a transaction has a part is not split before it ends."""
    bench.sub(1, "t", "c", credit=10, flags=lib.SUBSCRIBE_HEADERS)
    id = publish_batch(bench, "t", 3)
    (whole,) = bench.turn()
    assert acknowledge_parts(bench, whole.seq, 0b110) == OK
    bench.raw(GONE, 1)
    bench.turn()
    bench.sub(2, "t", "c", credit=10)
    assert runs(bench.turn()) == [], "it waits"
    end(bench, how)
    first = 1 if how == COMMIT else 0
    assert runs(bench.turn()) == [(id, first, 3 - first, 2)]
    bench.sub(1, "t", "c", credit=10, flags=lib.SUBSCRIBE_HEADERS)
    assert acknowledge(bench, whole.seq, txn=8) == lib.STATUS_FULL
    assert acknowledge_parts(bench, whole.seq, 0b100, txn=8) == lib.STATUS_FULL
    assert bench.fin(2, *(id + (part + 1) * SHARDS for part in range(first, 3))) == []
    assert bench.catalog()["t"].channels["c"].depth == 0
    bench.restart()
    assert not open_ones(bench)
    assert bench.catalog()["t"].channels["c"].depth == 0


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("how", [COMMIT, ABORT])
def test_of_a_batch_of_which_all_that_is_left_is_in_a_transaction_nothing_is_delivered(
    bench: Channels, how: int, restarts: bool
) -> None:
    bench.sub(1, "t", "c", credit=10, flags=lib.SUBSCRIBE_HEADERS)
    publish_batch(bench, "t", 3)
    (whole,) = bench.turn()
    assert acknowledge_parts(bench, whole.seq, 0b110) == OK
    finish(bench, 1, whole.seq, flags=lib.MSG_PARTS, body=(0b001).to_bytes(8, "little"))
    bench.raw(GONE, 1)
    bench.turn()
    if restarts:
        bench.restart()
    bench.sub(1, "t", "c", credit=10, flags=lib.SUBSCRIBE_HEADERS)
    assert seqs(bench.turn()) == []
    end(bench, how)
    assert seqs(bench.turn()) == ([] if how == COMMIT else [whole.seq])
    bench.restart()
    assert bench.catalog()["t"].channels["c"].depth == (0 if how == COMMIT else 1)


@pytest.mark.parametrize("how", [COMMIT, ABORT])
def test_a_batch_that_is_delivered_anew_since_its_channel_was_moved_back_loses_what_is_committed(
    bench: Channels, how: int
) -> None:
    bench.sub(1, "t", "c", credit=10, flags=lib.SUBSCRIBE_HEADERS)
    assert bench.change(lib.CHANGE_RETAIN, "t") == OK
    id = publish_batch(bench, "t", 3)
    (whole,) = bench.turn()
    assert acknowledge_parts(bench, whole.seq, 0b110) == OK
    bench.raw(GONE, 1)
    seek(bench, EARLIEST)
    bench.sub(2, "t", "c", credit=10)
    assert runs(bench.turn()) == [(id, 0, 3, 1)]
    end(bench, how)
    assert runs(bench.turn()) == []
    assert bench.catalog()["t"].channels["c"].in_flight == (2 if how == COMMIT else 3)
    bench.raw(GONE, 2)
    bench.turn()
    bench.sub(2, "t", "c", credit=10)
    first = 1 if how == COMMIT else 0
    assert runs(bench.turn()) == [(id, first, 3 - first, 2)]


def test_one_that_ends_piece_by_piece_while_another_begins_is_over_after_a_restart() -> None:
    bench = Channels(piece=8)
    begin(bench, 1, EARLIEST, channel="c")
    staged = [stage(bench) for _ in range(12)]
    bench.raw(lib.MSG_TXN_END, 996, topic=bench.topic("t"), id=TXN, pri=COMMIT)
    flags = lib.MSG_DURABLE | lib.MSG_RETAIN | MSG_TXN
    body = of_transaction(8, b"x")
    bench.raw(lib.MSG_PUBLISH, 999, flags=flags, topic=bench.topic("t"), id=bench.next_id, pri=1024, body=body)
    bench.next_id += SHARDS
    assert seqs(bench.turn(), 1) == staged
    for _ in range(2):
        bench.restart()
        assert len(open_ones(bench)) == 41, "the other one"
        begin(bench, 1, EARLIEST, channel="c")
        assert sorted(seqs(bench.turn(), 1)) == staged
    end(bench, COMMIT, 8)
    assert seqs(bench.turn(), 1) == [staged[-1] + 1]
    bench.dispose()


def test_what_is_acknowledged_again_since_its_channel_was_moved_back_counts_after_a_restart(bench: Channels) -> None:
    begin(bench, 1, EARLIEST, channel="c")
    assert bench.change(lib.CHANGE_RETAIN, "t") == OK
    (seq,) = publish(bench)
    assert seqs(bench.turn(), 1) == [seq]
    assert acknowledge_upto(bench, seq) == OK
    move_back(bench)
    assert seqs(bench.turn(), 1) == [seq], "it was acknowledged with all before it"
    assert acknowledge(bench, seq) == OK
    bench.restart()
    move_back(bench)
    assert seqs(bench.turn(), 1) == [], "now it was by itself"
    bench.restart()
    end(bench, COMMIT)
    begin(bench, 1, EARLIEST, channel="c")
    assert seqs(bench.turn(), 1) == []


def move_back(bench: Channels) -> None:
    bench.raw(GONE, 1)
    bench.turn()
    seek(bench, EARLIEST)
    begin(bench, 1, EARLIEST, channel="c")


@pytest.mark.parametrize("moves", [True, False])
@pytest.mark.parametrize("how", [COMMIT, ABORT])
def test_one_transaction_at_a_time_acknowledges_all_up_to_a_message_also_after_a_restart(
    bench: Channels, how: int, moves: bool
) -> None:
    begin(bench, 3, EARLIEST, channel="other", credit=0)
    begin(bench, 1, EARLIEST, channel="c")
    first, second, third = publish(bench, count=3)
    assert seqs(bench.turn(), 1) == [first, second, third]
    assert acknowledge_upto(bench, first) == OK
    for _ in range(2):
        assert acknowledge_upto(bench, third, txn=8) == lib.STATUS_FULL
        assert acknowledge_upto(bench, first) == lib.STATUS_FULL, "it has to go further"
        if moves:
            roll(bench)
            assert drop_dead(bench) > 0
        bench.restart()
        begin(bench, 1, EARLIEST, channel="c")
        assert sorted(seqs(bench.turn(), 1)) == [second, third]
    assert acknowledge_upto(bench, second) == OK, "it may go on itself"
    assert acknowledge(bench, third, txn=8) == OK, "what others have is theirs"
    end(bench, how)
    end(bench, ABORT, 8)
    came = seqs(bench.turn(), 1)
    assert sorted(came) == ([third] if how == COMMIT else [first, second, third])
    assert acknowledge_upto(bench, third, txn=9) == OK
    end(bench, COMMIT, 9)
    bench.restart()
    assert not open_ones(bench)
    assert bench.catalog()["t"].channels["c"].depth == 0


def test_what_could_not_be_acknowledged_up_to_a_message_keeps_no_other_transaction_from_it(bench: Channels) -> None:
    lib.worker_limit_parts(bench.worker, 0)
    bench.sub(1, "t", "c", credit=100, flags=lib.SUBSCRIBE_HEADERS)
    for _ in range(3):
        publish_batch(bench, "t", 3)
    first, second, third = seqs(bench.turn())
    assert acknowledge(bench, third) == OK
    assert acknowledge_parts(bench, second, 0b110, flags=lib.MSG_UPTO) == lib.STATUS_NO_SPACE, "batches cannot be split"
    assert acknowledge_upto(bench, second, txn=8) == OK
    assert acknowledge_upto(bench, second) == lib.STATUS_FULL
    end(bench, ABORT, 8)
    assert acknowledge_upto(bench, first) == OK
    assert acknowledge_parts(bench, second, 0b110, flags=lib.MSG_UPTO) == lib.STATUS_NO_SPACE
    assert acknowledge_upto(bench, second, txn=9) == lib.STATUS_FULL, "of what it has acknowledged it keeps the place"


@pytest.mark.parametrize("restarts", [True, False])
@pytest.mark.parametrize("moves", [True, False])
@pytest.mark.parametrize("before", [COMMIT, ABORT])
@pytest.mark.parametrize("how", [COMMIT, ABORT])
def test_what_is_acknowledged_anew_since_its_channel_was_moved_back_is_both_transactions(
    bench: Channels, how: int, before: int, moves: bool, restarts: bool
) -> None:
    begin(bench, 3, EARLIEST, channel="other", credit=0)
    begin(bench, 1, EARLIEST, channel="c")
    (seq,) = publish(bench)
    assert seqs(bench.turn(), 1) == [seq]
    assert acknowledge_upto(bench, seq, txn=1) == OK
    move_back(bench)
    assert seqs(bench.turn(), 1) == [seq], "it is delivered anew"
    assert acknowledge(bench, seq, txn=2) == OK
    if moves:
        roll(bench)
        assert drop_dead(bench) > 0
    if restarts:
        bench.restart()
        begin(bench, 1, EARLIEST, channel="c")
    end(bench, before, 1)
    assert seqs(bench.turn(), 1) == [], "the other has it"
    end(bench, how, 2)
    finished = COMMIT in (before, how)  # a cumulative one is of all deliveries
    assert seqs(bench.turn(), 1) == ([] if finished else [seq])
    bench.restart()
    assert not open_ones(bench)
    assert bench.catalog()["t"].channels["c"].depth == (0 if finished else 1)


@pytest.mark.parametrize("restarts", [True, False])
@pytest.mark.parametrize("first", [1, 2])
@pytest.mark.parametrize("decisions", [(COMMIT, COMMIT), (COMMIT, ABORT), (ABORT, COMMIT), (ABORT, ABORT)])
def test_one_transaction_acknowledges_all_before_and_another_one_of_these(
    bench: Channels, decisions: tuple[int, int], first: int, restarts: bool
) -> None:
    begin(bench, 1, EARLIEST, channel="c")
    publish(bench, count=4)
    assert seqs(bench.turn(), 1) == [0, 1, 2, 3]
    assert acknowledge_upto(bench, 2, txn=1) == OK
    assert acknowledge(bench, 1, txn=2) == OK
    assert acknowledge(bench, 1, txn=3) == lib.STATUS_FULL, "that one has"
    assert acknowledge_upto(bench, 3, txn=2) == lib.STATUS_FULL, "the first one has"
    if restarts:
        bench.restart()
        begin(bench, 1, EARLIEST, channel="c")
        assert seqs(bench.turn(), 1) == [3]
    for txn in (first, 3 - first):
        end(bench, decisions[txn - 1], txn)
    again = [] if decisions[0] == COMMIT else [0, 2] if decisions[1] == COMMIT else [0, 1, 2]
    bench.turn()  # what one aborts comes again, though the other has acknowledged it
    bench.restart()
    assert not open_ones(bench)
    begin(bench, 1, EARLIEST, channel="c")
    assert sorted(seqs(bench.turn(), 1)) == [*again, 3]
    if not again:
        assert acknowledge_upto(bench, 2, txn=4) == lib.STATUS_NONE, "nothing is left up to there"


def test_parts_that_are_committed_count_though_no_more_batches_may_be_in_parts(bench: Channels) -> None:
    lib.worker_limit_parts(bench.worker, 3)
    bench.sub(1, "t", "c", credit=100, flags=lib.SUBSCRIBE_HEADERS)
    for _ in range(5):
        publish_batch(bench, "t", 3)
    of = seqs(bench.turn())
    parts = (0b110).to_bytes(8, "little")
    assert acknowledge_parts(bench, of[0], 0b110) == OK
    for seq in of[1:3]:
        finish(bench, 1, seq, flags=lib.MSG_PARTS, body=parts)
    assert [a.status for a in finish(bench, 1, of[3], flags=lib.MSG_PARTS, body=parts)] == [lib.STATUS_NO_SPACE]
    assert acknowledge_parts(bench, of[4], 0b110, txn=8) == lib.STATUS_NO_SPACE
    end(bench, COMMIT)
    for seq in of:
        finish(bench, 1, seq, flags=lib.MSG_PARTS, body=(0b001).to_bytes(8, "little"))
    bench.raw(GONE, 1)
    bench.turn()
    bench.sub(2, "t", "c", credit=100, flags=lib.SUBSCRIBE_HEADERS)
    left = {a.seq: a.body for a in bench.turn() if a.kind == lib.MSG_DELIVER}
    assert sorted(left) == of[3:], "the first part was committed, the others are finished"
    bench.restart()
    bench.sub(2, "t", "c", credit=100, flags=lib.SUBSCRIBE_HEADERS)
    assert sorted(seqs(bench.turn())) == of[3:]


def test_what_waits_behind_a_transaction_goes_with_the_last_channel_of_a_paused_topic(bench: Channels) -> None:
    bench.sub(1, "t", "c")
    stage(bench)
    bench.pub("t")
    assert bench.change(lib.CHANGE_PAUSE, "t") == OK
    assert bench.change(lib.CHANGE_DELETE, "t", "c") == OK
    bench.raw(WATCH, 7, topic=bench.topic("t"))
    bench.turn()
    assert bench.catalog()["t"].jobs == 0
    end(bench, ABORT)
    roll(bench)
    assert drop_dead(bench) == 1


def test_what_was_committed_to_an_ephemeral_topic_is_over_after_a_restart(bench: Channels) -> None:
    """Its messages are not, so a transaction of the same number could not be read back."""
    bench.said["t"] = lib.MSG_TOPIC_EPHEMERAL
    for _ in range(2):
        stage(bench)
        assert bench.catalog()["t"]
        end(bench, COMMIT)
    stage(bench)
    bench.restart()
    assert not bench.catalog() and not open_ones(bench)
