"""Segments that are missing, foreign, swapped or copied; being killed between any two steps. See shards/manifest.py."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from crc32c import crc32c
from mq_shards.shards.data_directory import DataDirectory
from mq_shards.shards.dump import Record, decode_segment
from mq_shards.shards.layout import SEGMENT_HEADER_BYTES
from mq_shards.shards.manifest import Manifest, ManifestError
from mq_shards.shards.segment_header import decode_header, encode_header
from mq_shards.shards.store import ShardStore
from mq_shards.shards.store_error import StoreError

from tests.reader.small_disk import small_disk
from tests.shards.test_store import write_records

SHARDS = 8
BEGAN_NS = 1700000000000000000  # of the log


@pytest.fixture
def data(tmp_path: Path) -> Iterator[DataDirectory]:
    data = DataDirectory.open_or_create(tmp_path / "data", SHARDS)
    yield data
    data.close()


def write(store: ShardStore, *segments: int, log_began_ns: int = BEGAN_NS, noted: bool = True) -> None:
    """`noted`: it is listed that they were begun, as it is when a next one is made."""
    for segment in segments:
        now = time.time_ns()
        write_records(store.create(segment), segment, [b"of %d" % segment], shard=store.shard, shards=SHARDS, now=now)
        with log(store.path, segment).open("r+b") as file:
            header = decode_header(file.read(64))
            file.seek(0)
            file.write(encode_header(header._replace(log_began_ns=log_began_ns)))
        if noted:
            store.note_begun()


@pytest.fixture
def shard(data: DataDirectory) -> Iterator[Path]:
    """The folder of shard 7, in which there are the segments 1 to 4."""
    store = data.shard(7)
    write(store, 1, 2, 3, 4)
    store.close()
    yield store.path


def recover(shard: Path, refuse: bool = False) -> tuple[list[int], list[str]]:
    store = ShardStore(shard.parent, int(shard.name.removeprefix("shard-")))
    try:
        found = store.recover(refuse)
        return list(found.segments), [*found.problems, *found.notes]
    finally:
        store.close()


def bodies(path: Path) -> list[bytes]:
    return [entry.body for entry in decode_segment(path) if isinstance(entry, Record)]


def test_where_a_start_begins_to_read_is_kept_and_not_believed_when_something_is_wrong(shard: Path) -> None:
    store = ShardStore(shard.parent, 7)
    assert store.recover().read_from == 0
    store.note_read_from(3)
    store.close()
    for change in ("nothing", "a segment comes", "one goes"):
        store = ShardStore(shard.parent, 7)
        assert store.recover().read_from == 3, change
        if change == "a segment comes":
            write(store, 5)
        elif change == "one goes":
            store.remove(1)
        store.note_begun((5, 100))
        store.close()
    log(shard, 4).rename(shard / "4")
    for _ in range(2):  # an empty one takes its place, but it stays so
        store = ShardStore(shard.parent, 7)
        assert store.recover().read_from == 0
        store.close()


@pytest.mark.parametrize("gone", [1, 2, 3, 4])
def test_what_is_passed_over_may_be_wrong(shard: Path, gone: int) -> None:
    """What only it says is finished would come again, if the others were read."""
    store = ShardStore(shard.parent, 7)
    store.recover()
    store.note_read_from(3)
    store.close()
    log(shard, gone).unlink()
    for said in (1, 0):
        store = ShardStore(shard.parent, 7)
        found = store.recover()
        assert len(found.problems) == said
        assert found.read_from == (3 if gone < 3 else 0)
        store.close()


def test_where_a_start_begins_to_read_is_nowhere_when_that_segment_is_gone(shard: Path) -> None:
    store = ShardStore(shard.parent, 7)
    store.recover()
    store.note_read_from(2)
    store.remove(1)
    store.remove(2)
    store.close()
    store = ShardStore(shard.parent, 7)
    assert store.recover().read_from == 0
    store.close()


class Killed(BaseException):
    pass


def cut_short(do: Callable[..., object], left: list[int]) -> Callable[..., object]:
    def done(*arguments: object, **named: object) -> object:
        if left[0] == 0:
            raise Killed
        left[0] -= 1
        return do(*arguments, **named)

    return done


def log(shard: Path, segment: int) -> Path:
    return shard / f"{segment:010d}.log"


def test_a_whole_shard_is_no_alarm(shard: Path) -> None:
    for _ in range(2):
        assert recover(shard, refuse=True) == ([1, 2, 3, 4], [])


@pytest.mark.parametrize("segment", [1, 2, 4])
def test_a_missing_segment_is_one_line_and_the_others_are_served(shard: Path, segment: int) -> None:
    log(shard, segment).unlink()
    with pytest.raises(StoreError, match=rf"shard 7 is refused: 000000000{segment}\.log is missing"):
        recover(shard, refuse=True)
    segments, said = recover(shard)
    assert said == [f"000000000{segment}.log is missing: the messages that were in it are lost"]
    assert segments == ([2, 3, 4] if segment == 1 else [1, 2, 3, 4])
    assert [bodies(log(shard, n)) for n in segments] == [[] if n == segment else [b"of %d" % n] for n in segments]
    assert recover(shard) == (segments, [])


def test_all_segments_missing_are_said_and_no_number_is_used_again(shard: Path) -> None:
    for n in range(1, 5):
        log(shard, n).unlink()
    store = ShardStore(shard.parent, 7)
    found = store.recover()
    store.close()
    assert len(found.problems) == 4 and list(found.segments) == [4]
    assert decode_header(log(shard, 4).read_bytes()).missing == 4


def test_swapped_segments_are_put_back_and_nothing_is_lost(shard: Path) -> None:
    log(shard, 2).rename(shard / "x")
    log(shard, 3).rename(log(shard, 2))
    (shard / "x").rename(log(shard, 3))
    segments, said = recover(shard)
    assert segments == [1, 2, 3, 4] and len(said) == 2 and all("nothing of it is lost" in line for line in said)
    assert [bodies(log(shard, n)) for n in segments] == [[b"of %d" % n] for n in segments]
    assert recover(shard, refuse=True) == (segments, [])


@pytest.mark.parametrize("step", range(8))
def test_being_killed_while_segments_are_put_back_loses_nothing(
    shard: Path, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    contents = {n: log(shard, n).read_bytes() for n in (2, 3, 4)}
    for n, other in ((2, 3), (3, 4), (4, 2)):
        log(shard, n).write_bytes(contents[other])
    left = [step]
    with monkeypatch.context() as killed:
        for name in ("rename", "hardlink_to"):
            killed.setattr(Path, name, cut_short(getattr(Path, name), left))
        with contextlib.suppress(Killed):
            recover(shard)
    assert recover(shard)[0] == [1, 2, 3, 4]
    assert [bodies(log(shard, n)) for n in range(1, 5)] == [[b"of %d" % n] for n in range(1, 5)]
    assert recover(shard, refuse=True) == ([1, 2, 3, 4], [])


def test_a_copy_under_another_name_is_put_aside_and_the_other_is_missing(shard: Path) -> None:
    shutil.copy(log(shard, 2), log(shard, 3))
    segments, said = recover(shard)
    assert said == [
        "0000000003.log is put aside: it is a copy of segment 2",
        "0000000003.log is missing: the messages that were in it are lost",
    ]
    assert segments == [1, 2, 3, 4] and bodies(shard / "0000000003.odd") == [b"of 2"]


@pytest.mark.parametrize("foreign", ["other shard", "other data directory", "directory", "link", "text"])
def test_what_is_no_segment_of_this_shard_is_put_aside(shard: Path, tmp_path: Path, foreign: str) -> None:
    log(shard, 3).unlink()
    other = DataDirectory.open_or_create(tmp_path / "other", SHARDS)
    store = other.shard(6 if foreign == "other shard" else 7)
    write(store, 1, 2, 3)
    store.close()
    other.close()
    if foreign == "directory":
        log(shard, 9).mkdir()
    elif foreign == "link":
        log(shard, 9).symlink_to("/etc/passwd")
    elif foreign == "text":
        log(shard, 9).write_text("a thesis" * 100)
    else:
        shutil.copy(log(store.path, 3), log(shard, 3))
    segments, said = recover(shard)
    assert segments == [1, 2, 3, 4] and bodies(log(shard, 3)) == []
    name = "0000000009" if foreign in ("directory", "link", "text") else "0000000003"
    assert len(said) == 2
    assert any(f"{name}.log is put aside: " in line for line in said)
    assert "0000000003.log is missing: the messages that were in it are lost" in said
    assert (shard / f"{name}.odd").exists() or (shard / f"{name}.odd").is_symlink()
    assert recover(shard) == (segments, [])


@pytest.mark.parametrize("segment", [3, 4])
def test_a_segment_of_another_log_is_not_taken_for_the_newest_after_a_kill(
    data: DataDirectory, tmp_path: Path, segment: int
) -> None:
    """Nor for one that follows it, of which the manifest does not know yet."""
    store = data.shard(7)
    write(store, 1, 2)
    write(store, 3, noted=False)
    store.close()
    other = DataDirectory.open_or_create(tmp_path / "other", SHARDS)
    theirs = other.shard(7)
    write(theirs, *range(1, segment + 1), log_began_ns=BEGAN_NS + 1)
    theirs.close()
    other.close()
    shutil.copy(log(theirs.path, segment), log(store.path, segment))
    name, lost = f"{segment:010d}", [f"{segment:010d}.log is missing: the messages that were in it are lost"]
    with pytest.raises(StoreError, match="refused"):
        recover(store.path, refuse=True)
    assert recover(store.path) == (
        [1, 2, 3],
        [f"{name}.log is put aside: it is from another data directory or an older time", *lost * (segment == 3)],
    )
    assert bodies(store.path / f"{name}.odd") == [b"of %d" % segment]


def test_a_file_of_another_name_is_mentioned_and_left(shard: Path) -> None:
    (shard / "notes.txt").write_text("mine")
    assert recover(shard, refuse=True)[1] == ["notes.txt is odd: nothing in shard-0007 has such a name"]
    assert (shard / "notes.txt").read_text() == "mine"


NESTED = "[" * 100_000
ENDLESS = '{"version": 1, "directory": "d", "shard": 7, "segments": {"1": 1e999}, "going": []}'


@pytest.mark.parametrize("text", [None, "{", '{"version": 1}', NESTED, ENDLESS])
def test_a_lost_manifest_is_said_and_what_is_there_is_served(shard: Path, text: str | None) -> None:
    (shard / "manifest.json").unlink()
    if text is not None:
        (shard / "manifest.json").write_text(text)
    with pytest.raises(StoreError, match="its manifest is"):
        recover(shard, refuse=True)
    segments, said = recover(shard)
    assert segments == [1, 2, 3, 4] and len(said) == 1 and "whether all of its segments are there" in said[0]
    assert recover(shard) == (segments, [])


def test_a_manifest_with_any_byte_changed_is_damaged_or_says_what_it_said(shard: Path) -> None:
    path, directory = shard / "manifest.json", json.loads((shard.parent / "meta.json").read_text())["id"]
    Manifest(directory, 7, {1: BEGAN_NS, 2: 0}, [3], (2, 99), 1).save(shard)
    kept, whole = Manifest.load(shard, directory, 7), path.read_bytes()
    assert kept is not None
    draw, damaged = random.Random(1), 0
    for at in range(len(whole)):
        for changed in (whole[at] ^ 1 << draw.randrange(8), draw.choice(b'0123456789-.eE"[]{},: \n')):
            path.write_bytes(whole[:at] + bytes([changed]) + whole[at + 1 :])
            try:
                assert Manifest.load(shard, directory, 7) == kept, path.read_bytes()
            except ManifestError:
                damaged += 1
    assert damaged > len(whole)


def test_a_manifest_of_a_release_without_checksums_is_believed(shard: Path) -> None:
    content = json.loads((shard / "manifest.json").read_text())
    del content["check"]
    (shard / "manifest.json").write_text(json.dumps(content))
    assert recover(shard, refuse=True) == ([1, 2, 3, 4], [])


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_what_is_no_file_in_a_manifests_place_is_put_aside(shard: Path, make: Callable[[Path], None]) -> None:
    (shard / "manifest.json").unlink()
    make(shard / "manifest.json")
    with pytest.raises(StoreError, match="its manifest is not a file"):
        recover(shard, refuse=True)
    assert not (shard / "manifest.json").is_file()
    segments, said = recover(shard)
    assert (shard / "manifest.odd").exists()
    assert (segments, len(said)) == ([1, 2, 3, 4], 1) and "its manifest is not a file" in said[0]
    assert recover(shard) == (segments, [])


def test_what_is_empty_or_gone_between_others_is_named_without_a_manifest_too(shard: Path) -> None:
    (shard / "manifest.json").unlink()
    log(shard, 2).write_bytes(b"")
    log(shard, 3).unlink()
    segments, said = recover(shard)
    assert segments == [1, 2, 3, 4] and len(said) == 3
    assert [line.split(":")[0] for line in said[1:]] == ["0000000002.log is missing", "0000000003.log is missing"]
    assert recover(shard) == (segments, [])
    assert all(log(shard, segment).exists() for segment in segments)


def test_zeros_over_a_header_in_the_middle_are_served_without_a_manifest_too(shard: Path) -> None:
    (shard / "manifest.json").unlink()
    with log(shard, 2).open("r+b") as file:
        file.write(bytes(64))
    segments, said = recover(shard)
    assert segments == [1, 2, 3, 4]
    assert said[1:] == ["0000000002.log has lost its header; what is whole after it is served"]


def test_what_is_written_behind_a_header_that_was_mended_is_there_at_the_next_start(shard: Path) -> None:
    """A mended one does not know when its segment was begun; that is no reason to take the segment for a new one."""
    content = bytearray(log(shard, 4).read_bytes())
    content[24:32] = bytes(8)  # time_ns, csrc/log/layout.h
    content[60:64] = crc32c(bytes(content[:60])).to_bytes(4, "little")
    log(shard, 4).write_bytes(content)
    assert decode_header(bytes(content)).time_ns == 0
    for _ in range(2):
        assert recover(shard) == ([1, 2, 3, 4], [])
    log(shard, 4).rename(shard / "aside")
    log(shard, 2).rename(log(shard, 4))
    (shard / "aside").rename(log(shard, 2))
    segments, said = recover(shard)
    assert segments == [1, 2, 3, 4] and all("nothing of it is lost" in line for line in said) and len(said) == 2
    assert bodies(log(shard, 4)) == [b"of 4"]


def test_a_folder_in_a_segments_place_is_put_aside(shard: Path) -> None:
    log(shard, 3).unlink()
    log(shard, 3).mkdir()
    segments, said = recover(shard)
    assert segments == [1, 2, 3, 4] and len(said) == 2
    assert "put aside: it is not a file" in said[0] and "0000000003.log is missing" in said[1]


@pytest.mark.parametrize("number", [2, 4])
def test_what_has_a_header_of_another_kind_is_put_aside(shard: Path, number: int) -> None:
    """As heads of segments have: that does not keep the broker from its start."""
    header = bytearray(log(shard, number).read_bytes()[:SEGMENT_HEADER_BYTES])
    header[:8] = b"HQHEADS1"
    header[-4:] = crc32c(bytes(header[:-4])).to_bytes(4, "little")
    log(shard, number).write_bytes(bytes(header) + b"heads" * 100)
    segments, said = recover(shard)
    assert segments == [1, 2, 3, 4] and len(said) == 2
    name = f"{number:010d}.log"
    assert f"{name} is put aside: it is a file of another kind" in said and f"{name} is missing: " in said[1]
    assert recover(shard) == (segments, [])


def test_a_copy_says_nothing_about_what_else_there_was_when_the_manifest_is_missing(shard: Path) -> None:
    log(shard, 5).touch()  # waits for its first record
    shutil.copyfile(log(shard, 2), log(shard, 25))
    (shard / "manifest.json").unlink()
    segments, said = recover(shard)
    assert segments == [1, 2, 3, 4] and said[1:] == ["0000000025.log is put aside: it is a copy of segment 2"]
    assert recover(shard) == (segments, [])


def test_a_copy_takes_the_place_of_its_original_though_the_manifest_is_missing_too(shard: Path) -> None:
    log(shard, 2).rename(log(shard, 25))
    (shard / "manifest.json").unlink()
    segments, said = recover(shard)
    assert segments == [1, 2, 3, 4] and "0000000025.log is segment 2, and is put back there" in said[1]
    assert [bodies(log(shard, n)) for n in segments] == [[b"of %d" % n] for n in segments]


def test_what_is_foreign_is_not_missing_when_the_manifest_is(shard: Path, data: DataDirectory) -> None:
    other = data.shard(6)
    write(other, 1, 2)
    other.close()
    shutil.copyfile(log(other.path, 2), log(shard, 9))
    (shard / "manifest.json").unlink()
    segments, said = recover(shard)
    assert segments == [1, 2, 3, 4] and said[1:] == ["0000000009.log is put aside: it is of shard 6"]


def test_a_segment_without_a_header_is_there_after_the_newer_ones_were_lost(shard: Path) -> None:
    log(shard, 4).write_bytes(b"")
    manifest = Manifest.load(shard, json.loads((shard.parent / "meta.json").read_text())["id"], 7)
    Manifest(manifest.directory, 7, {1: manifest.segments[1], 4: 0, 5: 0, 6: 0}).save(shard)
    segments, _ = recover(shard)
    assert segments == [*range(1, 7)] and all(log(shard, n).stat().st_size for n in segments)


def test_a_shard_that_was_emptied_is_not_taken_for_a_new_one(shard: Path) -> None:
    for path in shard.iterdir():
        path.unlink()
    assert recover(shard) == ([], ["its manifest is missing: whether all of its segments are there is not known"])


def test_a_shard_whose_folder_is_gone_is_said_and_begins_anew(shard: Path) -> None:
    shutil.rmtree(shard)
    said = "its manifest is missing: whether all of its segments are there is not known"
    with pytest.raises(StoreError, match="shard 7 is refused: its folder is missing"):
        ShardStore(shard.parent, 7, refuse=True)
    assert not shard.exists()
    assert recover(shard) == ([], [said])
    store = ShardStore(shard.parent, 7)
    store.recover()
    write(store, 1)
    store.close()
    assert recover(shard) == ([1], [])


def test_zeros_where_a_header_was_do_not_make_a_segment_new(shard: Path) -> None:
    with log(shard, 4).open("r+b") as file:
        file.write(bytes(64))
    segments, said = recover(shard)
    assert segments == [1, 2, 3, 4]
    assert said == ["0000000004.log has lost its header; what is whole after it is served"]


@pytest.mark.parametrize("listed", [True, False], ids=["listed", "without a manifest"])
@pytest.mark.parametrize("only", [True, False], ids=["the only one", "the newest"])
def test_zeros_over_the_header_of_one_that_is_not_listed_as_begun_do_not_remove_it(
    data: DataDirectory, only: bool, listed: bool
) -> None:
    """As a sector that was lost, in the segment that was written to last."""
    store = data.shard(3)
    if not only:
        write(store, 1)
    newest = 1 if only else 2
    write_records(store.create(newest), newest, [b"lost", b"kept" * 200], shard=3, shards=SHARDS, now=time.time_ns())
    store.close()
    if not listed:
        (store.path / "manifest.json").unlink()
    with log(store.path, newest).open("r+b") as file:
        file.write(bytes(64))
    before = log(store.path, newest).read_bytes()
    for _ in range(2):
        segments, said = recover(store.path)
        assert segments == list(range(1, newest + 1))
        assert said[-1] == f"{newest:010d}.log has lost its header; what is whole after it is served"
        assert log(store.path, newest).read_bytes() == before
    with pytest.raises(StoreError, match="has lost its header"):
        recover(store.path, refuse=True)


def test_what_is_written_and_has_neither_a_header_nor_a_place_is_put_aside(shard: Path) -> None:
    log(shard, 9).write_bytes(bytes(64) + b"something")
    segments, said = recover(shard)
    assert segments == [1, 2, 3, 4]
    assert said == ["0000000009.log is put aside: it is no segment, and none of that number is known"]
    assert (shard / "0000000009.odd").read_bytes().endswith(b"something")


def test_a_directory_of_a_version_without_manifests_is_taken_over(shard: Path) -> None:
    data = shard.parent
    for path in data.glob("shard-*/manifest.json"):
        path.unlink()
    meta = data / "meta.json"
    meta.write_text(meta.read_text().replace(', "manifests": true', ""))
    os.close(os.open(data / "lock", os.O_RDONLY))
    directory = DataDirectory.open_or_create(shutil.copytree(data, data.with_name("copy")), None)
    directory.close()
    assert recover(directory.path / shard.name, refuse=True) == ([1, 2, 3, 4], [])
    log(directory.path / shard.name, 4).unlink()
    assert len(recover(directory.path / shard.name)[1]) == 1


@pytest.mark.parametrize("step", range(12))
def test_being_killed_at_any_step_is_no_alarm(data: DataDirectory, step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Making the third segment, noting that it was begun, dropping the first: cut short at each thing done to files."""
    store = data.shard(7)
    write(store, 1, 2)
    left = [step]
    with monkeypatch.context() as killed:
        for name in ("fsync", "unlink"):
            killed.setattr(os, name, cut_short(getattr(os, name), left))
        killed.setattr(Path, "replace", cut_short(Path.replace, left))
        with contextlib.suppress(Killed):
            write(store, 3)
            store.remove(1)
    store.close()
    segments, said = recover(store.path, refuse=True)
    assert said == [] and segments in ([1, 2], [1, 2, 3], [2, 3])
    assert all(decode_header(log(store.path, n).read_bytes()).segment == n for n in segments)
    assert recover(store.path, refuse=True) == (segments, [])


def test_a_disk_that_is_full_to_the_last_block_takes_a_manifest_in_the_place_of_the_last(tmp_path: Path) -> None:
    place = tmp_path / "small"
    place.mkdir()
    with small_disk(place, "64k"):
        Manifest("id", 3, {1: 10}).save(place)
        with contextlib.suppress(OSError), (place / "filler").open("wb") as filler:
            while True:
                filler.write(bytes(512))
                filler.flush()
        changed = Manifest("id", 3, {1: 10, 2: 20}, [1])
        changed.save(place)
        found = Manifest.load(place, "id", 3)
        assert found is not None
        assert (dict(found.segments), list(found.going)) == ({1: 10, 2: 20}, [1])
        Manifest("id", 3, {2: 20}).save(place)
        found = Manifest.load(place, "id", 3)
        assert found is not None
        assert dict(found.segments) == {2: 20}
