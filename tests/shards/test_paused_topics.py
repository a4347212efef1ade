"""What a topic that is paused keeps, by ring messages alone: for the next channel, for a tube that is wanted, and over
restarts, where nobody knows of ephemeral channels. And seeks in pieces, and jobs that a channel goes back to."""

from __future__ import annotations

import pytest
from mq_shards.csrc._core import lib

from tests.shards.bench import DELETE, GONE, OK, PUBLISH, RESERVE, SECOND, SHARDS, WATCH
from tests.shards.positions import EARLIEST, LATEST, begin, publish, seek, seqs
from tests.shards.subscriptions import Channels, delivered, roll
from tests.shards.test_open_transactions import COMMIT, drop_dead, end, stage
from tests.shards.test_shard_protocol import ask


def pause(bench: Channels) -> None:
    assert bench.change(lib.CHANGE_MAKE, "t") == OK
    assert bench.change(lib.CHANGE_PAUSE, "t") == OK


def consume_for_now(bench: Channels, conn: int = 1) -> None:
    assert bench.sub(conn, "t", "e", flags=lib.SUBSCRIBE_EPHEMERAL) == OK


def comes_to(bench: Channels, channel: str = "next") -> list[int]:
    """What a channel gets, that may be made now, when the pause ends."""
    assert bench.change(lib.CHANGE_MAKE, "t", channel) == OK
    assert bench.change(lib.CHANGE_UNPAUSE, "t") == OK
    assert bench.sub(50, "t", channel, credit=100) == OK
    came = [id for id, _ in delivered(bench.pushed) + delivered(bench.turn())]
    bench.fin(50, *came)
    figures = bench.catalog()["t"].channels[channel]
    assert (figures.depth, figures.in_flight, figures.deferred) == (0, 0, 0)
    return came


def jobs(bench: Channels) -> list[int]:
    bench.raw(WATCH, 51, topic=bench.topic("t"))
    came: list[int] = []
    while (job := ask(bench, RESERVE, 51)).status == OK:
        came.append(job.id)
        assert ask(bench, DELETE, 51, id=job.id).status == OK
    return came


def put(bench: Channels) -> int:
    id, bench.next_id = bench.next_id, bench.next_id + SHARDS
    assert ask(bench, PUBLISH, 999, topic=bench.topic("t"), id=id, pri=1024, body=b"x").status == OK
    return id


@pytest.mark.parametrize("restarts", [False, True])
def test_what_is_retained_and_kept_beside_an_ephemeral_channel_waits_for_the_next(
    bench: Channels, restarts: bool
) -> None:
    consume_for_now(bench)
    pause(bench)
    publish(bench)
    if restarts:
        bench.restart()
    bench.raw(GONE, 1)
    assert len(comes_to(bench)) == 1


@pytest.mark.parametrize("restarts", [False, True])
def test_what_is_kept_beside_an_ephemeral_channel_outlives_its_segment(bench: Channels, restarts: bool) -> None:
    consume_for_now(bench)
    pause(bench)
    id, _ = bench.pub("t")
    roll(bench)
    drop_dead(bench)
    if restarts:
        bench.restart()
    bench.raw(GONE, 1)
    assert comes_to(bench) == [id]


@pytest.mark.parametrize("restarts", [False, True])
def test_an_ephemeral_channel_takes_from_who_comes_next_what_was_there_before_the_pause_alone(
    bench: Channels, restarts: bool
) -> None:
    bench.pub("t")
    pause(bench)
    kept, _ = bench.pub("t")
    consume_for_now(bench)
    if restarts:
        bench.restart()
    bench.raw(GONE, 1)
    assert comes_to(bench) == [kept]


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("piece", [0, 4])
@pytest.mark.parametrize("durable", [False, True])
def test_a_tube_that_is_wanted_during_a_pause_has_what_that_keeps(piece: int, restarts: bool, durable: bool) -> None:
    bench = Channels(piece=piece)
    assert bench.sub(1, "t", "c", flags=0 if durable else lib.SUBSCRIBE_EPHEMERAL) == OK
    pause(bench)
    kept = [bench.pub("t")[0] for _ in range(9)]
    bench.raw(WATCH, 2, topic=bench.topic("t"))
    bench.turn()
    if restarts:
        bench.restart()
    bench.raw(GONE, 1)
    assert jobs(bench) == kept
    if durable:
        assert comes_to(bench, "c") == kept
    bench.dispose()


