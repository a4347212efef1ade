"""What a topic, its channel and its stream take of a worker's memory."""

from __future__ import annotations

import ctypes
import gc
import os
from pathlib import Path

from mq_shards.csrc._core import lib

from tests.base.test_models import run_model
from tests.shards.bench import CLOSE, IGNORE, OK, PUBLISH, SECOND, SHARDS, WATCH
from tests.shards.subscriptions import SUBSCRIBE, TIMEOUT, Channels


def own_memory() -> int:
    """What is in use: pages that whatever ran before has left free are given back first."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("RssAnon")]
    return int(line.split()[1]) << 10


def test_a_topic_with_a_channel_and_one_message_costs_about_a_kilobyte(bench: Channels) -> None:
    def make(first: int, count: int) -> None:
        for n in range(first, first + count):
            bench.open(f"t{n}", 500)
            bench.raw(lib.MSG_CHANGE, 998, pri=lib.CHANGE_MAKE, body=b"t%d" % n)
            bench.raw(lib.MSG_CHANGE, 998, pri=lib.CHANGE_MAKE, body=b"t%d\nc" % n)
            bench.raw(PUBLISH, 999, flags=lib.MSG_DURABLE, topic=500, id=bench.next_id, pri=1024, body=b"x")
            bench.next_id += SHARDS
            if n % 500 == 499:
                bench.turn()

    make(0, 1000)  # tables have their size
    before = own_memory()
    make(1000, 8000)
    assert (own_memory() - before) / 8000 < 1250  # 1,170 in a process of its own
    assert lib.worker_topics(bench.worker) == 9000


def test_memory_of_tubes_that_are_gone_is_given_back(bench: Channels) -> None:
    """Whatever others are there."""

    def watch(begin: int, end: int) -> None:
        for n in range(begin, end):
            bench.open(f"t{n}", 500 + n)
            bench.raw(WATCH, 1, topic=500 + n)
            if n % 500 == 499:
                bench.turn()

    watch(0, 1000)
    before = own_memory()
    watch(1000, 30_000)
    most = own_memory()
    for n in range(1000, 30_000):
        bench.raw(IGNORE, 1, topic=500 + n)
        bench.raw(CLOSE, topic=500 + n)
        if n % 500 == 499:
            bench.turn()
    assert most - before > 12 << 20
    assert own_memory() - before < (most - before) / 2
    assert lib.worker_topics(bench.worker) == 1000


def test_channels_that_are_gone_leave_nothing_of_their_numbers(bench: Channels) -> None:
    """Each has a number in the log that no other gets soon, also after a restart."""
    bench.raw(lib.MSG_CHANGE, 998, pri=lib.CHANGE_MAKE, body=b"t")

    def come_and_go(first: int, count: int) -> None:
        for n in range(first, first + count):
            bench.raw(lib.MSG_CHANGE, 998, pri=lib.CHANGE_MAKE, body=b"t\nc%d" % n)
            bench.raw(lib.MSG_CHANGE, 998, pri=lib.CHANGE_DELETE, body=b"t\nc%d" % n)
            if n % 500 == 499:
                assert {a.status for a in bench.turn()} == {OK}

    come_and_go(0, 1000)
    before = own_memory()
    come_and_go(1000, 40_000)
    assert own_memory() - before < 80_000
    bench.restart()
    assert lib.worker_topics(bench.worker) == 1
    come_and_go(0, 500)
    assert own_memory() - before < 80_000


def test_a_stream_grows_from_its_first_message_to_both_sides(bench: Channels) -> None:
    """Its first page begins small: with a message from its middle, the ones before it, and then those behind."""
    jobs = [bench.pub("t", b"%d" % n, durable=False)[0] for n in range(40)]
    lib.worker_limit_turn(bench.worker, 1)
    head = SUBSCRIBE.pack(TIMEOUT, 900 * SECOND, 0, 0, 1, 0, 4)
    slot = bench.raw(lib.MSG_SUBSCRIBE, 1, topic=bench.topic("t"), body=head + b"c{ab}")
    later, _ = bench.pub("t", b"40")
    answers = [a for _ in range(60) for a in bench.turn()]
    assert slot in [a.slot for a in answers]
    jobs += [later, *(bench.pub("t", b"%d" % n)[0] for n in range(41, 700))]
    lib.worker_limit_turn(bench.worker, 4096)
    bench.raw(lib.MSG_CREDIT, 1, id=1000)
    came = [a for _ in range(8) for a in bench.turn() if a.kind == lib.MSG_DELIVER]
    assert [(a.id, a.body) for a in came] == [(job, b"%d" % n) for n, job in enumerate(jobs)]


def test_a_stream_is_what_an_array_would_be_and_what_stays_for_ever_keeps_nothing_behind_it() -> None:
    sources = ("shards/stream.c", "shards/stream_runs.c")
    here = Path(__file__).resolve().parent
    run_model("stream_model", sources, os.environ.get("STREAM_SEEDS", "2"), beside=here)
