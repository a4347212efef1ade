"""Topics of which the log holds nothing any more, and clocks that were set, by ring messages alone."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from mq_shards.csrc._core import ffi, lib
from mq_shards.shards.dump import Record, decode_segment

from tests.shards.bench import (
    CLOSE,
    DELETE,
    OK,
    PUBLISH,
    RELEASE,
    RESERVE,
    SECOND,
    SHARDS,
    TIMED_OUT,
    WATCH,
    Bench,
    drop_all_but_the_active,
    go_on_in_a_new_segment,
    names_in_log,
)


@pytest.fixture()
def bench() -> Iterator[Bench]:
    b = Bench()
    b.open("a", 1)
    b.open("b", 2, shard=1)
    b.send(WATCH, 1, topic=1)
    b.turn()
    yield b
    b.dispose()


def pass_through(bench: Bench, name: str, count: int = 1) -> list[int]:
    """Messages that are published and deleted; then the topic sleeps. Their seqs."""
    bench.open(name, 9)
    ids = [(bench.next_slot + n) * SHARDS for n in range(count)]  # slots are not given twice
    for id in ids:
        assert bench.ask(PUBLISH, topic=9, id=id).status == OK
    for id in ids:
        assert bench.ask(DELETE, id=id).status == OK
    bench.send(CLOSE, topic=9)
    bench.turn()
    records = [r for _, fd in bench.segments[0] for r in decode_segment(Path(f"/proc/self/fd/{fd}"))]
    published = [r for r in records if isinstance(r, Record) and r.kind == 3]
    return [r.seq for r in published[-count:]]


def keep(bench: Bench, names: bytes | None) -> None:
    lib.worker_keep_topics(bench.worker, 0, ffi.NULL if names is None else names, len(names or b""))


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("names", [b"t", b"not here\nt", b"t\nt\n", b"\nt\nother", None])
def test_a_topic_that_is_kept_counts_on_from_its_own_seq(bench: Bench, names: bytes | None, restarted: bool) -> None:
    assert pass_through(bench, "t", 3) == [0, 1, 2]
    assert pass_through(bench, "forgotten", 7)[-1] == 6
    go_on_in_a_new_segment(bench)
    keep(bench, names)
    drop_all_but_the_active(bench)
    assert (b"t" in names_in_log(bench), b"forgotten" in names_in_log(bench)) == (True, names is None)
    assert pass_through(bench, "t") == [3]
    for seq in (4, 5, 6):
        go_on_in_a_new_segment(bench)
        if restarted:
            bench.restart()
            keep(bench, names)
        drop_all_but_the_active(bench)
        go_on_in_a_new_segment(bench)  # of t there is its name
        drop_all_but_the_active(bench)
        assert b"t" in names_in_log(bench)
        assert pass_through(bench, "t") == [seq]


def test_what_is_said_last_of_topics_to_keep_holds(bench: Bench) -> None:
    pass_through(bench, "t", 3)
    pass_through(bench, "tt", 2)
    pass_through(bench, "high", 7)
    keep(bench, b"t\nhigh")
    keep(bench, b"tt")
    go_on_in_a_new_segment(bench)
    drop_all_but_the_active(bench)
    assert names_in_log(bench) == {b"tt"}
    assert pass_through(bench, "tt") == [2]
    assert pass_through(bench, "new") == [7]
    keep(bench, b"")
    for _ in range(2):
        go_on_in_a_new_segment(bench)
        drop_all_but_the_active(bench)
    assert names_in_log(bench) == set()
    assert pass_through(bench, "tt") == [3]


def test_a_topic_that_came_back_can_be_forgotten_again_after_a_restart(bench: Bench) -> None:
    assert pass_through(bench, "t", 2) == [0, 1]
    go_on_in_a_new_segment(bench)
    go_on_in_a_new_segment(bench)
    assert lib.worker_drop_first(bench.worker, 0)  # segments that name it are left
    os.close(bench.segments[0].pop(0)[1])
    assert pass_through(bench, "t") == [2]
    bench.restart()
    go_on_in_a_new_segment(bench)
    drop_all_but_the_active(bench)
    assert pass_through(bench, "u") == [3]
    assert pass_through(bench, "t") == [3]
    bench.restart()
    assert pass_through(bench, "t") == [4]


def read_back_at(bench: Bench, *, wall: int) -> None:
    """Another process, whose monotonic clock has nothing to do with the one before, when the wall clock says so."""
    bench.stop()
    bench.now, bench.wall = 5 * SECOND, wall
    bench.start()
    bench.open("a", 1)
    bench.turn()


@pytest.mark.parametrize("how", ["published", "released"])
@pytest.mark.parametrize("set_back", [0, 3600 * SECOND])
def test_a_clock_that_was_set_back_makes_no_delay_longer(bench: Bench, how: str, set_back: int) -> None:
    """Not by what the delay was at first either: what passed since then, as far as the log saw it, has passed."""
    if how == "published":
        bench.ask(PUBLISH, topic=1, id=4, delay=8 * SECOND)
    else:
        bench.ask(PUBLISH, topic=1, id=4)
        bench.ask(RESERVE)
        bench.ask(RELEASE, id=4, delay=8 * SECOND)
    bench.turn(3)
    bench.ask(PUBLISH, topic=2, id=5)
    bench.ask(PUBLISH, topic=1, id=8, delay=100 * SECOND)  # the log of its shard sees how late it is
    for _ in range(2):
        read_back_at(bench, wall=bench.wall - set_back)
        bench.send(WATCH, 1, topic=1)
        bench.turn(4.9)
        assert bench.ask(RESERVE).status == TIMED_OUT
        bench.now -= int(4.9 * SECOND)
        bench.wall -= int(4.9 * SECOND)
    read_back_at(bench, wall=bench.wall)
    bench.send(WATCH, 1, topic=1)
    bench.turn(5.1)
    assert bench.ask(RESERVE).id == 4


def test_a_clock_that_went_forward_makes_what_is_delayed_due(bench: Bench) -> None:
    bench.ask(PUBLISH, topic=1, id=4, delay=8 * SECOND)
    read_back_at(bench, wall=bench.wall + 9 * SECOND)
    bench.send(WATCH, 1, topic=1)
    bench.turn()
    assert bench.ask(RESERVE).id == 4


def test_no_message_is_dated_before_it_was_sent(bench: Bench) -> None:
    """A turn that began before it came in does not lend it its time."""
    lib.worker_read_clock(bench.worker, True)
    sent = time.time_ns()
    bench.wall = sent - 60 * SECOND
    assert bench.ask(PUBLISH, topic=1, id=4).status == OK
    content = Path(f"/proc/self/fd/{bench.segments[0][0][1]}").read_bytes()
    dated = [entry.time_ns for entry in decode_segment(content) if isinstance(entry, Record) and entry.id == 4]
    assert dated and sent <= dated[0] <= time.time_ns()