@pytest.mark.parametrize("restarts", [False, True])
def test_a_job_that_is_done_with_takes_nothing_from_a_channel_made_during_the_pause(
    bench: Channels, restarts: bool
) -> None:
    bench.raw(WATCH, 2, topic=bench.topic("t"))
    consume_for_now(bench)
    pause(bench)
    kept = [bench.pub("t")[0] for _ in range(3)]
    assert ask(bench, DELETE, 2, id=kept[1]).status == OK
    assert bench.change(lib.CHANGE_MAKE, "t", "next") == OK
    if restarts:
        bench.restart()
    assert sorted(comes_to(bench)) == kept
    assert jobs(bench) == [kept[0], kept[2]]


@pytest.mark.parametrize("restarts", [False, True])
def test_what_is_due_and_was_not_delivered_waits_for_the_next_channel_too(bench: Channels, restarts: bool) -> None:
    assert bench.sub(1, "t", "c") == OK
    pause(bench)
    id, _ = bench.pub("t", delay=3)
    bench.turn(5)
    assert bench.change(lib.CHANGE_DELETE, "t", "c") == OK
    if restarts:
        bench.restart()
    assert comes_to(bench) == [id]


def test_what_is_committed_with_a_place_before_the_pause_is_none_of_who_comes_later(bench: Channels) -> None:
    assert bench.sub(1, "t", "c") == OK
    stage(bench)
    pause(bench)
    end(bench, COMMIT)
    assert comes_to(bench) == []


def test_figures_of_a_channel_are_right_when_what_a_pause_keeps_is_emptied(bench: Channels) -> None:
    assert bench.change(lib.CHANGE_RETAIN, "t") == OK
    pause(bench)
    put(bench)
    begin(bench, 1, EARLIEST, credit=0)
    assert bench.change(lib.CHANGE_EMPTY, "t") == OK
    assert bench.catalog()["t"].channels["c"].depth <= 1
    bench.change(lib.CHANGE_UNPAUSE, "t")
    assert bench.catalog()["t"].channels["c"].depth <= 1


@pytest.mark.parametrize("restarts", [False, True])
def test_what_waited_and_is_a_job_is_held_by_the_queue_and_by_who_goes_back_to_it(
    bench: Channels, restarts: bool
) -> None:
    id, _ = bench.pub("t")
    assert bench.change(lib.CHANGE_RETAIN, "t") == OK
    bench.raw(WATCH, 2, topic=bench.topic("t"))
    bench.raw(RESERVE, 2, delay=0)
    bench.turn()
    begin(bench, 1, EARLIEST)
    assert [one for one, _ in delivered(bench.turn())] == [id]
    if restarts:
        bench.restart()
    else:
        bench.raw(GONE, 2)
    assert ask(bench, DELETE, 3, id=id).status == OK
    bench.raw(GONE, 1)
    bench.turn()
    assert comes_to(bench, "c") == [id]
    assert bench.change(lib.CHANGE_DELETE, "t") == OK
    for _ in range(3):
        roll(bench)
        drop_dead(bench)
    assert lib.worker_first_segment(bench.worker, 0) == lib.worker_active_segment(bench.worker, 0)


@pytest.mark.parametrize("piece", [0, 4])
def test_a_seek_that_finishes_all_before_in_pieces_is_not_undone_by_a_restart(piece: int) -> None:
    bench = Channels(piece=piece)
    publish(bench, count=20)
    begin(bench, 1, EARLIEST, credit=0)
    assert seek(bench, LATEST, flags=lib.MSG_UPTO).status == OK
    bench.restart()
    bench.sub(1, "t", "c", credit=100)
    assert seqs(bench.turn()) == []
    bench.dispose()


