"""A supervisor with small children."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers import wait_until
from tests.starting import begin
from tests.supervisor.small_broker import ANY_PORT, Broker, Start, all_gone


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    brokers: list[Broker] = []

    def start(
        *options: str,
        does: dict[str, str] | None = None,
        ready: bool = True,
        data_dir: Path | None = None,
        **env: str,
    ) -> Broker:
        for title, what in (does or {}).items():
            (tmp_path / f"{title}.does").write_text(what)
        notices = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        (tmp_path / "notify").unlink(missing_ok=True)
        notices.bind(str(tmp_path / "notify"))
        where = ["--memory"] if data_dir is None else ["--data-dir", str(data_dir)]
        with (tmp_path / "stderr").open("wb") as sink:
            process = begin(
                [*where, "--listen", ANY_PORT, "--set", "broker.ring-bytes=65536", *options], sink,
                env={"SMALL_CHILDREN": str(tmp_path), "NOTIFY_SOCKET": str(tmp_path / "notify"), **env},
                module="tests.small_children",
            )  # fmt: skip
        broker = Broker(process, tmp_path, notices)
        brokers.append(broker)
        if ready:
            broker.wait_until_ready()
        return broker

    yield start
    for broker in brokers:
        broker.notices.close()
        broker.pids()
        with contextlib.suppress(ProcessLookupError):
            broker.process.kill()
        broker.process.wait()
        wait_until(lambda broker=broker: all_gone(broker.seen), "nothing is left")
