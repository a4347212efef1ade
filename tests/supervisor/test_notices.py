"""What systemd is told, and when."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest
from mq_shards.supervisor.notify import Notifier

from tests.servers import wait_until
from tests.supervisor.small_broker import Start


def test_systemd_is_told_of_every_stage(start: Start) -> None:
    broker = start("--workers", "1")
    assert broker.noticed[0] == "STATUS=recovering"
    assert broker.noticed[1] == "READY=1\nSTATUS=serving"
    broker.process.terminate()
    assert broker.ends() == 0
    assert broker.has_noticed("STOPPING=1")


def test_systemd_is_told_again_and_again_that_it_lives_where_it_watches(start: Start) -> None:
    broker = start("--workers", "1", WATCHDOG_USEC="60000000")
    wait_until(lambda: broker.has_noticed("WATCHDOG=1") and broker.noticed.count("WATCHDOG=1") > 1, "it is told")


@pytest.mark.parametrize(
    ("env", "is_told"),
    [
        ({}, False),
        ({"WATCHDOG_USEC": "60000000"}, True),
        ({"WATCHDOG_USEC": "60000000", "WATCHDOG_PID": str(os.getpid())}, True),
        ({"WATCHDOG_USEC": "60000000", "WATCHDOG_PID": "1"}, False),
    ],
)
def test_systemd_is_told_only_where_it_watches_this_process(tmp_path: Path, env: dict[str, str], is_told: bool) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notices:
        notices.bind(str(tmp_path / "notify"))
        given = {"NOTIFY_SOCKET": str(tmp_path / "notify"), **env}
        notifier = Notifier.from_environment(given)
        assert given == {}, "no child has it"
        notifier.alive(0.0)
        notifier.stopping("x")
        notifier.close()
        assert notices.recv(4096).startswith(b"WATCHDOG=1" if is_told else b"STOPPING=1")


@pytest.mark.parametrize(("limit_us", "every_s"), [(60_000_000, 1.0), (900_000, 0.3), (30_000, 0.01)])
def test_however_short_systemd_waits_it_is_told_in_time(tmp_path: Path, limit_us: int, every_s: float) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notices:
        notices.bind(str(tmp_path / "notify"))
        notices.setblocking(False)
        notifier = Notifier.from_environment(
            {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": str(limit_us)}
        )
        for _ in range(5):
            now = notifier.alive_at
            assert now is not None
            notifier.alive(now)
            assert notices.recv(4096) == b"WATCHDOG=1" and notifier.alive_at == pytest.approx(now + every_s)
            notifier.alive(now + every_s / 2)
            with pytest.raises(BlockingIOError):
                notices.recv(4096)
        notifier.close()


def test_systemd_is_told_over_an_abstract_socket(start: Start) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notices:
        notices.settimeout(10)
        name = f"mq-shards-test-{os.getpid()}"
        notices.bind("\0" + name)
        start("--workers", "1", ready=False, NOTIFY_SOCKET="@" + name)
        assert notices.recv(4096) == b"STATUS=recovering"
        assert notices.recv(4096).startswith(b"READY=1\n")