def one_turn(bench: Channels) -> None:
    lib.channel_publish(bench.channels[0])
    lib.worker_turn(bench.worker, bench.now, bench.wall)
    bench.supply()


def test_what_is_compacted_while_a_channel_goes_in_pieces_is_the_job_queues_alone_after_a_restart() -> None:
    bench = Channels(piece=8)
    ids = [put(bench) for _ in range(10)]
    bench.raw(lib.MSG_CHANGE, 90, pri=lib.CHANGE_MAKE, id=0, body=b"t\nc")
    one_turn(bench)
    for _ in range(2):
        lib.worker_roll(bench.worker, 0)
        bench.supply()
    one_turn(bench)
    bench.raw(PUBLISH, 999, flags=lib.MSG_DURABLE, topic=bench.topic("t"), id=bench.next_id, pri=1024, body=b"x")
    one_turn(bench)
    bench.raw(lib.MSG_CHANGE, 90, pri=lib.CHANGE_DELETE, id=0, body=b"t\nc")
    for _ in range(20):
        if lib.worker_compact(bench.worker, 0, 1 << 20):
            break
        one_turn(bench)
    assert drop_dead(bench)
    bench.restart()
    assert jobs(bench) == [*ids, bench.next_id]
    bench.dispose()


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("delay", [0, 50])
def test_a_job_that_is_deleted_before_the_first_channel_is_made_is_none_of_its(restarts: bool, delay: int) -> None:
    """Which has the tube's jobs a few at a time, and is there with the last."""
    bench = Channels(piece=5)
    ids = []
    for _ in range(20):
        ids.append(bench.next_id)
        bench.raw(PUBLISH, 999, topic=bench.topic("t"), id=bench.next_id, pri=1024, delay=delay * SECOND, body=b"x")
        bench.next_id += SHARDS
    bench.turn()
    slot = bench.raw(lib.MSG_CHANGE, 90, pri=lib.CHANGE_MAKE, id=0, body=b"t\nc")
    one_turn(bench)
    for id in (ids[0], ids[19]):
        bench.raw(DELETE, 2, id=id)
    one_turn(bench)
    answers = [a for _ in range(20) for a in bench.turn()]
    assert [a.status for a in answers if a.slot == slot] == [OK]
    if restarts:
        bench.restart()
    bench.turn(60)
    assert sorted(comes_to(bench, "c")) == ids[1:19]
    bench.dispose()


@pytest.mark.parametrize("is_job", [False, True])
def test_who_goes_back_to_what_an_ephemeral_channel_has_has_it_after_a_restart_too(
    bench: Channels, is_job: bool
) -> None:
    if is_job:
        id = put(bench)
        consume_for_now(bench)
    else:
        consume_for_now(bench)
        id, _ = bench.pub("t")
    begin(bench, 2, EARLIEST)
    assert [one for one, _ in delivered(bench.turn())] == [id]
    bench.restart()
    assert comes_to(bench, "c") == [id]
    assert jobs(bench) == [id] * is_job


def test_what_was_published_with_a_delay_during_a_pause_and_finished_does_not_come_again(bench: Channels) -> None:
    bench.raw(WATCH, 2, topic=bench.topic("t"))
    consume_for_now(bench)
    pause(bench)
    id, _ = bench.pub("t", delay=1)
    bench.turn(2)
    assert bench.sub(3, "t", "next", credit=100) == OK
    assert delivered(bench.turn()) == []
    assert bench.change(lib.CHANGE_UNPAUSE, "t") == OK
    assert [one for one, _ in delivered(bench.pushed + bench.turn())] == [id]
    bench.fin(3, id)
    bench.raw(GONE, 3)
    bench.restart()
    assert comes_to(bench) == []
