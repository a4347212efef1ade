"""`python -m perf.bench`: measures mq-shards beside the servers that it replaces. See docs/measuring.md."""

from __future__ import annotations

import argparse
import os
import platform
import resource
import shlex
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NoReturn

from perf import load
from perf.bare import Bare
from perf.brokers import BrokerError, MqShards, Product, this_mq_shards
from perf.figures import Report, table
from perf.scenarios import Plan, Scenario
from perf.table import MEASURED

ROOT: Final = Path(__file__).resolve().parent.parent
RESULTS: Final = ROOT / "perf" / "results"


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns 0 if everything could be measured; 1 if a measurement failed, or, with --check, a target is missed."""
    options = parser().parse_args(arguments)
    prepare()
    plans = {subject: make_plan(options, subject) for subject in chosen_subjects(options)}
    plan = next(iter(plans.values()))
    report = Report(
        machine=machine(plan.base),
        versions=versions(plans),
        settings={"rounds": str(plan.rounds), "seconds": str(plan.seconds), "workers": str(options.workers)},
    )
    for subject, plan in plans.items():
        for name, measure in MEASURED[subject].scenarios.items():
            if not options.only or name in options.only:
                measure_into(report, plan, name, measure)
    path = options.json or RESULTS / f"{datetime.now(UTC):%Y%m%d-%H%M%S}.json"
    report.write(path)
    print_report(report, path)
    missed = [name for name, figure in report.figures.items() if not figure.meets_target]
    return 1 if report.failures or (options.check and missed) else 0


def prepare() -> None:
    """Prepares this process, for the brokers that it starts."""
    # A SIGTERM must end the brokers too, so it has to unwind the stack.
    signal.signal(signal.SIGTERM, _terminate)
    # Many open files for the brokers, which inherit the limit.
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def versions(plans: Mapping[str, Plan]) -> dict[str, str]:
    found = {product.name: product.version() for plan in plans.values() for product in plan.products}
    return found | {"commit": commit()}


def measure_into(report: Report, plan: Plan, name: str, measure: Scenario) -> None:
    try:
        report.figures |= measure(plan)
    except (BrokerError, load.LoadError, OSError, subprocess.SubprocessError, ImportError) as error:
        report.failures.append(f"{name}: {error}")
        plan.say(f"  FAILED: {error}")


def chosen_subjects(options: argparse.Namespace) -> list[str]:
    """Returns the subjects of --only if it is given, else the one of --protocol, else all that can be measured here."""
    chosen: list[str] = [subject for subject in MEASURED if options.protocol in (None, subject)]
    if options.only:
        chosen = [subject for subject in chosen if any(name in options.only for name in MEASURED[subject].scenarios)]
    elif options.protocol is None:
        chosen = [subject for subject in chosen if _can_be_measured(subject)]
    if not chosen:
        has = ", ".join(MEASURED[options.protocol].scenarios)
        raise SystemExit(f"{', '.join(options.only)}: not scenarios of {options.protocol}, which has: {has}")
    return chosen


def _can_be_measured(subject: str) -> bool:
    absent = MEASURED[subject].missing()
    if absent is not None:
        _say(f"without {absent} nothing can be measured of {subject}")
    return absent is None


def make_plan(options: argparse.Namespace, subject: str) -> Plan:
    program = tuple(shlex.split(options.mq_shards))
    measured = MEASURED[subject]
    ours = this_mq_shards(measured.wire, options.workers)
    if program:
        ours = MqShards(program, measured.wire, options.workers)
    theirs = measured.installed()
    if measured.peer and theirs is None:
        _say(f"{measured.peer} is not installed: there will be nothing to compare with")
    products: list[Product] = [ours] if theirs is None else [ours, theirs]
    plan = Plan(
        products=products, limit=Bare(measured.wire) if measured.peer else None, rounds=3, seconds=2.0, warmup=0.4,
        recovery_jobs=2_000_000, memory_jobs=1_000_000, connections=10_000, subscriptions=1_000_000,
        spark_messages=5_000_000, base=options.dir, say=_say,
    )  # fmt: skip
    if options.quick:
        plan = replace(
            plan, rounds=1, seconds=1.0, warmup=0.3, recovery_jobs=200_000, memory_jobs=100_000, connections=1000,
            subscriptions=100_000, spark_messages=1_000_000,
        )  # fmt: skip
    seconds = options.seconds or plan.seconds
    return replace(plan, rounds=options.rounds or plan.rounds, seconds=seconds, warmup=min(plan.warmup, seconds))


def print_report(report: Report, path: Path) -> None:
    print()
    for title, values in (("machine", report.machine), ("versions", report.versions)):
        print(f"{title}: " + ", ".join(f"{name} {value}" for name, value in values.items()))
    print(f"\n{table(report.figures)}")
    for failure in report.failures:
        print(f"FAILED {failure}")
    print(f"written to {path}")


def machine(base: Path | None) -> dict[str, str]:
    """Returns what the figures depend on, beside the programs."""
    directory = base or Path(tempfile.gettempdir())
    cpuinfo = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.partition(": ")[2] for line in cpuinfo if line.startswith("model name")), platform.machine())
    congestion = Path("/proc/sys/net/ipv4/tcp_congestion_control")
    return {
        "cpu": model,
        "cores": str(len(os.sched_getaffinity(0))),
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') >> 30} GiB",
        "kernel": platform.release(),
        "python": platform.python_version(),
        "tcp": congestion.read_text().strip() if congestion.exists() else "unknown",
        "disk": f"{filesystem(directory)} with {fdatasync_us(directory):.0f} us per synced 4 KiB",
        "load average": f"{os.getloadavg()[0]:.2f}",
        "time": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
    }


def filesystem(directory: Path) -> str:
    """Returns the type of the file system that `directory` is on."""
    best, kind = "", "unknown"
    for line in Path("/proc/mounts").read_text().splitlines():
        _, point, found, *_ = line.split()
        if directory.resolve().is_relative_to(point) and len(point) >= len(best):
            best, kind = point, found
    return kind


def fdatasync_us(directory: Path, writes: int = 50) -> float:
    """Returns the median time of appending 4 KiB and syncing it: what one write costs at least, without grouping."""
    taken: list[float] = []
    with tempfile.TemporaryFile(dir=directory) as file:
        for _ in range(writes):
            os.write(file.fileno(), bytes(4096))
            began = time.monotonic()
            os.fdatasync(file.fileno())
            taken.append(time.monotonic() - began)
    return statistics.median(taken) * 1e6


def commit() -> str:
    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, timeout=10).stdout.strip()

    try:
        return (git("rev-parse", "--short=12", "HEAD") or "unknown") + ("+changes" if git("status", "--short") else "")
    except (OSError, subprocess.TimeoutExpired):
        return "unknown"


def _terminate(*_: object) -> NoReturn:
    sys.exit(143)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(prog="python -m perf.bench", description=__doc__)
    options.add_argument("--quick", action="store_true", help="one short round of everything: for a first look")
    options.add_argument("--protocol", choices=tuple(MEASURED), help="measure only this one (default: all)")
    names = tuple(name for each in MEASURED.values() for name in each.scenarios)
    options.add_argument("--only", action="append", choices=names, help="this scenario; may be repeated")
    options.add_argument("--rounds", type=int, metavar="N", help="rounds of each comparison (default: 3)")
    options.add_argument("--seconds", type=float, metavar="S", help="measured window of each round (default: 2)")
    options.add_argument(
        "--workers", type=int, default=1, metavar="N", help="worker processes of mq-shards (default: 1)"
    )
    options.add_argument("--json", type=Path, metavar="FILE", help="where to write the report (default: perf/results/)")
    options.add_argument("--dir", type=Path, metavar="DIR", help="where the brokers keep their data (default: TMPDIR)")
    options.add_argument("--check", action="store_true", help="exit with 1 if a target is missed")
    options.add_argument(
        "--mq-shards", metavar="COMMAND", default="", help="the mq-shards to measure (default: this environment's)"
    )
    return options


if __name__ == "__main__":
    sys.exit(main())
