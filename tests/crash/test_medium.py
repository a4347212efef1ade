"""A medium that fails beneath a log that is in use: it costs the messages on it, and not the worker.

Cutting a mapped file short answers who reads there with SIGBUS, as a medium error does. Where it can be had, a real one
comes from btrfs, which refuses to read what its checksums do not agree with.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from mq_shards.csrc._core import lib

from tests.beanstalk.wire import Wire as BeanstalkWire
from tests.log.log import HEADER, Entry, Log, offsets
from tests.nsq import servers as nsq_servers
from tests.nsq.servers import NsqServer
from tests.nsq.wire import Wire, consumer
from tests.servers import SINGLE, free_port, wait_until
from tests.terminal.commands import done, objects, run

OPTIONS = ("--shards", "1", "--sync", "always")
PAGE = 4096
MIB = 1 << 20
SEGMENT_BYTES = 64 * MIB
MESSAGES = 150
IMAGE_BYTES = 128 * MIB


def body(kind: str, n: int) -> bytes:
    # One in twenty covers several pages.
    return b"%s %04d %s" % (kind.encode(), n, b"x" * (9000 if n % 20 == 7 else 300))


def fill(server: NsqServer, topics: list[str]) -> None:
    """The same bodies as jobs of a tube and as messages of a topic that channels wait for."""
    with Wire(server) as wire, BeanstalkWire(server.beanstalk_port) as jobs:
        for topic in topics:
            for channel in ("one", "two"):
                with consumer(server, topic, channel):
                    pass
        jobs.use("jobs")
        for n in range(MESSAGES):
            for topic in topics:
                wire.publish(topic, body(topic, n))
            jobs.put(body("jobs", n))


def consumed(server: NsqServer, topic: str, channel: str, last: bytes) -> set[bytes]:
    """All that a channel gets, up to a message that was published last; none comes twice."""
    got: list[bytes] = []
    with consumer(server, topic, channel, rdy=50) as wire:
        while last not in got:
            message = wire.message()
            got.append(message.body)
            wire.fin(message)
        assert wire.ask(b"CLS\n").data == b"CLOSE_WAIT"
    assert len(got) == len(set(got))
    return set(got)


def reserved(server: NsqServer) -> set[bytes]:
    got = set()
    with BeanstalkWire(server.beanstalk_port) as wire:
        wire.watch_only("jobs")
        while (reply := wire.exchange("reserve-with-timeout 0")).line != b"TIMED_OUT":
            number = reply.number
            assert reply.body is not None
            got.add(reply.body)
            assert wire.ask(f"delete {number}") == b"DELETED"
    return got


def segment_of(data: Path, number: int = 1) -> Path:
    return data / "shard-0000" / f"{number:010d}.log"


def sealed_at(data: Path) -> int:
    """Where the second segment's header says that the first one ends; 0: it has none yet."""
    with contextlib.suppress(FileNotFoundError):
        header = segment_of(data, 2).read_bytes()[:HEADER]
        return int.from_bytes(header[32:36], "little")
    return 0


def whole(content: bytes, kind: str, is_there: list[tuple[int, int]]) -> set[bytes]:
    """The bodies outside of places that are not there; their records begin 128 bytes before them at most."""
    found = set()
    for n in range(MESSAGES):
        begin = content.index(body(kind, n))
        end = begin + len(body(kind, n))
        if not any(begin - 128 < until and end > start for start, until in is_there):
            found.add(body(kind, n))
    return found


def check(server: NsqServer, content: bytes, lost: list[tuple[int, int]], worker: str) -> None:
    """What is whole is served, what is not is named, and the worker lives on."""
    pid = server.pid_of(worker)
    with Wire(server) as wire:
        wire.publish("topic", b"behind it")
    for channel in ("one", "two"):
        got = consumed(server, "topic", channel, b"behind it") - {b"behind it"}
        assert got >= whole(content, "topic", lost)
        assert got <= {body("topic", n) for n in range(MESSAGES)}, "nothing that is not whole is delivered"
        assert len(got) < MESSAGES
    with BeanstalkWire(server.beanstalk_port) as wire:
        wire.use("jobs")
        wire.put(b"a job behind it")
    got = reserved(server)
    assert b"a job behind it" in got
    assert got - {b"a job behind it"} >= whole(content, "jobs", lost)
    assert got - {b"a job behind it"} < {body("jobs", n) for n in range(MESSAGES)}
    wait_until(lambda: "of jobs cannot be read" in server.said(), "it has been said")
    assert "shard 0, segment 1, offset" in server.said()
    assert "of topic cannot be read (a medium error, or damage), and is left out" in server.said()
    assert server.pid_of(worker) == pid, server.said()


