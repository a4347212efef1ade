"""A message of many MiB is written to the log a piece a turn, while others are served; and is whole or not there."""

from __future__ import annotations

import os
import random
import struct
from collections.abc import Iterator

import pytest
from mq_shards.csrc._core import lib
from mq_shards.shards.worker import SYNC_MODES

from tests.shards.bench import DELETE, GONE, NO_SPACE, OK, PEEK_ID, PUBLISH, RESERVE, SHARDS, WATCH, Answer
from tests.shards.subscriptions import Channels
from tests.shards.test_attach import FENCE, attach

MIB = 1 << 20
PIECES = 24
BODY = b"".join(random.Random(n).randbytes(1 << 16) * 16 for n in range(PIECES)) + b"odd"
LOOKS = PIECES // 4 + 1  # turns of looking whether it can be read: LOOK_PIECE_BYTES, csrc/shards/unreadable.h
PRODUCER = struct.Struct("<QQII")


@pytest.fixture()
def bench() -> Iterator[Channels]:
    b = Channels(ring_bytes=1 << 26)
    yield b
    b.dispose()


def send(bench: Channels, conn: int, body: bytes, name: str = "t", flags: int = 0) -> tuple[int, int]:
    """Its slot and its id."""
    topic, id = bench.topic(name), bench.next_id
    bench.next_id += SHARDS
    return bench.raw(PUBLISH, conn, flags=flags, topic=topic, id=id, pri=1024, body=body), id


