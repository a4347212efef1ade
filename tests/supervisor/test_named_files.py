"""Files that options name: what would keep its reader waiting for ever is refused."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from mq_shards.acceptor import named_files
from mq_shards.acceptor.option_kinds import OptionsError
from mq_shards.supervisor.moving.table import translate
from mq_shards.supervisor.options.options import parse

# Before the suite's own limit: nobody ever writes into these.
pytestmark = pytest.mark.timeout(60)


def fifo(path: Path) -> Path:
    os.mkfifo(path)
    return path


def directory(path: Path) -> Path:
    path.mkdir()
    return path


def unix_socket(path: Path) -> Path:
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(path))
    return path


def link_to_a_fifo(path: Path) -> Path:
    path.symlink_to(fifo(path.with_suffix(".fifo")))
    return path


@pytest.mark.parametrize("make", [fifo, directory, unix_socket, link_to_a_fifo, lambda path: Path("/dev/zero")])
def test_what_is_no_file_is_refused_at_once(make: Callable[[Path], Path], tmp_path: Path) -> None:
    path = make(tmp_path / "named")
    for use in (named_files.read, named_files.check):
        with pytest.raises(OSError) as raised:
            use(path)
        assert raised.value.strerror


def test_a_file_is_read_and_nothing_is_an_empty_one(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"hello\r\n")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    assert named_files.read(tmp_path / "link") == b"hello\r\n"
    assert named_files.read("/dev/null") == b""
    with pytest.raises(FileNotFoundError):
        named_files.read(tmp_path / "none")


def test_one_that_is_too_large_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(named_files, "MAX_BYTES", 1 << 20)
    with (tmp_path / "file").open("wb") as file:
        file.truncate((1 << 20) + 1)
    with pytest.raises(named_files.NamedFileError, match="more than 1 MiB"):
        named_files.read(tmp_path / "file")


@pytest.mark.parametrize(
    "option",
    [
        ["--config"], ["--users"], ["--nats-config"], ["--set", "tls.cert="], ["--set", "nsq.tls-root-ca-file="],
        ["--set", "nats.tls-ca-file="], ["--set", "pulsar.token-secret-key-file="],
        ["--set", "pulsar.basic-auth-file="],
    ],
    ids=lambda option: option[-1],
)  # fmt: skip
def test_no_option_waits_for_a_fifo(option: list[str], tmp_path: Path) -> None:
    path = str(fifo(tmp_path / "fifo"))
    given = [*option[:-1], option[-1] + path] if option[-1].endswith("=") else [*option, path]
    with pytest.raises(OptionsError, match="not a file"):
        parse(given)


@pytest.mark.parametrize(
    "arguments",
    [["nsqd", "-config"], ["nats-server", "-c"], ["pulsar", "standalone", "--config"]],
    ids=lambda one: one[0],
)
def test_nor_does_one_of_another_server(arguments: list[str], tmp_path: Path) -> None:
    with pytest.raises(OptionsError, match="not a file"):
        translate([*arguments, str(fifo(tmp_path / "fifo"))])


def test_nor_does_a_listener_of_its_own_certificate(tmp_path: Path) -> None:
    path = fifo(tmp_path / "fifo")
    with pytest.raises(OptionsError, match="not a file"):
        parse(["--listen", f"https://127.0.0.1:0?cert={path}&key={path}"])


def test_what_is_kept_stands_for_what_is_on_the_disk(tmp_path: Path) -> None:
    file, other = tmp_path / "file", tmp_path / "other"
    file.write_bytes(b"before")
    odd = os.fsdecode(bytes(tmp_path / "odd-") + b"\xff")
    kept = {str(file): b"kept\n[]", odd: b"", str(other): bytes(range(256))}
    assert named_files.decode(named_files.encode(kept)) == kept
    with named_files.kept(kept):
        named_files.check(other)
        assert named_files.read(file) == kept[str(file)]
        for path, content in kept.items():
            with named_files.opened(path) as place:
                assert Path(place).read_bytes() == content
        with named_files.kept({}), pytest.raises(FileNotFoundError):
            named_files.check(other)
        with pytest.raises(FileNotFoundError), named_files.opened(tmp_path / "none"):
            pass
    assert named_files.read(file) == b"before"
    with named_files.opened(file) as place:
        assert place == str(file)
    with pytest.raises(FileNotFoundError):
        named_files.check(other)


def test_what_comes_from_the_supervisor_takes_the_place_of_what_came_before(tmp_path: Path) -> None:
    with named_files.kept({"/gone": b"1"}):
        with named_files.in_memory(named_files.encode({"/new": b"2"})) as fd:
            named_files.keep_what_came([fd])
        assert named_files.read("/new") == b"2"
        with pytest.raises(FileNotFoundError):
            named_files.read("/gone")
        named_files.keep_what_came([])
        with pytest.raises(FileNotFoundError):
            named_files.read("/new")
