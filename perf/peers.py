"""Finds the real servers and tools that tests and benchmarks compare with."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

# `make` puts programs there if it finds none.
BUILD = Path(__file__).resolve().parent.parent / "build"
BUILT = BUILD / "nsq"
BUILT_NATS = BUILD / "nats"
GO_BIN = Path.home() / "go" / "bin"


def nsq_program(name: str) -> str | None:
    """Returns the path of nsqd, nsqlookupd, nsqadmin, nsq_stat, ...; None if it is not installed.

    The first of: the directory $NSQ_BIN, build/nsq, $PATH, ~/go/bin.
    """
    places = [os.environ.get("NSQ_BIN", ""), str(BUILT), os.environ.get("PATH", ""), str(GO_BIN)]
    return shutil.which(name, path=os.pathsep.join(place for place in places if place))


def nats_server() -> str | None:
    """Returns the path of a nats-server: named by $NATS_SERVER_BIN, built by make, or installed."""
    for program in (os.environ.get("NATS_SERVER_BIN"), str(BUILT_NATS / "nats-server"), "nats-server"):
        if program and (found := shutil.which(program)):
            return found
    return None
