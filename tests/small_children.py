"""A broker whose children are small: they speak the control protocol and use the rings, and know no messages.

Run as a module it is mq-shards with these children. Who connects gets one line: what the acceptor is, whether the
board says draining, and what each worker answered through the rings. What children are told goes to the directory
in SMALL_CHILDREN, one file each; a file there named TITLE.does makes a child misbehave.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import socket
import sys
import time
from pathlib import Path
from typing import Any

from mq_shards.ringbuf import Consumer, Producer, listening
from mq_shards.ringbuf.control import Control
from mq_shards.supervisor import journal, processes, stopping, supervisor
from mq_shards.supervisor.options.options import parse

from tests.ready import readable

STEP_S = 0.002
ANSWER_S = 5.0


class Diary:
    """What a child was told, in order, for the test to read."""

    def __init__(self, title: str) -> None:
        self.directory = Path(os.environ["SMALL_CHILDREN"])
        self.title = title

    def write(self, told: dict[str, Any], fds: int) -> None:
        entry = {**told, "fds": fds, "pid": os.getpid(), "at": time.monotonic()}
        with (self.directory / f"{self.title}.jsonl").open("a") as out:
            out.write(json.dumps(entry) + "\n")

    def does(self, what: str) -> bool:
        with contextlib.suppress(FileNotFoundError):  # the test takes it away when it likes
            return what in (self.directory / f"{self.title}.does").read_text().split()
        return False


class Rings:
    def __init__(self, out_fd: int, in_fd: int, peer_wake_fd: int) -> None:
        self.out = Producer(out_fd, peer_wake_fd)
        self.inward = Consumer(in_fd, peer_wake_fd)

    def send(self, payload: bytes) -> None:
        assert self.out.produce(payload)
        self.out.publish()

    def receive(self) -> bytes | None:
        record = self.inward.consume()
        self.inward.release()
        return None if record is None else bytes(record.payload)


def is_of_liveness(control: Control, told: dict[str, Any]) -> bool:
    """Asked or said at any time, and so of no interest to a diary."""
    if told["do"] == "ping":
        control.send({"did": "pong"})
    return told["do"] in ("ping", "trouble")


def worker(control: Control) -> None:
    start, fds = control.receive()
    diary = Diary(start["title"])
    diary.write(start, len(fds))
    kept: dict[int, bytes] = {}
    peers: dict[int, Rings] = {}
    while True:
        for rings in peers.values():
            if rings.receive() is not None:
                rings.send(b"%s:%d" % (start["title"].encode(), os.getpid()))
        arrived = None
        with contextlib.suppress(TimeoutError):
            arrived = control.receive(STEP_S)
        if arrived is None:
            continue
        told, fds = arrived
        if is_of_liveness(control, told):
            continue
        diary.write(told, len(fds))
        match told["do"]:
            case "peer":
                peers[told["acceptor"]] = Rings(*fds)
            case "gone":
                del peers[told["acceptor"]]
            case "segment":
                kept[told["segment"]] = os.pread(fds[0], 100, 0)
            case "go":
                if diary.does("refuse"):
                    control.send({"did": "refused", "reason": "No space left on device"})
                    return
                begin(control, diary, start, kept)
            case "stop":
                stop(control, diary)
                return


def begin(control: Control, diary: Diary, start: dict[str, Any], kept: dict[int, bytes]) -> None:
    if diary.does("die"):
        os.abort()
    while diary.does("hesitate"):
        time.sleep(STEP_S)
    if diary.does("babble"):
        control.send({"did": "something else"})
    if diary.does("keep") and not kept:
        for segment in (1, 2, 3):
            fd = os.memfd_create("segment")
            os.write(fd, b"segment %d" % segment)
            control.send({"did": "keep", "shard": start["own"][0], "segment": segment}, [fd])
            os.close(fd)
        control.send({"did": "drop", "shard": start["own"][0], "segment": 1})
    damage = {"shard": 3, "segment": 7, "offset": 4096, "reason": "a record that is not whole"}
    control.send(
        {
            "did": "recovered",
            "noted": True,
            "shards": len(start["own"]),
            "records": 5,
            "jobs": sum(len(body) for body in kept.values()),
            "bytes": 100,
            "seconds": 0.25,
            "damage": [damage] if diary.does("damage") else [],
        }
    )
    if diary.does("disk"):
        control.send({"did": "disk", "state": "failing", "reason": "No space left on device"})


def acceptor(control: Control) -> None:
    start, fds = control.receive()
    diary = Diary(start["title"])
    diary.write(start, len(fds))
    while diary.does("load"):
        time.sleep(STEP_S)
    board_fd = fds[0]
    peers: dict[int, Rings] = {}
    sockets: list[socket.socket] = []
    while True:
        watched: list[Control | socket.socket] = [control, *sockets]
        ready = readable(watched)
        # All it has been told comes before any connection.
        while (arrived := control.receive_now()) is not None:
            told, fds = arrived
            if is_of_liveness(control, told):
                continue
            diary.write(told, len(fds))
            match told["do"]:
                case "peer":
                    peers[told["worker"]] = Rings(*fds)
                case "gone":
                    del peers[told["worker"]]
                case "listen":
                    sockets.append(socket.socket(fileno=fds[0]))
                    listening.begin(sockets[-1], told["backlog"])
                case "go":
                    if diary.does("die"):
                        os.abort()
                    while diary.does("hesitate"):
                        time.sleep(STEP_S)
                    control.send({"did": "ready"})
                case "stop":
                    stop(control, diary)
                    return
        for sock in ready:
            if isinstance(sock, socket.socket):
                answer(sock, start, board_fd, peers)


def gateway(control: Control) -> None:
    """To its supervisor and its workers it is one more acceptor."""
    acceptor(control)


def answer(sock: socket.socket, start: dict[str, Any], board_fd: int, peers: dict[int, Rings]) -> None:
    try:
        connection, _ = sock.accept()
    except OSError as error:
        # There was nobody; or the supervisor has the socket refuse everybody, because it stops.
        assert error.errno in (errno.EAGAIN, errno.EINVAL)
        return
    said = [f"{start['title']}:{os.getpid()}", f"draining:{int.from_bytes(os.pread(board_fd, 4, 64), 'little')}"]
    for rings in peers.values():
        rings.send(b"who?")
        until = time.monotonic() + ANSWER_S
        while (reply := rings.receive()) is None and time.monotonic() < until:
            time.sleep(STEP_S)
        said.append((reply or b"no answer").decode())
    with connection:
        connection.sendall(" ".join(said).encode() + b"\n")


def stop(control: Control, diary: Diary) -> None:
    if diary.does("close-and-linger"):
        control.send({"did": "stopped"})
        control.close()
    while diary.does("linger"):
        time.sleep(STEP_S)
    while diary.does("close-and-linger"):
        time.sleep(STEP_S)
    with contextlib.suppress(OSError):
        control.send({"did": "stopped"})


def main() -> int:
    options = parse(sys.argv[1:])
    journal.configure(options.log_level, options.log_json, "mq-supervisor")
    if "SMALL_STOPPING_SAID" in os.environ:
        stopping.SAID_S = float(os.environ["SMALL_STOPPING_SAID"])  # type: ignore[misc]
    small = "tests.small_children"
    entries = processes.Entries(acceptor=f"{small}.acceptor", worker=f"{small}.worker", gateway=f"{small}.gateway")
    return supervisor.Supervisor(options, entries).run()


if __name__ == "__main__":
    sys.exit(main())
