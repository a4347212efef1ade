"""Files that something else deletes, swaps, copies and fills between restarts of a broker that goes on being used.

What was not touched is served, whatever happened to the rest; each file that is missing is named; nothing ends in a
traceback or in processes that start again and again.
"""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.beanstalk.wire import Wire
from tests.servers import MANY, SINGLE, Server, is_alive, running, start, wait_until

SHARDS = 3
TUBES = tuple(f"spoilt-{n}" for n in range(6))
LARGE_BYTES = 33 << 20  # so that the next one begins a segment
RECORD_PUBLISH = 3  # csrc/log/records.h
OPTIONS = ("--shards", str(SHARDS), "--sync", "never")
# May be gone: what deleted them was in a file that was spoilt, or they were.
GONE = b"NOT_FOUND"


def logs(data: Path) -> list[Path]:
    return sorted(data.glob("shard-*/*.log"))


def swap(one: Path, other: Path) -> None:
    between = one.with_suffix(".between")
    one.rename(between)
    other.rename(one)
    between.rename(other)


@dataclass
class Spoiler:
    """Does one thing to a data directory, and knows which files may have lost something by it. Those are named as they
    were at first: a file that is swapped with another takes along what has been done to it."""

    data: Path
    draw: random.Random
    at_first: dict[Path, Path] = field(init=False)  # what the file that has a name now was called; copies are not in it
    touched: set[Path] = field(default_factory=set)
    missing: set[Path] = field(default_factory=set)
    did: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.at_first = {path: path for path in logs(self.data)}

    def spoil(self) -> None:
        kinds: list[Callable[[], None]] = [
            self.delete, self.delete_names, self.delete_manifest, self.swap_in_a_shard, self.swap_shards,
            self.copy, self.fill, self.empty, self.delete_shard,
        ]  # fmt: skip
        self.draw.choice(kinds)()

    def one(self) -> Path:
        return self.draw.choice(logs(self.data))

    def touch(self, *paths: Path) -> None:
        self.touched |= {self.at_first[path] for path in paths if path in self.at_first}

    def list_is_gone(self, shard: Path) -> None:
        """Of a shard without a manifest nobody knows which segments are missing; that it has none is said instead."""
        self.missing = {path for path in self.missing if path.parent != shard}

    def swap(self, one: Path, other: Path) -> None:
        self.note("swapped", one, other)
        swap(one, other)
        had = {path: self.at_first.pop(path, None) for path in (one, other)}
        self.at_first |= {path: was for path, was in ((one, had[other]), (other, had[one])) if was}

    def note(self, what: str, *paths: Path) -> None:
        self.did.append(f"{what} {', '.join(str(path.relative_to(self.data)) for path in paths)}")

    def delete(self) -> None:
        path = self.one()
        self.note("deleted", path)
        self.touch(path)
        # The next segment is made ahead, and listed after that: before, nothing is lost with it.
        was = self.at_first.pop(path, None)
        if was and path.stat().st_size and (was.parent / "manifest.json").exists():
            self.missing.add(was)
        path.unlink()

    def delete_names(self) -> None:
        for path in self.draw.choice(logs(self.data)).parent.glob("*.names"):
            self.note("deleted", path)
            path.unlink()

    def delete_manifest(self) -> None:
        path = self.one().parent / "manifest.json"
        self.note("deleted", path)
        path.unlink(missing_ok=True)
        self.list_is_gone(path.parent)

    def swap_in_a_shard(self) -> None:
        of = sorted(self.one().parent.glob("*.log"))
        if len(of) > 1:
            self.swap(*self.draw.sample(of, 2))

    def swap_shards(self) -> None:
        one = self.one()
        others = [path for path in logs(self.data) if path.parent != one.parent]
        if others:
            other = self.draw.choice(others)
            self.touch(one, other)
            self.swap(one, other)

    def copy(self) -> None:
        path = self.one()
        to = path.with_name(f"{int(path.stem) + self.draw.randrange(1, 50):010d}.log")
        if not to.exists():
            self.note("copied", path, to)
            shutil.copyfile(path, to)

    def fill(self) -> None:
        path = self.one()
        self.note("filled", path)
        with path.open("r+b") as file:
            file.seek(self.draw.randrange(max(1, path.stat().st_size)))
            file.write(self.draw.randbytes(self.draw.choice([1, 600, 100_000])))
        self.touch(path)

    def empty(self) -> None:
        path = self.one()
        self.note("emptied", path)
        path.write_bytes(b"")
        self.touch(path)

    def delete_shard(self) -> None:
        path = self.one().parent
        self.touch(*path.glob("*.log"))
        self.note("deleted", path)
        shutil.rmtree(path)
        self.list_is_gone(path)