def begin(bench: Channels, conn: int = 1, body: bytes = BODY, name: str = "t", flags: int = 0) -> tuple[int, int]:
    """Some of it is in the log."""
    slot, id = send(bench, conn, body, name, flags)
    for _ in range(len(body) // (4 * MIB) + 6):
        assert bench.step() == []
    return slot, id


def answer_to(bench: Channels, slot: int, turns: int = 4 * PIECES) -> Answer:
    for _ in range(turns):
        for answer in bench.step():
            if answer.slot == slot:
                return answer
    raise AssertionError("nothing came")


def body_of(bench: Channels, id: int, conn: int = 77) -> bytes | None:
    answer = answer_to(bench, bench.raw(PEEK_ID, conn, id=id))
    return answer.body if answer.status == OK else None


def restart(bench: Channels) -> None:
    bench.restart()
    assert bench.found.damages == 0


def test_others_are_served_in_each_turn_in_which_it_is_written(bench: Channels) -> None:
    large, id = begin(bench)
    served = 0
    for _ in range(4 * PIECES):
        slot, _ = send(bench, 2, b"small")
        answers = bench.step()
        assert slot in [a.slot for a in answers]
        if large in [a.slot for a in answers]:
            break
        served += 1
    assert [a.status for a in answers if a.slot == large] == [OK]
    assert served >= PIECES - 8
    assert body_of(bench, id) == BODY
    restart(bench)
    assert body_of(bench, id) == BODY
    assert bench.catalog()["t"].jobs >= served + 1


def test_what_is_published_meanwhile_comes_before_it_in_the_topic(bench: Channels) -> None:
    bench.topic("t")
    large, _ = begin(bench, flags=lib.MSG_DURABLE)
    small, _ = send(bench, 2, b"small", flags=lib.MSG_DURABLE)
    assert answer_to(bench, small).seq == 0
    behind, _ = send(bench, 1, b"behind", flags=lib.MSG_DURABLE)
    answers = [a for _ in range(4 * PIECES) for a in bench.step()]
    assert [(a.slot, a.seq) for a in answers] == [(large, 1), (behind, 2)]


def test_after_a_crash_half_way_it_is_not_there_and_all_else_is(bench: Channels) -> None:
    _, before = bench.pub("t", b"before")[0], bench.next_id - SHARDS
    _, id = begin(bench)
    _, meanwhile = bench.pub("t", b"meanwhile")[0], bench.next_id - SHARDS
    restart(bench)
    assert body_of(bench, id) is None
    assert body_of(bench, before) == b"before" and body_of(bench, meanwhile) == b"meanwhile"
    slot, id = begin(bench)
    assert answer_to(bench, slot).status == OK
    restart(bench)
    assert body_of(bench, id) == BODY


def test_a_client_that_goes_meanwhile_has_published_it(bench: Channels) -> None:
    _, id = begin(bench)
    bench.raw(GONE, 1)
    for _ in range(2 * PIECES):
        bench.step()
    assert body_of(bench, id) == BODY
    restart(bench)
    assert body_of(bench, id) == BODY


def test_several_at_once_are_all_whole_one_after_the_other_in_a_shard(bench: Channels) -> None:
    bench.topic("t")
    bench.open("elsewhere", 99, 1)
    bench.numbers["elsewhere"] = 99
    bodies = [bytes([n]) * (9 * MIB) for n in range(3)]
    wanted = [send(bench, n + 1, body) for n, body in enumerate(bodies)]
    bench.next_id += 1
    wanted.append(send(bench, 9, BODY, "elsewhere"))
    answers: dict[int, int] = {}
    for _ in range(8 * PIECES):
        answers |= {a.slot: a.status for a in bench.step()}
    assert [answers.get(slot) for slot, _ in wanted] == [OK] * 4
    restart(bench)
    for (_, id), body in zip(wanted, [*bodies, BODY], strict=True):
        assert body_of(bench, id) == body


def test_what_the_connection_asks_behind_it_waits_for_it(bench: Channels) -> None:
    bench.raw(WATCH, 1, topic=bench.topic("t"))
    large, id = begin(bench)
    reserve = bench.raw(RESERVE, 1)
    answers: list[Answer] = []
    for _ in range(4 * PIECES):
        answers += bench.step()
    assert [a.slot for a in answers] == [large, reserve]
    assert answers[1].body == BODY
    assert answer_to(bench, bench.raw(DELETE, 1, id=id)).status == OK
    restart(bench)
    assert body_of(bench, id) is None


def test_one_that_cannot_be_published_after_all_leaves_nothing_behind(bench: Channels) -> None:
    """Another connection has the id first: so what is written was in vain."""
    slot, id = begin(bench)
    other = bench.raw(PUBLISH, 2, topic=bench.topic("t"), id=id, pri=1024, body=b"first")
    assert answer_to(bench, other).status == OK
    assert answer_to(bench, slot).status == NO_SPACE
    for _ in range(PIECES):
        bench.step()
    assert [size for shard in bench.segments.values() for size in sizes(shard)[1:] if size] == []
    slot, large = begin(bench)
    assert answer_to(bench, slot).status == OK
    restart(bench)
    assert body_of(bench, id) == b"first" and body_of(bench, large) == BODY


def sizes(segments: list[tuple[int, int]]) -> list[int]:
    return [os.fstat(fd).st_size for _, fd in segments]


def test_without_room_for_it_that_is_said_and_others_go_on(bench: Channels) -> None:
    bench.pub("t", b"before")
    lib.worker_refuse_segment(bench.worker, 0)
    slot, id = send(bench, 1, BODY)
    answers: list[Answer] = []
    for _ in range(PIECES):
        lib.channel_publish(bench.channels[0])
        lib.worker_turn(bench.worker, bench.now, bench.wall)
        lib.worker_refuse_segment(bench.worker, 0)
    answers = bench.step()
    assert [(a.slot, a.status) for a in answers] == [(slot, NO_SPACE)]
    lib.worker_retry_segments(bench.worker)
    bench.supply()
    slot, id = begin(bench)
    assert answer_to(bench, slot).status == OK
    assert body_of(bench, id) == BODY


def waiting(bench: Channels) -> int:
    """What the worker has put into the ring, and nobody has taken."""
    return int(lib.channel_counters(bench.channels[0]).in_bytes)


def test_it_moves_into_the_ring_a_piece_a_turn_with_others_before_it(bench: Channels) -> None:
    slot, id = begin(bench)
    assert answer_to(bench, slot).status == OK
    slots = [bench.raw(PEEK_ID, 5, id=id), bench.raw(PEEK_ID, 5, id=0), bench.raw(PEEK_ID, 6, id=0)]
    lib.channel_publish(bench.channels[0])
    for _ in range(LOOKS + 4):
        before = waiting(bench)
        lib.worker_turn(bench.worker, bench.now, bench.wall)
        assert waiting(bench) - before <= 2 * MIB
    # Its job and its segment go while the rest is yet to be moved; what its connection asked comes behind it.
    bench.raw(DELETE, 6, id=id)
    answers = [a for _ in range(2 * PIECES) for a in bench.step()]
    assert [a.slot for a in answers if a.conn == 5] == slots[:2]
    assert answers[0].slot == slots[2]
    assert [a.body for a in answers if a.slot == slots[0]] == [BODY]


def test_it_is_delivered_though_its_topic_and_its_segment_have_gone(bench: Channels) -> None:
    slot, id = begin(bench)
    assert answer_to(bench, slot).status == OK
    peek = bench.raw(PEEK_ID, 5, id=id)
    lib.channel_publish(bench.channels[0])
    for _ in range(LOOKS):
        lib.worker_turn(bench.worker, bench.now, bench.wall)
    bench.raw(DELETE, 6, id=id)
    came = bench.step()
    for _ in range(3):
        lib.worker_roll(bench.worker, 0)
        bench.supply()
    while lib.worker_dead_segments(bench.worker, 0):
        assert lib.worker_drop_first(bench.worker, 0)
    assert peek not in [a.slot for a in came]
    assert answer_to(bench, peek).body == BODY


def test_with_syncs_what_comes_behind_it_is_not_seen_before_it_is_synced(bench: Channels) -> None:
    assert lib.worker_sync_mode(bench.worker, SYNC_MODES["always"], 0)
    slot, id = begin(bench)
    assert answer_to(bench, slot, turns=100_000).status == OK
    peek = bench.raw(PEEK_ID, 5, id=id)
    small, _ = send(bench, 5, b"small")
    answers: list[Answer] = []
    for _ in range(100_000):
        answers += bench.step()
        if len(answers) == 2:
            break
    assert [a.slot for a in answers] == [peek, small]
    assert answers[0].body == BODY


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("size", [8 * MIB - 24, 8 * MIB, 8 * MIB + 1, 9 * MIB + 7])
def test_of_any_size_and_with_a_producer_it_is_read_back(bench: Channels, size: int, named: bool) -> None:
    body = random.Random(size).randbytes(1 << 20) * (size >> 20) + bytes(size % MIB)
    flags = lib.MSG_DURABLE | (lib.MSG_IDEMPOTENT if named else 0)
    slot, _ = send(bench, 1, (PRODUCER.pack(5, 1, 0, 0) if named else b"") + body, flags=flags)
    assert answer_to(bench, slot).status == OK
    assert bench.sub(3, "t", "c", credit=5) == OK
    came = deliveries(bench)
    assert came == [body]
    restart(bench)
    assert bench.sub(3, "t", "c", credit=5) == OK
    assert deliveries(bench) == [body]


def test_a_producer_that_is_fenced_off_meanwhile_has_not_published_it(bench: Channels) -> None:
    arrival = attach(bench, 1, 1, "old").delay.to_bytes(8, "little")
    flags = lib.MSG_DURABLE | lib.MSG_RETAIN | lib.MSG_OF_PRODUCER
    large, _ = begin(bench, body=arrival + BODY, flags=flags)
    assert attach(bench, 2, 1, "new", FENCE).status == OK
    assert [a.status for a in bench.turn() if a.slot == large] == [lib.STATUS_FENCED]
    again, _ = send(bench, 2, BODY, flags=lib.MSG_DURABLE)
    assert (answer := answer_to(bench, again)).status == OK and answer.seq == 0
    restart(bench)


def deliveries(bench: Channels) -> list[bytes]:
    return [a.body for _ in range(PIECES) for a in bench.step() if a.kind == lib.MSG_DELIVER]


def fill(bench: Channels, room: int) -> None:
    """Leaves so much of the segment that is written to, or a little less."""
    for size in (60_000, 1_000):
        while (64 * MIB - lib.worker_segment_bytes(bench.worker, 0, 1)) - size - 100 > room:
            bench.mpub("filler", [bytes(size)])
    assert lib.worker_active_segment(bench.worker, 0) == 1


def test_a_segment_that_is_full_meanwhile_is_not_taken_for_a_full_disk(bench: Channels) -> None:
    """What is acknowledged waits until there is another: it is not refused, and nothing that is retained has to go."""
    consumers = range(10, 40)
    for conn in consumers:
        bench.sub(conn, "t", f"c{conn}", credit=64)
    ids = bench.mpub("t", [b"x"] * 64)
    bench.turn()
    fill(bench, 160_000)
    large, _ = begin(bench, flags=lib.MSG_DURABLE)
    for _ in range(4):
        for conn in consumers:
            for id in ids[:48]:
                bench.raw(lib.MSG_REQUEUE, conn, id=id)
        bench.step()
    assert lib.worker_active_segment(bench.worker, 0) == 1, "it is still being written"
    assert 64 * MIB - lib.worker_segment_bytes(bench.worker, 0, 1) < 10_000, "there is no room for more"
    for conn in consumers:
        for id in ids[48:]:
            bench.raw(lib.MSG_FINISH, conn, id=id)
    answers = bench.step()
    assert lib.worker_active_segment(bench.worker, 0) == 1, "nor is there yet"
    answers += [a for _ in range(4 * PIECES) for a in bench.step()]
    assert not lib.worker_run(bench.worker, -1, 0) & lib.WORKER_NO_SPACE
    assert [a for a in answers if a.kind == lib.MSG_FINISH] == []
    assert [a.status for a in answers if a.slot == large] == [OK]


def test_it_does_not_wait_for_itself_when_its_topic_was_deleted_meanwhile(bench: Channels) -> None:
    """Its topic is to be made anew, and there is room for that in its own segment only."""
    bench.mpub("t", [b"before"])
    fill(bench, 127_000)
    large, _ = begin(bench, flags=lib.MSG_DURABLE)
    deleted = bench.raw(lib.MSG_CHANGE, 998, pri=lib.CHANGE_DELETE, body=b"t")
    fillers = [send(bench, 5 + n, b"small", "filler", lib.MSG_DURABLE)[0] for n in range(100)]
    answers = {a.slot: a.status for _ in range(4 * PIECES) for a in bench.step()}
    assert answers.get(large) == NO_SPACE
    assert [answers.get(slot) for slot in [deleted, *fillers]] == [OK] * 101
