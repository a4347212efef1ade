"""The catalog's log: what was appended is there again, whatever happened to the file, or it is said what is not."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from mq_shards.gateway.pulsar import leftovers
from mq_shards.gateway.pulsar.journal import MAX_ASIDE, Journal, JournalError

PAYLOADS = [b"one", b"", b"three" * 100, bytes(range(256)), b"five"]


def written(path: Path, payloads: list[bytes] = PAYLOADS) -> bytes:
    journal = Journal(path)
    assert journal.open() == ([], [])
    for payload in payloads:
        journal.append([payload])
    journal.close()
    return path.read_bytes()


def cut_off(path: Path, count: int) -> str:
    return f"{path}: its last {count} bytes are cut off: they are no whole record"


def reopened(path: Path) -> tuple[list[bytes], list[str]]:
    journal = Journal(path)
    try:
        return journal.open()
    finally:
        journal.close()


def test_what_was_appended_is_read_again_and_appended_to(tmp_path: Path) -> None:
    path = tmp_path / "pulsar" / "catalog"
    written(path)
    assert reopened(path) == (PAYLOADS, [])
    journal = Journal(path)
    journal.open()
    journal.append([b"six", b"seven"])
    journal.close()
    assert reopened(path) == ([*PAYLOADS, b"six", b"seven"], [])


def test_a_write_that_was_cut_short_anywhere_costs_only_itself(tmp_path: Path) -> None:
    path = tmp_path / "pulsar" / "catalog"
    whole = written(path)
    ends = [24 + sum(12 + len(p) for p in PAYLOADS[:count]) for count in range(len(PAYLOADS) + 1)]
    assert ends[-1] == len(whole)
    for cut in range(ends[0], len(whole)):
        path.write_bytes(whole[:cut])
        there = sum(end <= cut for end in ends) - 1
        payloads, said = reopened(path)
        assert payloads == PAYLOADS[:there]
        assert said == ([] if cut in ends else [cut_off(path, cut - ends[there])])
        assert path.stat().st_size == ends[there], "and is cut off"


def test_damage_in_the_middle_is_named_and_what_lies_behind_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "pulsar" / "catalog"
    whole = written(path)
    second = 24 + 12 + len(PAYLOADS[0]) + 12
    for place in (second + 12, second + 40, second + 4):
        for leftover in path.parent.glob("*.damaged*"):
            leftover.unlink()
        data = bytearray(whole)
        data[place] ^= 0x40
        path.write_bytes(data)
        payloads, damages = reopened(path)
        assert payloads == [PAYLOADS[0], PAYLOADS[1], *PAYLOADS[3:]]
        assert len(damages) == 1
        assert "cannot be read" in damages[0]
        assert [p.read_bytes() for p in path.parent.glob("*.damaged*")] == [bytes(data)], "kept aside"
        assert reopened(path) == (payloads, []), "said once"


@pytest.mark.parametrize("generations", [0, 3])
def test_a_head_that_cannot_be_read_costs_nothing_but_what_lies_in_its_sector(tmp_path: Path, generations: int) -> None:
    path = tmp_path / "pulsar" / "catalog"
    payloads = ["ŚRC".encode() * 20, *PAYLOADS]  # which looks like the beginning of records in a record
    journal = Journal(path)
    journal.open()
    for _ in range(generations):
        journal.rewrite([])
    journal.append(payloads)
    journal.close()
    whole = path.read_bytes()
    first = 24 + 12 + len(payloads[0])
    for damaged, there in (
        (range(24), payloads),
        (range(8, 9), payloads),
        (range(20), payloads),
        (range(first), PAYLOADS),
    ):
        data = bytearray(whole)
        for place in damaged:
            data[place] ^= 0xFF if len(damaged) == 1 else data[place]
        path.write_bytes(data)
        read, said = reopened(path)
        assert read == there
        assert f"damaged head: its records are read as those of generation {generations + 1}" in said[0]
        assert reopened(path) == (there, []), "said once"
        kept = list(path.parent.glob("catalog.damaged-*"))
        assert bytes(data) in [one.read_bytes() for one in kept]
    assert len(kept) == 4, "each under a name of its own"


def test_what_has_neither_head_nor_records_is_kept_aside_and_begun_anew(tmp_path: Path) -> None:
    path = tmp_path / "pulsar" / "catalog"
    written(path)
    for data in (b"", b"x" * 100, bytes(4096), b"\xc5\x9aRC", b"x" * 100):
        path.write_bytes(data)
        payloads, said = reopened(path)
        assert payloads == [] and "neither head nor records" in said[0]
        assert reopened(path) == ([], [])
    kept = [one.read_bytes() for one in path.parent.glob("catalog.damaged-*")]
    assert sorted(kept) == sorted([b"", b"x" * 100, bytes(4096), b"\xc5\x9aRC"])


def test_damage_without_end_does_not_fill_the_disk(tmp_path: Path) -> None:
    path = tmp_path / "pulsar" / "catalog"
    written(path)
    for number in range(MAX_ASIDE):
        path.write_bytes(b"%d" % number)
        reopened(path)
    path.write_bytes(b"again")
    with pytest.raises(JournalError, match="there are 16 of"):
        reopened(path)
    assert path.read_bytes() == b"again"


def test_what_is_cut_off_is_kept_aside_unless_a_write_was_cut_short(tmp_path: Path) -> None:
    path = tmp_path / "pulsar" / "catalog"
    whole = written(path)
    path.write_bytes(whole[:-1])
    reopened(path)
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    damaged = whole[:60] + bytes(len(whole) - 60)  # a sector in which the last records are
    path.write_bytes(damaged)
    _, said = reopened(path)
    assert "are cut off" in said[0]
    assert [file.read_bytes() for file in path.parent.glob("catalog.damaged-*")] == [damaged]


def test_one_that_is_missing_is_said_to_be_but_at_the_first_start(tmp_path: Path) -> None:
    path = tmp_path / "pulsar" / "catalog"
    written(path)
    path.unlink()
    payloads, said = reopened(path)
    assert payloads == [] and said == [f"{path} is missing: it is made anew, and nothing of before is known"]
    assert reopened(path) == ([], [])


def _in_its_folder(make: Callable[[Path], None]) -> Callable[[Path], None]:
    def made(path: Path) -> None:
        path.parent.mkdir()
        make(path)

    return made


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (_in_its_folder(os.mkfifo), "pulsar/catalog is not a file"),
        (_in_its_folder(os.mkdir), "pulsar/catalog is not a file"),
        (_in_its_folder(lambda path: path.symlink_to("nowhere")), "pulsar/catalog is not a file"),
        (lambda path: path.parent.touch(), "pulsar is not a directory"),
        (lambda path: path.parent.symlink_to("nowhere"), "pulsar is not a directory"),
    ],
)
def test_what_is_no_log_in_its_place_is_refused_and_not_waited_for(
    tmp_path: Path, make: Callable[[Path], None], said: str
) -> None:
    make(tmp_path / "pulsar" / "catalog")
    with pytest.raises(JournalError, match=said):
        reopened(tmp_path / "pulsar" / "catalog")
    assert leftovers.are_in(str(tmp_path)), "so that somebody looks at it, and says so"


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to(path.with_name("elsewhere"))])
def test_what_lies_where_it_is_written_anew_is_not_written_to(tmp_path: Path, make: Callable[[Path], None]) -> None:
    path = tmp_path / "pulsar" / "catalog"
    written(path)
    make(path.with_name("catalog.new"))
    journal = Journal(path)
    journal.open()
    journal.rewrite([b"all"])
    journal.close()
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_a_later_version_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "pulsar" / "catalog"
    monkeypatch.setattr("mq_shards.gateway.pulsar.journal.VERSION", 2)
    written(path)
    monkeypatch.undo()
    with pytest.raises(JournalError, match="version 2"):
        reopened(path)


def test_written_anew_it_has_what_was_said_and_nothing_of_before(tmp_path: Path) -> None:
    path = tmp_path / "pulsar" / "catalog"
    old = written(path)
    journal = Journal(path)
    journal.open()
    journal.rewrite([b"all"])
    journal.append([b"next"])
    journal.close()
    with path.open("ab") as file:  # as when a file system brings old blocks back
        file.write(old[24:])
    payloads, said = reopened(path)
    assert payloads == [b"all", b"next"]
    assert said == [cut_off(path, len(old) - 24)]


def test_a_file_that_may_not_be_there_after_a_crash_is_not_appended_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "pulsar" / "catalog"
    journal = Journal(path)
    journal.open()
    journal.append([b"one"])

    def broken(_path: Path) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr("mq_shards.gateway.pulsar.journal.sync_directory", broken)
        with pytest.raises(OSError, match="Input/output"):
            journal.rewrite([b"all"])
        with pytest.raises(OSError, match="not written before"):
            journal.append([b"two"])
        with pytest.raises(OSError, match="Input/output"):
            journal.open()
    assert journal.open()[0] == [b"all"]
    journal.append([b"three"])
    journal.close()
    assert reopened(path)[0] == [b"all", b"three"]


def test_an_append_that_failed_is_not_built_upon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "pulsar" / "catalog"
    journal = Journal(path)
    journal.open()
    journal.append([b"one"])

    def full(fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fdatasync", full)
    with pytest.raises(OSError, match="No space"):
        journal.append([b"two"])
    monkeypatch.undo()
    with pytest.raises(OSError, match="not written before"):
        journal.append([b"three"])
    assert journal.open()[0] == [b"one"], "what was refused is out of it"
    journal.append([b"four"])
    journal.close()
    assert reopened(path)[0][-1] == b"four"