def places(data: Path) -> dict[int, Path]:
    """In which file a job is."""
    from mq_shards.shards.dump import Record, decode_segment

    found = {}
    for path in logs(data):
        if path.stat().st_size:
            for entry in decode_segment(path):
                if isinstance(entry, Record) and entry.kind == RECORD_PUBLISH:
                    found[entry.id] = path
    return found


def use(server: Server, draw: random.Random, jobs: dict[int, bytes]) -> None:
    """Jobs of all kinds are put, held, buried, released and deleted; `jobs` is what must be there."""
    with Wire(server) as wire:
        wire.watch_only(*TUBES)
        for _ in range(30):
            wire.use(draw.choice(TUBES))
            body = draw.randbytes(draw.choice([1, 300, 5000]))
            jobs[wire.put(body, pri=draw.randrange(3), delay=draw.choice([0, 0, 0, 1000]))] = body
        wire.use(draw.choice(TUBES))
        jobs[wire.put(bytes(LARGE_BYTES), pri=9)] = bytes(LARGE_BYTES)
        for _ in range(12):
            reply = wire.exchange("reserve-with-timeout 0")
            assert reply.word in (b"RESERVED", b"TIMED_OUT"), reply
            if reply.word == b"RESERVED":
                verb = draw.choice(["delete {}", "release {} 1 0", "bury {} 1", "touch {}"])
                assert wire.ask(verb.format(reply.number)) != GONE
                if verb.startswith("delete"):
                    jobs.pop(reply.number, None)


def check(server: Server, jobs: dict[int, bytes], untouched: set[int]) -> None:
    with Wire(server) as wire:
        for job, body in list(jobs.items()):
            reply = wire.exchange(f"peek {job}")
            if reply.word == b"FOUND":
                assert reply.body == body, f"job {job} is another"
            else:
                assert reply.word == GONE and job not in untouched, f"job {job}: {reply.line!r}"
                del jobs[job]


def spoil_and_go_on(data: Path, seed: int, rounds: int) -> None:
    draw = random.Random(seed)
    jobs: dict[int, bytes] = {}
    untouched: set[int] = set()
    spoiler, history = Spoiler(data, draw), list[list[str]]()
    for round_ in range(rounds + 1):
        options = (*OPTIONS, "--set", f"beanstalk.max-job-size={LARGE_BYTES}")
        with running(draw.choice([SINGLE, MANY]), data_dir=data, options=options) as server:
            try:
                check(server, jobs, untouched)
                use(server, draw, jobs)
                said = server.said()
                for path in spoiler.missing:
                    number = int(path.stem)
                    is_named = f"{path.name} is missing" in said or f"is segment {number}, and is put back" in said
                    assert is_named, f"{path} is missing, and nobody says so"
                assert "Traceback" not in said and "ended with" not in said and "is killed" not in said
            except (AssertionError, OSError) as error:
                error.add_note(f"seed {seed}, round {round_}: {history}\n{server.said()}")
                raise
            server.kill()
        where = places(data)
        spoiler = Spoiler(data, draw)
        for _ in range(draw.randrange(1, 4)):
            if logs(data):
                spoiler.spoil()
        history.append(spoiler.did)
        untouched = {job for job in jobs if job in where and where[job] not in spoiler.touched}