def test_what_a_file_that_was_cut_short_had_is_left_out_and_named(tmp_path: Path) -> None:
    with nsq_servers.running(SINGLE, data_dir=tmp_path, arguments=OPTIONS) as server:
        fill(server, ["topic"])
        content = segment_of(tmp_path).read_bytes()
        with Wire(server) as wire:
            # To the one that is written to more would be appended, behind zeros.
            for _ in range(-(-SEGMENT_BYTES // MIB)):
                wire.publish("filler", bytes(MIB - 100))
        # Once the broker itself has cut it to its length it is left alone.
        wait_until(lambda: segment_of(tmp_path).stat().st_size == sealed_at(tmp_path), "the first segment is sealed")
        cut = content.index(body("topic", MESSAGES // 2)) // PAGE * PAGE
        os.truncate(segment_of(tmp_path), cut)
        check(server, content, [(cut, len(content))], "mq-worker-0")
        server.kill()
    with nsq_servers.running(SINGLE, data_dir=tmp_path, arguments=OPTIONS) as server, Wire(server) as wire:
        assert "damaged" in server.said()
        wire.publish("topic", b"anew")
        with consumer(server, "topic", "one", rdy=1) as reader:
            assert reader.message().body == b"anew"


def test_what_cannot_be_read_at_a_start_is_damage_and_is_not_cut_off(tmp_path: Path) -> None:
    entries = [Entry(seq=n, id=n + 1, body=b"b" * 500) for n in range(40)]
    path = tmp_path / "log"
    path.touch()
    first = Log()
    assert first.add(os.open(path, os.O_RDWR), 1)
    for one in entries:
        assert first.put(one)
    assert first.flush() == lib.LOG_OK
    first.close()
    size = path.stat().st_size
    log = Log()
    assert log.add(os.open(path, os.O_RDWR), 1, new=False)
    os.truncate(path, 2 * PAGE)
    found = log.scan(1)
    there = [(at, one) for at, one in offsets(entries) if at + one.stride <= 2 * PAGE]
    assert found.entries == there
    end_of_whole = there[-1][0] + there[-1][1].stride
    assert found.damage == [(end_of_whole, size)]
    assert found.end == size, "what is there may come back"
    assert log.truncate(1, found.end)
    assert path.stat().st_size == size
    assert lib.log_wants_segment(log.c), "nothing is written there any more"
    assert log.put(Entry(body=b"x")) == 0
    path.with_name("next").touch()
    assert log.add(os.open(path.with_name("next"), os.O_RDWR), 2)
    at = log.put(Entry(body=b"x"))
    assert at == 2 << 32 | HEADER
    log.close()


# --- a real medium error ----------------------------------------------------------------------------------------------


@contextlib.contextmanager
def btrfs(folder: Path) -> Iterator[tuple[Path, Path]]:
    """A file system in a file, and that file."""
    image, at = folder / "image", folder / "at"
    at.mkdir()
    with image.open("wb") as file:
        file.truncate(IMAGE_BYTES)
    subprocess.run(["mkfs.btrfs", "-q", "--mixed", image], check=True, capture_output=True)
    mounted = subprocess.run(["mount", "-o", "loop", image, at], check=False, capture_output=True, text=True)
    if mounted.returncode:
        pytest.skip(f"nothing can be mounted here: {mounted.stderr}")
    try:
        yield at, image
    finally:
        subprocess.run(["umount", "-l", at], check=True)


def forget_pages(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)


def spoil(image: Path, content: bytes) -> None:
    """Wherever that stands in the image: the file system's checksum of its block is wrong then."""
    with image.open("r+b") as file:
        whole_image = file.read()
        at = whole_image.find(content)
        assert at >= 0, "it is on the medium"
        while at >= 0:
            file.seek(at)
            file.write(b"#" * len(content))
            at = whole_image.find(content, at + 1)
        os.fsync(file.fileno())


@pytest.mark.long
@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("mkfs.btrfs") is None, reason="no root, or no btrfs-progs")
def test_a_real_medium_error_costs_what_is_on_it(tmp_path: Path) -> None:
    with btrfs(tmp_path) as (at, image):
        data = at / "data"
        data.mkdir()
        with nsq_servers.running(SINGLE, data_dir=data, arguments=OPTIONS) as server:
            fill(server, ["topic"])
            content = segment_of(data).read_bytes()
            os.sync()
            lost = []
            for n in (30, 31, 67, 100):  # one of them of several pages
                for kind in ("topic", "jobs"):
                    place = content.index(body(kind, n))
                    spoil(image, body(kind, n)[:10])
                    lost.append((place // PAGE * PAGE, (place // PAGE + 1) * PAGE))
            forget_pages(segment_of(data))
            with pytest.raises(OSError, match="Input/output error"):
                segment_of(data).read_bytes()
            check(server, content, lost, "mq-worker-0")
            server.kill()
        # The worst of all places.
        spoil(image, content[:64])
        forget_pages(segment_of(data))
        http = f"http://127.0.0.1:{free_port()}"
        arguments = (*OPTIONS, f"--listen={http}")
        with nsq_servers.running(SINGLE, data_dir=data, arguments=arguments) as server, Wire(server) as wire:
            assert "are damaged; what is whole after that is served" in server.said()
            wire.publish("topic", b"anew")
            with consumer(server, "topic", "one", rdy=1) as reader:
                assert reader.message().body == b"anew"
            lost.append((0, PAGE))
            history = objects("peek", "topic", "--from", "0", "-n", str(2 * MESSAGES), "--at", http)
            assert {one["text"].encode() for one in history} >= whole(content, "topic", lost)
            assert run("backup", str(data), str(tmp_path / "copy")).returncode == 0
            done("restore", str(tmp_path / "copy"), str(tmp_path / "restored"))
    with nsq_servers.running(SINGLE, data_dir=tmp_path / "restored", arguments=OPTIONS) as server:
        assert "are damaged; what is whole after that is served" in server.said()
