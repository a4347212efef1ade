"""Logs that something else has damaged: what is whole is served, and the broker says which place is not."""

from __future__ import annotations

import random
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.beanstalk.replies import Reply
from tests.beanstalk.wire import Wire
from tests.servers import SINGLE, Shape, running, shapes, wait_until

JOBS = 60
SHARDS = 4
RECORD_TOPIC = 1  # csrc/log/records.h
RECORD_PUBLISH = 3  # csrc/log/records.h
OPTIONS = ("--shards", str(SHARDS))


@dataclass(frozen=True)
class Place:
    """Where a job's record is."""

    path: Path
    shard: int
    segment: int
    offset: int
    end: int


@dataclass
class Broken:
    """A data directory that a killed broker left, and the jobs in it."""

    path: Path
    bodies: dict[int, bytes]
    places: dict[int, Place]

    def in_file(self, path: Path) -> list[tuple[Place, int]]:
        """The jobs of a segment, in their order."""
        return sorted(((p, job) for job, p in self.places.items() if p.path == path), key=lambda found: found[0].offset)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[int, bytes]]:
    """A data directory, and the jobs in it."""
    path = tmp_path_factory.mktemp("whole")
    bodies = {}
    with running(SINGLE, data_dir=path, options=OPTIONS) as server, Wire(server) as wire:
        draw = random.Random(3)
        for n in range(JOBS):
            wire.use(f"damage-{n % 12}")
            body = b"%d:" % n + draw.randbytes(draw.choice([10, 300, 5000]))
            bodies[wire.put(body, pri=n)] = body
        server.kill()
    return path, bodies


@pytest.fixture
def left(whole: tuple[Path, dict[int, bytes]], tmp_path: Path) -> Broken:
    path, bodies = whole
    shutil.copytree(path, tmp_path / "data")
    return Broken(tmp_path / "data", bodies, places(tmp_path / "data"))


def places(directory: Path) -> dict[int, Place]:
    from mq_shards.shards.dump import Record, decode_segment

    found = {}
    for path in sorted(directory.glob("shard-*/*.log")):
        if path.stat().st_size:
            for entry in decode_segment(path):
                if isinstance(entry, Record) and entry.kind == RECORD_PUBLISH:
                    shard = int(path.parent.name.removeprefix("shard-"))
                    end = entry.offset + 40 + len(entry.attributes) + len(entry.body)
                    found[entry.id] = Place(path, shard, int(path.stem), entry.offset, end)
    assert len(found) == JOBS
    return found


def check(left: Broken, lost: set[int], said: list[tuple[int, int, int]]) -> None:
    """Starts a broker on it: all jobs but the lost ones are there, and can be worked with; the places are named."""
    with running(SINGLE, data_dir=left.path) as server, Wire(server) as wire:
        for job, body in left.bodies.items():
            expected = Reply(b"NOT_FOUND") if job in lost else Reply(b"FOUND %d %d" % (job, len(body)), body)
            assert wire.exchange(f"peek {job}") == expected
        for shard, segment, offset in said:
            pattern = rf"shard {shard}\b.*segment {segment}\b.*offset {offset}\b"
            wait_until(lambda p=pattern: re.search(p, server.said()), f"it says {pattern}: {server.said()}")
        # What a crash may have cut short is mentioned too, but not as an error.
        named = re.findall(r" error .*shard (\d+), segment (\d+), offset (\d+)", server.said())
        assert {tuple(map(int, place)) for place in named} == set(said)
        wire.watch_only(*(f"damage-{n}" for n in range(12)))
        for job in sorted(left.bodies.keys() - lost):
            assert wire.reserve() == (job, left.bodies[job])
            assert wire.ask(f"delete {job}") == b"DELETED"
        assert wire.ask("reserve-with-timeout 0") == b"TIMED_OUT"
        for n in range(12):
            wire.use(f"damage-{n}")
            assert wire.put(b"new") > max(left.bodies)


