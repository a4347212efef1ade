"""No turn is long that lets go of much: what is deleted, emptied, moved or finished at once goes in pieces."""

from __future__ import annotations

import itertools
import struct
from pathlib import Path

import pytest
from mq_shards.csrc._core import lib

from tests.shards.bench import (
    CLOSE,
    DELETE,
    GONE,
    NOT_FOUND,
    OK,
    PEEK_ID,
    PUBLISH,
    RESERVE,
    SECOND,
    SHARDS,
    STATS_TOPIC,
    TOUCH,
    Answer,
)  # fmt: skip
from tests.shards.subscriptions import Channels
from tests.shards.test_shard_protocol import ask
from tests.shards.turns import (
    MANY,
    PIECE,
    begins,
    begins_and_dies,
    change,
    deliver,
    depths,
    goes_on,
    jobs_in_every_state,
    live,
    put,
    roomy,
    seek_to,
    take,
    was_short,
)

bench = pytest.fixture(roomy)


@pytest.mark.parametrize("channel", [False, True], ids=["alone", "beside a channel"])
def test_a_topic_of_many_jobs_is_deleted_in_pieces_and_has_none_at_once(bench: Channels, channel: bool) -> None:
    if channel:
        bench.sub(9, "t", "c")
    jobs, reserved = jobs_in_every_state(bench)
    lib.worker_longest_turn(bench.worker)
    slots = [bench.raw(lib.MSG_CHANGE, 998, id=0, pri=lib.CHANGE_DELETE, body=b"t")]
    slots += [bench.raw(PEEK_ID, 998, id=job) for job in jobs[:: MANY // 8]]
    slots += [bench.raw(DELETE, 1, id=reserved[0]), bench.raw(TOUCH, 1, id=reserved[1])]
    bench.next_id += SHARDS
    new = bench.next_id - SHARDS
    bench.raw(PUBLISH, 998, topic=bench.topic("t"), id=new, pri=1024)
    slots.append(bench.raw(RESERVE, 1))
    answers = {a.slot: a for a in bench.turn()}
    assert [answers[slot].status for slot in slots] == [OK] + [NOT_FOUND] * (len(slots) - 2) + [OK]
    assert answers[slots[-1]].id == new
    assert was_short(bench)
    bench.turn()
    assert live(bench) == 1
    assert ask(bench, STATS_TOPIC, body=b"t").body[:40] == struct.pack("<5Q", 0, 0, 1, 0, 0)
    bench.restart()
    assert take(bench, 1, 2) == [new]
    assert live(bench) == 1


def test_the_memory_of_many_jobs_is_given_back_in_pieces(bench: Channels) -> None:
    def resident() -> int:
        text = Path("/proc/self/status").read_text()
        return int(text.partition("RssAnon:")[2].split()[0]) << 10

    count, mib = 100_000, 1 << 20
    put(bench, count)
    bench.raw(lib.MSG_CHANGE, 998, id=0, pri=lib.CHANGE_DELETE, body=b"t")
    held = [resident()]
    while bench.pass_turn():
        held.append(resident())
    assert held[0] - held[-1] > count * 36 * 0.7
    assert all(before - after < 2 * mib for before, after in itertools.pairwise(held))


def test_reserved_jobs_of_a_deleted_topic_end_with_their_client_or_their_time(bench: Channels) -> None:
    put(bench, 3)
    lib.worker_limit_turn(bench.worker, 1)
    (of_one,), (of_two,) = take(bench, 1, 1), take(bench, 2, 1)
    bench.raw(lib.MSG_CHANGE, 998, id=0, pri=lib.CHANGE_DELETE, body=b"t")
    bench.raw(GONE, 1)
    bench.turn(61)
    bench.turn()
    assert take(bench, 3, 1) == []
    assert live(bench) == 0
    assert [ask(bench, PEEK_ID, id=job).status for job in (of_one, of_two)] == [NOT_FOUND] * 2


def test_a_topic_that_is_deleted_twice_before_its_jobs_are_gone_has_none_of_either_time(bench: Channels) -> None:
    lib.worker_limit_turn(bench.worker, 1)
    for _ in range(3):
        put(bench, 20)
        assert bench.change(lib.CHANGE_DELETE, "t") == OK
    assert live(bench) > 0
    put(bench, 1)
    assert take(bench, 1, 5) == [bench.next_id - SHARDS]
    for _ in range(60):
        bench.turn()
    assert live(bench) == 1
    bench.raw(GONE, 1)
    assert bench.change(lib.CHANGE_DELETE, "t") == OK
    bench.turn()
    bench.raw(CLOSE, topic=bench.topic("t"))
    bench.turn()
    assert live(bench) == 0


# --- what lets go of much: the request waits ---------------------------------------------------------------------


@pytest.mark.parametrize("dies", [False, True], ids=["to its end", "after a crash"])
@pytest.mark.parametrize("what", ["empty", "delete", "seek"])
def test_one_channel_of_several_lets_go_in_pieces(bench: Channels, what: str, dies: bool) -> None:
    """Of what lies ahead of it, what it has in flight, and what is deferred."""
    bench.sub(1, "t", "c")
    bench.sub(2, "t", "other")
    bench.mpub("t", [b""] * MANY)
    deliver(bench, 1)
    for n in range(MANY):
        bench.raw(PUBLISH, 999, flags=lib.MSG_DURABLE, topic=bench.topic("t"), id=bench.next_id, delay=1000 * SECOND)
        bench.next_id += SHARDS
        if n % 2000 == 1999:
            bench.turn()
    bench.raw(lib.MSG_CREDIT, 1)
    bench.turn()
    bench.mpub("t", [b""] * MANY)
    ask_for = {
        "empty": change(bench, lib.CHANGE_EMPTY, "t", "c"),
        "delete": change(bench, lib.CHANGE_DELETE, "t", "c"),
        "seek": seek_to(bench, "c", lib.START_LATEST),
    }[what]
    if dies:
        begins_and_dies(bench, ask_for)
        has = (2 * MANY, 0, MANY) if what == "seek" else (0, 0, 0)
        assert depths(bench) == {"c": has, "other": (2 * MANY, 0, MANY)}
    if dies and what != "seek":
        ask_for()
        bench.turn()
    else:
        goes_on(bench, ask_for)
    for _ in range(2):
        left = {"empty": {"c": (0, 0, 0)}, "delete": {}, "seek": {"c": (0, 0, 0)}}[what]
        assert depths(bench) == left | {"other": (2 * MANY, 0, MANY)}
        bench.restart()
    new = bench.mpub("t", [b"new"])
    if what != "delete":
        bench.sub(3, "t", "c")
        assert deliver(bench, 3) == new
    bench.sub(4, "t", "other")
    assert len(deliver(bench, 4)) == 2 * MANY + 1


def test_what_waits_for_a_first_channel_is_emptied_in_pieces(bench: Channels) -> None:
    bench.mpub("t", [b""] * MANY)
    begins_and_dies(bench, change(bench, lib.CHANGE_EMPTY, "t"))
    assert MANY - 2 * PIECE <= bench.catalog()["t"].depth < MANY, "each piece is written"
    goes_on(bench, change(bench, lib.CHANGE_EMPTY, "t"))
    assert (bench.catalog()["t"].depth, live(bench)) == (0, 0)
    new = bench.mpub("t", [b"x"])
    bench.restart()
    bench.sub(1, "t", "c")
    assert deliver(bench, 1) == new


@pytest.mark.parametrize("what", ["empty", "delete", "seek", "delete all", "empty what waits"])
def test_it_goes_on_to_its_end_though_who_asked_for_it_leaves(bench: Channels, what: str) -> None:
    """What is asked behind it is not done, and whoever has the connection's number next hears of neither."""
    channels = {"delete all": ["c"], "empty what waits": []}.get(what, ["c", "other"])
    for n, channel in enumerate(channels):
        bench.sub(n + 1, "t", channel)
    bench.mpub("t", [b""] * MANY)
    assert not channels or len(deliver(bench, 1)) == MANY
    ask_for, left = {
        "empty": (change(bench, lib.CHANGE_EMPTY, "t", "c"), {"c": (0, 0, 0), "other": (MANY, 0, 0)}),
        "delete": (change(bench, lib.CHANGE_DELETE, "t", "c"), {"other": (MANY, 0, 0)}),
        "seek": (seek_to(bench, "c", lib.START_LATEST), {"c": (0, 0, 0), "other": (MANY, 0, 0)}),
        "delete all": (change(bench, lib.CHANGE_DELETE, "t"), None),
        "empty what waits": (change(bench, lib.CHANGE_EMPTY, "t"), {}),
    }[what]
    begins(bench, ask_for)
    bench.raw(lib.MSG_CHANGE, 998, id=0, pri=lib.CHANGE_MAKE, body=b"never made")
    lib.worker_longest_turn(bench.worker)
    bench.raw(GONE, 998)
    barrier = bench.raw(lib.MSG_BARRIER, 998)
    told = [a for a in bench.turn() if a.kind not in (lib.MSG_DELIVER, lib.MSG_DISMISSED)]
    assert [(a.slot, a.status) for a in told] == [(barrier, OK)]
    assert was_short(bench)
    for _ in range(2):
        topics = bench.catalog()
        assert list(topics) == ([] if left is None else ["t"])
        assert left is None or (topics["t"].depth, depths(bench)) == (0, left)
        bench.restart()


def test_what_its_channels_have_deferred_or_in_flight_goes_in_pieces_with_a_topic(bench: Channels) -> None:
    for n in range(4):
        bench.sub(n + 1, "t", f"c{n}")
    bench.mpub("t", [b""] * (MANY // 4))
    for n in range(4):
        assert len(deliver(bench, n + 1)) == MANY // 4
    bench.raw(GONE, 4)
    goes_on(bench, change(bench, lib.CHANGE_DELETE, "t"))
    assert (bench.catalog(), live(bench)) == ({}, 0)


def test_much_is_finished_at_once_in_pieces(bench: Channels) -> None:
    bench.sub(1, "t", "c")
    bench.mpub("t", [b""] * MANY)
    deliver(bench, 1)
    finish = lambda: bench.raw(lib.MSG_FINISH, 1, flags=lib.MSG_UPTO, ttr=MANY - 2)  # noqa: E731
    lib.worker_longest_turn(bench.worker)
    finish()
    slot = bench.raw(lib.MSG_BARRIER, 1)
    assert slot in [a.slot for _ in range(4) for a in bench.turn()]
    assert was_short(bench)
    assert depths(bench) == {"c": (0, 1, 0)}
    bench.restart()
    assert depths(bench) == {"c": (1, 0, 0)}


def test_an_ephemeral_channel_that_is_far_behind_comes_nearer_with_each_message(bench: Channels) -> None:
    bench.sub(1, "t", "kept")
    bench.mpub("t", [b""] * 100)
    bench.sub(2, "t", "e#ephemeral", flags=lib.SUBSCRIBE_EPHEMERAL)
    bench.mpub("t", [b""] * (10_000 + MANY))
    for _ in range(3):
        bench.mpub("t", [b""])
    assert bench.catalog()["t"].channels["e#ephemeral"].depth == 10_000
    assert was_short(bench)


def test_many_messages_for_many_ephemeral_channels_are_let_go_of_in_pieces(bench: Channels) -> None:
    """Who published them waits for that; others do not."""
    channels = [f"e{n}#ephemeral" for n in range(30)]
    for n, channel in enumerate(channels):
        bench.sub(100 + n, "t", channel, flags=lib.SUBSCRIBE_EPHEMERAL)
    messages, first = b"".join(struct.pack(">I", 1) + b"x" for _ in range(MANY)), bench.next_id
    slots = [bench.raw(lib.MSG_PUBLISH_MANY, 5, topic=bench.topic("t"), id=first + n * MANY * SHARDS, pri=MANY,
                       body=messages) for n in range(2)]  # fmt: skip
    bench.next_id += 2 * MANY * SHARDS
    lib.worker_longest_turn(bench.worker)
    answers: list[Answer] = []
    served = 0
    while len(answers) < len(slots):
        assert served < 10_000
        slot = bench.raw(lib.MSG_BARRIER, 6)
        came = bench.step()
        assert slot in [a.slot for a in came]
        answers += [a for a in came if a.slot in slots]
        served += 1
    assert [(a.slot, a.status, a.seq) for a in answers] == [(slots[0], OK, 0), (slots[1], OK, MANY)]
    assert served >= len(channels) * (2 * MANY - 10_000) // PIECE
    assert was_short(bench)
    assert {depth for depth, _, _ in depths(bench).values()} == {10_000}
