"""Where the real servers and tools are that tests and benchmarks compare with."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

# `make` puts NSQ's programs there when it finds none.
BUILT = Path(__file__).resolve().parent.parent / "build" / "nsq"
GO_BIN = Path.home() / "go" / "bin"


def nsq_program(name: str) -> str | None:
    """The path of nsqd, nsqlookupd, nsqadmin, nsq_stat, ...; None where it is not installed.

    The first of: the directory $NSQ_BIN, build/nsq, $PATH, ~/go/bin.
    """
    places = [os.environ.get("NSQ_BIN", ""), str(BUILT), os.environ.get("PATH", ""), str(GO_BIN)]
    return shutil.which(name, path=os.pathsep.join(place for place in places if place))
