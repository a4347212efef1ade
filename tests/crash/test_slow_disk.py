"""A disk that takes long to make and to remove files: the worker serves meanwhile."""

from __future__ import annotations

import shutil
import socket
import subprocess
import threading
import time
from pathlib import Path

import pytest

from tests.servers import SINGLE, running, wait_until

SOURCE = Path(__file__).with_name("slowsync.c")
BODY = b"x" * 65000
# A log asks for its next segment when the one it has is half full.
HALF = (32 << 20) // len(BODY) + 8
SLOW_S = 1.0  # slowsync.c


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not shutil.which("cc"):
        pytest.skip("no C compiler")
    target = tmp_path_factory.mktemp("shim") / "slowsync.so"
    subprocess.run(["cc", "-O2", "-Wall", "-Werror", "-shared", "-fPIC", str(SOURCE), "-o", str(target)], check=True)
    return target


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


def test_a_worker_serves_while_a_segment_is_made(shim: Path, tmp_path: Path) -> None:
    slow = tmp_path / "slow"
    env = {"LD_PRELOAD": str(shim), "SLOW_IF": str(slow)}
    data = tmp_path / "data"
    with running(SINGLE, data_dir=data, env=env) as server:
        loader, other = connect(server.port, b"large"), connect(server.port, b"small")
        put(other, b"first"), put(loader, b"first")
        before, waits, done = segments(data), [0.0], threading.Event()

        def look() -> None:
            while not done.is_set():
                waits.append(put(other, b"x"))

        slow.touch()
        thread = threading.Thread(target=look)
        thread.start()
        try:
            for _ in range(HALF):
                put(loader, BODY)
            wait_until(lambda: segments(data) > before, "the next segment is there", 10)
            time.sleep(2 * SLOW_S)  # and its name is being synced, twice
        finally:
            done.set()
            thread.join()
            slow.unlink()
    assert max(waits) < SLOW_S / 2
