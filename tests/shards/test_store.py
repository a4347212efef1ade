"""The data directory, the segments in it and in memory, and the reader for people. See shards/store.py."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from mq_shards.csrc._core import ffi, lib
from mq_shards.shards.data_directory import DataDirectory, sync_shards
from mq_shards.shards.dump import Damage, Record, decode_segment, main
from mq_shards.shards.layout import RECORD_BYTES
from mq_shards.shards.memory import MemoryStore
from mq_shards.shards.meta import Meta, read_meta
from mq_shards.shards.paths import segment_name, shard_path
from mq_shards.shards.segment_header import Header, decode_header, encode_header
from mq_shards.shards.store import Recovered, SegmentStore, ShardStore
from mq_shards.shards.store_error import StoreError

NOW = 1_700_000_000_000_000_000
BODIES = [b"one", b"two" * 50, b"", b"four" * 2000]


def write_records(
    fd: int, segment: int, bodies: list[bytes], shard: int = 7, shards: int = 8, now: int = NOW
) -> list[int]:
    """Writes one record per body to an empty segment by way of the C log; their offsets. Closes the descriptor."""
    log = lib.log_new(shard, shards)
    assert lib.log_add_segment(log, fd, segment, 1 << 20, True, 0, now)
    head = ffi.new("struct record *", {"kind": 3, "attribute_bytes": 2, "flags": 5, "topic": 9, "id": 77})
    head.time_ns = NOW
    offsets = []
    for seq, body in enumerate(bodies):
        head.seq = seq
        assert lib.log_reserve(log, 1, len(body) + 2, 0, NOW) == lib.LOG_OK
        offsets.append(lib.log_append(log, head, b"at", body, len(body)) & 0xFFFFFFFF)
    assert lib.log_flush(log) == lib.LOG_OK
    lib.log_free(log)
    return offsets


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[DataDirectory]:
    directory = DataDirectory.open_or_create(tmp_path / "data", 8)
    yield directory
    directory.close()


@pytest.fixture
def store(directory: DataDirectory) -> Iterator[ShardStore]:
    store = directory.shard(7)
    yield store
    store.close()


# ---- the directory ----


def test_a_directory_remembers_what_it_was_made_with(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "data"
    made = DataDirectory.open_or_create(path, 5)
    assert made.shards == 5 and len(made.id) == 32
    made.close()
    for asked in (None, 5):
        opened = DataDirectory.open_or_create(path, asked)
        assert (opened.shards, opened.id) == (5, made.id)
        opened.close()
    assert sorted(p.name for p in path.iterdir()) == [
        "last-run.json", "lock", "meta.json", "shard-0000", "shard-0001", "shard-0002", "shard-0003", "shard-0004",
    ]  # fmt: skip


def test_no_number_asked_for_is_the_default(tmp_path: Path) -> None:
    directory = DataDirectory.open_or_create(tmp_path, None)
    assert directory.shards == 64
    directory.close()


def test_another_number_of_shards_is_refused(directory: DataDirectory) -> None:
    directory.close()
    with pytest.raises(StoreError, match="has 8 shards, which is fixed, and not 9"):
        DataDirectory.open_or_create(directory.path, 9)
    DataDirectory.open_or_create(directory.path, 8).close()  # the lock was given back


@pytest.mark.parametrize("shards", [0, -1, 4097])
def test_an_impossible_number_of_shards_is_refused(tmp_path: Path, shards: int) -> None:
    with pytest.raises(StoreError, match="1 to 4096"):
        DataDirectory.open_or_create(tmp_path, shards)


def test_one_broker_at_a_time(directory: DataDirectory) -> None:
    with pytest.raises(StoreError, match=rf"in use by another broker \(pid {os.getpid()}\)"):
        DataDirectory.open_or_create(directory.path, None)
    directory.close()
    DataDirectory.open_or_create(directory.path, None).close()


def test_a_disk_without_room_for_the_pid_is_locked_all_the_same(
    directory: DataDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = directory.path
    directory.close()
    monkeypatch.setattr(os, "pwrite", lambda *_: (_ for _ in ()).throw(OSError(errno.ENOSPC, "no space")))
    opened = DataDirectory.open_or_create(path, None)
    with pytest.raises(StoreError, match="in use by another broker"):
        DataDirectory.open_or_create(path, None)
    opened.close()


def test_a_directory_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(StoreError, match=r"not a data directory.*it has thesis\.tex"):
        DataDirectory.open_or_create(tmp_path, 8)


def test_segments_without_meta_are_not_taken_for_a_new_directory(store: ShardStore, directory: DataDirectory) -> None:
    write_records(store.create(1), 1, BODIES)
    directory.close()
    (directory.path / "meta.json").unlink()
    with pytest.raises(StoreError, match=r"no meta\.json.*shard-0007"):
        DataDirectory.open_or_create(directory.path, 8)


@pytest.mark.parametrize("begun", [False, True])
def test_a_crash_while_it_was_made_is_made_good(tmp_path: Path, begun: bool) -> None:
    (tmp_path / "lock").touch()
    (tmp_path / "meta.json.new").write_text('{"versi')
    shard_path(tmp_path, 0).mkdir()
    (shard_path(tmp_path, 0) / segment_name(1)).touch()
    (shard_path(tmp_path, 0) / "manifest.json").write_text('{"version": 1, "dire')
    directory = DataDirectory.open_or_create(tmp_path, 2, begun=begun)
    assert directory.shards == 2
    store = directory.shard(0)
    assert store.recover() == Recovered([], [], [])
    write_records(store.create(1), 1, BODIES, shard=0, shards=2)
    store.close()
    directory.close()


def test_a_directory_that_is_begun_is_synced_all_at_once_and_a_start_in_it_syncs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    sync = os.fsync

    def noted(fd: int) -> None:
        synced.append(str(Path(f"/proc/self/fd/{fd}").readlink()))
        sync(fd)

    monkeypatch.setattr(os, "fsync", noted)
    directory = DataDirectory.open_or_create(tmp_path / "data", 8, begun=True)
    assert {str(directory.path), str(tmp_path)} <= set(synced), "the directory exists"
    assert not any("shard-" in path for path in synced), "nobody waits for its shards"
    assert directory.new
    assert Meta.load(directory.path).new
    sync_shards(directory.path, range(8))
    for shard in range(8):
        folder = shard_path(directory.path, shard)
        assert {str(folder), str(folder / "manifest.json")} <= set(synced)
    directory.synced()
    assert not directory.new
    assert Meta.load(directory.path) == Meta(8, directory.id)
    synced.clear()
    for shard in range(8):
        store = directory.shard(shard)
        assert store.recover() == Recovered([], [], [])
        write_records(store.create(1), 1, BODIES, shard=shard)
        assert not synced
        store.close()
        store = directory.shard(shard)
        assert store.recover() == Recovered([1], [], [])
        os.close(store.create(2))  # which is listed as any other
        synced.clear()
        store.close()
    directory.close()


def test_what_a_power_failure_took_of_a_new_directory_is_made_again_without_a_word(tmp_path: Path) -> None:
    data = tmp_path / "data"
    DataDirectory.open_or_create(data, 8, begun=True).close()
    shutil.rmtree(shard_path(data, 1))
    for name in ("manifest.json", segment_name(1)):
        (shard_path(data, 2) / name).unlink()
    (shard_path(data, 3) / "manifest.json").write_bytes(b"")
    (shard_path(data, 4) / "manifest.json").write_text('{"version": 1, "dire')
    (shard_path(data, 5) / segment_name(1)).unlink()
    (shard_path(data, 6) / "manifest.json").unlink()
    with (shard_path(data, 6) / segment_name(1)).open("r+b") as segment:
        write_records(os.dup(segment.fileno()), 1, BODIES, shard=6)
    directory = DataDirectory.open_or_create(data, None, begun=True)
    assert directory.new, "nobody has synced it"
    for shard in range(8):
        store = directory.shard(shard)
        assert store.recover(refuse=True) == Recovered([1] if shard == 6 else [], [], [])
        store.close()
    directory.synced()
    directory.close()
    shutil.rmtree(shard_path(data, 1))
    directory = DataDirectory.open_or_create(data, None, begun=True)
    assert not shard_path(data, 1).exists(), "a directory that is not new is never mended here"
    directory.close()


def test_a_disk_that_refuses_to_sync_a_new_directory_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(fd: int) -> None:
        raise OSError(errno.EIO, "what a disk says")

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(StoreError, match="cannot be made"):
        DataDirectory.open_or_create(tmp_path / "data", 8, begun=True)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "damaged"),
        ("[]", "damaged"),
        ("[" * 100_000, "damaged"),
        ('{"version": 1, "shards": 8}', "damaged"),
        ('{"version": 1, "shards": "8", "id": "x"}', "damaged"),
        ('{"version": 1, "shards": 0, "id": "x"}', "damaged"),
        ('{"version": 2, "shards": 8, "id": "x"}', "version 2"),
    ],
)
def test_a_damaged_meta_is_said_in_one_line(tmp_path: Path, text: str, reason: str) -> None:
    (tmp_path / "meta.json").write_text(text)
    with pytest.raises(StoreError, match=reason) as raised:
        DataDirectory.open_or_create(tmp_path, 8)
    assert str(tmp_path / "meta.json") in str(raised.value) and "\n" not in str(raised.value)


@pytest.mark.parametrize("said", [1, 3, 6, 64])
def test_another_number_of_shards_in_meta_is_not_believed_against_all_logs(tmp_path: Path, said: int) -> None:
    data = tmp_path / "data"
    directory = DataDirectory.open_or_create(data, 2)
    for shard in range(2):
        store = directory.shard(shard)
        os.close(store.create(1))
        (store.path / "0000000001.log").write_bytes(encode_header(Header(shard, 2, 1, 1)))
        store.close()
    directory.close()
    meta = data / "meta.json"
    meta.write_text(json.dumps(json.loads(meta.read_text()) | {"shards": said}))
    files = sorted(data.rglob("*"))
    for read in (lambda: DataDirectory.open_or_create(data, None), lambda: read_meta(data)):
        with pytest.raises(StoreError, match=rf"meta\.json is damaged: it says {said} shards, and all logs are of 2"):
            read()
    assert sorted(data.rglob("*")) == files, "nothing is put aside, nothing is made"
    meta.write_text(json.dumps(json.loads(meta.read_text()) | {"shards": 2}))
    shutil.rmtree(data / "shard-0001")
    DataDirectory.open_or_create(data, None).close()


def test_a_path_that_is_a_file_is_said_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="cannot be made: File exists") as raised:
        DataDirectory.open_or_create(tmp_path / "file", 8)
    assert raised.value.errno == errno.EEXIST


# ---- segments in files ----


def test_segments_are_listed_in_order_and_can_be_reopened(store: ShardStore) -> None:
    assert list(store.recover().segments) == []
    for segment in range(9, 12):
        write_records(store.create(segment), segment, BODIES)
    assert list(store.recover().segments) == [9, 10, 11]
    fd = store.open(10)
    assert os.fstat(fd).st_size > 0
    os.close(fd)
    store.remove(9)
    store.remove(9)
    assert list(store.recover().segments) == [10, 11]
    assert (store.path / "0000000010.log").is_file()


def test_a_segment_is_created_once(store: ShardStore) -> None:
    os.close(store.create(1))
    with pytest.raises(StoreError, match=r"0000000001\.log cannot be made: File exists") as raised:
        store.create(1)
    assert raised.value.errno == errno.EEXIST


def test_a_segment_that_is_not_there_is_named(store: ShardStore) -> None:
    with pytest.raises(StoreError, match=r"0000000003\.log cannot be opened: No such file"):
        store.open(3)


@pytest.mark.parametrize("content", [b"", b"\0" * 10, b"half a header", b"\0" * 5000])
@pytest.mark.parametrize("count", [1, 2])
def test_segments_at_the_end_that_were_never_written_to_go(store: ShardStore, content: bytes, count: int) -> None:
    write_records(store.create(1), 1, BODIES)
    for segment in range(2, 2 + count):
        fd = store.create(segment)
        os.write(fd, content)
        os.close(fd)
    assert list(store.recover().segments) == [1]
    os.close(store.create(2))


def test_a_segment_that_waits_for_its_first_record_is_not_made_anew(store: ShardStore) -> None:
    write_records(store.create(1), 1, BODIES)
    store.note_begun()
    os.close(store.create(2))
    kept = (store.path / "0000000002.log").stat().st_ino, (store.path / "manifest.json").stat()
    store.close()
    again = ShardStore(store.path.parent, store.shard)
    assert again.recover().segments == [1]
    fd = again.create(2)
    assert (os.fstat(fd).st_ino, (store.path / "manifest.json").stat().st_mtime_ns) == (kept[0], kept[1].st_mtime_ns)
    os.close(fd)
    with pytest.raises(StoreError, match="File exists"):
        again.create(2)
    again.close()


def test_a_segment_that_waits_in_vain_goes_when_another_is_wanted(store: ShardStore) -> None:
    os.close(store.create(5))
    store.close()
    again = ShardStore(store.path.parent, store.shard)
    assert not again.recover().segments
    os.close(again.create(1))
    assert sorted(path.name for path in store.path.glob("*.log")) == ["0000000001.log"]
    assert not again.recover().segments
    again.close()


def test_one_with_copies_of_names_is_made_anew(store: ShardStore) -> None:
    os.close(store.create(1))
    (store.path / "0000000001.names").write_bytes(b"of another time")
    store.close()
    again = ShardStore(store.path.parent, store.shard)
    assert not again.recover().segments
    os.close(again.create(1))
    assert not (store.path / "0000000001.names").exists()
    again.close()


def test_a_pipe_in_the_place_of_meta_json_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "meta.json")
    with pytest.raises(StoreError, match=r"meta\.json cannot be read: it is not a file"):
        DataDirectory.open_or_create(tmp_path, 2)


def test_a_pipe_in_the_place_of_copies_is_not_written_to(store: ShardStore) -> None:
    os.close(store.create(1))
    os.mkfifo(store.path / "0000000001.names")
    with pytest.raises(StoreError, match=r"0000000001\.names is not a file"):
        store.open_copies(1)


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo, lambda path: path.symlink_to("0000000001.log")])
@pytest.mark.parametrize("written", [False, True])
def test_what_is_no_file_in_the_place_of_copies_is_put_aside(
    store: ShardStore, make: Callable[[Path], None], written: bool
) -> None:
    fd = store.create(1)
    write_records(fd, 1, BODIES) if written else os.close(fd)
    make(store.path / "0000000001.names")
    store.close()
    again = ShardStore(store.path.parent, store.shard)
    recovered = again.recover()
    assert recovered.segments == [1] * written and not recovered.problems
    assert "0000000001.names is put aside: it is not a file" in recovered.notes
    assert (store.path / "0000000001.odd").is_symlink() or (store.path / "0000000001.odd").exists()
    if not written:
        os.close(again.create(1))
    copies = again.open_copies(1)
    assert copies is not None
    os.close(copies)
    again.remove(1)
    assert not list(store.path.glob("0000000001.[ln]*"))
    again.close()


@pytest.mark.parametrize("error", [errno.EACCES, errno.EIO])
def test_copies_that_cannot_be_opened_are_said(store: ShardStore, monkeypatch: pytest.MonkeyPatch, error: int) -> None:
    os.close(store.create(1))
    assert not store.recover().notes
    (store.path / "0000000001.names").write_bytes(b"of another time")
    failing_once(monkeypatch, "open", "0000000001.names", error)
    (line,) = store.recover().notes
    assert f"0000000001.names cannot be opened: {os.strerror(error)}" in line
    assert "whether 0000000001.log, which is empty, had messages is not known" in line


def failing_once(monkeypatch: pytest.MonkeyPatch, call: str, name: str, error: int) -> None:
    """The next `call` of os with that name fails."""
    real = getattr(os, call)

    def fail(path: object, *rest: object, **named: object) -> object:
        if Path(str(path)).name != name:
            return real(path, *rest, **named)
        monkeypatch.setattr(os, call, real)
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr(os, call, fail)


@pytest.mark.parametrize(
    ("call", "name", "error"),
    [
        ("open", "0000000002.log", errno.EMFILE),
        ("stat", "0000000002.names", errno.EIO),
        ("", "the manifest", errno.ENOSPC),
    ],
)
def test_a_segment_that_waits_outlives_a_failure(
    store: ShardStore, monkeypatch: pytest.MonkeyPatch, call: str, name: str, error: int
) -> None:
    write_records(store.create(1), 1, BODIES)
    os.close(store.create(2))
    store.close()
    again = ShardStore(store.path.parent, store.shard)
    assert again.recover().segments == [1]
    if not call:
        real, left = again._list_as, [1]

        def list_as(listed: dict[int, int], ended: tuple[int, int] = (0, 0)) -> None:
            if left and left.pop():
                raise OSError(error, os.strerror(error))
            real(listed, ended)

        monkeypatch.setattr(again, "_begun", lambda listed: {**listed, 1: NOW + 1})
        monkeypatch.setattr(again, "_list_as", list_as)
    else:
        failing_once(monkeypatch, call, name, error)
    with pytest.raises(StoreError, match=os.strerror(error)):
        again.create(2)
    os.close(again.create(2))
    again.close()


@pytest.mark.parametrize("name", ["0000000002.log", "0000000002.names"])
def test_a_segment_that_cannot_be_removed_is_removed_later(
    store: ShardStore, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    os.close(store.create(2))
    (store.path / "0000000002.names").write_bytes(b"of another time")
    store.close()
    again = ShardStore(store.path.parent, store.shard)
    assert not again.recover().segments
    for _ in range(2):
        failing_once(monkeypatch, "unlink", name, errno.EIO)
        with pytest.raises(StoreError, match="Input/output error"):
            again.create(2)
    os.close(again.create(2))
    assert not (store.path / "0000000002.names").exists()
    again.close()


def test_a_damaged_header_is_not_taken_for_a_leftover(store: ShardStore) -> None:
    write_records(store.create(1), 1, BODIES)
    with store.path_of(1).open("r+b") as file:
        file.write(b"X")
    assert list(store.recover().segments) == [1]


def test_a_shard_has_one_worker_at_a_time(store: ShardStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mq_shards.shards.store.SHARD_LOCK_WAIT_S", 0.05)
    with pytest.raises(StoreError, match="shard-0007 is in use by another worker"):
        ShardStore(store.path.parent, 7)
    store.close()
    ShardStore(store.path.parent, 7).close()


# ---- segments in memory ----


class Holder:
    """Keeps duplicates, as the supervisor does."""

    def __init__(self) -> None:
        self.fds: dict[int, dict[int, int]] = {}

    def keep(self, shard: int, segment: int, fd: int) -> None:
        self.fds.setdefault(shard, {})[segment] = os.dup(fd)

    def drop(self, shard: int, segment: int) -> None:
        os.close(self.fds[shard].pop(segment))

    def store(self) -> MemoryStore:
        handed = {segment: os.dup(fd) for segment, fd in self.fds.get(7, {}).items()}
        return MemoryStore(7, handed, self.keep, self.drop)

    def close(self) -> None:
        for segments in self.fds.values():
            for fd in segments.values():
                os.close(fd)


@pytest.fixture
def holder() -> Iterator[Holder]:
    holder = Holder()
    yield holder
    holder.close()


def test_memory_outlives_its_worker_when_someone_holds_it(holder: Holder) -> None:
    first: SegmentStore = holder.store()
    assert list(first.recover().segments) == []
    for segment in (1, 2, 3):
        write_records(first.create(segment), segment, BODIES)
    first.remove(1)
    first.close()

    second: SegmentStore = holder.store()
    assert list(second.recover().segments) == [2, 3]
    fd = second.open(2)
    found = [r.body for r in decode_segment(os.pread(fd, 1 << 20, 0)) if isinstance(r, Record)]
    assert found == BODIES
    os.close(fd)
    with pytest.raises(StoreError, match="no segment 2 in memory"):
        second.open(2)
    with pytest.raises(StoreError, match="has a segment 3 already"):
        second.create(3)
    second.remove(2)
    second.remove(3)
    assert list(second.recover().segments) == [] and holder.fds[7] == {}
    second.close()


def test_memory_that_was_never_written_to_goes(holder: Holder) -> None:
    first = holder.store()
    write_records(first.create(1), 1, BODIES)
    for segment in (2, 3):
        fd = first.create(segment)
        os.ftruncate(fd, 4096 * (segment - 2))
        os.close(fd)
    second = holder.store()
    assert list(second.recover().segments) == [1] and list(holder.fds[7]) == [1]
    os.close(second.create(2))
    second.close()


def test_a_missing_segment_in_memory_is_named(holder: Holder) -> None:
    first = holder.store()
    for segment in (1, 2, 3):
        write_records(first.create(segment), segment, BODIES)
    holder.drop(7, 2)
    second = holder.store()
    with pytest.raises(StoreError, match=r"0000000002\.log missing"):
        list(second.recover().segments)
    second.close()


def test_memory_that_nobody_can_keep_is_not_made() -> None:
    def refuse(*_: int) -> None:
        raise BrokenPipeError

    before = {path.name for path in Path("/proc/self/fd").iterdir()}
    store = MemoryStore(7, {}, refuse, refuse)
    with pytest.raises(BrokenPipeError):
        store.create(1)
    assert list(store.recover().segments) == []
    assert {path.name for path in Path("/proc/self/fd").iterdir()} == before


# ---- reading ----


def test_decoding_gives_back_what_c_wrote(store: ShardStore) -> None:
    offsets = write_records(store.create(4), 4, BODIES)
    path = store.path_of(4)
    expected = [
        Record(offset, 3, 5, 9, seq, NOW, 77, b"at", body)
        for seq, (offset, body) in enumerate(zip(offsets, BODIES, strict=True))
    ]
    assert list(decode_segment(path)) == expected
    assert list(decode_segment(path.read_bytes())) == expected
    header = decode_header(path.read_bytes())
    assert (header.shard, header.shards, header.segment, header.time_ns) == (7, 8, 4, NOW)


def test_decoding_names_damage_as_the_log_does(store: ShardStore) -> None:
    offsets = write_records(store.create(4), 4, BODIES)
    sound = store.path_of(4).read_bytes()
    for hit, offset in enumerate(offsets):
        for place in (offset, offset + 4, offset + 8, offset + 39, offset + 41):
            content = bytearray(sound)
            content[place] ^= 0x10
            found = list(decode_segment(bytes(content)))
            assert [r.seq for r in found if isinstance(r, Record)] == [s for s in range(4) if s != hit]
            until = offsets[hit + 1] if hit + 1 < len(offsets) else len(sound)
            assert [r for r in found if isinstance(r, Damage)] == [Damage(offset, until)]


@pytest.mark.parametrize(
    ("damage", "reason"), [(slice(0, 1), "not a segment"), (slice(20, 21), "CRC"), (slice(10, None), "in all")]
)
def test_a_header_that_is_wrong_is_said(store: ShardStore, damage: slice, reason: str) -> None:
    write_records(store.create(4), 4, BODIES)
    content = bytearray(store.path_of(4).read_bytes())
    content[damage] = b"" if damage.stop is None else b"\xff"
    with pytest.raises(StoreError, match=reason):
        list(decode_segment(bytes(content)))


def test_dump_shows_every_record_and_tells_of_damage(
    store: ShardStore, directory: DataDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    offsets = write_records(store.create(1), 1, BODIES)
    write_records(store.create(2), 2, [b"later"])
    fd = store.create(3)
    os.ftruncate(fd, 4096)
    os.close(fd)
    os.close(store.create(4))
    other = directory.shard(2)
    write_records(other.create(1), 1, [b"elsewhere"])
    other.close()
    assert main(["dump", str(directory.path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 8
    assert lines[0].startswith("shard-0002 0000000001 offset 64: kind 3 flags 5 topic 9 seq 0 id 77 time 2023-11-14T")
    assert lines[0].endswith("attributes 6174 body 9 bytes b'elsewhere'")
    assert lines[-2:] == [f"shard-0007 000000000{n} waits for its first record" for n in (3, 4)]

    with store.path_of(1).open("r+b") as file:
        file.seek(offsets[1] + 50)
        file.write(b"?!")
    assert main(["dump", str(directory.path), "--shard", "7", "--segment", "1"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4
    assert lines[1] == f"shard-0007 0000000001 offset {offsets[1]}: damaged up to {offsets[2]}"


def test_dump_names_segments_that_are_missing(
    store: ShardStore, directory: DataDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    def dumped(*options: str) -> tuple[int, list[str]]:
        return main(["dump", str(directory.path), *options]), capsys.readouterr().out.splitlines()

    store.recover()
    for segment in (1, 2, 3):
        write_records(store.create(segment), segment, [b"body"])
    store.path_of(2).unlink()
    status, lines = dumped()
    assert status == 1
    assert [line.split(" ")[1] for line in lines] == [f"000000000{segment}" for segment in (1, 2, 3)]
    assert lines[1] == "shard-0007 0000000002 is missing"
    assert dumped("--segment", "2") == (1, ["shard-0007 0000000002 is missing"])
    assert dumped("--segment", "3")[0] == 0
    assert dumped("--shard", "7", "--segment", "9") == (1, ["shard-0007 has no segment 9"])
    assert dumped("--segment", "9") == (1, [f"{directory.path} has no segment 9"])
    (directory.path / "shard-0003" / "manifest.json").unlink()
    (directory.path / "shard-0003").rmdir()
    assert "shard-0003 is missing" in dumped()[1]
    assert dumped("--shard", "3") == (1, ["shard-0003 is missing"])


def test_dump_tells_of_zeros_in_the_place_of_records(
    store: ShardStore, directory: DataDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    """As of a segment that was missing, in whose place a start has put an empty one."""
    write_records(store.create(1), 1, [b"body"])
    end = (64 + RECORD_BYTES + len(b"at" + b"body") + 7) // 8 * 8
    write_records(store.create(2), 2, [b"later"])
    with store.path_of(2).open("r+b") as file:
        file.write(encode_header(Header(7, 8, 2, NOW, previous_end=end)))
    assert main(["dump", str(directory.path), "--shard", "7"]) == 0
    capsys.readouterr()
    with store.path_of(1).open("r+b") as file:
        file.truncate(64)
        file.truncate(end)
    assert main(["dump", str(directory.path), "--segment", "1"]) == 1
    assert capsys.readouterr().out == f"shard-0007 0000000001 offset 64: damaged up to {end}\n"


def test_dump_of_something_else_is_said_in_one_line(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mq_shards.shards.store", "dump", str(tmp_path)]
    done = subprocess.run(
        command, cwd=Path(__file__).parent.parent.parent, capture_output=True, text=True, check=False, timeout=30
    )
    assert done.returncode == 2
    assert done.stderr == f"{tmp_path} is not a data directory: it has no shards\n"


def test_segment_names_sort_as_their_numbers() -> None:
    assert sorted(map(segment_name, [1, 10, 9, 2**32 - 1])) == [segment_name(n) for n in [1, 9, 10, 2**32 - 1]]
