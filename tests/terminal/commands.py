"""The commands as a shell runs them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from tests import starting
from tests.starting import COMMAND as MQ
from tests.starting import ROOT

SECONDS = 30.0
ON_PORT = """
import sys
from mq_shards.supervisor import command
from mq_shards.supervisor.terminal import at
at.HTTP_PORT = int(sys.argv.pop(1))
sys.exit(command.main())
"""
ENVIRONMENT = {**os.environ, "PYTHONUNBUFFERED": "1"}


def on_port(http_port: int) -> tuple[str, ...]:
    """The commands, for which http:// is usually on this port: on port 4180 of this machine may be another broker."""
    return (sys.executable, "-c", ON_PORT, str(http_port))


def run(*arguments: str, stdin: bytes = b"", mq: Sequence[str] = MQ) -> subprocess.CompletedProcess[bytes]:
    if mq == MQ:
        return starting.run(arguments, stdin, SECONDS)
    return subprocess.run([*mq, *arguments], input=stdin, capture_output=True, timeout=SECONDS, cwd=ROOT, check=False)


def done(*arguments: str, stdin: bytes = b"", mq: Sequence[str] = MQ) -> bytes:
    """What it writes when it succeeds."""
    result = run(*arguments, stdin=stdin, mq=mq)
    assert (result.returncode, result.stderr) == (0, b""), result
    return result.stdout


def objects(*arguments: str, mq: Sequence[str] = MQ) -> list[dict[str, Any]]:
    return [json.loads(line) for line in done(*arguments, "--json", mq=mq).splitlines()]


def started(*arguments: str, mq: Sequence[str] = MQ) -> subprocess.Popen[bytes]:
    """As from a terminal: a shell that runs the tests in the background has SIGINT ignored, by its children too."""
    return subprocess.Popen(
        [*mq, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT,
        env=ENVIRONMENT, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
