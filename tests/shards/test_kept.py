"""What a paused topic keeps is its own: whoever comes or goes takes nothing of it, and a restart changes nothing."""

from __future__ import annotations

import struct

import pytest
from mq_shards.csrc._core import lib

from tests.shards.bench import DELETE, GONE, NO_SPACE, OK, PUBLISH, RESERVE, SHARDS, WATCH
from tests.shards.positions import LATEST, seek
from tests.shards.subscriptions import Channels, delivered, roll
from tests.shards.test_open_transactions import COMMIT, drop_dead, end, stage
from tests.shards.test_paused_topics import comes_to, consume_for_now, jobs, pause, put
from tests.shards.test_shard_protocol import ask

RESTARTS = pytest.mark.parametrize("restarts", [False, True], ids=["lives", "starts anew"])


def publish(bench: Channels, count: int) -> list[int]:
    return [bench.pub("t")[0] for _ in range(count)]


def compact(bench: Channels, *, into_new: bool = True) -> None:
    """What lives in the segments before moves to a new one, and they go."""
    if into_new:
        roll(bench)
    for _ in range(100):
        if lib.worker_compact(bench.worker, 0, 1 << 20):
            break
        bench.supply()
    bench.turn()
    assert drop_dead(bench)


def one_turn(bench: Channels) -> None:
    lib.channel_publish(bench.channels[0])
    lib.worker_turn(bench.worker, bench.now, bench.wall)
    bench.supply()


def unpause(bench: Channels) -> None:
    bench.raw(lib.MSG_CHANGE, 998, pri=lib.CHANGE_UNPAUSE, body=b"t")


# --- whoever comes and goes -------------------------------------------------------------------------------------------


@RESTARTS
@pytest.mark.parametrize("others", [0, 1])
def test_what_becomes_jobs_is_not_lost_when_its_ephemeral_channels_go(restarts: bool, others: int) -> None:
    bench = Channels(piece=4)
    for n in range(1 + others):
        assert bench.sub(1 + n, "t", f"e{n}", flags=lib.SUBSCRIBE_EPHEMERAL) == OK
    pause(bench)
    kept = publish(bench, 40)
    bench.raw(WATCH, 9, topic=bench.topic("t"))
    for n in range(1 + others):
        bench.raw(GONE, 1 + n)
    bench.turn()
    bench.turn()
    if restarts:
        bench.restart()
    assert jobs(bench) == kept
    bench.dispose()


@RESTARTS
@pytest.mark.parametrize("job_first", [False, True])
def test_a_channel_that_is_emptied_after_compaction_has_what_the_pause_keeps(
    bench: Channels, restarts: bool, job_first: bool
) -> None:
    if job_first:
        put(bench)
    pause(bench)
    kept = publish(bench, 3)
    roll(bench)
    kept += publish(bench, 1)
    assert bench.change(lib.CHANGE_MAKE, "t", "c") == OK
    compact(bench, into_new=False)
    assert bench.change(lib.CHANGE_EMPTY, "t", "c") == OK
    if restarts:
        bench.restart()
    assert comes_to(bench, "c") == kept


@RESTARTS
def test_who_is_made_during_a_pause_has_what_jobs_that_are_done_were_whatever_its_bytes(restarts: bool) -> None:
    bench = Channels(ring_bytes=1 << 24)
    bench.raw(WATCH, 2, topic=bench.topic("t"))
    consume_for_now(bench)
    pause(bench)
    kept = [id for _ in range(36) for id in bench.mpub("t", [b"x" * (1 << 20)] * 2)]  # more than a segment
    for id in kept:
        bench.raw(DELETE, 2, id=id)
    bench.turn()
    assert bench.catalog()["t"].jobs == 0
    assert bench.change(lib.CHANGE_MAKE, "t", "next") == OK
    if restarts:
        bench.restart()
    assert bench.change(lib.CHANGE_UNPAUSE, "t") == OK
    assert bench.catalog()["t"].channels["next"].depth == len(kept)
    bench.dispose()


