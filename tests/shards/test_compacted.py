"""The compacted view of a topic, by ring messages alone: what it shows beside a model, over restarts and segments that
go."""

from __future__ import annotations

import random
import struct
import time
from collections.abc import Sequence

import pytest
from mq_shards.acceptor.protocols.pulsar.position import Position, position_of
from mq_shards.csrc._core import lib
from mq_shards.gateway.pulsar import superseding

from tests.pulsar.wire import entry_of, message_class, metadata
from tests.shards.bench import GONE, OK, Answer
from tests.shards.positions import EARLIEST, begin, finish, publish
from tests.shards.subscriptions import Channels, drop_oldest, roll
from tests.shards.test_shard_protocol import ask

VIEW = b"__compaction"
WORDS = lib.PARTS_MAX_WORDS


def message(parts: Sequence[tuple[str, bytes]]) -> bytes:
    """As the acceptor makes it of an entry; of more than one part a batch. An empty one deletes its key."""
    if len(parts) == 1:
        key, value = parts[0]
        head, payload = metadata(partition_key=key, uncompressed_size=len(value)), value
    else:
        single = message_class("SingleMessageMetadata")
        payload = b""
        for key, value in parts:
            of_one = single(partition_key=key, payload_size=len(value)).SerializeToString()
            payload += struct.pack(">I", len(of_one)) + of_one + value
        head = metadata(num_messages_in_batch=len(parts))
    entry = entry_of(head, payload)
    before = len(entry) - len(payload)
    count = len(parts) if len(parts) > 1 else 0
    return struct.pack("=IHHII", before, lib.HEADERS_PULSAR, count, 0, 0) + entry


def put(bench: Channels, *parts: tuple[str, bytes]) -> int:
    (seq,) = publish(bench, body=message(parts), flags=lib.MSG_HEADERS)
    return seq


def position(bench: Channels) -> Position:
    return position_of(ask(bench, lib.MSG_POSITION, 997, topic=bench.topic("t"), body=b"").body)


def compact(bench: Channels, steps: int = 1 << 30) -> None:
    """As the gateway does it; cut short after so many requests."""
    keys = superseding.Superseding(1 << 20, 1 << 20)
    seq, end = position(bench).first_seq, position(bench).next_seq
    for _ in range(steps):
        scanned = ask(bench, lib.MSG_SCAN, 996, topic=bench.topic("t"), ttr=seq)
        *earlier, last = keys.judge(scanned.body, seq)
        for body, until in [*((body, 0) for body in earlier), (last, min(scanned.seq, end))]:
            done = ask(bench, lib.MSG_COMPACT, 996, topic=bench.topic("t"), ttr=until, body=body)
            assert done.status == OK
        if scanned.seq >= end:
            return
        seq = scanned.seq


def shown(answers: Sequence[Answer]) -> list[tuple[int, int]]:
    """(seq, part) of what was delivered; 0 of one that is alone."""
    found = []
    for a in (a for a in answers if a.kind == lib.MSG_DELIVER):
        body, bits = a.body, None
        words, unused = struct.unpack_from("=II", body)
        if not unused:  # a struct parts_head: headers have a tag there
            bits = sum(word << 64 * i for i, word in enumerate(struct.unpack_from(f"={words}Q", body, 8)))
            body = body[8 + 8 * words :]
        parts = struct.unpack_from("=IHHII", body)[2]
        if not parts:
            found.append((a.seq, 0))
        found += [(a.seq, i) for i in range(parts) if bits is None or bits >> i & 1]
    return found


def view(bench: Channels, channel: str = "v", conn: int = 50, ephemeral: bool = True) -> list[tuple[int, int]]:
    flags = lib.SUBSCRIBE_COMPACTED | lib.SUBSCRIBE_HEADERS | (lib.SUBSCRIBE_EPHEMERAL if ephemeral else 0)
    begin(bench, conn, EARLIEST, channel=channel, flags=flags, credit=100_000)
    found, last = [], []
    answers = bench.early
    bench.early = []
    for _ in range(200):
        found += shown(answers)
        for a in answers:
            if a.kind == lib.MSG_DELIVER:
                bench.raw(lib.MSG_SENT, conn, id=48 + len(a.body))
        last, answers = answers, bench.turn()
        if not answers and not last:
            break
    bench.raw(GONE, conn)
    bench.turn()
    return found


def last_of_each(log: Sequence[tuple[int, int, str, bytes]], horizon: int) -> list[tuple[int, int]]:
    kept: dict[str, tuple[int, int]] = {}
    for seq, part, key, value in log:
        if seq < horizon and value:
            kept[key] = seq, part
        elif seq < horizon:
            kept.pop(key, None)
    return sorted([*kept.values(), *((seq, part) for seq, part, *_ in log if seq >= horizon)])


