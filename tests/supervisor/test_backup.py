"""A backup of a broker under load, restored: what it must have and must not have, and that the next one is small."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import greenstalk
import pytest
from mq_shards.csrc.structs import struct_in
from mq_shards.shards import backup as backups
from mq_shards.shards import backup_cut, erased
from mq_shards.shards.checksum import crc32c
from mq_shards.shards.layout import SEGMENT_HEADER_BYTES
from mq_shards.shards.reader.view import DataView
from mq_shards.shards.restore import restore
from mq_shards.shards.segment_header import Header, decode_header, encode_header
from mq_shards.shards.store_error import StoreError
from mq_shards.shards.whole_directory import making

from tests.nsq.api import channel_stats, post
from tests.reader.broker import started
from tests.servers import ROOT, SINGLE, Server, running
from tests.terminal.commands import MQ, done, run

BODY = b"x" * 40_000
OPTIONS = ("--shards", "1", "--set", "log.retention-hours=0", "--set", "log.retention-bytes=0")


@contextlib.contextmanager
def broker_of(data: Path, *options: str) -> Iterator[tuple[Server, greenstalk.Client]]:
    """And a client that puts into t, and takes from there."""
    with running(SINGLE, data_dir=data, options=options) as server:
        yield server, client_of(server)


def client_of(server: Server) -> greenstalk.Client:
    return greenstalk.Client(("127.0.0.1", server.port), use="t", watch="t", encoding=None)


class Load:
    """Puts jobs, and deletes most of them; when each was done, as far as its client knows."""

    def __init__(self, server: Server) -> None:
        self.put: dict[int, float] = {}  # since when it is known to be there
        self.asked: dict[int, float] = {}  # since when it may be gone
        self.gone: dict[int, float] = {}  # since when it is known to be gone
        self.first: dict[int, float] = {}  # since when it may be there
        self._server = server
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        with client_of(self._server) as client:
            while not self._stop.wait(0.001):  # what is put is looked at one by one afterwards
                begun = time.monotonic()
                job = client.put(b"%d " % len(self.put) + BODY)
                self.first[job], self.put[job] = begun, time.monotonic()
                if job % 5:
                    taken = client.reserve(timeout=0)
                    self.asked[taken.id] = time.monotonic()
                    client.delete(taken)
                    self.gone[taken.id] = time.monotonic()

    def check(self, jobs: set[int], begun: float, ended: float) -> None:
        """What a backup that was made between these two times has."""
        must = {job for job, at in self.put.items() if at < begun and self.asked.get(job, ended) >= ended}
        may_not = {job for job, at in self.gone.items() if at < begun}
        may_not |= {job for job, at in self.first.items() if at > ended}
        assert must <= jobs, sorted(must - jobs)[:5]
        assert not jobs & may_not, sorted(jobs & may_not)[:5]


def jobs_of(data: Path) -> set[int]:
    found = set()
    with broker_of(data) as (server, client), contextlib.suppress(greenstalk.TimedOutError):
        assert not re.search("error|warning", server.said()), server.said()
        while True:
            job = client.reserve(timeout=0)
            assert job.body.endswith(BODY)
            found.add(job.id)
    return found


def copied(kept: Path, backups: int) -> set[str]:
    """Segments that were in any of them."""
    return {path.name for n in range(backups) for path in (kept / f"kept-{n}").glob("log/*/*.log")}


def test_backups_under_load_are_what_was_there(tmp_path: Path) -> None:
    data, to = tmp_path / "data", tmp_path / "backup"
    with running(SINGLE, data_dir=data, options=OPTIONS) as server:
        load = Load(server)
        try:
            made: list[tuple[float, float, dict[str, object]]] = []
            while len(made) < 3 or len(copied(tmp_path, len(made))) < 2:
                assert len(made) < 30, "a segment is full at some time"
                time.sleep(1.0)
                begun = time.monotonic()
                found = json.loads(done("backup", str(data), str(to), "--json"))
                shutil.copytree(to, tmp_path / f"kept-{len(made)}")
                made.append((begun, time.monotonic(), found))
        finally:
            load.stop()
    assert all(not found["problems"] for _, _, found in made)
    for n, (begun, ended, _) in enumerate(made):
        restored = tmp_path / f"restored-{n}"
        done("restore", str(tmp_path / f"kept-{n}"), str(restored))
        jobs = jobs_of(restored)
        load.check(jobs, begun, ended)
        assert jobs


def test_the_second_time_only_what_is_new_is_copied(tmp_path: Path) -> None:
    data, to = tmp_path / "data", tmp_path / "backup"
    with broker_of(data, "--shards", "2") as (_, client):
        for _ in range(500):
            client.put(BODY)
        first = json.loads(done("backup", str(data), str(to), "--json"))
        client.put(b"one more")
        second = json.loads(done("backup", str(data), str(to), "--json"))
        third = json.loads(done("backup", str(data), str(to), "--json"))
    assert first["copied_bytes"] > 500 * len(BODY)
    assert second["copied_bytes"] < 5000
    assert third["copied_bytes"] < 5000
    assert second["bytes"] > first["bytes"]
    done("restore", str(to), str(tmp_path / "restored"))
    with broker_of(tmp_path / "restored") as (_, client):
        assert client.stats_tube("t")["current-jobs-ready"] == 501


@pytest.mark.long
def test_a_backup_that_is_killed_leaves_the_one_before(tmp_path: Path) -> None:
    data, to = tmp_path / "data", tmp_path / "backup"
    with broker_of(data, *OPTIONS) as (_, client):
        ids = {client.put(b"%d " % n + BODY) for n in range(50)}
        done("backup", str(data), str(to))
        for n in range(800):
            client.put(b"%d " % n + BODY)
        before = (to / "backup.json").read_bytes()
        for n in range(4):
            process = subprocess.Popen([*MQ, "backup", str(data), str(to)], cwd=ROOT, stdout=subprocess.DEVNULL)
            while process.poll() is None and len(list(to.glob("rest-*"))) < 2:
                time.sleep(0.001)
            time.sleep(0.01 * n)
            process.send_signal(signal.SIGKILL)
            process.wait(20)
            if (to / "backup.json").read_bytes() != before:
                break
            restore(to, tmp_path / f"restored-{n}")
        assert jobs_of(tmp_path / "restored-0") == ids
        done("backup", str(data), str(to))
    done("restore", str(to), str(tmp_path / "whole"))
    assert len(jobs_of(tmp_path / "whole")) == 850


def test_a_backup_whose_list_of_files_is_damaged_is_refused(tmp_path: Path) -> None:
    data, to = tmp_path / "data", tmp_path / "backup"
    with broker_of(data, *OPTIONS) as (_, client):
        client.put(b"x")
        done("backup", str(data), str(to))
    whole, listed = backups.Backup.load(to), (to / backups.CONTENTS).read_bytes()
    for place in range(len(listed)):
        damaged = bytearray(listed)
        damaged[place] ^= 1 << place % 8
        (to / backups.CONTENTS).write_bytes(damaged)
        with contextlib.suppress(StoreError):
            assert backups.Backup.load(to) == whole, place
    of_version_1 = {name: value for name, value in json.loads(listed).items() if name != "crc"} | {"version": 1}
    (to / backups.CONTENTS).write_text(json.dumps(of_version_1))
    assert backups.Backup.load(to) == whole


def test_two_restores_at_once_do_not_spoil_each_other(tmp_path: Path) -> None:
    data, kept, to = (tmp_path / name for name in ("data", "kept", "to"))
    with broker_of(data, *OPTIONS) as (_, client):
        job = client.put(BODY)
        done("backup", str(data), str(kept))
    with pytest.raises(KeyboardInterrupt), making(to, ".restoring") as made:
        (made / "file").touch()
        result = run("restore", str(kept), str(to))
        assert (result.returncode, result.stderr.count(b"\n")) == (1, 1), result
        assert b"another process makes" in result.stderr and (made / "file").exists()
        raise KeyboardInterrupt
    done("restore", str(kept), str(to))
    assert jobs_of(to) == {job}
    segment = next(kept.glob("log/*/*.log"))
    segment.unlink()
    result = run("restore", str(kept), str(tmp_path / "again"))
    assert (result.returncode, result.stderr.count(b"\n")) == (1, 1), result
    assert f"{segment} cannot be read".encode() in result.stderr


def test_a_directory_is_made_where_a_link_points_and_where_one_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("disk", "here"):
        (tmp_path / name).mkdir()
    (tmp_path / "link").symlink_to("disk")
    monkeypatch.chdir(tmp_path / "here")
    for place in (tmp_path / "link", Path()):
        with making(place, ".restoring") as made:
            (made / "file").touch()
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.glob("*/*")) == [
        "disk/file", "here/file", "link/file",
    ]  # fmt: skip


def test_channels_readers_and_writers_come_back(tmp_path: Path) -> None:
    with started(tmp_path / "data") as broker:
        post(broker.server, "/topic/create?topic=t")
        post(broker.server, "/channel/create?topic=t&channel=c")
        broker.publish(*[("t", b"%d" % n) for n in range(20)])
        assert broker.call("PUT", "/v1/readers/r", b'{"t": 7}').status == 200
        data = struct.pack("<HHII", 1, 0, 1, 5) + b"t" + struct.pack(">I", 1) + b"y"
        assert broker.stage("s", 0, data).status == 200
        assert broker.decide("w", 3, {"s": len(data)}).status == 200
        assert broker.stage("later", 0, data).status == 200
        done("backup", str(tmp_path / "data"), str(tmp_path / "backup"))
        identity = broker.json("/v1/broker")
    done("restore", str(tmp_path / "backup"), str(tmp_path / "restored"))
    with started(tmp_path / "restored") as broker:
        assert broker.json("/v1/broker") == identity
        found = channel_stats(broker.server, "t", "c")
        assert found is not None
        assert found["depth"] == 21
        assert [reader["unread"] for reader in broker.json("/v1/readers")["readers"]] == [{"t": 14}]  # type: ignore[union-attr]
        assert broker.state("w") == "published"
        assert broker.decide("w", 4, {"later": len(data)}).status == 200
        assert len(broker.read_all("t")) == 22
    done("restore", str(tmp_path / "backup"), str(tmp_path / "other"), "--as-new")
    with started(tmp_path / "other") as broker:
        assert broker.json("/v1/broker") != identity
        assert len(broker.read_all("t")) == 21


def test_what_is_erased_while_a_backup_is_made_has_its_segments_marked_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or in what is restored its bytes would be hidden and stay."""
    data, kept, restored = tmp_path / "data", tmp_path / "kept", tmp_path / "restored"
    with started(data, "--shards", "4") as broker:
        broker.publish(*((f"t{n}", b"x") for n in range(20)))
        broker.server.kill()
    view = DataView(data, 4)
    before, meanwhile = (next(f"t{n}" for n in range(20) if view.shard_of(f"t{n}") == shard) for shard in (0, 1))
    view.erase(before, "", soon=True)
    write_new = getattr(backups, "_write_new")  # noqa: B009

    def write(path: Path, content: bytes) -> None:
        write_new(path, content)
        if path.name in (erased.NAME, erased.SEGMENTS) and meanwhile not in view.erasures():
            view.erase(meanwhile, "", soon=True)

    monkeypatch.setattr(backups, "_write_new", write)
    backups.make(data, kept)
    assert meanwhile in view.erasures()
    restore(kept, restored)
    there = {view.shard_of(topic) for topic in erased.load(restored)}
    assert there <= set(erased.load_segments(restored))


