"""No turn is long in which a backlog comes to others: to a first channel, to a tube, to all when a pause ends."""

from __future__ import annotations

import pytest
from mq_shards.csrc._core import lib

from tests.shards.bench import (
    DELETE,
    GONE,
    NOT_FOUND,
    OK,
    PUBLISH,
    RESERVE,
    SECOND,
    SHARDS,
    WATCH,
)  # fmt: skip
from tests.shards.subscriptions import SUBSCRIBE, Channels, roll
from tests.shards.test_shard_protocol import ask
from tests.shards.turns import (
    MANY,
    MOST,
    deliver,
    jobs_in_every_state,
    live,
    put,
    roomy,
    take,
    turns,
    was_short,
)

bench = pytest.fixture(roomy)


def subscribe(bench: Channels, conn: int, channel: str, flags: int = 0) -> int:
    head = SUBSCRIBE.pack(60 * SECOND, 900 * SECOND, 0, 0, len(channel), flags, 4)
    body = head + channel.encode() + b"{ab}"
    return bench.raw(lib.MSG_SUBSCRIBE, conn, topic=bench.topic("t"), body=body)


@pytest.mark.parametrize("dies", [False, True], ids=["to its end", "after a crash"])
@pytest.mark.parametrize("channel", ["c", "c#ephemeral"])
def test_a_first_channel_has_a_tubes_jobs_in_pieces(bench: Channels, channel: str, dies: bool) -> None:
    """In every state they may be in, and what comes meanwhile; deleted meanwhile, a job is not to come."""
    flags = lib.SUBSCRIBE_EPHEMERAL if "#" in channel else 0
    jobs, reserved = jobs_in_every_state(bench)
    if dies:
        subscribe(bench, 2, channel, flags)
        lib.channel_publish(bench.channels[0])
        assert lib.worker_turn(bench.worker, bench.now, bench.wall)
        bench.restart()
        assert bench.catalog()["t"].channels == {}
        assert take(bench, 1, 1) == [reserved[0]]
    lib.worker_longest_turn(bench.worker)
    slots = [subscribe(bench, 2, channel, flags), subscribe(bench, 3, channel, flags)]
    lib.channel_publish(bench.channels[0])
    assert lib.worker_turn(bench.worker, bench.now, bench.wall)
    last = jobs[3 * MANY // 4 - 1]
    bench.raw(DELETE, 998, id=last)
    slots.append(bench.raw(lib.MSG_CHANGE, 998, id=0, pri=lib.CHANGE_PAUSE, body=f"t\n{channel}".encode()))
    slots.append(bench.raw(lib.MSG_CHANGE, 998, id=0, pri=lib.CHANGE_UNPAUSE, body=f"t\n{channel}".encode()))
    new, bench.next_id = bench.next_id, bench.next_id + SHARDS
    bench.raw(PUBLISH, 999, flags=lib.MSG_DURABLE, topic=bench.topic("t"), id=new, pri=1024)
    answers = {a.slot: a.status for a in turns(bench)}
    assert [answers[slot] for slot in slots] == [OK] * 4
    delayed = jobs[-MANY // 4 :]
    expected = [*(job for job in jobs[: -MANY // 4] if job != last), new]
    assert deliver(bench, 2) == expected
    assert bench.catalog()["t"].channels[channel].deferred == len(delayed)
    if flags:
        return
    bench.restart()
    bench.sub(4, "t", channel)
    assert deliver(bench, 4) == expected
    assert bench.catalog()["t"].jobs == MANY


def test_a_first_channel_that_nobody_waits_for_any_more_is_there_or_gone_if_it_is_ephemeral(bench: Channels) -> None:
    put(bench)
    subscribe(bench, 2, "c#ephemeral", lib.SUBSCRIBE_EPHEMERAL)
    lib.channel_publish(bench.channels[0])
    assert lib.worker_turn(bench.worker, bench.now, bench.wall)
    bench.raw(GONE, 2)
    turns(bench)
    assert bench.catalog()["t"].channels == {}
    subscribe(bench, 2, "c")
    lib.channel_publish(bench.channels[0])
    assert lib.worker_turn(bench.worker, bench.now, bench.wall)
    bench.raw(GONE, 2)
    turns(bench)
    assert bench.catalog()["t"].channels["c"].depth == MANY


@pytest.mark.parametrize("dies", [False, True], ids=["to its end", "after a crash"])
def test_what_waited_for_a_channel_becomes_jobs_in_pieces_oldest_first(bench: Channels, dies: bool) -> None:
    waited = bench.mpub("t", [b""] * MANY)
    bench.raw(WATCH, 1, topic=bench.topic("t"))
    slots = [bench.raw(RESERVE, 1), subscribe(bench, 2, "c")]
    lib.worker_longest_turn(bench.worker)
    lib.channel_publish(bench.channels[0])
    assert lib.worker_turn(bench.worker, bench.now, bench.wall)
    new, bench.next_id = bench.next_id, bench.next_id + SHARDS
    bench.raw(PUBLISH, 999, flags=lib.MSG_DURABLE, topic=bench.topic("t"), id=new, pri=1024)
    if dies:
        bench.restart()
        assert take(bench, 1, MANY) == waited
        return
    answers = {a.slot: (a.status, a.id) for a in bench.turn() + turns(bench)}
    assert [answers[slot] for slot in slots] == [(OK, waited[0]), (OK, 0)]
    assert take(bench, 1, MANY) == [*waited[1:], new]
    assert deliver(bench, 2) == [*waited, new]


def test_what_is_oldest_is_looked_for_in_a_short_turn(bench: Channels) -> None:
    """Exactly, unless more is in flight than a turn touches: then it is of what was sent first."""

    def oldest(name: bytes) -> tuple[int, int]:
        lib.worker_longest_turn(bench.worker)
        answer = ask(bench, lib.MSG_OLDEST, body=name)
        assert lib.worker_longest_turn(bench.worker) <= MOST
        return answer.status, answer.delay if answer.status == OK else 0

    bench.sub(1, "t", "c")
    assert oldest(b"t\nc") == oldest(b"t") == (lib.STATUS_NONE, 0)
    assert oldest(b"t\nd") == oldest(b"u") == oldest(b"u\nc") == (NOT_FOUND, 0)
    began = bench.wall
    ids = bench.mpub("t", [b""] * MANY)
    bench.turn(5)
    ids += bench.mpub("t", [b""])
    assert oldest(b"t\nc") == (OK, began)
    assert deliver(bench, 1) == ids
    assert oldest(b"t\nc") == (OK, began)
    bench.fin(1, *ids[:-1])
    assert oldest(b"t\nc") == (OK, began + 5 * SECOND)
    bench.fin(1, ids[-1])
    assert oldest(b"t\nc") == (lib.STATUS_NONE, 0)
    put(bench, 2)
    bench.restart()
    assert oldest(b"t\nc") == (OK, began + 5 * SECOND), "what was read back has the time that it had"


def defer(bench: Channels, count: int = MANY) -> list[int]:
    """So many with a delay; their ids."""
    first = bench.next_id
    for n in range(count):
        bench.raw(PUBLISH, 999, flags=lib.MSG_DURABLE, topic=bench.topic("t"), id=bench.next_id, delay=1000 * SECOND)
        bench.next_id += SHARDS
        if n % 2000 == 1999:
            bench.turn()
    bench.turn()
    return list(range(first, bench.next_id, SHARDS))


def finish(bench: Channels, conn: int, ids: list[int]) -> None:
    for start in range(0, len(ids), 2000):
        bench.fin(conn, *ids[start : start + 2000])
    assert bench.catalog()["t"].channels["next"].in_flight == 0


@pytest.mark.parametrize(("channels", "moved"), [(0, False), (1, False), (40, False), (20, True)])
def test_what_a_paused_topic_has_kept_is_given_in_pieces(bench: Channels, channels: int, moved: bool) -> None:
    """`moved`: one channel has been moved past some of it."""
    assert bench.change(lib.CHANGE_MAKE, "t") == OK
    for n in range(channels):
        assert bench.change(lib.CHANGE_MAKE, "t", f"c{n}") == OK
    assert bench.change(lib.CHANGE_PAUSE, "t") == OK
    bench.mpub("t", [b"before"])
    if moved:
        assert ask(bench, lib.MSG_SEEK, topic=bench.topic("t"), pri=lib.START_LATEST, body=b"c0").status == OK
    bench.mpub("t", [b""] * MANY)
    late = len(defer(bench, 500))
    slot = bench.raw(lib.MSG_CHANGE, 998, pri=lib.CHANGE_UNPAUSE, body=b"t")
    answers = turns(bench, 20 + 5 * channels)
    assert [a.status for a in answers if a.slot == slot] == [OK]
    topic = bench.catalog()["t"]
    assert topic.depth == (0 if channels else 1 + MANY + late)
    for name, channel in topic.channels.items():
        assert (channel.depth, channel.deferred) == (MANY + (not moved or name != "c0"), late)


@pytest.mark.parametrize("tube", [False, True], ids=["no tube", "a tube"])
@pytest.mark.parametrize("channel", ["c", "c#ephemeral"])
def test_the_last_channel_of_a_paused_topic_leaves_what_the_pause_keeps(channel: str, tube: bool) -> None:
    """As one does that is read back from the log, where that is done at once."""

    def play(dies: bool) -> tuple[object, ...]:
        bench = Channels(ring_bytes=1 << 22)
        if tube:
            bench.raw(WATCH, 5, topic=bench.topic("t"))
        bench.sub(1, "t", channel, flags=lib.SUBSCRIBE_EPHEMERAL if channel != "c" else 0)
        bench.mpub("t", [b"before"] * MANY)
        assert bench.change(lib.CHANGE_PAUSE, "t") == OK
        deferred = defer(bench)
        after = bench.mpub("t", [b"after"] * MANY)
        if channel == "c":
            bench.raw(GONE, 1)
            bench.turn()
            assert bench.change(lib.CHANGE_DELETE, "t", channel) == OK
        else:
            bench.raw(GONE, 1)
        new = bench.mpub("t", [b"new"])
        slot = bench.raw(lib.MSG_CHANGE, 998, pri=lib.CHANGE_MAKE, body=b"t\nnext")
        for _ in range(40):
            assert "c" not in bench.catalog()["t"].channels
        assert [a.status for a in bench.early if a.slot == slot] in ([], [OK])
        if dies:
            bench.restart()
        assert bench.change(lib.CHANGE_UNPAUSE, "t") == OK
        bench.sub(2, "t", "next")
        got = deliver(bench, 2)
        assert set(got) >= {*after, *new}
        finish(bench, 2, got)
        due = [a.id for a in bench.turn(1001) if a.kind == lib.MSG_DELIVER] + deliver(bench, 2)
        assert sorted(due) == deferred
        jobs = bench.catalog()["t"].jobs
        finish(bench, 2, due)
        left = live(bench)
        bench.dispose()
        return sorted(got), jobs, left

    assert play(dies=False) == play(dies=True)


@pytest.mark.parametrize("beside", ["nothing", "a channel", "a tube", "retention", "one like it"])
def test_an_ephemeral_channel_with_much_deferred_goes_in_pieces(bench: Channels, beside: str) -> None:
    """And with much in flight; what comes meanwhile waits for the next."""
    bench.sub(1, "t", "c", flags=lib.SUBSCRIBE_EPHEMERAL)
    if beside == "a channel":
        bench.sub(2, "t", "other")
    elif beside == "one like it":
        bench.sub(2, "t", "d", flags=lib.SUBSCRIBE_EPHEMERAL)
    elif beside == "a tube":
        bench.raw(WATCH, 5, topic=bench.topic("t"))
    elif beside == "retention":
        assert bench.change(lib.CHANGE_RETAIN, "t") == OK
    of = [*bench.mpub("t", [b""] * MANY), *defer(bench)]
    deliver(bench, 1)
    lib.worker_longest_turn(bench.worker)
    bench.raw(GONE, 1)
    if beside == "one like it":
        bench.raw(GONE, 2)
    new = bench.mpub("t", [b"new"])
    asked = bench.raw(lib.MSG_CHANGE, 998, pri=lib.CHANGE_MAKE, body=b"t\nnext")
    answers = [a for _ in range(40) for a in bench.turn()]
    assert [a.status for a in answers if a.slot == asked] == [OK]
    assert was_short(bench)
    bench.sub(3, "t", "next")
    got = deliver(bench, 3)
    if beside in ("nothing", "retention", "one like it"):
        assert got == new
    if beside == "a channel":
        bench.sub(2, "t", "other")
        assert sorted(deliver(bench, 2)) == sorted([*of[:MANY], *new])
        assert bench.catalog()["t"].channels["other"].deferred == MANY
    if beside == "a tube":
        assert bench.catalog()["t"].jobs == 2 * MANY + 1
    assert bench.change(lib.CHANGE_DELETE, "t") == OK
    for _ in range(20):
        bench.turn()
    assert live(bench) == 0
    bench.restart()
    assert "t" not in bench.catalog()


def test_messages_of_many_channels_move_to_a_new_segment_in_pieces(bench: Channels) -> None:
    channels, walked_at_once = 400, 1 << 16  # COMPACT_WALK
    for n in range(channels):
        bench.sub(n + 1, "t", f"c{n}")
    bench.mpub("t", [b"x"] * 1000)
    roll(bench)
    calls = 1
    while not lib.worker_compact(bench.worker, 0, 1 << 20):
        calls += 1
        bench.supply()
        assert calls < 100
    assert calls >= channels * 1000 // walked_at_once
