"""A supervisor whose children are small ones: tests/small_children.py."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.servers import children, comm_of, wait_until
from tests.starting import Process

ANY_PORT = "beanstalk://127.0.0.1:0"
OUTAGE_S = 5.0  # what a restart may take on a busy machine; on one that is not it is a fifth of a second
NSQ_ANY_PORT = ("--listen", "nsq://127.0.0.1:0")
HTTP_ANY_PORT = ("--listen", "http://127.0.0.1:0")
STATSD = ("--set", "nsq.statsd-address=127.0.0.1:8125")
# A gateway that has work, and so begins before anybody has come to it.
AT_WORK = (*NSQ_ANY_PORT, *STATSD, *HTTP_ANY_PORT)


@dataclass
class Broker:
    process: Process
    directory: Path
    notices: socket.socket
    noticed: list[str] = field(default_factory=list)
    seen: set[int] = field(default_factory=set)

    def said(self) -> str:
        return (self.directory / "stderr").read_text()

    def told(self, title: str) -> list[dict[str, Any]]:
        path = self.directory / f"{title}.jsonl"
        # The last line may be on its way yet.
        whole = path.read_text().rpartition("\n")[0] if path.exists() else ""
        return [json.loads(line) for line in whole.splitlines()]

    def what(self, title: str) -> list[str]:
        return [entry["do"] for entry in self.told(title)]

    def pids(self) -> dict[str, int]:
        found = {comm_of(pid): pid for pid in children(self.process.pid)}
        self.seen.update(found.values())
        return found

    def has_noticed(self, text: str) -> bool:
        with contextlib.suppress(BlockingIOError):
            while True:
                self.noticed.append(self.notices.recv(4096).decode())
        return any(text in notice for notice in self.noticed)

    def wait_until_ready(self) -> None:
        def ready() -> bool:
            assert self.process.poll() is None, self.said()
            return self.has_noticed("READY=1")

        wait_until(ready, "ready", 20)
        self.pids()

    def port(self, protocol: str = "beanstalk") -> int:
        found = re.search(rf"listening on {protocol}://127\.0\.0\.1:(\d+)", self.said())
        assert found, self.said()
        return int(found[1])

    def ask(self, protocol: str = "beanstalk", timeout_s: float = 10.0) -> dict[str, int]:
        """What the line of a small acceptor or gateway says: a number for each name."""
        with socket.create_connection(("127.0.0.1", self.port(protocol)), timeout_s) as connection:
            line = connection.makefile().readline()
        return {name: int(number) for name, number in (word.split(":") for word in line.split())}

    def kill(self, title: str) -> int:
        pid = self.pids()[title]
        os.kill(pid, signal.SIGKILL)
        return pid

    def ends(self, seconds: float = 10.0) -> int:
        return self.process.wait(seconds)


def all_gone(pids: set[int]) -> bool:
    """Nothing runs any more; what only waits for init to take note of its end is gone too."""
    return all(state_of(pid) in "ZX" for pid in pids)


def state_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "X"


Start = Callable[..., Broker]
