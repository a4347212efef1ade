"""What is appended, flushed and read back, beside a list."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from mq_shards.csrc._core import ffi, lib
from mq_shards.shards.memory import cut_stale

from tests.log.log import HEADER, Entry, Log, content_of, memfd

ENTRIES = st.builds(
    Entry,
    kind=st.integers(1, 255),
    flags=st.integers(0, 0xFFFF),
    topic=st.integers(0, 2**32 - 1),
    seq=st.integers(0, 2**64 - 1),
    time_ns=st.integers(0, 2**64 - 1),
    id=st.integers(0, 2**64 - 1),
    attributes=st.binary(max_size=255),
    body=st.one_of(st.binary(max_size=400), st.integers(400, 9000).map(lambda n: b"b" * n)),
)


class Model(RuleBasedStateMachine):
    """A list of (position, entry) beside a log with small segments that is killed and recovered now and then."""

    def __init__(self) -> None:
        super().__init__()
        self.spares = ffi.new("struct spares *")
        self.log = Log()
        lib.log_use_spares(self.log.c, self.spares)
        self.files: dict[int, int] = {}  # segment: a descriptor that outlives the log, as the disk does
        self.held: list[tuple[int, Entry]] = []
        self.flushed = 0  # how many of them, at least
        self.next_segment = 1
        self.kept = 0

    def teardown(self) -> None:
        self.log.close()
        lib.spares_free(self.spares)
        for fd in self.files.values():
            os.close(fd)

    def add_segment(self, capacity: int) -> None:
        fd = lib.spares_next(self.spares)
        if fd < 0:
            fd = memfd()
        self.files[self.next_segment] = os.dup(fd)
        assert self.log.add(fd, self.next_segment, capacity)
        self.next_segment += 1

    @rule(capacity=st.integers(512, 20_000))
    def hand_over_a_segment_if_wanted(self, capacity: int) -> None:
        if lib.log_wants_segment(self.log.c):
            self.add_segment(capacity)
            assert lib.log_wants_segment(self.log.c) == 0 or len(self.files) == 1

    @rule(entries=st.lists(ENTRIES, min_size=1, max_size=4), keep=st.integers(0, 3000))
    def append(self, entries: list[Entry], keep: int) -> None:
        before = lib.log_bytes(self.log.c)
        result = self.log.reserve(*entries, keep=keep)
        if result == lib.LOG_NO_SPACE:
            assert lib.log_bytes(self.log.c) == before
            assert lib.log_wants_segment(self.log.c) >= lib.SEGMENT_BYTES
            return
        assert result == lib.LOG_OK
        self.kept = keep
        for e in entries:
            self.held.append((self.log.append(e), e))
        assert len({position >> 32 for position, _ in self.held[-len(entries) :]}) == 1

    @precondition(lambda self: self.kept >= 48)
    @rule()
    def append_what_was_kept(self) -> None:
        e = Entry(kind=9)
        position = self.log.put(e)
        assert position
        self.held.append((position, e))
        self.kept -= 48

    @rule()
    def flush(self) -> None:
        assert self.log.flush() == lib.LOG_OK
        self.flushed = len(self.held)
        assert lib.log_flushed(self.log.c) == lib.log_appended(self.log.c)

    @precondition(lambda self: self.held)
    @rule(draw=st.data())
    def read(self, draw: st.DataObject) -> None:
        position, e = draw.draw(st.sampled_from(self.held))
        assert self.log.read(position) == e

    @precondition(lambda self: 0 < lib.log_first_segment(self.log.c) < lib.log_active_segment(self.log.c))
    @rule()
    def drop_first(self) -> None:
        first = lib.log_first_segment(self.log.c)
        lib.log_drop_first(self.log.c)
        os.close(self.files.pop(first))
        dropped = [p for p, _ in self.held if p >> 32 == first]
        assert all(self.log.read(p) is None for p in dropped)
        self.held = self.held[len(dropped) :]
        self.flushed = max(0, self.flushed - len(dropped))

    @rule()
    def sync(self) -> None:
        fds, upto = self.log.unsynced()
        assert bool(fds) == (lib.log_flushed(self.log.c) > lib.log_synced(self.log.c))
        lib.log_mark_synced(self.log.c, upto)
        assert self.log.unsynced()[0] == []
        assert lib.log_synced(self.log.c) == lib.log_flushed(self.log.c)

    @rule()
    def killed(self) -> None:
        """What was not flushed is gone, or some of it is there: always a beginning of it."""
        self.log.close()
        self.log = Log()
        lib.log_use_spares(self.log.c, self.spares)
        for fd in self.files.values():
            cut_stale(fd)
        # The one that waited has no header, and the one before it neither if it had just become active.
        while self.files and content_of(self.files[self.next_segment - 1])[:HEADER].strip(b"\0") == b"":
            self.next_segment -= 1
            os.close(self.files.pop(self.next_segment))
        for segment in sorted(self.files):
            assert self.log.add(os.dup(self.files[segment]), segment, 1024, new=False)
        found = []
        for segment in sorted(self.files):
            scan = self.log.scan(segment)
            assert scan.damage == [] and scan.torn == 0
            assert self.log.truncate(segment, scan.end)
            found += [(segment << 32 | offset, e) for offset, e in scan.entries]
        assert self.flushed <= len(found)
        assert found == self.held[: len(found)]
        self.held, self.flushed, self.kept = found, len(found), 0

    @invariant()
    def bytes_are_those_of_the_records(self) -> None:
        if self.files and lib.log_active_segment(self.log.c):
            active = lib.log_active_segment(self.log.c)
            segments = [s for s in self.files if s <= active]
            expected = HEADER * len(segments) + sum(e.stride for _, e in self.held)
            assert lib.log_bytes(self.log.c) == expected
            assert lib.log_bytes(self.log.c) == sum(lib.log_segment_end(self.log.c, s) for s in segments)

    @invariant()
    def the_newest_is_readable(self) -> None:
        if self.held:
            assert self.log.read(self.held[-1][0]) == self.held[-1][1]


TestModel = Model.TestCase
TestModel.settings = settings(
    max_examples=int(os.environ.get("EXAMPLES", "25")), stateful_step_count=40, deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)  # fmt: skip