@RESTARTS
def test_a_tube_has_what_is_kept_though_a_channel_was_emptied(bench: Channels, restarts: bool) -> None:
    consume_for_now(bench)
    pause(bench)
    id, _ = bench.pub("t", delay=3)
    assert bench.change(lib.CHANGE_MAKE, "t", "c") == OK
    assert bench.change(lib.CHANGE_EMPTY, "t", "c") == OK
    bench.raw(WATCH, 2, topic=bench.topic("t"))
    bench.turn(5)
    if restarts:
        bench.restart()
    assert jobs(bench) == [id]


@RESTARTS
def test_a_second_channel_has_what_is_kept_though_another_would_have_finished_it(
    bench: Channels, restarts: bool
) -> None:
    consume_for_now(bench)
    pause(bench)
    assert bench.sub(4, "t", "c", credit=5) == OK
    id, _ = bench.pub("t", delay=3)
    assert delivered(bench.turn(5)) == [], "a delay does not end a pause"
    assert bench.change(lib.CHANGE_MAKE, "t", "d") == OK
    if restarts:
        bench.restart()
        assert bench.sub(4, "t", "c", credit=5) == OK
    assert bench.change(lib.CHANGE_UNPAUSE, "t") == OK
    assert [one for one, _ in delivered(bench.pushed + bench.turn(), 4)] == [id]
    bench.fin(4, id)
    assert comes_to(bench, "d") == [id]


@RESTARTS
def test_what_was_emptied_does_not_come_again_after_compaction(bench: Channels, restarts: bool) -> None:
    consume_for_now(bench)
    pause(bench)
    publish(bench, 1)
    roll(bench)
    put(bench)
    compact(bench)
    assert bench.change(lib.CHANGE_EMPTY, "t") == OK
    assert bench.change(lib.CHANGE_MAKE, "t", "c") == OK
    if restarts:
        bench.restart()
    assert comes_to(bench, "c") == []


@RESTARTS
def test_a_job_that_is_deleted_while_a_channel_goes_does_not_come_again(restarts: bool) -> None:
    bench = Channels(piece=4)
    for conn, name in ((1, "e"), (3, "d")):
        assert bench.sub(conn, "t", name, flags=lib.SUBSCRIBE_EPHEMERAL if conn == 1 else 0) == OK
    before = publish(bench, 40)
    pause(bench)
    kept = publish(bench, 20)
    bench.raw(GONE, 1)
    bench.raw(WATCH, 2, topic=bench.topic("t"))
    id, bench.next_id = bench.next_id, bench.next_id + SHARDS
    bench.raw(PUBLISH, 999, topic=bench.topic("t"), id=id, pri=1, body=b"z")
    bench.raw(RESERVE, 2, delay=0)
    bench.raw(DELETE, 2, id=id)
    answers = [a for _ in range(9) for a in bench.turn()]
    assert [a.status for a in answers if a.kind == DELETE] == [OK]
    if restarts:
        bench.restart()
    assert jobs(bench) == kept
    assert comes_to(bench, "d") == [*before, *kept, id]
    bench.dispose()


@RESTARTS
@pytest.mark.parametrize("tube", [False, True])
@pytest.mark.parametrize("goes", ["c", "e"])
def test_the_last_channel_goes_and_the_next_has_what_is_kept(
    bench: Channels, restarts: bool, tube: bool, goes: str
) -> None:
    if tube:
        bench.raw(WATCH, 2, topic=bench.topic("t"))
    assert bench.sub(1, "t", goes, credit=9, flags=lib.SUBSCRIBE_EPHEMERAL if goes == "e" else 0) == OK
    pause(bench)
    kept = publish(bench, 3)
    late, _ = bench.pub("t", delay=3)
    assert delivered(bench.turn(5)) == []
    bench.raw(GONE, 1)
    bench.turn()
    if goes == "c":
        assert bench.change(lib.CHANGE_DELETE, "t", goes) == OK
    if tube:
        bench.raw(DELETE, 2, id=kept[0])
    bench.turn()
    if restarts:
        bench.restart()
    assert bench.catalog()["t"].depth == 4
    assert sorted(comes_to(bench, "next")) == [*kept, late]
    assert sorted(jobs(bench)) == ([*kept[1:], late] if tube else [])


