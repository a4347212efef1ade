"""A start that reads the heads of a sealed segment has what one that reads the segment has; what of it is damaged is
left out when it is asked for."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from mq_shards.csrc._core import ffi, lib
from mq_shards.shards import heads
from mq_shards.shards.checksum import crc32c
from mq_shards.shards.retention import Segment
from mq_shards.shards.segment_header import Header, encode_header

from tests.shards.bench import (
    DELETE,
    NOT_FOUND,
    OK,
    RESERVE,
    SHARDS,
    TIMED_OUT,
    WATCH,
    Bench,
    lose_segments,
    write_heads,
)
from tests.shards.positions import EARLIEST, begin, seek, seqs
from tests.shards.subscriptions import Channels
from tests.shards.test_needed import finish_in_three_segments, roll
from tests.shards.test_shard_protocol import ask

BODY = bytes(range(256)) * 64
HEADER = BEHIND = 64
LOOKED_AT_ONCE = 8 << 20
PUBLISHED = 3  # kind of a record
BENCH = {"ring_bytes": 1 << 22}


def content_of(fd: int) -> bytes:
    return os.pread(fd, 64 << 20, 0)


def file_of(content: bytes) -> int:
    fd = os.memfd_create("file")
    os.write(fd, content)
    return fd


def heads_of(bench: Bench, number: int = 1) -> bytes:
    segments = dict(bench.segments[0])
    fd = os.memfd_create("heads")
    assert write_heads(segments[number], segments[number + 1], fd) == lib.HEADS_WRITTEN
    try:
        return content_of(fd)
    finally:
        os.close(fd)


def found(bench: Bench, content: bytes, number: int = 1) -> int:
    """What a start finds such heads to be."""
    worker = lib.worker_new(0, 1, SHARDS, bench.board, bench.wake, 12345)
    assert lib.worker_own(worker, 0)
    for n, fd in bench.segments[0]:
        if os.fstat(fd).st_size:
            assert lib.worker_add_segment(worker, 0, os.dup(fd), n, 64 << 20, False, bench.wall)
    fd = file_of(content)
    result = lib.worker_use_heads(worker, 0, fd, number)
    os.close(fd)
    if result == lib.HEADS_FOUND:
        lib.worker_replay(worker, 0, ffi.new("struct replay *"), bench.now, bench.wall)
    lib.worker_free(worker)
    return int(result)


def with_jobs(bench: Bench) -> list[int]:
    jobs = [bench.pub("jobs", durable=False, body=BODY + bytes([n]))[0] for n in range(5)]
    bench.turn()
    roll(bench)
    return jobs


def restart(bench: Bench) -> None:
    bench.uses_heads = True
    bench.restart()


def reserve(bench: Channels) -> bytes | None:
    bench.raw(WATCH, 5, topic=bench.topic("jobs"))
    answer = ask(bench, RESERVE, 5, delay=0)
    assert answer.status in (OK, TIMED_OUT)
    return answer.body if answer.status == OK else None


def told(bench: Bench) -> list[int]:
    place, topic = ffi.new("struct damage *"), ffi.new("const char **")
    offsets = []
    while lib.worker_unreadable(bench.worker, place, topic):
        offsets.append(place.offset)
    return offsets


def test_what_a_segment_holds_is_there_though_little_of_it_is_read(bench: Channels) -> None:
    assert bench.sub(1, "t", "c", credit=2) == OK
    bench.change(lib.CHANGE_MAKE, "t", "d")
    ids = [bench.pub("t", body=BODY)[0] for _ in range(4)]
    bench.turn()
    bench.raw(lib.MSG_FINISH, 1, id=ids[0])
    jobs = with_jobs(bench)
    before = bench.catalog()
    restart(bench)
    assert bench.headed == 1
    assert bench.found.bytes < 3000
    after = bench.catalog()
    assert {name: (t.depth, t.jobs) for name, t in after.items()} == {n: (t.depth, t.jobs) for n, t in before.items()}
    assert after["t"].channels["d"].depth == 4
    assert [reserve(bench) for _ in jobs] == [BODY + bytes([n]) for n in range(5)]
    assert reserve(bench) is None
    assert all(ask(bench, DELETE, 5, id=job).status == OK for job in jobs)
    assert told(bench) == []


def test_seqs_go_on_behind_segments_that_were_lost_before_it(bench: Channels) -> None:
    bench.pub("t")
    roll(bench)
    lose_segments(bench, 3)
    lost = lib.worker_next_seq(bench.worker, b"t", 1)
    bench.pub("other", body=BODY)
    bench.turn()
    roll(bench)
    for bench.uses_heads in (False, True):
        bench.restart()
        assert lib.worker_next_seq(bench.worker, b"t", 1) == lost > 1 << 20
    assert bench.headed > 1


def test_what_is_retained_may_be_had_again_after_a_start_that_has_not_read_it(bench: Channels) -> None:
    finish_in_three_segments(bench)
    restart(bench)
    assert bench.headed == 3
    assert seek(bench, EARLIEST).status == OK
    begin(bench, 1, EARLIEST)
    assert seqs(bench.turn()) == [0, 1, 2]


def spoil_body(content: bytearray, at: int) -> None:
    content[at + 200] ^= 1


def spoil_length(content: bytearray, at: int) -> None:
    content[at : at + 4] = (0xFFFFFFF0).to_bytes(4, "little")


def spoil_all(content: bytearray, at: int) -> None:
    content[at : at + len(BODY)] = bytes(len(BODY))


@pytest.mark.parametrize("spoil", [spoil_body, spoil_length, spoil_all])
def test_what_is_damaged_in_a_segment_is_left_out_and_told_when_it_is_asked_for(bench: Channels, spoil: object) -> None:
    jobs = with_jobs(bench)
    fd = bench.segments[0][0][1]
    content = bytearray(content_of(fd))
    at = content.index(BODY + bytes([2])) - 48  # a record's head and a job's attributes
    bench.uses_heads = True
    assert found(bench, heads_of(bench)) == lib.HEADS_FOUND
    whole = heads_of(bench)
    spoil(content, at)  # type: ignore[operator]
    os.pwrite(fd, content, 0)
    # They were written before that.
    bench.kept_heads = {(0, 1): whole}
    bench.restart()
    assert bench.headed == 1 and bench.found.damages == 0
    assert [reserve(bench) for _ in range(4)] == [BODY + bytes([n]) for n in (0, 1, 3, 4)]
    assert reserve(bench) is None
    assert told(bench) == [at]
    assert ask(bench, DELETE, 5, id=jobs[2]).status == NOT_FOUND
    # It keeps its segment from being passed over, and a start without heads names it.
    bench.kept_heads = {}
    bench.uses_heads = False
    bench.restart()
    assert bench.found.damages == 1


def test_what_nobody_can_tell_any_more_is_left_out_and_the_worker_lives_on(bench: Channels) -> None:
    """The file of the heads is cut short, as by a medium that fails, while they are in use."""
    jobs = with_jobs(bench)
    restart(bench)
    os.ftruncate(bench.heads[0], 0)
    assert reserve(bench) is None
    assert len(told(bench)) == len(jobs)
    bench.restart()
    assert [reserve(bench) for _ in jobs] == [BODY + bytes([n]) for n in range(5)]


def test_heads_are_made_of_a_whole_segment_only(bench: Channels) -> None:
    with_jobs(bench)
    fd = bench.segments[0][0][1]
    end = int.from_bytes(os.pread(bench.segments[0][1][1], 4, 32), "little")
    content = content_of(fd)[:end]
    where = content.index(BODY)

    def written(content: bytes, end: int = end, most: int = 1 << 30) -> int:
        segment, out = file_of(content), os.memfd_create("heads")
        try:
            return int(lib.heads_write(segment, out, end, most))
        finally:
            os.close(segment)
            os.close(out)

    assert written(content) == written(content + bytes(4096)) == lib.HEADS_WRITTEN
    for at in (20, 33, 64, 70, where, where - 44, end - 48):
        assert written(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]) == lib.HEADS_UNFIT
    for wrong in (0, 8, 64, end - 8, end + 8, end - 1, end + 4096):
        assert written(content, wrong) == lib.HEADS_UNFIT
    assert written(content[: end - 100]) == lib.HEADS_UNFIT
    most = len(heads_of(bench)) - HEADER - BEHIND
    assert [written(content, most=most), written(content, most=most - 1)] == [lib.HEADS_WRITTEN, lib.HEADS_UNFIT]
    assert lib.heads_write(-1, -1, end, end) == lib.HEADS_FAILED


@pytest.mark.parametrize(("bytes_", "fits"), [(LOOKED_AT_ONCE, True), (LOOKED_AT_ONCE + 8, False)])
def test_a_record_that_is_looked_at_in_pieces_has_its_segment_read(bench: Channels, bytes_: int, fits: bool) -> None:
    header = os.pread(bench.segments[0][0][1], HEADER, 0) or encode_header(Header(0, SHARDS, 1, bench.wall))
    record = bytes_.to_bytes(4, "little") + bytes(4) + bytes([PUBLISHED]) + bytes(bytes_ - 9)
    crc = crc32c(record[8:], crc32c(record[:4] + (1).to_bytes(4, "little")))
    segment, out = file_of(header + record[:4] + crc.to_bytes(4, "little") + record[8:]), os.memfd_create("heads")
    written = lib.heads_write(segment, out, HEADER + bytes_, 1 << 20)
    assert written == (lib.HEADS_WRITTEN if fits else lib.HEADS_UNFIT)
    os.close(segment)
    os.close(out)


def test_heads_of_anything_else_are_not_taken_for_a_segments(bench: Channels) -> None:
    with_jobs(bench)
    roll(bench)
    own = heads_of(bench)
    assert found(bench, own) == lib.HEADS_FOUND
    assert found(bench, heads_of(bench, 2)) == lib.HEADS_OTHER
    assert found(bench, own, 2) == lib.HEADS_OTHER
    # There is nothing behind the last one that says where it ends.
    assert found(bench, own, lib.worker_active_segment(bench.worker, 0)) == lib.HEADS_OTHER
    other = Channels()
    other.wall += 1
    other.restart()
    with_jobs(other)
    assert found(bench, heads_of(other)) == lib.HEADS_OTHER
    other.dispose()
    # The segment was written to again: it was the last one, since the one behind it had been lost.
    fd, next_fd = bench.segments[0][0][1], bench.segments[0][1][1]
    content, header = content_of(fd), os.pread(next_fd, HEADER, 0)
    end = int.from_bytes(header[32:36], "little")
    longer = header[:32] + (end + 48).to_bytes(4, "little") + header[36:60]
    os.pwrite(next_fd, longer + crc32c(longer).to_bytes(4, "little"), 0)
    assert found(bench, own) == lib.HEADS_OTHER
    os.pwrite(next_fd, header, 0)
    assert found(bench, own) == lib.HEADS_FOUND
    # ... and ends in another record at the same place.
    head = max(at for at in range(HEADER, end - 39, 8) if content[at : at + 40] in own)
    os.pwrite(fd, bytes([content[head + 24] ^ 1]), head + 24)
    assert found(bench, own) == lib.HEADS_OTHER
    os.pwrite(fd, content, 0)
    os.ftruncate(fd, end - 8)
    assert found(bench, own) == lib.HEADS_OTHER


def test_spoiled_heads_are_not_used(bench: Channels) -> None:
    with_jobs(bench)
    own = heads_of(bench)
    dice = random.Random(7)
    for at in [*range(HEADER), *(dice.randrange(len(own)) for _ in range(100))]:
        spoiled = bytearray(own)
        spoiled[at] ^= 1 << dice.randrange(8)
        assert found(bench, bytes(spoiled)) == lib.HEADS_DAMAGED
    for length in [0, 1, 63, 64, 72, *(dice.randrange(len(own)) for _ in range(20))]:
        assert found(bench, own[:length]) == lib.HEADS_DAMAGED
    assert found(bench, own + bytes(8)) == found(bench, bytes(4096)) == lib.HEADS_DAMAGED
    assert found(bench, own) == lib.HEADS_FOUND


def sealed(content: bytearray) -> bytes:
    """With the CRCs of what it has by now."""
    content[56:60] = crc32c(bytes(content[HEADER:])).to_bytes(4, "little")
    content[48:56] = (len(content) - HEADER).to_bytes(8, "little")
    content[60:64] = crc32c(bytes(content[:60])).to_bytes(4, "little")
    return bytes(content)


def test_whatever_heads_say_with_right_checksums_no_byte_outside_of_them_is_read(bench: Channels) -> None:
    with_jobs(bench)
    own = heads_of(bench)
    assert sealed(bytearray(own)) == own
    dice = random.Random(11)
    for _ in range(300):
        spoiled = bytearray(own)
        for _ in range(dice.choice([1, 1, 2, 5])):
            at = dice.randrange(HEADER, len(own))
            spoiled[at] = dice.choice([0, 1, 0x7F, 0xFF, spoiled[at] ^ 1 << dice.randrange(8)])
        if dice.random() < 0.2:
            del spoiled[dice.randrange(HEADER, len(spoiled)) :]
        if dice.random() < 0.2:
            spoiled[44:48] = dice.randrange(1 << 32).to_bytes(4, "little")
        assert found(bench, sealed(spoiled)) in (lib.HEADS_FOUND, lib.HEADS_DAMAGED, lib.HEADS_OTHER)


def test_they_are_written_for_what_a_start_would_read_and_has_been_sealed_for_long() -> None:
    segments = [Segment(n, 1 << 20, 1000.0 * n, 1, 1) for n in range(1, 6)]
    late = 1e9

    def due(made: set[int], begin: int = 1, cut: int = 5, now: float = late) -> int:
        one = heads.due(segments, made, begin, cut, now)
        return one.number if one else 0

    assert [due(set()), due({1}), due({1, 2, 3, 4, 5})] == [1, 2, 0]
    assert due(set(), begin=4) == 4
    assert due({1}, cut=1) == 0
    assert due(set(), now=1000 + heads.SEALED_FOR_S - 1) == 0
    assert due(set(), now=1000 + heads.SEALED_FOR_S) == 1


def test_a_file_of_heads_is_there_as_a_whole_or_not_at_all(bench: Channels, tmp_path: Path) -> None:
    with_jobs(bench)
    end = int.from_bytes(os.pread(bench.segments[0][1][1], 4, 32), "little")
    segment = tmp_path / "0000000001.log"
    segment.write_bytes(content_of(bench.segments[0][0][1])[:end])
    assert heads.write(segment, end)
    assert (tmp_path / "0000000001.heads").read_bytes() == heads_of(bench)
    assert not heads.write(segment, end + 8)
    with pytest.raises(FileNotFoundError):
        heads.write(tmp_path / "0000000002.log", end)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0000000001.heads", "0000000001.log"]
