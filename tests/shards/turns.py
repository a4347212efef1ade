"""What the tests of long turns share: much of everything, and whether a turn was short."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mq_shards.csrc._core import ffi, lib

from tests.shards.bench import (
    BURY,
    OK,
    PUBLISH,
    RESERVE,
    SECOND,
    SHARDS,
    WATCH,
    Answer,
)  # fmt: skip
from tests.shards.subscriptions import Channels

MANY = 12_000
PIECE = 4096  # WORKER_TURN_STEPS, csrc/shards/worker_state.h
# What a piece may touch twice (out of one state, let go of), and what a turn does beside it.
MOST = 3 * PIECE


def roomy() -> Iterator[Channels]:
    """The fixture of these tests: one whose rings take much at once."""
    b = Channels(ring_bytes=1 << 22)
    yield b
    b.dispose()


def was_short(bench: Channels) -> bool:
    """Each turn since this, or `turns`, was called last; and something was done in them."""
    return 0 < lib.worker_longest_turn(bench.worker) <= MOST


def turns(bench: Channels, count: int = 12, seconds: float = 0) -> list[Answer]:
    """What comes in so many, and that none was long."""
    lib.worker_longest_turn(bench.worker)
    answers = bench.turn(seconds)
    for _ in range(count):
        answers += bench.turn()
    assert was_short(bench)
    return answers


def put(bench: Channels, count: int = MANY, delay: float = 0) -> None:
    for n in range(count):
        bench.raw(PUBLISH, 999, topic=bench.topic("t"), id=bench.next_id, pri=1024, delay=int(delay * SECOND))
        bench.next_id += SHARDS
        if n % 2000 == 1999:
            bench.turn()
    bench.turn()


def deliver(bench: Channels, conn: int) -> list[int]:
    """All that there is, to a consumer that is never full; the ids."""
    bench.raw(lib.MSG_CREDIT, conn, id=10 * MANY)
    ids: list[int] = []
    while True:
        came = [a.id for a in bench.turn() if a.kind == lib.MSG_DELIVER]
        bench.raw(lib.MSG_SENT, conn, id=1 << 20)
        if not came:
            return ids
        ids += came


def take(bench: Channels, conn: int, count: int) -> list[int]:
    """Jobs of tube t that it reserves."""
    bench.raw(WATCH, conn, topic=bench.topic("t"))
    taken: list[int] = []
    for n in range(count):
        bench.raw(RESERVE, conn)
        if n % 500 == 499 or n == count - 1:
            taken += [a.id for a in bench.turn() if a.kind == RESERVE and a.status == OK]
    return taken


def jobs_in_every_state(bench: Channels) -> tuple[list[int], list[int]]:
    """Of tube t, a quarter each ready, delayed, buried and reserved by conn 1: all, and those that are reserved."""
    first, quarter = bench.next_id, MANY // 4
    put(bench, quarter)
    for n, job in enumerate(take(bench, 1, quarter)):
        bench.raw(BURY, 1, id=job, pri=1024)
        if n % 500 == 499:
            bench.turn()
    put(bench, quarter)
    reserved = take(bench, 1, quarter)
    put(bench, quarter)
    put(bench, quarter, delay=1000)
    return list(range(first, bench.next_id, SHARDS)), reserved


def live(bench: Channels) -> int:
    return int(lib.worker_live_jobs(bench.worker, 0, 1, ffi.new("uint64_t *")))


def change(bench: Channels, what: int, name: str, channel: str = "") -> Any:  # noqa: ANN401
    body = f"{name}\n{channel}" if channel else name
    return lambda: bench.raw(lib.MSG_CHANGE, 998, id=0, pri=what, body=body.encode())


def seek_to(bench: Channels, channel: str, start: int, at: int = 0) -> Any:  # noqa: ANN401
    return lambda: bench.raw(lib.MSG_SEEK, 998, topic=bench.topic("t"), pri=start, ttr=at, body=channel.encode())


def goes_on(bench: Channels, ask_for: Any) -> None:  # noqa: ANN401
    """It is answered after some turns, of which none was long, and what is asked behind it after that."""
    lib.worker_longest_turn(bench.worker)
    slots = [ask_for(), bench.raw(lib.MSG_BARRIER, 998)]
    answers = [a for _ in range(20) for a in bench.turn() if a.slot in slots and a.kind != lib.MSG_DELIVER]
    assert [(a.slot, a.status) for a in answers] == [(slot, OK) for slot in slots]
    assert was_short(bench)


def begins(bench: Channels, ask_for: Any) -> None:  # noqa: ANN401
    """A turn after it was asked for it is not over."""
    slot = ask_for()
    lib.channel_publish(bench.channels[0])
    assert lib.worker_turn(bench.worker, bench.now, bench.wall)
    assert lib.channel_receive(bench.channels[0]) == ffi.NULL, slot


def begins_and_dies(bench: Channels, ask_for: Any) -> None:  # noqa: ANN401
    """A turn after it was asked for, the process is killed."""
    begins(bench, ask_for)
    bench.restart()


def depths(bench: Channels) -> dict[str, tuple[int, int, int]]:
    figures = bench.catalog()["t"].channels
    return {name: (c.depth, c.in_flight, c.deferred) for name, c in figures.items()}
