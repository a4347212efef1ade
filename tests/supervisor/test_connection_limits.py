"""Connections that cannot be accepted are said once, and wait; shards that cannot be opened are one clear line."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests import servers
from tests.beanstalk.wire import Wire
from tests.servers import SINGLE, wait_until

COMMAND = "mq_shards.supervisor.command"
BODY = 7_900_000
PUT = b"put 0 0 60 %d\r\n" % BODY + bytes(BODY)


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


def test_too_little_address_space_is_one_line() -> None:
    options = ["--memory", "--workers", "1", "--listen", "beanstalk://127.0.0.1:0"]
    limited = ["sh", "-c", 'ulimit -v 600000 && exec "$@"', "sh", sys.executable, "-m", COMMAND]
    done = subprocess.run([*limited, *options], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "mq-worker-0 cannot serve: Cannot allocate memory: " in done.stderr and "ulimit -v" in done.stderr
    assert "Traceback" not in done.stderr and len(done.stderr.splitlines()) < 5


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


def limited(limit: int, *options: str) -> list[str]:
    return ["sh", "-c", f'ulimit -n {limit} && exec "$@"', "sh", sys.executable, "-m", COMMAND, "--memory", *options]


def test_without_a_descriptor_for_a_segment_in_memory_a_put_is_refused_and_no_message_is_lost(tmp_path: Path) -> None:
    """The supervisor has a descriptor of each: without one left it could start no worker any more."""
    port = servers.free_port()
    options = ("--shards", "2", "--listen", f"beanstalk://127.0.0.1:{port}", f"--set=beanstalk.max-job-size={BODY}")
    said = tmp_path / "said"
    with said.open("wb") as sink:
        broker = subprocess.Popen(limited(56, *options), stdout=sink, stderr=sink, start_new_session=True)
    server = servers.Server(SINGLE, port, broker, said)
    try:
        servers.wait_for_answer(server, b"peek-ready\r\n")
        with Wire(server) as wire:
            wire.use("t")
            replies = [wire.exchange(PUT).word for _ in range(120)]
            put = replies.count(b"INSERTED")
            assert set(replies) == {b"INSERTED", b"OUT_OF_MEMORY"} and put > 16
            assert "which is its share of the supervisor's file descriptors" in server.said()
        server.replace("mq-worker-0")
        with Wire(server) as wire:
            assert int(wire.stats()["current-jobs-ready"]) == put
            wire.watch_only("t")
            for _ in range(20):
                reply = wire.exchange("reserve-with-timeout 0")
                assert wire.ask(f"delete {reply.number}") == b"DELETED"
            wire.use("t")
            wait_until(lambda: wire.exchange(PUT).word == b"INSERTED", "there is room again")
        assert server.terminate() == 0
    finally:
        server.dispose()


def test_a_supervisor_with_too_few_descriptors_for_its_shards_says_how_many_they_need() -> None:
    command = limited(160, "--shards", "64", "--listen", "beanstalk://127.0.0.1:0")
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert "its 64 shards need 128 file descriptors of the supervisor's, and it may have" in done.stderr


def test_strangers_leave_descriptors_for_what_an_acceptor_is_sent_when_a_worker_is_replaced(tmp_path: Path) -> None:
    """It would end without them, and close all connections."""
    port, most = servers.free_port(), 240
    said = tmp_path / "said"
    options = ("--shards", "1", "--listen", f"beanstalk://127.0.0.1:{port}")
    with said.open("wb") as sink:
        broker = subprocess.Popen(limited(most, *options), stdout=sink, stderr=sink, start_new_session=True)
    server = servers.Server(SINGLE, port, broker, said)
    with contextlib.ExitStack() as stack:
        stack.callback(server.dispose)
        servers.wait_for_answer(server, b"peek-ready\r\n")
        acceptor = server.pid_of("mq-acceptor-0")
        wire = stack.enter_context(Wire(server))
        wire.use("t")
        for _ in range(2 * most):
            stack.enter_context(socket.create_connection(("127.0.0.1", port), 10))
        wait_until(lambda: "as many as its file descriptors allow" in server.said(), "there is no place left")
        server.replace("mq-worker-0")
        # What is on its way to a worker that has died, but has not been replaced yet, fails.
        wait_until(lambda: wire.exchange("put 0 0 60 1\r\nx").word == b"INSERTED", "the new one is there")
        assert server.pid_of("mq-acceptor-0") == acceptor