@pytest.fixture
def small(tmp_path: Path) -> Path:
    with broker_of(tmp_path / "data", *OPTIONS) as (_, client):
        for n in range(10):
            client.put(b"%d" % n)
    return tmp_path


def seal_first_segment(data: Path) -> None:
    with broker_of(data, *OPTIONS) as (_, client):
        for _ in range(1700):  # more than a segment holds
            client.put(BODY)


def dies(work: Callable[[], object], calls: int) -> bool:
    """In a process that ends, as by kill -9, at its so many-th call of a function. False: it was done before that."""
    pid = os.fork()
    if pid == 0:
        left = calls

        def count(*_: object) -> None:
            nonlocal left
            left -= 1
            if left <= 0:
                os._exit(9)

        sys.setprofile(count)
        try:
            work()
        finally:
            os._exit(0)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status) == 9


def points(work: Callable[[], object], count: int) -> list[int]:
    """So many calls of functions, from the first to the last, at which it may die. It is not done here."""
    last = 1
    while dies(work, last):
        last *= 2
    return [1 + last * n // count for n in range(count)]


def tree_of(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_a_restore_that_dies_anywhere_has_made_nothing_or_all(small: Path) -> None:
    backups.make(small / "data", small / "backup")
    restore(small / "backup", small / "whole")
    whole = tree_of(small / "whole")
    places = points(lambda: restore(small / "backup", small / "measured"), 8)
    died = 0
    for n, calls in enumerate(places):
        to = small / f"restored-{n}"
        died += dies(lambda to=to: restore(small / "backup", to), calls)  # type: ignore[misc]
        if not to.exists():
            restore(small / "backup", to)
        assert tree_of(to) == whole
        assert not to.with_name(to.name + ".restoring").exists()
    assert died > len(places) // 3


def test_a_backup_that_dies_anywhere_leaves_the_one_before_or_is_whole(small: Path) -> None:
    """And the next goes on from it."""
    data, kept = small / "data", small / "kept"
    backups.make(data, kept)
    restore(kept, small / "before")
    segment = next(data.glob("shard-*/*.log"))
    with broker_of(data, *OPTIONS) as (_, client):
        for n in range(10):
            client.put(b"more %d" % n)
    backups.make(data, small / "other")
    restore(small / "other", small / "after")
    may_be = [tree_of(small / "before"), tree_of(small / "after")]
    assert may_be[0] != may_be[1] and segment.exists()
    shutil.copytree(kept, small / "measured")
    places = points(lambda: backups.make(data, small / "measured"), 6)
    found = []
    for n, calls in enumerate(places):
        to = small / f"backup-{n}"
        shutil.copytree(kept, to)
        dies(lambda to=to: backups.make(data, to), calls)  # type: ignore[misc]
        restore(to, small / f"restored-{n}")
        found.append(may_be.index(tree_of(small / f"restored-{n}")))
        backups.make(data, to)
        restore(to, small / f"again-{n}")
        assert tree_of(small / f"again-{n}") == may_be[1]
    assert found == sorted(found) and 0 in found


def test_a_first_backup_that_failed_at_its_end_is_made_the_next_time(
    small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(path: Path, target: Path) -> Path:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as failing:
        failing.setattr(Path, "replace", fails)
        with pytest.raises(StoreError, match="Input/output error"):
            backups.make(small / "data", small / "backup")
    backups.make(small / "data", small / "backup")
    restore(small / "backup", small / "restored")


def test_what_was_changed_in_a_backup_is_not_restored(small: Path) -> None:
    to = small / "backup"
    backups.make(small / "data", to)
    segment = next(to.glob("log/*/*.log"))
    whole = segment.read_bytes()
    for wrong in (whole[:-8], whole[:200] + bytes([whole[200] ^ 1]) + whole[201:]):
        segment.write_bytes(wrong)
        result = run("restore", str(to), str(small / "restored"))
        assert (result.returncode, b"is not what was copied" in result.stderr) == (1, True)
        assert {path.name for path in small.iterdir()} == {"data", "backup"}
    segment.write_bytes(whole + b"what a backup that was cut short has added")
    restore(to, small / "restored")
    assert next((small / "restored").glob("shard-*/*.log")).read_bytes() == whole


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("nowhere"), lambda path: None])
def test_what_is_no_directory_in_the_place_of_a_shards_folder_is_named(
    small: Path, make: Callable[[Path], None]
) -> None:
    folder = small / "data" / "shard-0000"
    folder.rename(small / "elsewhere")
    make(folder)
    with pytest.raises(StoreError, match=r"data/shard-0000 is missing, or not a directory"):
        backups.make(small / "data", small / "backup")


def test_a_log_that_has_lost_its_end_is_copied_anew(small: Path) -> None:
    """As after a power failure: what is there now begins alike, and is another."""
    to = small / "backup"
    backups.make(small / "data", to)
    segment = next((small / "data").glob("shard-*/*.log"))
    whole = segment.read_bytes()
    end = next(to.glob("log/*/*.log")).stat().st_size
    segment.write_bytes(whole[: end - 64] + bytes(len(whole) - end + 64))
    made = backups.make(small / "data", to)
    assert not made.problems
    restore(to, small / "restored")
    restored = next((small / "restored").glob("shard-*/*.log")).read_bytes()
    assert whole.startswith(restored)
    assert len(restored) < end


def write_last_record_again(segment: Path, end: int) -> None:
    """As if a power failure had taken the record that ends there, and its client had sent it again later."""
    content = bytearray(segment.read_bytes())
    at = SEGMENT_HEADER_BYTES
    while (after := at + -(-struct_in("record", content, at).bytes // 8) * 8) < end:
        at = after
    record = struct_in("record", content, at)
    record.time_ns += 1_000_000_000
    record.crc = int(segment.stem)  # while the CRC is computed
    record.crc = crc32c(content[at : at + record.bytes])
    segment.write_bytes(content)


@pytest.mark.parametrize("is_sealed", [False, True])
def test_a_log_that_has_lost_its_end_and_is_as_long_again_is_copied_anew(small: Path, is_sealed: bool) -> None:
    segment = small / "data" / "shard-0000" / "0000000001.log"
    if is_sealed:
        seal_first_segment(small / "data")
    backups.make(small / "data", small / "backup")
    (copy,) = small.glob("backup/log/shard-0000/0000000001-*.log")
    end = copy.stat().st_size
    write_last_record_again(segment, end)
    assert copy.read_bytes() != segment.read_bytes()[:end]
    made = backups.make(small / "data", small / "backup")
    assert not made.problems
    assert restored_segment(small) == segment.read_bytes()[:end]


def test_a_sealed_segment_whose_end_is_damaged_keeps_its_copy(tmp_path: Path) -> None:
    data = tmp_path / "data"
    segment = data / "shard-0000" / "0000000001.log"
    seal_first_segment(data)
    backups.make(data, tmp_path / "backup")
    (copy,) = tmp_path.glob("backup/log/shard-0000/0000000001-*.log")
    whole = copy.read_bytes()
    damaged = bytearray(segment.read_bytes())
    damaged[len(whole) - 300] ^= 1
    segment.write_bytes(damaged)
    for _ in range(2):
        made = backups.make(data, tmp_path / "backup")
        assert len(made.problems) == 1 and "this copy of it is kept" in made.problems[0]
    assert restored_segment(tmp_path) == whole


def test_a_damaged_segment_is_copied_as_it_is_and_said(small: Path) -> None:
    segment = next((small / "data").glob("shard-*/*.log"))
    whole = bytearray(segment.read_bytes())
    whole[300] ^= 1
    segment.write_bytes(whole)
    made = backups.make(small / "data", small / "backup")
    assert len(made.problems) == 1
    assert "is damaged at" in made.problems[0]
    restore(small / "backup", small / "restored")
    assert next((small / "restored").glob("shard-*/*.log")).read_bytes() == whole


def test_damage_is_said_however_long_it_is(tmp_path: Path) -> None:
    with broker_of(tmp_path / "data", *OPTIONS) as (_, client):
        for _ in range(150):
            client.put(BODY)
        client.put(b"behind it")
        segment = next((tmp_path / "data").glob("shard-*/*.log"))
        end = segment.read_bytes().index(b"behind it") - 256
        with segment.open("r+b") as file:
            file.seek(4096)
            file.write(bytes(end - 4096))  # 6 MB
        made = backups.make(tmp_path / "data", tmp_path / "backup")
        whole = segment.read_bytes()
    assert len(made.problems) == 1
    assert "is damaged at" in made.problems[0]
    restore(tmp_path / "backup", tmp_path / "restored")
    assert next((tmp_path / "restored").glob("shard-*/*.log")).read_bytes() == whole


@pytest.mark.parametrize("is_copied", [False, True])
def test_the_end_that_a_running_broker_wrote_and_that_is_gone_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_copied: bool
) -> None:
    """Nothing follows it; only its worker knows how far the log went."""
    with broker_of(tmp_path / "data", *OPTIONS) as (_, client):
        for n in range(10):
            client.put(b"number %d" % n)
        segment = next((tmp_path / "data").glob("shard-*/*.log"))
        whole = segment.read_bytes()

        def cut() -> None:
            client.put(b"the last one")
            os.truncate(segment, whole.index(b"number 9") - 100)

        if is_copied:
            copied: Any = backups.cut

            def cut_before(*arguments: object) -> backup_cut.Cut:
                cut()
                found: backup_cut.Cut = copied(*arguments)
                return found

            monkeypatch.setattr(backups, "cut", cut_before)
        else:
            cut()
        made = backups.make(tmp_path / "data", tmp_path / "backup")
        left = segment.read_bytes()
    (copy,) = tmp_path.glob("backup/log/*/*.log")
    assert len(made.problems) == 1, made.problems
    assert "is damaged at" in made.problems[0]
    # What was copied before it was gone stays.
    assert copy.read_bytes() == (whole[: copy.stat().st_size] if is_copied else left)
    assert (b"number 9" in copy.read_bytes()) == is_copied
    restore(tmp_path / "backup", tmp_path / "restored")


def test_what_a_damaged_segment_gets_while_it_is_copied_is_in_its_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with broker_of(tmp_path / "data", *OPTIONS) as (_, client):
        for n in range(10):
            client.put(b"%d" % n + BODY)
        segment = next((tmp_path / "data").glob("shard-*/*.log"))
        with segment.open("r+b") as file:
            file.seek(100_000)
            file.write(b"damaged")
        copied: Any = backups.cut

        def put_before(*arguments: object) -> backup_cut.Cut:
            client.put(b"while the backup is made")
            found: backup_cut.Cut = copied(*arguments)
            return found

        monkeypatch.setattr(backups, "cut", put_before)
        for _ in range(2):
            made = backups.make(tmp_path / "data", tmp_path / "backup")
            assert len(made.problems) == 1, made.problems
            restore(tmp_path / "backup", tmp_path / "restored")
            assert next((tmp_path / "restored").glob("shard-*/*.log")).read_bytes() == segment.read_bytes()
            shutil.rmtree(tmp_path / "restored")


def fail(monkeypatch: pytest.MonkeyPatch, path: Path, block: int) -> None:
    """Who reads there is told of a medium error."""
    pread, preadv, inode = os.pread, os.preadv, path.stat().st_ino

    def check(fd: int, count: int, at: int) -> None:
        if os.fstat(fd).st_ino == inode and at < (block + 1) * 4096 and at + count > block * 4096:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    def failing_pread(fd: int, count: int, at: int) -> bytes:
        check(fd, count, at)
        return pread(fd, count, at)

    def failing_preadv(fd: int, into: Sequence[memoryview], at: int) -> int:
        check(fd, sum(map(len, into)), at)
        return preadv(fd, into, at)

    monkeypatch.setattr(os, "pread", failing_pread)
    monkeypatch.setattr(os, "preadv", failing_preadv)


def restored_segment(at: Path, number: int = 1) -> bytes:
    restore(at / "backup", at / "restored")
    return (at / "restored" / "shard-0000" / f"{number:010d}.log").read_bytes()


@pytest.mark.parametrize("block", [0, 2])
def test_a_medium_that_fails_does_not_cost_the_copy_that_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    data = tmp_path / "data"
    with broker_of(data, *OPTIONS) as (_, client):
        client.put(BODY)
        client.put(b"in a block behind it")
    backups.make(data, tmp_path / "backup")
    with broker_of(data) as (_, client):
        client.put(b"new")
    segment = data / "shard-0000" / "0000000001.log"
    whole = segment.read_bytes()
    fail(monkeypatch, segment, block)
    for _ in range(2):
        made = backups.make(data, tmp_path / "backup")
        assert len(made.problems) == 1 and "is damaged at" in made.problems[0]
    monkeypatch.undo()
    assert restored_segment(tmp_path) == whole


@pytest.mark.parametrize("is_mended", [False, True])
def test_a_sealed_segment_that_loses_its_header_keeps_its_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_mended: bool
) -> None:
    data = tmp_path / "data"
    segment = data / "shard-0000" / "0000000001.log"
    seal_first_segment(data)
    backups.make(data, tmp_path / "backup")
    (copy,) = tmp_path.glob("backup/log/shard-0000/0000000001-*.log")
    whole = copy.read_bytes()
    if is_mended:
        with segment.open("r+b") as file:
            header = decode_header(file.read(SEGMENT_HEADER_BYTES))
            file.seek(0)
            file.write(encode_header(Header(header.shard, header.shards, header.segment, 0)).ljust(4096, b"\0"))
    else:
        fail(monkeypatch, segment, 0)
    for _ in range(2):
        backups.make(data, tmp_path / "backup")
        assert copy.read_bytes() == whole
    monkeypatch.undo()
    assert restored_segment(tmp_path) == whole


def test_a_copy_from_before_a_damage_is_not_removed(small: Path) -> None:
    backups.make(small / "data", small / "backup")
    (copy,) = small.glob("backup/log/*/*.log")
    whole = copy.read_bytes()
    segment = next((small / "data").glob("shard-*/*.log"))
    damaged = bytearray(segment.read_bytes())
    damaged[300] ^= 1
    segment.write_bytes(damaged)
    for _ in range(3):
        assert backups.make(small / "data", small / "backup").problems
        assert copy.read_bytes() == whole
    assert len(list(small.glob("backup/log/*/*.log"))) == 2
    assert restored_segment(small) == damaged


def test_what_is_no_source_or_no_target_is_said(small: Path) -> None:
    (small / "full").mkdir()
    (small / "full" / "file").write_text("x")
    data, full, none = (str(small / name) for name in ("data", "full", "none"))
    for arguments, said in (
        (("backup", none, str(small / "b")), "cannot be read"),
        (("backup", data, full), "is no backup, and not empty"),
        (("backup", data, data + "/backup"), "is in the data directory itself"),
        (("restore", full, none), "is no backup"),
    ):
        result = run(*arguments)
        assert (result.returncode, said in result.stderr.decode()) == (1, True), result
        assert result.stderr.count(b"\n") == 1
    backups.make(small / "data", small / "backup")
    assert b"is not empty" in run("restore", str(small / "backup"), data).stderr
    with broker_of(small / "another", *OPTIONS):
        pass
    with pytest.raises(StoreError, match="of another data directory"):
        backups.make(small / "another", small / "backup")