@pytest.mark.parametrize("seed", range(2))
def test_files_are_spoilt_between_restarts_and_the_rest_is_served(tmp_path: Path, seed: int) -> None:
    spoil_and_go_on(tmp_path / "data", seed, rounds=2)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(100, 106))
def test_files_are_spoilt_again_and_again(tmp_path: Path, seed: int) -> None:
    spoil_and_go_on(tmp_path / "data", seed, rounds=20)


def test_what_is_cut_off_a_log_while_the_broker_is_stopped_is_said_once(tmp_path: Path) -> None:
    data, options = tmp_path / "data", ("--shards", "1")
    with running(SINGLE, data_dir=data, options=options) as server:
        with Wire(server) as wire:
            for n in range(100):
                wire.put(b"%d" % n)
        assert server.terminate() == 0
    (log,) = logs(data)
    with running(SINGLE, data_dir=data) as server:
        assert " error " not in server.said()
        assert server.terminate() == 0
    os.truncate(log, 2000)
    with pytest.raises(RuntimeError, match=r"shard 0 is refused: 0000000001\.log ends at \d+, and ended at \d+"):
        server = start(SINGLE, data_dir=data, options=("--damage", "refuse"))
        server.dispose()
    with running(SINGLE, data_dir=data) as server:
        said = [line for line in server.said().splitlines() if "0000000001.log ends at" in line]
        assert len(said) == 1 and said[0].endswith("when the broker was stopped: the messages between are lost")
        assert "no whole record follows" not in server.said()
        with Wire(server) as wire:
            left = int(wire.stats()["current-jobs-ready"])
            assert 0 < left < 100
            wire.put(b"and it goes on")
        assert server.terminate() == 0
    with running(SINGLE, data_dir=data) as server, Wire(server) as wire:
        assert "ends at" not in server.said()
        assert int(wire.stats()["current-jobs-ready"]) == left + 1


def killed(data: Path, body: bytes, count: int) -> tuple[Path, list[int]]:
    """The only log of a broker that was killed when the log was listed as begun, and the ids of its jobs."""
    with running(SINGLE, data_dir=data, options=("--shards", "1")) as server, Wire(server) as wire:
        ids = [wire.put(body) for _ in range(count)]
        wait_until(lambda: listed(data)["1"] > 0, "its segment is listed as begun")
        server.kill()
    (log,) = logs(data)
    return log, ids


def listed(data: Path) -> dict[str, int]:
    segments: dict[str, int] = json.loads((data / "shard-0000" / "manifest.json").read_text())["segments"]
    return segments


def said_of(server: Server, log: Path) -> list[str]:
    return [line.partition("shard 0: ")[2] for line in server.said().splitlines() if f"shard 0: {log.name}" in line]


@pytest.mark.parametrize("is_listed", [True, False], ids=["listed as begun", "not listed yet"])
@pytest.mark.parametrize("keeps_length", [True, False], ids=["zeros", "empty"])
def test_a_log_that_is_emptied_after_a_kill_is_said_and_gives_out_no_id_again(
    tmp_path: Path, is_listed: bool, keeps_length: bool
) -> None:
    data = tmp_path / "data"
    log, lost = killed(data, b"lost", 100)
    size = log.stat().st_size
    os.truncate(log, 0)
    os.truncate(log, size * keeps_length)
    if not is_listed:  # as if it had been killed sooner
        path = data / "shard-0000" / "manifest.json"
        listed = json.loads(path.read_text()) | {"segments": {"1": 0}}
        path.write_text(json.dumps({what: said for what, said in listed.items() if what != "check"}))
    damage = "serve" if is_listed else "refuse"
    with running(SINGLE, data_dir=data, options=("--damage", damage)) as server, Wire(server) as wire:
        what = "missing" if is_listed else "empty, and was not"
        assert said_of(server, log) == [f"{log.name} is {what}: the messages that were in it are lost"]
        assert wire.put(b"new") > max(lost)


