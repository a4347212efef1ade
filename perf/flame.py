"""`python -m perf.flame`: a flame graph of one process of mq-shards under load, C frames included.

py-spy samples the process. What py-spy calls idle (a thread that sleeps in the kernel) is left out, so that the widths
are shares of CPU time. Needs the right to trace the process: the same user, and kernel.yama.ptrace_scope 0, or root.
"""

from __future__ import annotations

import argparse
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from perf import load
from perf.bench import RESULTS
from perf.brokers import DISK, MEMORY, SYNCED, Broker, BrokerError, MqShards, this_mq_shards
from perf.table import MEASURED

KEEPINGS: Final = {keeping.name: keeping for keeping in (MEMORY, DISK, SYNCED)}
LOADS: Final = {name: subject for subject in MEASURED.values() for name in subject.drawn}
SETTLE_S: Final = 0.5  # how long the load runs before the first sample


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns 0 if the picture has been written."""
    options = _parser().parse_args(arguments)
    subject = LOADS[options.scenario]
    assert subject.generator is not None
    output: Path = options.output or RESULTS / f"flame-{options.process}-{options.scenario}.svg"
    output.parent.mkdir(parents=True, exist_ok=True)
    product = this_mq_shards(subject.wire)
    if options.mq_shards:
        product = MqShards(tuple(shlex.split(options.mq_shards)), subject.wire)
    try:
        with Broker(product, KEEPINGS[options.keeping]) as broker:
            pid = process_named(broker.pids(), options.process)
            generator = (str(load.build(subject.generator)), "--port", str(broker.port))
            record((*generator, *subject.drawn[options.scenario]), pid, options.seconds, options.rate, output)
    except (BrokerError, load.LoadError, LookupError, OSError, subprocess.SubprocessError) as error:
        print(f"no flame graph: {error}", file=sys.stderr)
        return 1
    print(output)
    return 0


def process_named(pids: Sequence[int], wanted: str) -> int:
    """Returns the first of these processes whose name ends in `wanted`. Raises LookupError."""
    names = {pid: Path(f"/proc/{pid}/comm").read_text().strip() for pid in pids}
    for pid, name in names.items():
        if name.endswith(wanted):
            return pid
    raise LookupError(f"no process {wanted}, there are: {', '.join(names.values())}")


def record(load_command: Sequence[str], pid: int, seconds: int, rate: int, output: Path) -> None:
    """Samples `pid` for `seconds` while the load runs."""
    pyspy = find_pyspy()
    # The load outlasts the recording, and is then cut off with the broker: its own figures are of no interest.
    command = [*load_command, "--seconds", str(seconds + 60)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as generator:
        try:
            time.sleep(SETTLE_S)
            done = subprocess.run(
                [pyspy, "record", "--native", "--pid", str(pid), "--duration", str(seconds), "--rate", str(rate),
                 "--format", "flamegraph", "--output", str(output)],
                capture_output=True, text=True, timeout=seconds + 60,
            )  # fmt: skip
            if generator.poll() is not None:
                raise load.LoadError(generator.communicate()[1].strip())
        finally:
            generator.kill()
    if done.returncode != 0 or not output.exists():
        raise subprocess.SubprocessError(f"py-spy: {(done.stderr or done.stdout).strip()}")


def find_pyspy() -> str:
    """Returns the path of py-spy. Raises LookupError if it is not installed."""
    beside = Path(sys.executable).with_name("py-spy")
    found = str(beside) if beside.exists() else shutil.which("py-spy")
    if found is None:
        raise LookupError("py-spy is not installed (pip install py-spy)")
    return found


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m perf.flame", description="a flame graph of a broker process")
    parser.add_argument("--process", default="worker-0", metavar="NAME", help="acceptor-0, worker-0, ... (%(default)s)")
    parser.add_argument("--scenario", default="pipelined", choices=tuple(LOADS))
    parser.add_argument("--keeping", default="disk", choices=tuple(KEEPINGS))
    parser.add_argument("--seconds", type=int, default=5, metavar="S", help="(%(default)s)")
    parser.add_argument("--rate", type=int, default=500, metavar="N", help="samples a second (%(default)s)")
    parser.add_argument("--output", type=Path, metavar="FILE", help="(default: in perf/results/)")
    parser.add_argument("--mq-shards", metavar="COMMAND", help="the mq-shards to run (default: this environment's)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