@pytest.mark.parametrize("seed", range(6))
def test_of_each_key_the_last_message_is_shown_whatever_happens_between(
    bench: Channels, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(superseding, "MAX_SAID", 2)
    dice = random.Random(seed)
    log: list[tuple[int, int, str, bytes]] = [(put(bench, ("k0", b"v")), 0, "k0", b"v")]
    horizon = 0
    for _ in range(40):
        match dice.randrange(10):
            case 0 | 1:
                compact(bench)
                horizon = position(bench).next_seq
            case 2:
                bench.restart()
            case 3:
                roll(bench)
            case 4:
                compact(bench, 1)
                horizon = max(horizon, position(bench).compacted_until)
            case _:
                for _ in range(dice.randrange(1, 6)):
                    parts = [
                        (f"k{dice.randrange(8)}", b"" if dice.random() < 0.2 else b"v")
                        for _ in range(dice.choice([1, 1, 2, 5, 70]))
                    ]
                    seq = put(bench, *parts)
                    log += [(seq, i, key, value) for i, (key, value) in enumerate(parts)]
        expected = last_of_each(log, horizon)
        assert view(bench) == expected
    where = position(bench)
    kept = [place for place in expected if place[0] < horizon]
    if kept and horizon == where.next_seq:
        assert where.compacted_last == kept[-1][0]


def test_what_the_view_needs_stays_when_everybody_has_finished_it_and_its_segment_goes(bench: Channels) -> None:
    begin(bench, 1, EARLIEST)
    put(bench, ("a", b"1"), ("b", b"1"))
    put(bench, ("a", b"2"))
    put(bench, ("c", b"3"))
    bench.turn()
    compact(bench)
    finish(bench, 1, 0, 1, 2)
    before = view(bench)
    assert before == [(0, 1), (1, 0), (2, 0)]
    roll(bench)
    drop_oldest(bench)
    assert view(bench) == before
    bench.restart()
    assert view(bench) == before
    assert position(bench).compacted_last == 2 and position(bench).compacted_messages == 3


def test_a_durable_consumer_of_the_view_is_done_with_what_it_is_not_shown(bench: Channels) -> None:
    for value in (b"1", b"2", b"3"):
        put(bench, ("a", value))
    compact(bench)
    assert view(bench, "d", ephemeral=False) == [(2, 0)]
    where = position_of(ask(bench, lib.MSG_POSITION, 997, topic=bench.topic("t"), body=b"d").body)
    assert (where.unfinished, where.depth) == (2, 1)
    bench.restart()
    assert position_of(ask(bench, lib.MSG_POSITION, 997, topic=bench.topic("t"), body=b"d").body).unfinished == 2


def test_verdicts_that_are_cut_off_or_out_of_order_change_nothing(bench: Channels) -> None:
    put(bench, ("a", b"1"))
    put(bench, ("a", b"2"))
    one, two = struct.pack("=QII", 0, 0, 0), struct.pack("=QII", 1, 0, 0)
    for body in (one[:-1], two + one, one + one, struct.pack("=QII", 0, WORDS + 1, 0) + bytes(8 * (WORDS + 1)),
                 struct.pack("=QII", 0, 2, 0) + bytes(8)):  # fmt: skip
        answer = ask(bench, lib.MSG_COMPACT, 996, topic=bench.topic("t"), ttr=2, body=body)
        assert answer.status == lib.STATUS_INVALID
    assert view(bench) == [(0, 0), (1, 0)]


def test_a_large_view_is_made_and_read_in_pieces(bench: Channels) -> None:
    for i in range(1500):
        put(bench, (f"k{i % 700}", b"v"))
    compact(bench)
    assert view(bench) == [(seq, 0) for seq in range(800, 1500)]


def test_what_a_compaction_passes_over_does_not_come_back_wherever_the_log_had_room(bench: Channels) -> None:
    """A finish is written at once where little room is allocated: behind the cursor that has passed the message, or
    recovery does not know what was finished."""
    assert bench.change(lib.CHANGE_RETAIN, "t") == OK
    bench.mpub("t", [b""] * 4000)
    for seq in range(4000):
        body = struct.pack("=QII", seq, 0, 0)
        assert ask(bench, lib.MSG_COMPACT, 996, topic=bench.topic("t"), ttr=seq + 1, body=body).status == OK
    bench.restart()
    assert bench.catalog()["t"].channels[VIEW.decode()].depth == 0


def of_many(count: int, left_out: int) -> Channels:
    """A view of so many messages behind which others lie that are not in it; read back from its log."""
    bench = Channels(ring_bytes=1 << 22)
    assert bench.change(lib.CHANGE_RETAIN, "t") == OK
    bench.mpub("t", [b""] * (count + left_out))
    verdicts = b"".join(struct.pack("=QII", seq, 0, 0) for seq in range(count, count + left_out))
    slot = bench.raw(lib.MSG_COMPACT, 996, topic=bench.topic("t"), ttr=count + left_out, body=verdicts)
    assert [a.status for _ in range(20) for a in bench.turn() if a.slot == slot] == [OK]
    bench.restart()
    lib.worker_longest_turn(bench.worker)
    return bench


def test_the_last_message_of_a_view_is_found_as_quickly_in_a_large_one() -> None:
    def look(count: int) -> float:
        bench = of_many(count, 10)
        slot = bench.raw(lib.MSG_POSITION, 997, topic=bench.topic("t"))
        began = time.thread_time()
        (answer,) = [a for a in bench.turn() if a.slot == slot]
        took = time.thread_time() - began
        assert position_of(answer.body).compacted_last == count - 1
        bench.dispose()
        return took

    few = min(look(100) for _ in range(3))
    assert min(look(200_000) for _ in range(2)) < 20 * few


def test_and_in_pieces_behind_many_that_are_not_in_it() -> None:
    piece = 4096  # WORKER_TURN_STEPS, csrc/shards/worker_state.h
    for count in (1, 0):
        bench = of_many(count, 3 * piece)
        slot = bench.raw(lib.MSG_POSITION, 997, topic=bench.topic("t"))
        answers = [a for _ in range(5) for a in bench.turn() if a.slot == slot]
        assert [position_of(a.body).compacted_last for a in answers] == [0 if count else lib.NO_PLACE]
        assert 0 < lib.worker_longest_turn(bench.worker) <= 2 * piece
        bench.dispose()