@pytest.mark.parametrize("seed", range(4))
def test_a_log_cut_off_anywhere_serves_what_is_before_the_cut(left: Broken, seed: int) -> None:
    draw = random.Random(seed)
    path = draw.choice(sorted({p.path for p in left.places.values()}))
    jobs = left.in_file(path)
    first, _ = jobs[len(jobs) // 2]
    cut = draw.randint(first.offset, jobs[-1][0].end - 1)
    with path.open("r+b") as file:
        file.truncate(cut)
    lost = {job for place, job in jobs if place.end > cut}
    assert lost
    check(left, lost, said=[])  # a log may end in half a record: so a crash leaves it


@pytest.mark.parametrize("seed", range(6))
def test_a_flipped_bit_costs_one_job_and_its_place_is_named(left: Broken, seed: int) -> None:
    draw = random.Random(100 + seed)
    path = draw.choice(sorted({p.path for p in left.places.values()}))
    place, job = draw.choice(left.in_file(path)[:-1])
    flip(place.path, draw.randrange(place.offset, place.end), draw.randrange(8))
    check(left, {job}, [(place.shard, place.segment, place.offset)])


def test_a_flipped_bit_in_the_last_record_costs_no_other(left: Broken) -> None:
    """It cannot be told from a write that a crash cut short."""
    path = sorted({p.path for p in left.places.values()})[0]
    place, job = left.in_file(path)[-1]
    flip(path, place.end - 1, 0)
    check(left, {job}, said=[])


def test_bits_flipped_in_all_shards_at_once(left: Broken) -> None:
    lost, said = set(), []
    for path in sorted({p.path for p in left.places.values()}):
        place, job = left.in_file(path)[2]
        flip(path, place.offset + 45, 3)
        lost.add(job)
        said.append((place.shard, place.segment, place.offset))
    assert len(said) == SHARDS
    check(left, lost, said)


def test_zeros_in_the_middle_cost_what_they_cover(left: Broken) -> None:
    """As a disk leaves them that lost a block."""
    path = max({p.path for p in left.places.values()}, key=lambda p: p.stat().st_size)
    jobs = left.in_file(path)
    first, last = jobs[-5][0], jobs[-2][0]  # by then all tubes of the shard have been named
    start, end = first.offset + 50, last.offset + 50
    with path.open("r+b") as file:
        file.seek(start)
        file.write(bytes(end - start))
    lost = {job for place, job in jobs if place.end > start and place.offset < end}
    check(left, lost, [(first.shard, first.segment, first.offset)])


def test_a_flipped_bit_in_each_name_costs_neither_jobs_nor_names(left: Broken) -> None:
    """Each name has a copy, whether its segment is new or was there at the start."""
    from mq_shards.shards.dump import Record, decode_segment

    tubes = {job: b"damage-%d" % (int(body.split(b":")[0]) % 12) for job, body in left.bodies.items()}
    with running(SINGLE, data_dir=left.path) as server, Wire(server) as wire:
        for n in range(12):
            wire.use(f"later-{n}")
            tubes[wire.put(b"x")] = b"later-%d" % n
        server.kill()
    spoilt = 0
    for path in left.path.glob("shard-*/*.log"):
        for entry in decode_segment(path):
            if isinstance(entry, Record) and entry.kind == RECORD_TOPIC:
                flip(path, entry.offset + 41, 0)
                spoilt += 1
    assert spoilt >= 24
    with running(SINGLE, data_dir=left.path) as server, Wire(server) as wire:
        said = {job: wire.exchange(f"stats-job {job}").body for job in tubes}
    assert {job: re.findall(rb"^tube: (.*)$", text, re.MULTILINE) for job, text in said.items()} == {
        job: [tube] for job, tube in tubes.items()
    }


@pytest.mark.parametrize("shape", shapes(SINGLE))
def test_a_torn_last_write_is_no_obstacle(shape: Shape, left: Broken) -> None:
    """Garbage after the last record, as a write leaves it of which the end was never acknowledged."""
    path = left.in_file(sorted({p.path for p in left.places.values()})[0])[0][0].path
    place, _ = left.in_file(path)[-1]
    with path.open("r+b") as file:
        file.seek((place.end + 7) // 8 * 8)
        file.write(b"\x40\0\0\0" + random.Random(1).randbytes(300))
    with running(shape, data_dir=left.path) as server, Wire(server) as wire:
        for job, body in left.bodies.items():
            assert wire.exchange(f"peek {job}").body == body


def flip(path: Path, at: int, bit: int) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 1 << bit]))
