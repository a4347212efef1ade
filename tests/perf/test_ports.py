"""Tests that run beside each other are never told the same port."""

from __future__ import annotations

import subprocess
import sys

from perf.ports import free_port

PROCESSES, EACH = 4, 600
GIVES = f"from perf.ports import free_port\nprint([free_port() for _ in range({EACH})], flush=True)\ninput()"


def test_no_two_processes_are_given_the_same_port() -> None:
    command = [sys.executable, "-c", GIVES]
    children = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(PROCESSES)
    ]
    given = [free_port() for _ in range(EACH)]
    for child in children:
        assert child.stdout is not None
        given += map(int, child.stdout.readline().strip("[]\n").split(","))
    for child in children:
        child.communicate("\n", timeout=60)
    assert len(set(given)) == len(given) == (PROCESSES + 1) * EACH
