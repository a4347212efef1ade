"""All shards of a backup are of one moment, and whoever is asked for it goes on, whatever becomes of the others."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from mq_shards.ringbuf.control import Control
from mq_shards.shards.backup_cut import End, Moment, moment
from mq_shards.shards.checksum import crc32c
from mq_shards.shards.hold import HOLD_S, address_of, hold
from mq_shards.shards.layout import SEGMENT_HEADER_BYTES

from tests.servers import SINGLE, Server, Shape, children, comm_of, running, wait_until
from tests.supervisor.test_backup import broker_of, client_of
from tests.terminal.commands import done

SEVERAL = Shape("workers-3", "mq-shards", ("--workers", "3"))
NOBODY = 65534


def chain_of(server: Server, chain: int, tubes: int, stop: threading.Event, done_at: list[int]) -> None:
    """Each job goes to another tube than the one before, which was answered first."""
    with socket.create_connection(("127.0.0.1", server.port)) as sock:
        while not stop.is_set():
            body = b"%d %d" % (chain, done_at[chain])
            sock.sendall(b"use tube-%d\r\nput 0 0 60 %d\r\n%s\r\n" % (done_at[chain] % tubes, len(body), body))
            answer = b""
            while answer.count(b"\r\n") < 2:
                answer += sock.recv(4096)
            assert b"\r\nINSERTED" in answer
            done_at[chain] += 1


def chains_in(data: Path, tubes: int, chains: int) -> list[set[int]]:
    found: list[set[int]] = [set() for _ in range(chains)]
    with running(SINGLE, data_dir=data) as server, socket.create_connection(("127.0.0.1", server.port)) as sock:
        assert not re.search("error|warning", server.said()), server.said()
        for tube in range(tubes):
            sock.sendall(b"watch tube-%d\r\n" % tube)
        answers = b""
        while b"TIMED_OUT" not in answers:
            sock.sendall(b"reserve-with-timeout 0\r\n" * 100)
            answers = b""
            while answers.count(b"RESERVED") + answers.count(b"TIMED_OUT") < 100 or not answers.endswith(b"\r\n"):
                answers += sock.recv(1 << 16)
            for chain, number in re.findall(rb"\r\n(\d+) (\d+)\r\n", answers):
                found[int(chain)].add(int(number))
    return found


def test_a_backup_has_all_that_came_before_what_it_has(tmp_path: Path) -> None:
    """Chains over all shards: no job is there without the one that was answered before it was put."""
    data, tubes, chains = tmp_path / "data", 24, 3
    done_at = [0] * chains
    stop = threading.Event()
    with running(SEVERAL, data_dir=data, options=("--shards", "24")) as server:
        arguments = [(server, chain, tubes, stop, done_at) for chain in range(chains)]
        threads = [threading.Thread(target=chain_of, args=found) for found in arguments]
        for thread in threads:
            thread.start()
        made: list[tuple[list[int], list[int]]] = []
        try:
            for n in range(2):
                time.sleep(0.1)
                before = list(done_at)
                found = json.loads(done("backup", str(data), str(tmp_path / "backup"), "--json"))
                assert not found["problems"]
                made.append((before, list(done_at)))
                shutil.copytree(tmp_path / "backup", tmp_path / f"kept-{n}")
        finally:
            stop.set()
            for thread in threads:
                thread.join()
    for n, (before, after) in enumerate(made):
        done("restore", str(tmp_path / f"kept-{n}"), str(tmp_path / f"restored-{n}"))
        for chain, numbers in enumerate(chains_in(tmp_path / f"restored-{n}", tubes, chains)):
            assert numbers == set(range(len(numbers))), "one is there, and one before it is not"
            assert before[chain] <= len(numbers) <= after[chain] + 1


def test_all_shards_of_a_backup_are_of_one_moment(tmp_path: Path) -> None:
    """However long it takes to copy them: a job goes to each tube in turn, and from each the last is looked at."""
    data, to, tubes = tmp_path / "data", tmp_path / "backup", 8
    options = ("--shards", "8", "--set", "log.retention-hours=0")
    done_at: dict[tuple[int, int], tuple[float, float]] = {}  # by tube and number: from when, until when it was put
    stop = threading.Event()
    with running(SINGLE, data_dir=data, max_job_bytes=1 << 20, options=options) as server, client_of(server) as client:
        for n in range(80):
            client.use(f"tube-{n % tubes}")
            client.put(b"filler" + b"x" * 1_000_000)

        def put() -> None:
            with client_of(server) as other:
                n = 0
                while not stop.wait(0.003):  # what is put is looked at one by one afterwards
                    for tube in range(tubes):
                        begun = time.monotonic()
                        other.use(f"tube-{tube}")
                        other.put(b"%d" % n)
                        done_at[tube, n] = begun, time.monotonic()
                    n += 1

        thread = threading.Thread(target=put)
        thread.start()
        try:
            begun = time.monotonic()
            done("backup", str(data), str(to))
            took_s = time.monotonic() - begun
            before = len(done_at)
            wait_until(lambda: len(done_at) > before, "something is put that is not in it")
        finally:
            stop.set()
            thread.join()
    done("restore", str(to), str(tmp_path / "restored"))
    found: set[tuple[int, int]] = set()
    with broker_of(tmp_path / "restored") as (server, client):
        for tube in range(tubes):
            client.watch(f"tube-{tube}")
            client.use(f"tube-{tube}")
            for job in range(client.stats_tube(f"tube-{tube}")["current-jobs-ready"]):  # noqa: B007
                body = client.reserve(timeout=0).body
                if not body.startswith(b"filler"):
                    found.add((tube, int(body)))
            client.ignore(f"tube-{tube}")
    assert found and len(found) < len(done_at)
    # Nothing of before what is missing is there that was put later.
    last = max(done_at[one][0] for one in found)
    first = min(times[1] for one, times in done_at.items() if one not in found)
    assert last - first < took_s / 8, f"{last - first:.3f} s between shards, of {took_s:.3f} s that it took"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Server]:
    with running(SEVERAL, data_dir=tmp_path / "data", options=("--shards", "16")) as server:
        yield server


def test_a_moment_is_where_each_log_ends(broker: Server, tmp_path: Path) -> None:
    before = moment(tmp_path / "data")
    with client_of(broker) as client:
        client.put(b"x" * 1000)
    after = moment(tmp_path / "data")
    assert isinstance(before, Moment) and isinstance(after, Moment)
    assert before.ends == [End(1, 0, 0)] * 16, "no segment is begun"
    (grown,) = {*after.ends} - {*before.ends}
    assert (grown.first, grown.last) == (1, 1) and 1000 < grown.bytes - SEGMENT_HEADER_BYTES < 1500


def test_a_worker_that_does_not_answer_costs_the_moment_and_keeps_nobody(broker: Server, tmp_path: Path) -> None:
    stopped = next(pid for pid in children(broker.process.pid) if comm_of(pid) == "mq-worker-1")
    os.kill(stopped, signal.SIGSTOP)
    try:
        assert re.search("mq-worker-1.*: no answer within", str(moment(tmp_path / "data")))
        wait_until(lambda: moment(tmp_path / "data") == "mq-worker-1: not ready", "it is not asked again and again")
        with client_of(broker) as client:
            client.use(next(f"u-{n}" for n in range(100) if crc32c(b"u-%d" % n) % 16 % 3 == 0))
            begun = time.monotonic()
            client.put(b"x")
            assert time.monotonic() - begun < HOLD_S + 5
    finally:
        os.kill(stopped, signal.SIGCONT)
    wait_until(lambda: isinstance(moment(tmp_path / "data"), Moment), "it answers again")


def test_who_is_not_told_in_time_says_so_and_then_does_what_came_meanwhile() -> None:
    here, there = Control.pair()
    here.send({"do": "release", "number": 1})  # of an earlier one
    here.send({"do": "ping"})
    began = time.monotonic()
    assert [message["do"] for message, _ in hold(there, 2, [[1, 1, 96]])] == ["release", "ping"]
    assert time.monotonic() - began >= HOLD_S
    assert here.receive()[0] == {"did": "held", "number": 2, "ends": [[1, 1, 96]]}
    assert here.receive()[0] == {"did": "released", "number": 2, "in_time": False}
    here.send({"do": "release", "number": 3})
    assert hold(there, 3, []) == []
    assert [here.receive()[0].get("in_time") for _ in range(2)] == [None, True]


AS_NOBODY = """
import os, socket, sys
sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
os.setuid(%d)
if sys.argv[1] == "ask":
    sock.connect(bytes.fromhex(sys.argv[2]))
    print(sock.recv(100000), flush=True)
else:
    sock.bind(bytes.fromhex(sys.argv[2]))
    sock.listen()
    print("listens", flush=True)
    sys.stdin.read()
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
def test_a_stranger_is_told_nothing_and_believed_nothing(broker: Server, tmp_path: Path) -> None:
    program = [sys.executable, "-c", AS_NOBODY % NOBODY]
    told = subprocess.run([*program, "ask", address_of(tmp_path / "data").hex()], capture_output=True, check=True)
    assert told.stdout == b"b''\n"
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "lock").touch()
    name = address_of(tmp_path / "other").hex()
    with subprocess.Popen([*program, "be", name], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as stranger:
        assert stranger.stdout is not None and stranger.stdout.readline() == b"listens\n"
        assert moment(tmp_path / "other") is None
        assert stranger.stdin is not None
        stranger.stdin.close()
