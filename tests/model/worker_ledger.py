"""What channels and tubes are owed by a worker, and must not get again, as far as that is certain; and if it was so.

What is not certain is asked of the worker itself: one that starts anew from a copy of its logs has the same for all
that is durable as the one that lives on, and its figures say what then comes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from mq_shards.csrc._core import lib

from tests.model.worker_bench import (
    CONSUMING,
    EVERYTHING,
    TOPICS,
    TUBE,
    TXNS,
    WORKING,
    Holder,
    Subject,
    WrongError,
)
from tests.shards.bench import (
    DELETE,
    FOREVER,
    GONE,
    KICK,
    OK,
    RESERVE,
    SHARDS,
    WATCH,
    Answer,
)
from tests.shards.subscriptions import SUBSCRIBE, Topic
from tests.shards.test_open_transactions import ABORT, COMMIT
from tests.shards.test_packed import RUN

if TYPE_CHECKING:
    from tests.model.worker_scripts import Play


class Ledger:
    """Messages by id; those that are several to some by the id of the whole."""

    def __init__(self) -> None:
        self.owed: dict[Holder, set[int]] = {}
        self.over: dict[Holder, set[int]] = {}

    def owe(self, holder: Holder, id: int) -> None:
        self.owed.setdefault(holder, set()).add(id)

    def unsure(self, holder: Holder, ids: Iterable[int]) -> None:
        self.owed.setdefault(holder, set()).difference_update(ids)

    def finish(self, holder: Holder, id: int) -> None:
        self.unsure(holder, [id])
        self.over.setdefault(holder, set()).add(id)

    def forget(self, holder: Holder) -> None:
        self.owed.pop(holder, None)
        self.over.pop(holder, None)


@dataclass
class Left:
    """What holders had left in the end, by id: of a message that is several its parts."""

    figures: dict[str, Topic]
    came: dict[Holder, list[int]] = field(default_factory=dict)


def expanded(play: Play, a: Answer) -> list[int]:
    if a.id in play.whole:
        return [a.id + i * SHARDS for i in range(RUN.unpack_from(a.body)[2])]
    return [a.id]


def drain_channel(play: Play, bench: Subject, topic: str, channel: str) -> list[int]:
    conn = 500
    head = SUBSCRIBE.pack(FOREVER // 4, FOREVER // 4, 0, 0, len(channel), 0, 4)
    bench.raw(lib.MSG_SUBSCRIBE, conn, topic=bench.topic(topic), body=head + channel.encode() + b"{ab}")
    bench.raw(lib.MSG_CREDIT, conn, id=EVERYTHING)
    came: list[int] = []
    while True:
        answers = [a for a in bench.settle() if a.kind == lib.MSG_DELIVER and a.conn == conn]
        if not answers:
            break
        for a in answers:
            ids = expanded(play, a)
            came += ids
            for id in ids:
                bench.raw(lib.MSG_FINISH, conn, id=id)
            bench.raw(lib.MSG_SENT, conn, id=1 << 20)
    bench.raw(GONE, conn)
    bench.settle()
    return came


def drain_tube(play: Play, bench: Subject, topic: str) -> list[int]:
    conn = 501
    bench.raw(WATCH, conn, topic=bench.topic(topic))
    bench.raw(KICK, conn, topic=bench.topic(topic), id=EVERYTHING)
    bench.raw(KICK, conn, topic=bench.topic(topic), id=EVERYTHING)
    bench.settle()
    came: list[int] = []
    while True:
        bench.raw(RESERVE, conn, delay=0)
        (answer,) = [a for a in bench.settle() if a.kind == RESERVE]
        if answer.status != OK:
            break
        came.append(answer.id)
        bench.raw(DELETE, conn, id=answer.id)
    bench.raw(GONE, conn)
    bench.settle()
    return came


def drain(play: Play, bench: Subject, with_new: bool) -> Left:
    """All that is there comes to somebody, and is done with."""
    for conn in (*CONSUMING, *WORKING, 14, 994, 995, 996, 998, 999):
        bench.raw(GONE, conn)
    bench.settle()
    for topic in TOPICS:
        for txn in TXNS:
            bench.raw(lib.MSG_TXN_END, 996, topic=bench.topic(topic), id=txn, pri=COMMIT if with_new else ABORT)
    bench.settle()
    bench.turn(5000)
    left = Left(bench.catalog())
    for topic, figures in left.figures.items():
        if with_new:
            drain_new(play, bench, left, topic)
        for channel in ("", *figures.channels):
            body = f"{topic}\n{channel}" if channel else topic
            bench.raw(lib.MSG_CHANGE, 998, id=0, pri=lib.CHANGE_UNPAUSE, body=body.encode())
        for channel in figures.channels:
            if not channel.startswith("_"):
                left.came[topic, channel] = drain_channel(play, bench, topic, channel)
    for topic in TOPICS:
        left.came[topic, TUBE] = drain_tube(play, bench, topic)
    return left


def drain_new(play: Play, bench: Subject, left: Left, topic: str) -> None:
    """A channel that is made now, before the pause ends."""
    bench.change(lib.CHANGE_MAKE, topic, "new")
    bench.change(lib.CHANGE_UNPAUSE, topic)
    left.came[topic, "new"] = drain_channel(play, bench, topic, "new")


def check_empty(bench: Subject) -> None:
    for name, topic in bench.catalog().items():
        if topic.depth or topic.jobs:
            raise WrongError(f"of {name}, which has nothing, the figures say {topic}")
        for channel, figures in topic.channels.items():
            if not channel.startswith("_") and (figures.depth or figures.in_flight or figures.deferred):
                raise WrongError(f"of {channel} of {name}, which has nothing, the figures say {figures}")


def check_nothing_kept(bench: Subject) -> None:
    for topic in TOPICS:
        bench.change(lib.CHANGE_DELETE, topic)
    bench.settle()
    for _ in range(3):
        if not lib.worker_active_segment(bench.worker, 0):
            return
        lib.worker_roll(bench.worker, 0)
        bench.supply()
        lib.worker_roll(bench.worker, 0)
        bench.settle()
        first, active = lib.worker_first_segment(bench.worker, 0), lib.worker_active_segment(bench.worker, 0)
        if lib.worker_dead_segments(bench.worker, 0) != active - first:
            raise WrongError("something keeps a segment, and there is no topic")


def check_figures(play: Play, left: Left) -> None:
    for (topic, channel), came in left.came.items():
        figures = left.figures.get(topic)
        if len(set(came)) != len(came):
            raise WrongError(f"something comes twice to {(topic, channel)}")
        if figures is None or channel == "new" or topic in play.moved or figures.paused:
            continue
        if channel == TUBE:
            said = figures.jobs
            if figures.channels or not said:
                continue
        else:
            of = figures.channels[channel]
            said = of.depth + of.in_flight + of.deferred
            came = sorted({play.whole.get(id, id) for id in came})
        if len(came) != said and not any(id in play.whole for id in left.came[topic, channel]):
            raise WrongError(f"{(topic, channel)} had {said} by its figures, and {len(came)} came")


def check_ledger(play: Play, left: Left) -> None:
    for holder, owed in play.ledger.owed.items():
        came = {play.whole.get(id, id) for id in left.came.get(holder, ())}
        lost = {id for id in owed if holder[1] == TUBE or holder in play.sure} - came
        if lost:
            raise WrongError(f"{holder} is owed {sorted(lost)}, which do not come")
    for holder, over in play.ledger.over.items():
        again = over & set(left.came.get(holder, ()))
        if again and (holder in play.sure or holder[1] == TUBE):
            raise WrongError(f"{holder} has finished {sorted(again)}, which come again")


def readable(bench: Subject) -> set[tuple[str, int]]:
    """Every (topic, seq) that a client may go back to."""
    asked = {}
    for topic in TOPICS:
        for seq in range(lib.worker_next_seq(bench.worker, topic.encode(), len(topic))):
            asked[bench.raw(lib.MSG_PEEK_SEQ, 502, topic=bench.topic(topic), ttr=seq)] = (topic, seq)
    return {asked[a.slot] for a in bench.settle() if a.slot in asked and a.status == OK}


def known(bench: Subject) -> dict[str, tuple[int, Topic]]:
    """Of each topic its next seq and its figures, but for how many messages there ever were."""
    found = {}
    for name, topic in bench.catalog().items():
        channels = {channel: replace(of, messages=0) for channel, of in topic.channels.items()}
        next_seq = lib.worker_next_seq(bench.worker, name.encode(), len(name))
        found[name] = (int(next_seq), replace(topic, messages=0, channels=channels))
    return found


def check_same(some: Subject, all_of_it: Subject) -> None:
    """It makes no difference to a start what of the log it does not read."""
    for bench in (some, all_of_it):
        bench.settle()  # what has become due, for one thing
    try:
        if known(some) != known(all_of_it):
            raise WrongError(f"who has read some knows {known(some)}, who has read all {known(all_of_it)}")
        if readable(some) != readable(all_of_it):
            raise WrongError(f"who has read some has {readable(some)}, who has read all {readable(all_of_it)}")
    finally:
        some.dispose()
        all_of_it.dispose()


def conclude(play: Play) -> None:
    """The worker that lives and one that starts from its log now have the same left."""
    play.settle()
    if play.bench.read_from:
        check_same(play.bench.copy(), play.bench.copy(reads_all=True))
    other = play.bench.copy(uses_heads=len(play.script.acts) % 4 < 2)
    play.headed = other.headed
    if other.headed:
        check_same(play.bench.copy(reads_all=True, uses_heads=True), play.bench.copy(reads_all=True))
    with_new = len(play.script.acts) % 2 == 0
    play.trace("drain the one that lives")
    lives = drain(play, play.bench, with_new)
    play.trace("drain the one that starts anew")
    anew = drain(play, other, with_new)
    try:
        for left in (lives, anew):
            check_figures(play, left)
            check_ledger(play, left)
        for holder in {*lives.came, *anew.came}:
            one, two = set(lives.came.get(holder, ())), set(anew.came.get(holder, ()))
            if one != two:
                raise WrongError(f"{holder}: {sorted(one - two)} are lost by a restart, {sorted(two - one)} come back")
        for bench in (play.bench, other):
            check_empty(bench)
            check_nothing_kept(bench)
    finally:
        other.dispose()
