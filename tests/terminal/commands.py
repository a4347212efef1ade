"""The commands as a shell runs them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import Any

from tests.servers import ROOT

MQ = (sys.executable, "-m", "mq_shards.supervisor.command")
SECONDS = 30.0
ENVIRONMENT = {**os.environ, "PYTHONUNBUFFERED": "1"}


def run(*arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([*MQ, *arguments], input=stdin, capture_output=True, timeout=SECONDS, cwd=ROOT, check=False)


def done(*arguments: str, stdin: bytes = b"") -> bytes:
    """What it writes when it succeeds."""
    result = run(*arguments, stdin=stdin)
    assert (result.returncode, result.stderr) == (0, b""), result
    return result.stdout


def objects(*arguments: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in done(*arguments, "--json").splitlines()]


def started(*arguments: str) -> subprocess.Popen[bytes]:
    """As from a terminal: a shell that runs the tests in the background has SIGINT ignored, by its children too."""
    return subprocess.Popen(
        [*MQ, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT,
        env=ENVIRONMENT, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
