"""Measures one ring between two processes on two cores. perf/ring_bench.c describes what is measured."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
CSRC = HERE.parent / "csrc"
RING_BYTES = 1 << 20
SMALL_BYTES = 100
LARGE_BYTES = 4096
# About a gigabyte a round: roughly a tenth of a second.
SMALL_RECORDS = 10_000_000
LARGE_RECORDS = 250_000


def build(out: Path) -> Path:
    """Compiles the benchmark into the folder `out`."""
    program = out / "ring_bench"
    command = [
        os.environ.get("CC", "cc"), "-std=c11", "-O3", f"-I{CSRC}", "-o", str(program),
        str(HERE / "ring_bench.c"), str(CSRC / "ringbuf/ring.c"),
    ]  # fmt: skip
    subprocess.run(command, check=True)
    return program


def measure(program: Path, record_bytes: int, records: int) -> tuple[float, float]:
    """Runs one round, and returns records a second and payload bytes a second."""
    arguments = [str(program), str(record_bytes), str(RING_BYTES), str(records)]
    printed = subprocess.run(arguments, check=True, capture_output=True, text=True, timeout=60).stdout
    seconds, received, received_bytes, _ = (float(field) for field in printed.split())
    return received / seconds, received_bytes / seconds


def run(rounds: int) -> dict[str, float]:
    """Returns medians over `rounds`: `records_per_s` with 100-byte records, `bytes_per_s` with 4 KiB records."""
    with tempfile.TemporaryDirectory() as folder:
        program = build(Path(folder))
        small = [measure(program, SMALL_BYTES, SMALL_RECORDS)[0] for _ in range(rounds)]
        large = [measure(program, LARGE_BYTES, LARGE_RECORDS)[1] for _ in range(rounds)]
    return {"records_per_s": statistics.median(small), "bytes_per_s": statistics.median(large)}


def main() -> int:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    # Both sides spin: on a machine with other work, the figures would be those of its scheduler.
    load = os.getloadavg()[0]
    figures = run(rounds)
    print(f"ring of {RING_BYTES >> 20} MiB, two processes, median of {rounds} rounds, load before {load:.1f}")
    print(f"  {SMALL_BYTES:>5} B records  {figures['records_per_s'] / 1e6:8.1f} M records/s")
    print(f"  {LARGE_BYTES:>5} B records  {figures['bytes_per_s'] / 1e9:8.2f} GB/s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