@RESTARTS
def test_who_was_moved_to_the_end_during_a_pause_has_nothing_of_it(bench: Channels, restarts: bool) -> None:
    assert bench.sub(1, "t", "c") == OK
    assert bench.sub(2, "t", "d") == OK
    pause(bench)
    publish(bench, 3)
    assert seek(bench, LATEST).status == OK
    after = publish(bench, 2)
    if restarts:
        bench.restart()
    assert bench.catalog()["t"].depth == 5
    assert comes_to(bench, "c") == after
    assert bench.catalog()["t"].channels["d"].depth == 5


# --- what is given piece by piece -------------------------------------------------------------------------------------


def half_given(count: int = 40, flags: int = 0) -> tuple[Channels, list[int]]:
    """Of a topic that has just been unpaused some of what it kept has been given to its channel."""
    bench = Channels(piece=4)
    assert bench.sub(1, "t", "c", flags=flags) == OK
    pause(bench)
    kept = publish(bench, count)
    unpause(bench)
    one_turn(bench)
    one_turn(bench)
    return bench, kept


@RESTARTS
def test_each_piece_is_given_once(restarts: bool) -> None:
    bench, kept = half_given()
    if restarts:
        bench.restart()
    more = publish(bench, 5)
    figures = bench.catalog()["t"]
    assert not figures.paused and figures.depth == 0
    assert comes_to(bench, "c") == [*kept, *more]
    bench.dispose()


@RESTARTS
def test_who_comes_while_it_is_given_has_the_rest(restarts: bool) -> None:
    bench, kept = half_given()
    slot = bench.raw(lib.MSG_CHANGE, 998, pri=lib.CHANGE_MAKE, body=b"t\nd")
    one_turn(bench)
    bench.raw(lib.MSG_CHANGE, 998, pri=lib.CHANGE_EMPTY, body=b"t\nc")
    one_turn(bench)
    if restarts:
        bench.restart()
    else:
        assert OK in [a.status for _ in range(20) for a in bench.turn() if a.slot == slot]
    for _ in range(20):
        bench.turn()
    for conn, channel in ((3, "c"), (4, "d")):
        assert bench.sub(conn, "t", channel, credit=100) == OK
        ids = [id for id, _ in delivered(bench.turn(), conn)]
        assert ids == kept[len(kept) - len(ids) :] and 0 < len(ids) <= 40
    bench.dispose()


@RESTARTS
@pytest.mark.parametrize("then", ["paused", "emptied", "alone"])
def test_another_change_comes_in_the_midst_of_it(restarts: bool, then: str) -> None:
    bench, kept = half_given()
    changes = {"paused": lib.CHANGE_PAUSE, "emptied": lib.CHANGE_EMPTY, "alone": lib.CHANGE_DELETE}
    bench.raw(lib.MSG_CHANGE, 998, pri=changes[then], body=b"t\nc" if then == "alone" else b"t")
    for _ in range(60):
        bench.turn()
    if restarts:
        bench.restart()
    figures = bench.catalog()["t"]
    given = figures.channels["c"].depth if then != "alone" else 0
    assert figures.paused == (then == "paused")
    if then == "alone":
        assert 0 < figures.depth < 40
        came = comes_to(bench, "next")
        assert came and came == kept[-len(came) :]
    else:
        assert 0 < given < 40
        assert figures.depth == (40 - given if then == "paused" else 0)
        assert comes_to(bench, "c") == (kept if then == "paused" else kept[:given])
    bench.dispose()


@RESTARTS
def test_what_ephemeral_channels_alone_are_given_is_theirs(restarts: bool) -> None:
    bench, kept = half_given(flags=lib.SUBSCRIBE_EPHEMERAL)
    if restarts:
        bench.restart()
        for _ in range(20):
            bench.turn()
        came = comes_to(bench, "next")
        assert came == kept[-len(came) :] and 0 < len(came) < 40, "what had been given to it has gone with it"
    else:
        for _ in range(20):
            bench.turn()
        bench.raw(GONE, 1)
        assert comes_to(bench, "next") == []
    bench.dispose()


