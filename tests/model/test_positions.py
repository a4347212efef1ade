"""A worker against a model of positions: channels and readers that begin anywhere, are moved, finish, go and come back,
while segments are rolled, emptied and dropped and the worker starts again from its log.

The model of a channel is the set of messages that it has yet to finish. What is lost is asked of the worker: a message
that a channel has to finish never is.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st
from mq_shards.csrc._core import lib

from tests.shards.bench import GONE, OK, SECOND, Answer
from tests.shards.positions import begin, position, publish, seek
from tests.shards.subscriptions import Channels
from tests.shards.test_due_times import MS
from tests.shards.test_shard_protocol import ask

EXAMPLES = int(os.environ.get("EXAMPLES", "14"))
NAMES = ("a", "b", "r")
READERS = ("r",)
LATE = 4  # seconds, at most
PASSES = 30  # seconds of a script, at most: what is in flight is not over by then
STARTS = (lib.START_EARLIEST, lib.START_LATEST, lib.START_SEQ, lib.START_SEQ)

steps = st.tuples(
    st.sampled_from(
        ["publish", "publish", "delay", "due", "pass", "begin", "begin", "finish", "finish", "finish", "upto",
         "requeue", "seek", "go", "end", "restart", "roll", "drop"],
    ),
    st.integers(0, 2),
    st.integers(0, 30),
)  # fmt: skip


@dataclass
class Channel:
    """What it has to finish, and what of that its consumer (conn 0: none) has in flight."""

    pending: set[int] = field(default_factory=set)
    flying: set[int] = field(default_factory=set)
    conn: int = 0


class Scene:
    def __init__(self, piece: int = 0) -> None:
        self.bench = Channels(piece=piece)
        self.next = 0
        self.there: set[int] = set()
        self.due: dict[int, int] = {}  # of what was published with a delay: when it may come
        self.channels: dict[str, Channel] = {}
        self.conns = self.passed = 0
        self.bench.change(lib.CHANGE_RETAIN, "t")

    def hear(self, answers: list[Answer]) -> None:
        for a in answers:
            if a.kind != lib.MSG_DELIVER:
                assert a.kind != lib.MSG_REFUSED
                continue
            for channel in self.channels.values():
                if channel.conn == a.conn:
                    assert a.seq in channel.pending, "it is not finished"
                    assert a.seq not in channel.flying, "it is not in flight"
                    assert a.seq not in self.undue(), "it is due"
                    channel.flying.add(a.seq)

    def undue(self) -> set[int]:
        return {seq for seq, due in self.due.items() if due > self.bench.now}

    def hear_all(self) -> None:
        for _ in range(3):
            self.hear(self.bench.turn())

    def wait(self, seconds: int) -> None:
        if self.passed + seconds > PASSES + LATE:
            return
        self.passed += seconds
        self.bench.now += seconds * SECOND
        self.bench.wall += seconds * SECOND
        self.hear_all()

    def publish(self, count: int, delay: int, how: str) -> None:
        due_ns = self.bench.wall // MS * MS + delay * SECOND if how == "due" else 0
        for seq in publish(self.bench, count=count, delay=delay, due_ns=due_ns):
            assert seq == self.next
            self.next += 1
            self.there.add(seq)
            if delay:
                self.due[seq] = self.bench.now - self.bench.now % MS + delay * SECOND
            for each in self.channels.values():
                each.pending.add(seq)

    def play(self, step: str, which: int, number: int) -> None:
        name = NAMES[which]
        channel = self.channels.get(name)
        at = number % (self.next + 2)
        if step in ("publish", "delay", "due"):
            self.publish(number % 3 + 1, 0 if step == "publish" else number % LATE + 1, step)
        elif step == "pass" and self.passed < PASSES:
            self.wait(number % 3 + 1)
        elif step == "begin":
            self.begin(name, STARTS[number % 4], at, 1 + number % 5)
        elif channel is None:
            if step in ("restart", "roll", "drop"):
                getattr(self, step)()
        elif step == "finish" and channel.flying:
            seq = sorted(channel.flying)[number % len(channel.flying)]
            self.finish(channel, lib.MSG_BY_SEQ, seq)
        elif step == "upto" and channel.conn:
            self.finish(channel, lib.MSG_UPTO, at)
        elif step == "requeue" and channel.flying:
            self.bench.raw(lib.MSG_REQUEUE, channel.conn, flags=lib.MSG_ALL)
            channel.flying.clear()
        elif step == "seek":
            self.seek(name, STARTS[number % 4], at)
        elif step == "go" and channel.conn:
            self.leave(name)
        elif step == "end" and name not in READERS:
            assert self.bench.change(lib.CHANGE_DELETE, "t", name) == OK
            del self.channels[name]
        elif step in ("restart", "roll", "drop"):
            getattr(self, step)()
        self.hear_all()

    def place(self, start: int, at: int) -> int:
        if start == lib.START_EARLIEST:
            return min(self.there, default=self.next)
        return min(at, self.next) if start == lib.START_SEQ else self.next

    def begin(self, name: str, start: int, at: int, credit: int) -> None:
        channel = self.channels.get(name)
        if channel is not None and channel.conn:
            return
        self.conns += 1
        if channel is None:
            channel = self.channels[name] = Channel()
            channel.pending = {seq for seq in self.there if seq >= self.place(start, at)}
        channel.conn = self.conns
        flags = lib.SUBSCRIBE_EPHEMERAL if name in READERS else 0
        assert begin(self.bench, channel.conn, start, at, channel=name, credit=credit, flags=flags).status == OK

    def finish(self, channel: Channel, how: int, seq: int) -> None:
        # What comes meanwhile may be finished too: so nothing comes.
        self.hear_all()
        stands = next(position(self.bench, name).cursor for name, each in self.channels.items() if each is channel)
        self.bench.raw(lib.MSG_FINISH, channel.conn, flags=how, ttr=seq)
        upto = {each for each in channel.pending if each <= seq and each < stands} if seq < self.next else set()
        done = {seq} if how == lib.MSG_BY_SEQ else upto
        channel.pending -= done
        channel.flying -= done

    def seek(self, name: str, start: int, at: int) -> None:
        channel = self.channels[name]
        self.hear_all()
        answer = seek(self.bench, start, at, channel=name)
        assert (answer.status, answer.seq) == (OK, self.place(start, at))
        channel.pending = {seq for seq in self.there if seq >= answer.seq}
        channel.flying = set()

    def leave(self, name: str) -> None:
        channel = self.channels[name]
        self.bench.raw(GONE, channel.conn)
        channel.conn = 0
        channel.flying = set()
        if name in READERS:
            del self.channels[name]

    def restart(self) -> None:
        self.bench.restart()
        for name in list(self.channels):
            self.channels[name].conn = 0
            self.channels[name].flying = set()
            if name in READERS:
                del self.channels[name]

    def roll(self) -> None:
        if lib.worker_active_segment(self.bench.worker, 0):
            lib.worker_roll(self.bench.worker, 0)
            self.bench.supply()
            lib.worker_roll(self.bench.worker, 0)
        self.hear_all()

    def drop(self) -> None:
        """As retention does, of what is past it."""
        first = lib.worker_first_segment(self.bench.worker, 0)
        if not first or first == lib.worker_active_segment(self.bench.worker, 0):
            return
        while not lib.worker_compact(self.bench.worker, 0, 1 << 20):
            self.bench.supply()
        self.hear_all()
        if not lib.worker_dead_segments(self.bench.worker, 0):
            return
        assert lib.worker_drop_first(self.bench.worker, 0)
        _, fd = self.bench.segments[0].pop(0)
        os.close(fd)
        self.hear_all()
        self.there = {seq for seq in self.there if self.peek(seq) == OK}
        for name, channel in self.channels.items():
            if name in READERS:
                channel.pending &= self.there
            assert channel.pending <= self.there, "what a channel has to finish is there"

    def peek(self, seq: int) -> int:
        return ask(self.bench, lib.MSG_PEEK_SEQ, 996, topic=self.bench.topic("t"), ttr=seq).status

    def check(self) -> None:
        for name, channel in self.channels.items():
            self.hear_all()
            at = position(self.bench, name)
            assert at.unfinished <= min(channel.pending, default=self.next)
            assert at.in_flight == len(channel.flying)
            if name not in READERS:
                # What is not due is deferred, unless the channel has been set back to it and has not come there.
                late = len(self.undue() & channel.pending)
                assert len(channel.pending) - late <= at.depth + at.in_flight <= len(channel.pending)
        end = position(self.bench)
        assert (end.next, end.first) == (self.next, min(self.there, default=self.next))

    def work_off(self) -> None:
        """All that is to be finished comes, and nothing else."""
        self.wait(LATE)
        for name in list(self.channels):
            channel = self.channels[name]
            if not channel.conn:
                self.begin(name, lib.START_LATEST, 0, 1000)
            self.bench.raw(lib.MSG_CREDIT, channel.conn, id=1000)
            self.hear_all()
            assert channel.flying & self.there == channel.pending, name


def end_of_log(bench: Channels) -> tuple[int, int]:
    """The active segment and where its records end."""
    segment = lib.worker_active_segment(bench.worker, 0)
    return segment, lib.worker_segment_bytes(bench.worker, 0, segment) if segment else 0


def cut_log(bench: Channels, at: tuple[int, int]) -> None:
    """As a machine that failed when its log ended there, and a start."""
    bench.stop()
    kept = []
    for number, fd in bench.segments[0]:
        if number <= at[0]:
            kept.append((number, fd))
        else:
            os.close(fd)
        if number == at[0]:
            os.ftruncate(fd, at[1])
    bench.segments[0] = kept
    for fd in bench.names.values():
        os.close(fd)
    bench.names.clear()
    bench.start()


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.lists(steps, min_size=5, max_size=60), st.integers(0, 3))
def test_positions_are_as_the_model_says(script: list[tuple[str, int, int]], piece: int) -> None:
    """What grows with a backlog is done so many messages a turn, or as many as usual."""
    scene = Scene(piece)
    try:
        for step in script:
            scene.play(*step)
            scene.check()
        scene.work_off()
    finally:
        scene.bench.dispose()


@settings(max_examples=EXAMPLES // 2, deadline=None)
@given(
    st.lists(steps.filter(lambda step: step[0] != "drop"), min_size=5, max_size=40),
    st.integers(0, 39),
    st.integers(0, 3),
)
def test_a_log_that_ends_after_any_step_says_what_was_so_then(
    script: list[tuple[str, int, int]], last: int, piece: int
) -> None:
    scene = Scene(piece)
    try:
        for n, step in enumerate(script):
            scene.play(*step)
            if n == last % len(script):
                end = end_of_log(scene.bench)
                then = {name: set(channel.pending) for name, channel in scene.channels.items() if name not in READERS}
                next_seq = scene.next
        cut_log(scene.bench, end)
        scene.next, scene.there = next_seq, set(range(next_seq))
        scene.channels = {name: Channel(pending) for name, pending in then.items()}
        scene.check()
        scene.work_off()
    finally:
        scene.bench.dispose()


@settings(max_examples=EXAMPLES // 2, deadline=None)
@given(st.lists(steps.filter(lambda step: step[0] != "drop"), min_size=15, max_size=40), st.floats(0, 1))
def test_damage_anywhere_loses_no_message_that_is_still_there(script: list[tuple[str, int, int]], where: float) -> None:
    """Half a sector of zeros."""
    scene = Scene()
    try:
        for step in script:
            scene.play(*step)
        bench = scene.bench
        bench.stop()
        _, fd = bench.segments[0][0]
        at = 64 + int(where * (os.fstat(fd).st_size - 64))
        os.pwrite(fd, bytes(256), at)
        bench.start()
        scene.there = {seq for seq in scene.there if scene.peek(seq) == OK}
        for name in [name for name in scene.channels if name not in READERS]:
            pending = scene.channels[name].pending & scene.there
            scene.conns += 1
            begin(bench, scene.conns, lib.START_EARLIEST, channel=name, credit=1000)
            came = {a.seq for _ in range(3) for a in bench.turn(LATE) if a.kind == lib.MSG_DELIVER}
            assert pending <= came, name
    finally:
        scene.bench.dispose()
