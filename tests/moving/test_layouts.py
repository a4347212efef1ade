"""Data directories of earlier releases are read, one of a later release is refused and left as it is.

docs/upgrading.md says so. What is in tests/moving/layouts was written by those releases: in the topic `orders` twenty
messages, of which the channel `one` has finished seven and `two` none; in the tube `mail` ten jobs and one that is
late, two of which are deleted and one buried.
"""

from __future__ import annotations

import hashlib
import struct
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from mq_shards.shards.checksum import crc32c

from tests.beanstalk.wire import Wire as BeanstalkWire
from tests.nsq import servers
from tests.nsq.servers import NsqServer
from tests.nsq.wire import Wire, consumer
from tests.servers import ROOT, SINGLE
from tests.terminal.commands import done, run

LAYOUTS = Path(__file__).parent / "layouts"
RELEASES = ("segments-1", "segments-2")
ORDERS = [b"order %d" % n for n in range(20)]


def unpacked(release: str, folder: Path) -> Path:
    data = folder / "data"
    with tarfile.open(LAYOUTS / f"{release}.tar.xz") as archive:
        archive.extractall(data, filter="data")
    return data


def taken(server: NsqServer, channel: str, count: int) -> list[bytes]:
    with consumer(server, "orders", channel, rdy=100) as wire:
        messages = wire.messages(count)
        assert wire.is_quiet()
        wire.fin(*messages)
        wire.ask(b"CLS\n")
    return sorted((message.body for message in messages), key=lambda body: int(body.split()[1]))


def state(data: Path) -> dict[str, str]:
    return {
        str(path.relative_to(data)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(data.rglob("*"))
        # (A manifest says when a segment was begun as soon as that is known.)
        if path.is_file() and path.name not in ("lock", "manifest.json")
    }


@pytest.mark.parametrize("release", RELEASES)
def test_what_an_earlier_release_wrote_is_served(release: str, tmp_path: Path) -> None:
    data = unpacked(release, tmp_path)
    with servers.running(SINGLE, data_dir=data) as server:
        assert " error " not in server.said()
        with BeanstalkWire(server.beanstalk_port) as jobs:
            counts = jobs.stats_tube("mail")
            assert [counts[f"current-jobs-{of}"] for of in ("ready", "delayed", "buried")] == ["7", "1", "1"]
            jobs.watch_only("mail")
            assert [jobs.reserve()[1] for _ in range(7)] == [b"job %d" % n for n in range(6, -1, -1)]
            assert jobs.exchange("reserve-with-timeout 0").line == b"TIMED_OUT"
            jobs.use("mail")
            assert jobs.ask("kick 10") == b"KICKED 1"
            assert jobs.reserve()[1] == b"job 7"
            jobs.put(b"of now")
        assert taken(server, "one", 13) == ORDERS[7:]
        with Wire(server) as wire:
            wire.publish("orders", b"order 20")
        server.terminate()
        server.was_killed = True
    # And it goes on as this release's.
    with servers.running(SINGLE, data_dir=data) as server:
        assert " error " not in server.said()
        assert taken(server, "one", 1) == [b"order 20"]
        assert taken(server, "two", 21) == [*ORDERS, b"order 20"]
        with BeanstalkWire(server.beanstalk_port) as jobs:
            assert jobs.stats_tube("mail")["current-jobs-ready"] == "9"


@pytest.mark.parametrize("release", RELEASES)
def test_a_copy_of_it_is_a_way_back(release: str, tmp_path: Path) -> None:
    data = unpacked(release, tmp_path)
    before = state(data)
    done("backup", str(data), str(tmp_path / "copy"))
    assert state(data) == before
    with servers.running(SINGLE, data_dir=data) as server, Wire(server) as wire:
        wire.publish("orders", b"order 20")
    done("restore", str(tmp_path / "copy"), str(tmp_path / "back"))
    with servers.running(SINGLE, data_dir=tmp_path / "back") as server:
        assert taken(server, "one", 13) == ORDERS[7:]


def a_later_segment(data: Path) -> None:
    path = data / "shard-0000" / "0000000001.log"
    content = bytearray(path.read_bytes())
    content[8:12] = struct.pack("<I", 3)
    content[60:64] = struct.pack("<I", crc32c(bytes(content[:60])))
    path.write_bytes(content)


def a_later_record(data: Path) -> None:
    path = data / "shard-0000" / "0000000001.log"
    content = bytearray(path.read_bytes())
    size = struct.unpack_from("<I", content, 64)[0]
    content[64 + 8] = 200
    record = bytes(content[64 : 64 + size])
    content[68:72] = struct.pack("<I", crc32c(record[8:], crc32c(record[:4] + struct.pack("<I", 1))))
    path.write_bytes(content)


def a_later_directory(data: Path) -> None:
    path = data / "meta.json"
    path.write_text(path.read_text().replace('"version": 1', '"version": 2'))


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (a_later_segment, "shard 0, segment 1, offset 0: the segment is of version 3, and this release reads 1 and 2"),
        (a_later_record, "segment 1, offset 64: a record of kind 200, which a later release wrote"),
        (a_later_directory, "meta.json is of version 2; this program reads version 1"),
    ],
)
def test_what_a_later_release_wrote_is_refused_in_one_line_and_left_alone(
    spoil: object, said: str, tmp_path: Path
) -> None:
    data = unpacked("segments-2", tmp_path)
    assert callable(spoil)
    spoil(data)
    before = state(data)
    command = [sys.executable, "-m", "mq_shards.supervisor.command", "--data-dir", str(data)]
    ended = subprocess.run(
        [*command, "--listen", "beanstalk://127.0.0.1:0"], cwd=ROOT, capture_output=True, text=True, timeout=120,
        check=False,
    )  # fmt: skip
    assert ended.returncode == 1
    errors = [line for line in ended.stderr.splitlines() if " error " in line or line.startswith("mq-shards:")]
    assert len(errors) == 1 and said in errors[0], ended.stderr
    assert "Traceback" not in ended.stderr
    assert state(data) == before


def test_a_backup_of_a_later_release_is_refused(tmp_path: Path) -> None:
    data = unpacked("segments-2", tmp_path)
    a_later_segment(data)
    refused = run("backup", str(data), str(tmp_path / "copy"))
    assert refused.returncode == 1 and b"version 3" in refused.stderr
    assert b"Traceback" not in refused.stderr
