"""Channels beside the job queue of the same topic, by ring messages alone: who gets which message, and when that is
wanted."""

from __future__ import annotations

import resource
from collections.abc import Iterator

import pytest
from mq_shards.csrc._core import lib

from tests.shards.bench import NO_SPACE, OK, PEEK_ID, PROBE, PUBLISH, RESERVE, TIMED_OUT, WATCH
from tests.shards.subscriptions import DELETE, EPHEMERAL, GONE, Channels, delivered


def test_a_job_put_before_the_first_channel_is_delivered_to_it_and_stays_a_job(bench: Channels) -> None:
    ids = [bench.pub("t", durable=False)[0] for _ in range(3)]
    delayed, _ = bench.pub("t", durable=False, delay=50)
    bench.sub(1, "t", "c", credit=10)
    assert delivered(bench.turn()) == [(id, 1) for id in ids]
    assert bench.catalog()["t"].jobs == 4
    bench.fin(1, *ids[1:])
    bench.raw(WATCH, 5, topic=bench.topic("t"))
    bench.turn()
    got = bench.ask(RESERVE, 5)
    assert (got.status, got.id) == (OK, ids[0])
    assert bench.ask(DELETE, 5, id=ids[0]).status == OK
    bench.restart()
    assert (bench.catalog()["t"].jobs, bench.catalog()["t"].channels["c"].depth) == (3, 1)
    bench.sub(1, "t", "c", credit=10)
    assert delivered(bench.turn()) == [(ids[0], 2)]
    bench.fin(1, ids[0])
    assert delivered(bench.turn(51)) == [(delayed, 1)]


def test_published_messages_wait_for_whoever_wants_them_first(bench: Channels) -> None:
    ids = [bench.pub("t")[0] for _ in range(3)]
    bench.raw(WATCH, 5, topic=bench.topic("t"))
    bench.turn()
    assert [bench.ask(RESERVE, 5).id for _ in range(3)] == ids
    assert bench.ask(RESERVE, 5).status == TIMED_OUT
    assert bench.ask(DELETE, 5, id=ids[0]).status == OK
    bench.restart()
    bench.sub(1, "t", "c", credit=10)
    assert sorted(delivered(bench.turn())) == [(id, 1) for id in ids[1:]]
    bench.raw(WATCH, 5, topic=bench.topic("t"))
    bench.turn()
    assert [bench.ask(RESERVE, 5).id for _ in range(2)] == ids[1:]


def test_with_channels_and_a_tube_both_get_each_message(bench: Channels) -> None:
    bench.sub(1, "t", "c", credit=10)
    first, _ = bench.pub("t")
    bench.raw(WATCH, 5, topic=bench.topic("t"))
    bench.turn()
    assert bench.ask(RESERVE, 5).status == TIMED_OUT  # what was published before is the channel's
    published, pushed = bench.pub("t")
    assert delivered(pushed) == [(published, 1)]
    put, pushed = bench.pub("t", durable=False)
    assert delivered(pushed) == [(put, 1)]
    assert [bench.ask(RESERVE, 5).id for _ in range(2)] == [published, put]
    bench.fin(1, first, published)
    assert bench.ask(DELETE, 5, id=put).status == OK
    bench.restart()
    bench.raw(WATCH, 5, topic=bench.topic("t"))
    bench.turn()
    assert bench.ask(RESERVE, 5).id == published
    bench.sub(1, "t", "c", credit=10)
    assert delivered(bench.turn()) == [(put, 2)]


def test_a_connection_that_only_begins_with_a_watch_wants_nothing_yet(bench: Channels) -> None:
    bench.sub(1, "t", "c", credit=10)
    bench.raw(WATCH, 5, topic=bench.topic("t"), flags=lib.MSG_IMPLICIT)
    bench.pub("t")
    assert bench.catalog()["t"].jobs == 0
    assert bench.ask(RESERVE, 5).status == TIMED_OUT
    bench.pub("t")
    assert bench.catalog()["t"].jobs == 1


@pytest.mark.parametrize("put", [False, True])
def test_a_tube_that_nobody_has_put_into_is_wanted_as_long_as_somebody_uses_or_watches_it(
    bench: Channels, put: bool
) -> None:
    """An acceptor knows its name for longer."""
    bench.raw(WATCH, 5, topic=bench.topic("t"))
    if put:
        id, _ = bench.pub("t", durable=False)
        assert bench.ask(DELETE, 5, id=id).status == OK
    bench.raw(GONE, 5)
    bench.turn()
    bench.pub("t")
    assert bench.catalog()["t"].jobs == put


