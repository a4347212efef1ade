"""A disk that takes long to make and to remove files: the worker serves meanwhile."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from mq_shards.shards.layout import SEGMENT_HEADER_BYTES
from mq_shards.shards.segment_header import decode_header

from tests.nsq.scenes import play_again_if_late
from tests.preload import compiled
from tests.servers import SINGLE, Server, running, wait_until

SOURCE = Path(__file__).with_name("slowsync.c")
BODY = b"x" * 65000
# A log asks for its next segment when the one it has is half full.
HALF = (32 << 20) // len(BODY) + 8
FULL = (64 << 20) // len(BODY)
SLOW_S = 1.0  # slowsync.c


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(SOURCE, tmp_path_factory.mktemp("shim"))


def connect(port: int, tube: bytes) -> socket.socket:
    sock = socket.create_connection(("127.0.0.1", port), 10)
    sock.sendall(b"use %s\r\n" % tube)
    assert sock.recv(100) == b"USING %s\r\n" % tube
    return sock


def put(sock: socket.socket, body: bytes) -> float:
    began = time.monotonic()
    sock.sendall(b"put 0 0 60 %d\r\n%s\r\n" % (len(body), body))
    assert sock.recv(100).startswith(b"INSERTED")
    return time.monotonic() - began


def segments(data: Path) -> int:
    return len(list(data.glob("shard-*/*.log")))


def longest_wait(server: Server, slow: Path, until: Callable[[], bool], what: str, load: Callable[[], None]) -> float:
    """Of another client, while the disk is slow and something is to be done there."""
    other = connect(server.port, b"small")
    put(other, b"first")
    waits, done = [0.0], threading.Event()

    def look() -> None:
        while not done.is_set():
            waits.append(put(other, b"x"))
            time.sleep(0.003)

    slow.touch()
    thread = threading.Thread(target=look)
    thread.start()
    try:
        load()
        wait_until(until, what, 30)
    finally:
        done.set()
        thread.join()
        slow.unlink()
    return max(waits)


def test_a_worker_serves_while_a_full_segment_is_cut_to_its_length(shim: Path, tmp_path: Path) -> None:
    """A disk that is slow by itself may make the other client wait too."""
    folders = (tmp_path / name for name in "abcdefgh")
    play_again_if_late("a full segment is cut", lambda: full_segment_is_cut(shim, next(folders)))


def full_segment_is_cut(shim: Path, tmp_path: Path) -> None:
    tmp_path.mkdir()
    slow, data = tmp_path / "slow", tmp_path / "data"
    env = {"LD_PRELOAD": str(shim), "SLOW_IF": str(slow)}
    options = ("--shards", "1")
    with running(SINGLE, data_dir=data, options=options, env=env) as server:
        loader = connect(server.port, b"large")
        first = data / "shard-0000" / "0000000001.log"
        for _ in range(FULL - 8):
            put(loader, BODY)
        wait_until(lambda: segments(data) > 1, "the next segment is there")

        def fill() -> None:
            for _ in range(16):
                put(loader, BODY)

        def is_cut() -> bool:
            with (data / "shard-0000" / "0000000002.log").open("rb") as second:
                end = decode_header(header).previous_end if any(header := second.read(SEGMENT_HEADER_BYTES)) else 0
            return end > 0 and first.stat().st_size == end and first.stat().st_blocks * 512 < end + (1 << 16)

        assert longest_wait(server, slow, is_cut, "it is cut", fill) < SLOW_S / 2
        server.kill()
    with running(SINGLE, data_dir=data, options=options) as server, connect(server.port, b"large") as again:
        again.sendall(b"stats-tube large\r\n")
        assert b"current-jobs-ready: %d\n" % (FULL + 8) in again.recv(4096)


def test_a_worker_serves_while_a_segment_is_made(shim: Path, tmp_path: Path) -> None:
    """A disk that is slow by itself may make the other client wait too."""
    folders = (tmp_path / name for name in "abcdefgh")
    play_again_if_late("a segment is made", lambda: segment_is_made(shim, next(folders)))


def segment_is_made(shim: Path, tmp_path: Path) -> None:
    tmp_path.mkdir()
    slow = tmp_path / "slow"
    env = {"LD_PRELOAD": str(shim), "SLOW_IF": str(slow)}
    data = tmp_path / "data"
    with running(SINGLE, data_dir=data, env=env) as server:
        loader = connect(server.port, b"large")
        put(loader, b"first")
        before = segments(data)

        def fill() -> None:
            for _ in range(HALF):
                put(loader, BODY)
            wait_until(lambda: segments(data) > before, "the next segment is there", 30)
            time.sleep(2 * SLOW_S)  # and its name is being synced, twice

        assert longest_wait(server, slow, lambda: True, "it is made", fill) < SLOW_S / 2
