"""Who goes back to what only ephemeral channels have, or share with the job queue, has it for good: it is written anew,
piece by piece, before anybody is told where he stands."""

from __future__ import annotations

import struct

import pytest
from mq_shards.csrc._core import lib

from tests.shards.bench import GONE, OK, RESERVE, SECOND, WATCH
from tests.shards.positions import EARLIEST, begin, finish, position, seek, seqs
from tests.shards.subscriptions import EPHEMERAL, Channels

PIECE = 5
MESSAGES = 40
MANY = 9_000  # less than an ephemeral channel has at most
MOST = 3 * 4096  # of a turn: WORKER_TURN_STEPS, csrc/shards/worker_state.h, and what it does beside
BENCH = {"piece": PIECE}


def ask_to_begin(bench: Channels, conn: int) -> int:
    """And one turn only."""
    head = struct.pack("<QQIIHHI", 60 * SECOND, 900 * SECOND, 0, 0, 1, lib.SUBSCRIBE_START, 4)
    body = head + b"c{ab}" + struct.pack("<IIQ", EARLIEST, 0, 0)
    slot = bench.raw(lib.MSG_SUBSCRIBE, conn, topic=bench.topic("t"), body=body)
    assert bench.pass_turn()
    return slot


def of_channel(bench: Channels) -> list[int]:
    """All that comes to it."""
    begin(bench, 3, EARLIEST)
    came: list[int] = []
    while some := seqs(bench.turn(), 3):
        came += some
        finish(bench, 3, *some)
    return sorted(came)


@pytest.mark.parametrize("beside", ["nothing", "a channel", "a tube", "a tube, and it has gone"])
@pytest.mark.parametrize("seeks", [False, True])
def test_what_only_ephemeral_channels_have_is_there_after_a_restart(bench: Channels, beside: str, seeks: bool) -> None:
    if "tube" in beside:
        bench.raw(WATCH, 5, topic=bench.topic("t"))
        bench.raw(RESERVE, 5)
        bench.turn()
    bench.sub(1, "t", "e", flags=EPHEMERAL)
    if beside == "a channel":
        bench.sub(2, "t", "d", credit=MESSAGES)
    ids = bench.mpub("t", [b"x"] * MESSAGES)
    if beside == "a channel":
        bench.turn()
        bench.fin(2, *ids)
        bench.raw(GONE, 2)
    if "gone" in beside:
        bench.raw(GONE, 1)
        bench.turn()
    if seeks:
        bench.sub(4, "t", "c")
        bench.raw(GONE, 4)
        assert seek(bench, EARLIEST).seq == 0
    else:
        assert begin(bench, 3, EARLIEST, credit=0).seq == 0
    bench.restart()
    assert of_channel(bench) == list(range(MESSAGES))


def test_who_asked_may_leave_before_all_is_written(bench: Channels) -> None:
    bench.sub(1, "t", "e", flags=EPHEMERAL)
    bench.mpub("t", [b"x"] * MESSAGES)
    ask_to_begin(bench, 3)
    bench.raw(GONE, 3)
    bench.turn()
    assert begin(bench, 3, EARLIEST, credit=0).seq == 0
    bench.restart()
    assert of_channel(bench) == list(range(MESSAGES))


def test_nobody_is_told_where_he_stands_before_all_is_written(bench: Channels) -> None:
    bench.sub(1, "t", "e", flags=EPHEMERAL)
    bench.mpub("t", [b"x"] * MESSAGES)
    slots = {ask_to_begin(bench, 3), ask_to_begin(bench, 4)}
    before = lib.worker_next_seq(bench.worker, b"t", 1)
    bench.restart()  # at once: what was not written is gone
    assert before == MESSAGES
    assert begin(bench, 3, EARLIEST, channel="other", credit=0).status == OK
    came = [a.slot for a in bench.turn() if a.slot in slots]
    assert came == [], "they were not answered"


def test_what_is_finished_while_the_rest_is_written_is_there_too(bench: Channels) -> None:
    bench.sub(1, "t", "e", flags=EPHEMERAL, credit=MESSAGES)
    ids = bench.mpub("t", [b"x"] * MESSAGES)
    ask_to_begin(bench, 3)
    for id in ids[MESSAGES // 2 :]:
        bench.raw(lib.MSG_FINISH, 1, id=id)
    bench.turn()
    bench.restart()
    assert of_channel(bench) == list(range(MESSAGES))


def test_what_channels_have_is_not_written_again(bench: Channels) -> None:
    bench.sub(1, "t", "e", flags=EPHEMERAL)
    bench.sub(2, "t", "d")
    bench.mpub("t", [b"x" * 1000] * MESSAGES)
    active = lib.worker_active_segment(bench.worker, 0)
    before = lib.worker_segment_bytes(bench.worker, 0, active)
    assert begin(bench, 3, EARLIEST, credit=0).seq == 0
    assert lib.worker_segment_bytes(bench.worker, 0, active) < before + 1000


def test_a_topic_may_go_before_all_is_written(bench: Channels) -> None:
    bench.sub(1, "t", "e", flags=EPHEMERAL)
    bench.mpub("t", [b"x"] * MESSAGES)
    ask_to_begin(bench, 3)
    assert bench.change(lib.CHANGE_DELETE, "t") == OK
    bench.turn()
    begin(bench, 4, EARLIEST, credit=0)
    bench.restart()
    assert of_channel(bench) == []


def test_it_goes_on_in_the_next_segment_though_what_was_written_is_emptied(bench: Channels) -> None:
    bench.sub(1, "t", "e", flags=EPHEMERAL)
    bench.mpub("t", [b"x"] * MESSAGES)
    slot = ask_to_begin(bench, 3)
    lib.worker_roll(bench.worker, 0)
    bench.supply()
    lib.worker_roll(bench.worker, 0)
    lib.worker_compact(bench.worker, 0, 500)
    assert slot in [a.slot for a in bench.turn()]
    bench.restart()
    assert of_channel(bench) == list(range(MESSAGES))


def test_much_is_written_in_pieces() -> None:
    bench = Channels(ring_bytes=1 << 22)
    bench.sub(1, "t", "e", flags=EPHEMERAL, credit=MANY)
    bench.mpub("t", [b""] * MANY)
    lib.worker_longest_turn(bench.worker)
    slot = ask_to_begin(bench, 3)
    assert [a.slot for _ in range(6) for a in bench.turn() if a.slot == slot] == [slot]
    assert 0 < lib.worker_longest_turn(bench.worker) <= MOST
    bench.restart()
    first = position(bench, "c")
    assert (first.cursor, first.depth) == (0, MANY)
    bench.dispose()
