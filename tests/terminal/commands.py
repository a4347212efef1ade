"""The commands as a shell runs them."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from typing import Any, TypeAlias

from tests import starting
from tests.starting import COMMAND as MQ
from tests.starting import MODULE, ROOT

__all__ = ["MQ", "ROOT"]
SECONDS = 30.0
ENVIRONMENT = {**os.environ, "PYTHONUNBUFFERED": "1"}
Started: TypeAlias = "starting.Piped | subprocess.Popen[bytes]"


def on_port(http_port: int) -> tuple[str, ...]:
    """A module, and its arguments."""
    return ("tests.terminal.elsewhere", str(http_port))


def run(*arguments: str, stdin: bytes = b"", mq: Sequence[str] = (MODULE,)) -> subprocess.CompletedProcess[bytes]:
    return starting.run((*mq[1:], *arguments), stdin, SECONDS, mq[0])


def done(*arguments: str, stdin: bytes = b"") -> bytes:
    """What it writes when it succeeds."""
    return done_by((MODULE,), *arguments, stdin=stdin)


def done_by(mq: Sequence[str], *arguments: str, stdin: bytes = b"") -> bytes:
    result = run(*arguments, stdin=stdin, mq=mq)
    assert (result.returncode, result.stderr) == (0, b""), result
    return result.stdout


def objects(*arguments: str, mq: Sequence[str] = (MODULE,)) -> list[dict[str, Any]]:
    return [json.loads(line) for line in done_by(mq, *arguments, "--json").splitlines()]


def started(*arguments: str, mq: Sequence[str] = (MODULE,)) -> Started:
    return starting.piped((*mq[1:], *arguments), mq[0])
