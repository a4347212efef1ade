"""`python -m perf.instructions`: how many instructions a message takes in an acceptor and a worker, by valgrind.

Other work on the machine changes times, but hardly these counts: they are for comparing two builds on a busy machine.
They have user space only, not the kernel's part. See perf/instructions.c, and those of each protocol for the loads.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mq_shards.csrc import build as build_flags

from perf.table import MEASURED

HERE: Final = Path(__file__).resolve().parent
CORE: Final = HERE.parent / "csrc"
FLAGS: Final = ("-std=gnu11", "-pthread", *build_flags.RELEASE, *build_flags.WHOLE)
SOURCES: Final = ("instructions.c", "measure.c", *(name for each in MEASURED.values() for name in each.counting))
COUNTED: Final = ("acceptor_counted", "worker_counted")
LOADS: Final = {name: rounds for each in MEASURED.values() for name, rounds in each.counted.items()}


@dataclass(frozen=True, slots=True)
class Counted:
    """How many instructions a message takes."""

    acceptor: float
    worker: float


def build(core: Path, out: Path) -> Path:
    """Compiles the loads with the core in `core` into the folder `out`."""
    program = out / "instructions"
    sources = [*(HERE / name for name in SOURCES), *sorted(core.glob("*/**/*.c"))]
    command = [os.environ.get("CC", "cc"), *FLAGS, f"-I{core}", f"-I{HERE}", *map(str, sources), "-o", str(program)]
    subprocess.run(command, check=True)
    return program


def count(program: Path, load: str, rounds: int, profile: Path) -> Counted:
    """Runs a load under callgrind, which writes `profile`."""
    command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={profile}", "--collect-atstart=no"]
    command += [f"--toggle-collect={name}" for name in COUNTED]
    done = subprocess.run([*command, str(program), load, str(rounds)], check=True, capture_output=True, text=True)
    messages = int(done.stdout)
    shown = subprocess.run(
        ["callgrind_annotate", "--inclusive=yes", "--threshold=100", str(profile)],
        check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    acceptor, worker = (instructions_of(shown, name) / messages for name in COUNTED)
    return Counted(acceptor, worker)


def instructions_of(shown: str, function: str) -> int:
    """Returns the inclusive count of a function in what callgrind_annotate has printed."""
    counts = re.findall(rf"^ *([\d,]+) .*:{function} ", shown, re.MULTILINE)
    return max(int(each.replace(",", "")) for each in counts)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m perf.instructions", description="instructions a message")
    parser.add_argument("loads", nargs="*", metavar="LOAD", help=f"(default: all) {', '.join(LOADS)}")
    parser.add_argument("--core", type=Path, default=CORE, metavar="DIR", help="the C sources (default: this csrc)")
    parser.add_argument("--profile", type=Path, metavar="FILE", help="keep the last load's profile there")
    options = parser.parse_args(arguments)
    if unknown := [load for load in options.loads if load not in LOADS]:
        parser.error(f"no load {', '.join(unknown)}")
    if shutil.which("valgrind") is None:
        print("valgrind is not installed", file=sys.stderr)
        return 1
    print(f"{'instructions a message':<24}{'acceptor':>10}{'worker':>10}{'both':>10}")
    with tempfile.TemporaryDirectory() as folder:
        program = build(options.core, Path(folder))
        profile = options.profile or Path(folder) / "profile"
        for load in options.loads or LOADS:
            counted = count(program, load, LOADS[load], profile)
            both = counted.acceptor + counted.worker
            print(f"{load:<24}{counted.acceptor:>10,.0f}{counted.worker:>10,.0f}{both:>10,.0f}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
