"""Connections that cannot be accepted are said once, and wait; shards that cannot be opened are one clear line."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests import servers
from tests.servers import SINGLE, wait_until


@pytest.mark.parametrize("limit", ["max-connections", "descriptors"])
def test_that_no_connection_can_be_accepted_is_one_line_in_the_journal(limit: str) -> None:
    import resource

    options = ("--set=broker.max-connections=4",) if limit == "max-connections" else ()
    server = servers.start(SINGLE, options=options)
    try:
        if limit == "descriptors":
            pid = server.pid_of("mq-acceptor-0")
            used = len(list(Path(f"/proc/{pid}/fd").iterdir()))
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (used + 3, used + 3))
        socks = [socket.create_connection(("127.0.0.1", server.port), 10) for _ in range(20)]
        wait_until(lambda: "new connections wait: " in server.said(), "it is said")
        for sock in socks:
            sock.close()
        with socket.create_connection(("127.0.0.1", server.port), 10) as sock:
            sock.sendall(b"use x\r\n")
            assert sock.recv(100) == b"USING x\r\n", "there is room again"
        assert server.said().count("new connections wait") == 1
    finally:
        server.dispose()


@pytest.mark.parametrize("limit", [24, 120, 200])
def test_a_worker_with_too_few_descriptors_for_its_shards_says_how_many_it_needs(tmp_path: Path, limit: int) -> None:
    """Some of its shards can be opened, or all of them but nothing else."""
    options = ["--data-dir", str(tmp_path / "data"), "--listen", "beanstalk://127.0.0.1:0"]
    limited = ["sh", "-c", f'ulimit -n {limit} && exec "$@"', "sh", sys.executable, "-m"]
    done = subprocess.run(
        [*limited, "mq_shards.supervisor.command", *options], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 1
    assert "file descriptors, and it may have" in done.stderr or "Too many open files" in done.stderr
    assert done.stderr.count("mq-worker-0 cannot serve: ") == 1
    assert "Traceback" not in done.stderr and len(done.stderr.splitlines()) < 5
    with servers.running(SINGLE, data_dir=tmp_path / "data"):
        pass
