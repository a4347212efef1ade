"""No turn is long in which many let go of much at once, or ask for much: they share a piece."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest
from mq_shards.csrc._core import ffi, lib

from tests.shards.bench import GONE, OK, PEEK_READY, PUBLISH, RESERVE, SECOND, SHARDS, USE, WATCH, Answer
from tests.shards.positions import POSITION, Position, position
from tests.shards.subscriptions import SUBSCRIBE, Channels
from tests.shards.turns import MANY, MOST, PIECE, deliver, put, roomy, turns, was_short

bench = pytest.fixture(roomy)

CLIENTS = 8
EACH = PIECE - 96


def reserve(bench: Channels, conn: int, count: int) -> None:
    bench.raw(WATCH, conn, topic=bench.topic("t"))
    for n in range(count):
        bench.raw(RESERVE, conn)
        if n % 1000 == 999:
            bench.turn()
    bench.turn()


def served_meanwhile(bench: Channels, slots: list[int]) -> list[Answer]:
    """What answers these, none of it in a turn that was long, and somebody else in each turn."""
    lib.worker_longest_turn(bench.worker)
    answers: list[Answer] = []
    for _ in range(2000):
        barrier = bench.raw(lib.MSG_BARRIER, 990)
        came = bench.step()
        assert barrier in [a.slot for a in came]
        answers += [a for a in came if a.slot in slots]
        if len(answers) == len(slots):
            break
    assert lib.worker_longest_turn(bench.worker) <= MOST
    return answers


def test_many_clients_that_go_give_their_jobs_back_in_pieces(bench: Channels) -> None:
    put(bench, CLIENTS * EACH)
    for n in range(CLIENTS):
        reserve(bench, 1 + n, EACH)
    for n in range(CLIENTS):
        bench.raw(GONE, 1 + n)
    turns(bench, 3 * CLIENTS)
    figures = bench.catalog()["t"]
    assert figures.jobs == CLIENTS * EACH


def test_who_goes_first_gives_back_first(bench: Channels) -> None:
    put(bench, 60)
    first = bench.next_id - 60 * SHARDS
    for n in range(3):
        reserve(bench, 1 + n, 20)
    lib.worker_limit_turn(bench.worker, 10)
    for n in (3, 2, 1):
        bench.raw(GONE, n)
    bench.step()
    bench.step()
    bench.raw(WATCH, 100, topic=bench.topic("t"))
    slots = [bench.raw(RESERVE, 100) for _ in range(20)]
    got = [(a.id - first) // SHARDS for a in bench.step() if a.slot in slots]
    assert got == [*range(20, 30), *range(40, 50)]


@pytest.mark.parametrize("channels", [1, CLIENTS])
def test_many_consumers_that_go_give_back_in_pieces(bench: Channels, channels: int) -> None:
    for n in range(CLIENTS):
        bench.sub(1 + n, "t", f"c{n % channels}")
        bench.raw(lib.MSG_CREDIT, 1 + n, id=EACH)
    each = EACH * CLIENTS // channels
    for _ in range(each // 2000):
        bench.mpub("t", [b""] * 2000)
    for _ in range(40):
        bench.turn()
    lib.worker_longest_turn(bench.worker)
    for n in range(CLIENTS):
        bench.raw(GONE, 1 + n)
    turns(bench, 3 * CLIENTS)
    figures = bench.catalog()["t"].channels
    assert [(c.depth, c.in_flight) for c in figures.values()] == [(each // 2000 * 2000, 0)] * channels


def test_many_ephemeral_channels_that_go_let_go_in_pieces(bench: Channels) -> None:
    for n in range(CLIENTS):
        bench.sub(1 + n, "t", f"c{n}#ephemeral", flags=lib.SUBSCRIBE_EPHEMERAL)
    bench.mpub("t", [b""] * EACH)
    for n in range(CLIENTS):
        bench.raw(GONE, 1 + n)
    turns(bench, 3 * CLIENTS)
    assert lib.worker_live_jobs(bench.worker, 0, 1, ffi.new("uint64_t *")) == 0


def test_many_kicks_share_a_piece_and_end_in_their_order(bench: Channels) -> None:
    put(bench, CLIENTS * EACH, delay=1000)
    slots = [bench.raw(lib.MSG_KICK, 1 + n, topic=bench.topic("t"), id=EACH) for n in range(CLIENTS)]
    answers = served_meanwhile(bench, slots)
    assert sum(a.id for a in answers) == CLIENTS * EACH
    assert [a.slot for a in answers] == slots


def test_many_small_kicks_of_one_connection_share_a_piece(bench: Channels) -> None:
    put(bench, 40 * 1000, delay=1000)
    slots = [bench.raw(lib.MSG_KICK, 1, topic=bench.topic("t"), id=1000) for _ in range(40)]
    assert [(a.slot, a.id) for a in served_meanwhile(bench, slots)] == [(slot, 1000) for slot in slots]


def test_many_lists_and_catalogs_share_a_piece(bench: Channels) -> None:
    for n in range(EACH):
        bench.raw(lib.MSG_CHANGE, 998, id=0, pri=lib.CHANGE_MAKE, body=b"topic-%d" % n)
        if n % 1000 == 999:
            bench.turn()
    kinds = [lib.MSG_LIST, lib.MSG_CATALOG] * CLIENTS
    slots = [bench.raw(kind, 1 + n) for n, kind in enumerate(kinds)]
    assert [a.status for a in served_meanwhile(bench, slots)] == [OK] * len(slots)


def test_channels_that_are_listed_are_counted_too(bench: Channels) -> None:
    for n in range(20):
        bench.raw(lib.MSG_CHANGE, 998, id=0, pri=lib.CHANGE_MAKE, body=b"topic-%d" % n)
        for channel in range(1000):
            bench.raw(lib.MSG_CHANGE, 998, id=0, pri=lib.CHANGE_MAKE, body=b"topic-%d\nc%d" % (n, channel))
        made = bench.raw(lib.MSG_BARRIER, 998)
        while made not in [a.slot for a in bench.turn()]:
            pass
    slots = [bench.raw(lib.MSG_CATALOG, 1)]
    for _ in range(3):
        assert bench.step() == []
    (answer,) = served_meanwhile(bench, slots)
    assert len(answer.body) > 20 * 1000 * 70
    assert len(bench.catalog()) == 20


def test_what_many_parked_behind_what_is_long_is_done_in_pieces(bench: Channels) -> None:
    many = 50
    put(bench, many * 255)
    put(bench, many * 1000, delay=1000)
    slots = []
    for n in range(many):
        bench.raw(WATCH, 1 + n, topic=bench.topic("t"))
        slots.append(bench.raw(lib.MSG_KICK, 1 + n, topic=bench.topic("t"), id=1000))
    lib.worker_longest_turn(bench.worker)
    answers = bench.step()
    assert was_short(bench)
    for n in range(many):
        slots += [bench.raw(RESERVE, 1 + n) for _ in range(255)]
        answers += bench.step() if n % 10 == 9 else []
    came = {a.slot for a in answers}
    answers += served_meanwhile(bench, [slot for slot in slots if slot not in came])
    assert [a.status for a in answers] == [OK] * len(slots)


def in_flight_of_who_goes(bench: Channels) -> None:
    """In the next turn."""
    for n in range(CLIENTS):
        bench.sub(1 + n, "t", "c")
        bench.raw(lib.MSG_CREDIT, 1 + n, id=EACH)
    for _ in range(CLIENTS * EACH // 2000):
        bench.mpub("t", [b""] * 2000)
    for _ in range(40):
        bench.turn()
    bench.sub(100, "t", "c")
    lib.worker_longest_turn(bench.worker)
    for n in range(CLIENTS):
        bench.raw(GONE, 1 + n)


def test_where_a_channel_stands_is_told_when_who_went_has_given_all_back(bench: Channels) -> None:
    in_flight_of_who_goes(bench)
    served_meanwhile(bench, [bench.raw(lib.MSG_POSITION, 1, topic=bench.topic("t"), body=b"c")])
    figures = bench.catalog()["t"].channels["c"]
    assert (figures.depth, figures.in_flight) == (CLIENTS * EACH // 2000 * 2000, 0)


def test_all_up_to_a_message_is_finished_after_who_went_has_given_it_back(bench: Channels) -> None:
    in_flight_of_who_goes(bench)
    finished = 10_000
    bench.raw(lib.MSG_FINISH, 100, flags=lib.MSG_BY_SEQ | lib.MSG_UPTO, ttr=finished - 1)
    served_meanwhile(bench, [bench.raw(lib.MSG_BARRIER, 100)])
    for _ in range(2):
        assert bench.catalog()["t"].channels["c"].depth == CLIENTS * EACH // 2000 * 2000 - finished
        bench.restart()


def test_many_that_ask_where_a_channel_with_much_in_flight_stands_share_a_piece(bench: Channels) -> None:
    bench.sub(1, "t", "c")
    bench.mpub("t", [b""] * 2 * EACH)
    deliver(bench, 1)
    slots = [bench.raw(lib.MSG_POSITION, 10 + n, topic=bench.topic("t"), body=b"c") for n in range(200)]
    first = bench.step()
    assert 0 < len(first) < 100
    assert len(served_meanwhile(bench, slots[len(first) :])) == 200 - len(first)


def test_of_those_that_publish_very_many_at_once_each_has_a_turn(bench: Channels) -> None:
    messages = b"".join(struct.pack(">I", 1) + b"x" for _ in range(MANY))
    slots = []
    for n in range(CLIENTS):
        slots.append(bench.raw(lib.MSG_PUBLISH_MANY, 1 + n, topic=bench.topic("t"), id=bench.next_id, pri=MANY,
                               body=messages))  # fmt: skip
        bench.next_id += MANY * SHARDS
    answers: list[Answer] = []
    for _ in range(CLIENTS):
        barrier = bench.raw(lib.MSG_BARRIER, 990)
        came = bench.step()
        published = [a for a in came if a.slot in slots]
        assert len(published) <= 2
        answers += published
    assert [(a.slot, a.status, a.seq) for a in answers] == [(slot, OK, n * MANY) for n, slot in enumerate(slots)]
    assert barrier in [a.slot for a in came]
    bench.restart()
    assert bench.catalog()["t"].depth == CLIENTS * MANY


def test_a_turn_takes_in_so_many_messages_whatever_they_came_in(bench: Channels) -> None:
    messages, count = b"".join(struct.pack(">I", 1) + b"x" for _ in range(1000)), 100
    for _ in range(count):
        bench.raw(lib.MSG_PUBLISH_MANY, 5, topic=bench.topic("t"), id=bench.next_id, pri=1000, body=messages)
        bench.next_id += 1000 * SHARDS
    answered = [len(bench.step()) for _ in range(10)]
    assert max(answered) <= 4 * PIECE // 1000 + 1
    assert sum(answered) == count


def test_where_a_channel_stands_that_has_very_much_in_flight_is_found_in_pieces(bench: Channels) -> None:
    """Exactly, though that changes meanwhile; and others are served."""
    bench.sub(1, "t", "c")
    bench.mpub("t", [b""] * MANY)
    flying = deliver(bench, 1)
    bench.fin(1, *flying[:3])
    bench.req(1, flying[5], delay=100)
    lib.worker_limit_turn(bench.worker, 10)
    slot = bench.raw(lib.MSG_POSITION, 2, topic=bench.topic("t"), body=b"c")
    came = bench.step()
    for n in range(6, 30):
        came += bench.fin(1, flying[n])
    came += [a for _ in range(MANY // 64 // 10) for a in bench.step()]
    (answer,) = [a for a in came if a.slot == slot and a.kind == lib.MSG_POSITION]
    assert lib.worker_longest_turn(bench.worker) <= 3 * 10
    assert Position(*POSITION.unpack(answer.body)).unfinished == 3
    bench.fin(1, *flying[3:5])
    lib.worker_limit_turn(bench.worker, PIECE)
    assert position(bench, "c").unfinished == 5


def wants_by_using(bench: Channels, conn: int, topic: int) -> list[int]:
    bench.raw(USE, conn, topic=topic)
    return [bench.raw(PEEK_READY, conn, topic=topic)]


def wants_by_watching(bench: Channels, conn: int, topic: int) -> list[int]:
    bench.raw(WATCH, conn, topic=topic)
    return [bench.raw(RESERVE, conn)]


def wants_by_reserving(bench: Channels, conn: int, topic: int) -> list[int]:
    bench.raw(WATCH, conn, topic=topic, flags=lib.MSG_IMPLICIT)
    return [bench.raw(RESERVE, conn)]


def wants_by_putting(bench: Channels, conn: int, topic: int) -> list[int]:
    id, bench.next_id = bench.next_id, bench.next_id + SHARDS
    return [bench.raw(PUBLISH, conn, topic=topic, id=id, pri=1024), bench.raw(PEEK_READY, conn, topic=topic)]


@pytest.mark.parametrize("waiting", [400, MANY])
@pytest.mark.parametrize("want", [wants_by_using, wants_by_watching, wants_by_reserving, wants_by_putting])
def test_many_that_first_want_a_tube_share_a_piece(
    bench: Channels, want: Callable[[Channels, int, int], list[int]], waiting: int
) -> None:
    """Each tube's oldest message is there for whoever wanted it, and in the end all are."""
    names = [f"t{n}" for n in range(100 if waiting < PIECE else 3 * CLIENTS)]
    oldest = [bench.mpub(name, [b""] * waiting)[0] for name in names]
    lib.worker_longest_turn(bench.worker)
    slots = [want(bench, 1 + n, bench.topic(name)) for n, name in enumerate(names)]
    answers = served_meanwhile(bench, [slot for of_one in slots for slot in of_one])
    found = {a.slot: a.id for a in answers if a.status == OK}
    assert [found[of_one[-1]] for of_one in slots] == oldest
    for _ in range(len(names) * waiting // PIECE + 10):
        bench.turn()
    assert lib.worker_longest_turn(bench.worker) <= MOST
    jobs = [topic.jobs for name, topic in bench.catalog().items() if name in names]
    assert jobs == [waiting + (want is wants_by_putting)] * len(names)


def test_many_first_channels_of_tubes_share_a_piece(bench: Channels) -> None:
    names = [f"t{n}" for n in range(40)]
    for name in names:
        for _ in range(400):
            bench.raw(PUBLISH, 999, topic=bench.topic(name), id=bench.next_id, pri=1024)
            bench.next_id += SHARDS
        bench.turn()
    lib.worker_longest_turn(bench.worker)
    slots = []
    for n, name in enumerate(names):
        head = SUBSCRIBE.pack(60 * SECOND, 900 * SECOND, 0, 0, 1, 0, 4)
        slots.append(bench.raw(lib.MSG_SUBSCRIBE, 1 + n, topic=bench.topic(name), body=head + b"c{ab}"))
    assert [a.status for a in served_meanwhile(bench, slots)] == [OK] * len(slots)
    assert [topic.channels["c"].depth for topic in bench.catalog().values()] == [400] * len(names)