@pytest.mark.parametrize("stop", [True, False], ids=["stopped", "killed"])
@pytest.mark.parametrize("which", [0, 1], ids=["the first", "the last"])
def test_of_a_log_that_is_shorter_than_its_header_nothing_is_left_and_the_rest_is_served(
    tmp_path: Path, which: int, stop: bool
) -> None:
    data, options = tmp_path / "data", ("--shards", "1", "--set", f"beanstalk.max-job-size={LARGE_BYTES}")
    with running(SINGLE, data_dir=data, options=options) as server, Wire(server) as wire:
        jobs = [wire.put(bytes(LARGE_BYTES)) for _ in range(2)]
        wait_until(lambda: listed(data).get("3", 0) > 0, "each has a segment, which is listed as begun")
        if stop:
            assert server.terminate() == 0
        else:
            server.kill()
    log = places(data)[jobs[which]]
    log.write_bytes(log.read_bytes()[:40])
    with running(SINGLE, data_dir=data, options=options) as server, Wire(server) as wire:
        assert said_of(server, log)[0] == f"{log.name} is missing: the messages that were in it are lost"
        assert [wire.exchange(f"peek {job}").word for job in jobs] == [GONE if n == which else b"FOUND" for n in (0, 1)]
        assert wire.put(b"new") > max(jobs)


def test_a_log_of_which_the_beginning_is_zeros_after_a_kill_is_said_and_the_rest_is_served(tmp_path: Path) -> None:
    data = tmp_path / "data"
    log, ids = killed(data, bytes(1000), 1000)
    with log.open("r+b") as file:
        file.write(bytes(256 << 10))
    with running(SINGLE, data_dir=data) as server, Wire(server) as wire:
        assert said_of(server, log) == [f"{log.name} has lost its header; what is whole after it is served"]
        assert wire.put(b"new") > max(ids)
        assert 700 < int(wire.stats()["current-jobs-ready"]) < 800


def test_another_brokers_log_in_the_place_of_a_shards_only_one_is_put_aside_after_a_kill(tmp_path: Path) -> None:
    log, _ = killed(tmp_path / "data", b"mine", 1)
    foreign, _ = killed(tmp_path / "other", b"theirs", 1)
    shutil.copyfile(foreign, log)
    with running(SINGLE, data_dir=tmp_path / "data") as server, Wire(server) as wire:
        assert [line.partition(": ")[0] for line in said_of(server, log)] == [
            f"{log.name} is put aside",
            f"{log.name} is missing",
        ]
        assert int(wire.stats()["current-jobs-ready"]) == 0


def test_a_log_that_is_gone_is_said_once(tmp_path: Path) -> None:
    log, _ = killed(tmp_path / "data", b"x", 10)
    assert log.with_suffix(".names").exists(), "and what is copied of it is not taken for its end"
    log.unlink()
    with running(SINGLE, data_dir=tmp_path / "data") as server, Wire(server) as wire:
        said = [line for line in server.said().splitlines() if log.name in line or "segment 1" in line]
        assert [line.rpartition("shard 0: ")[2] for line in said] == [
            f"{log.name} is missing: the messages that were in it are lost"
        ]
        assert int(wire.stats()["current-jobs-ready"]) == 0


def test_of_a_log_that_is_noise_nothing_is_said_that_nobody_knows(tmp_path: Path) -> None:
    data, options = tmp_path / "data", ("--shards", "1")
    with running(SINGLE, data_dir=data, options=options) as server, Wire(server) as wire:
        for n in range(100):
            wire.put(b"%d" % n)
        pids = server.pids()
        server.process.kill()
        wait_until(lambda: not any(map(is_alive, pids)), "all of it is gone")
    (log,) = logs(data)
    log.write_bytes(random.Random(5).randbytes(20_000))
    with running(SINGLE, data_dir=data) as server:
        said = [line.partition("offset ")[2] for line in server.said().splitlines() if "segment 1, offset" in line]
        assert said == [
            "0: the header is damaged; what is whole after that is served",
            "64: no whole record follows: it is a write that a crash cut short, of which nobody was told, or damage",
        ]
        with Wire(server) as wire:
            wire.put(b"and it goes on")