def test_a_tube_that_is_paused_as_a_topic_stays_paused(bench: Channels) -> None:
    job, _ = bench.pub("t", durable=False)
    assert bench.change(lib.CHANGE_PAUSE, "t") == OK
    bench.restart()
    assert bench.catalog()["t"].paused
    bench.sub(1, "t", "c", credit=10)
    assert delivered(bench.turn()) == [(job, 1)]
    kept, pushed = bench.pub("t")
    assert pushed == []
    assert bench.change(lib.CHANGE_UNPAUSE, "t") == OK
    assert delivered(bench.pushed) == [(kept, 1)]


def test_what_was_emptied_stays_away_from_channels_to_come_though_the_tube_has_it(bench: Channels) -> None:
    bench.raw(WATCH, 5, topic=bench.topic("t"))
    bench.sub(1, "t", "c", credit=10)
    assert bench.change(lib.CHANGE_PAUSE, "t") == OK
    kept, _ = bench.pub("t")
    assert bench.change(lib.CHANGE_EMPTY, "t") == OK
    bench.sub(2, "t", "d", credit=10)
    assert bench.change(lib.CHANGE_UNPAUSE, "t") == OK
    assert delivered(bench.pushed) == []
    assert bench.ask(RESERVE, 5).id == kept


def test_what_a_pause_keeps_is_the_next_durable_channels_after_a_restart_too(bench: Channels) -> None:
    bench.raw(WATCH, 5, topic=bench.topic("t"))
    bench.sub(1, "t", "c#ephemeral", credit=10, flags=EPHEMERAL)
    before, _ = bench.pub("t")
    assert bench.change(lib.CHANGE_PAUSE, "t") == OK
    kept = bench.mpub("t", [b"1", b"2"])
    bench.sub(2, "t", "d")
    bench.restart()
    bench.sub(2, "t", "d", credit=10)
    assert delivered(bench.turn()) == []
    assert bench.change(lib.CHANGE_UNPAUSE, "t") == OK
    assert delivered(bench.pushed) == [(id, 1) for id in kept]
    bench.raw(WATCH, 5, topic=bench.topic("t"))
    bench.turn()
    assert [bench.ask(RESERVE, 5).id for _ in range(3)] == [before, *kept]


def test_what_a_pause_keeps_is_the_next_durable_channels_though_the_tube_came_later(bench: Channels) -> None:
    """Read back, it is a job before there is the channel."""
    assert bench.change(lib.CHANGE_MAKE, "t") == OK
    assert bench.change(lib.CHANGE_PAUSE, "t") == OK
    bench.sub(1, "t", "c#ephemeral", credit=10, flags=EPHEMERAL)
    kept = bench.mpub("t", [b"1", b"2"])
    bench.raw(WATCH, 5, topic=bench.topic("t"))
    bench.turn()
    bench.sub(2, "t", "d")
    assert bench.catalog()["t"].depth == 2
    bench.restart()
    bench.sub(2, "t", "d", credit=10)
    assert bench.change(lib.CHANGE_UNPAUSE, "t") == OK
    assert delivered(bench.pushed) == [(id, 1) for id in kept]


def test_a_probe_wants_the_tubes_that_are_watched(bench: Channels) -> None:
    """A reserve over several workers begins with one."""
    bench.raw(WATCH, 5, flags=lib.MSG_IMPLICIT, topic=bench.topic("t"))
    kept, _ = bench.pub("t")
    assert (answer := bench.ask(PROBE, 5)).status == OK
    assert answer.id == kept


@pytest.fixture()
def full_disk() -> Iterator[None]:
    """No file can be made longer."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.usefixtures("full_disk")
def test_a_job_is_one_after_a_crash_though_its_tube_was_wanted_while_there_was_no_room(bench: Channels) -> None:
    bench.sub(1, "t", "c")
    bench.pub("t")
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (1, hard))
    lib.worker_refuse_segment(bench.worker, 0)
    # Of what publishes keep free for what is finished nothing is left.
    while OK in {bench.change(what, "t", "c") for what in (lib.CHANGE_PAUSE, lib.CHANGE_UNPAUSE)}:
        pass
    assert bench.ask(PUBLISH, 5, topic=bench.topic("t"), id=bench.next_id).status == NO_SPACE
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    lib.worker_retry_segments(bench.worker)
    job, _ = bench.pub("t", durable=False)
    bench.restart()
    assert bench.ask(PEEK_ID, 5, id=job).status == OK
