"""A benchmark as short as the machine lets it be."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from perf import brokers
from perf.figures import Report

NOTHING = "answered or delivered nothing in the window"


def short_report(protocol: str, only: Iterable[str], folder: Path, environment: Mapping[str, str] = {}) -> Report:
    """What a benchmark of these scenarios wrote, without failures. Where the machine gave somebody no time in a short
    window, the next is longer. Every broker has taken its directory with it."""
    path = folder / "report.json"
    command = [sys.executable, "-m", "perf.bench", "--protocol", protocol, "--quick"]
    command += ["--json", str(path), "--dir", str(folder)]
    command += [word for name in only for word in ("--only", name)]
    for seconds in ("0.1", "1", "5"):
        done = subprocess.run(
            [*command, "--seconds", seconds],
            cwd=Path(brokers.__file__).parent.parent, capture_output=True, text=True, timeout=1800,
            env=os.environ | dict(environment),
        )  # fmt: skip
        if NOTHING not in done.stdout:
            break
    assert done.returncode == 0, done.stdout + done.stderr
    report = Report.read(path)
    assert report.failures == []
    assert [entry.name for entry in folder.iterdir()] == [path.name]
    return report