@RESTARTS
@pytest.mark.parametrize("tube", [False, True])
def test_with_nobody_there_it_waits_or_is_the_tubes(restarts: bool, tube: bool) -> None:
    bench = Channels(piece=4)
    if tube:
        bench.raw(WATCH, 2, topic=bench.topic("t"))
    pause(bench)
    kept = publish(bench, 20)
    if tube:
        assert ask(bench, DELETE, 2, id=kept[0]).status == OK
    unpause(bench)
    for _ in range(20):
        bench.turn()
    if restarts:
        bench.restart()
    assert comes_to(bench, "next") == kept[tube:]
    assert jobs(bench) == (kept[1:] if tube else [])
    bench.dispose()


@RESTARTS
def test_what_was_published_with_a_delay_comes_to_all_when_it_is_due(bench: Channels, restarts: bool) -> None:
    for conn, name in ((1, "c"), (2, "d")):
        assert bench.sub(conn, "t", name, credit=9) == OK
    pause(bench)
    soon, _ = bench.pub("t", delay=2)
    late, _ = bench.pub("t", delay=60)
    assert delivered(bench.turn(10)) == []
    compact(bench)
    if restarts:
        bench.restart()
        for conn, name in ((1, "c"), (2, "d")):
            assert bench.sub(conn, "t", name, credit=9) == OK
    assert bench.change(lib.CHANGE_UNPAUSE, "t") == OK
    assert sorted((a.conn, a.id) for a in bench.pushed + bench.turn() if a.kind == lib.MSG_DELIVER) == [
        (1, soon), (2, soon),
    ]  # fmt: skip
    came = sorted((a.conn, a.id) for a in bench.turn(51) if a.kind == lib.MSG_DELIVER)
    assert came == [(1, late), (2, late)]


def test_what_is_emptied_in_pieces_is_no_job_after_a_restart_though_the_tube_was_wanted_meanwhile() -> None:
    def play(restarts: bool) -> list[int]:
        bench = Channels(piece=4)
        publish(bench, 20)
        bench.raw(lib.MSG_CHANGE, 998, pri=lib.CHANGE_EMPTY, body=b"t")
        one_turn(bench)
        one_turn(bench)
        bench.raw(WATCH, 2, topic=bench.topic("t"))
        for _ in range(20):
            bench.turn()
        if restarts:
            bench.restart()
        left = jobs(bench)
        bench.dispose()
        return left

    assert play(restarts=False) == play(restarts=True)
    assert len(play(restarts=True)) < 20


def test_a_channel_stands_where_the_first_job_that_it_was_given_lay_though_that_has_moved(bench: Channels) -> None:
    """What is committed later with a place behind that is the channel's."""
    first = put(bench)
    roll(bench)
    stage(bench)
    assert bench.sub(1, "t", "c", credit=9) == OK
    assert [id for id, _ in delivered(bench.turn())] == [first]
    compact(bench, into_new=False)
    bench.restart()
    end(bench, COMMIT)
    assert len(comes_to(bench, "c")) == 2


# --- on a full disk ---------------------------------------------------------------------------------------------------


def test_on_a_full_disk_a_pause_ends_and_what_it_kept_makes_room() -> None:
    """There is no more room for publishes, nor is any of the room for what is finished spent on giving it."""
    bench = Channels(piece=16, ring_bytes=1 << 22)
    bench.supply = lambda: lib.worker_refuse_segment(bench.worker, 0)  # type: ignore[method-assign]
    assert bench.sub(1, "t", "c") == OK
    pause(bench)
    kept = 0
    for count, size in ((1000, 512), (100, 512), (1, 512), (1, 0)):
        status = OK
        while status == OK:
            body = (struct.pack(">I", size) + bytes(size)) * count
            id = (1 + kept) * SHARDS
            slot = bench.raw(lib.MSG_PUBLISH_MANY, 999, topic=bench.topic("t"), id=id, pri=count, body=body)
            (status,) = [a.status for a in bench.turn() if a.slot == slot]
            kept += count if status == OK else 0
        assert status == NO_SPACE
    assert kept > 90_000
    assert bench.change(lib.CHANGE_UNPAUSE, "t") == OK
    for _ in range(kept // 16):
        one_turn(bench)
    figures = bench.catalog()["t"]
    assert (figures.depth, figures.channels["c"].depth) == (0, kept)
    bench.dispose()
