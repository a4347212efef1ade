"""`python -m perf.check`: has anything become worse than perf/baseline.json says, on whatever machine this is?

Only ratios are compared: this broker's rate and CPU time for each message over those of its peers and of the bare
server, and those of 8 workers and 4 acceptors over those of one each. All of a round runs on the same machine within
seconds, so the machine cancels out, and a baseline from one machine serves on another.

A ratio has become worse if its median is worse than the baseline's by more than its tolerance: FLOOR, and SPREADS times
the uncertainty of both medians, as their rounds show it. What looks worse is measured again, as often as before, and
all rounds count together: so a burst of other work is not called a regression.
"""

from __future__ import annotations

import argparse
import math
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal, TypeAlias

from perf import bench, load
from perf.brokers import BrokerError
from perf.figures import RATIOS, Figure, Figures, Name, Report
from perf.scenarios import Plan, Scenario
from perf.table import MEASURED

BASELINE: Final = Path(__file__).resolve().parent / "baseline.json"
METRICS: Final = ("rate", "cpu_us_per_job", "cpu_us_per_message")
FLOOR: Final = 0.15  # a ratio differs by so much on another machine, or after another build, without a cause
SPREADS: Final = 3.0
UNCLEAR: Final = math.log(1.6)  # a larger tolerance would hide what should be seen
SECONDS: Final = 0.6
WARMUP: Final = 0.3
ROUNDS: Final = 5
LIMIT_S: Final = 280.0  # no measurement begins later; those that were made are judged

Verdict: TypeAlias = Literal["worse", "better", "same", "unclear", "not in the baseline", "not measured"]

CHECKED: Final[Mapping[str, tuple[str, Scenario]]] = {
    name: (subject, scenario) for subject, each in MEASURED.items() for name, scenario in each.checked.items()
}


@dataclass(frozen=True, slots=True)
class Judgement:
    """`worse_by` and `tolerance` are logarithms of how many times as much the same work takes now."""

    name: Name
    verdict: Verdict
    old: float | None
    new: float | None
    worse_by: float = 0.0
    tolerance: float = 0.0


def uncertainty(rounds: Sequence[float]) -> float:
    """Returns the standard error of the logarithm of the median of these rounds. It is estimated from their median
    deviation, which one disturbed round does not move. A single round says nothing: it counts as FLOOR."""
    if len(rounds) < 2:
        return FLOOR
    logarithms = [math.log(value) for value in rounds]
    middle = statistics.median(logarithms)
    deviation = statistics.median(abs(value - middle) for value in logarithms)
    return 1.4826 * deviation * 1.2533 / math.sqrt(len(rounds))


def judge(name: Name, old: Figure | None, new: Figure | None) -> Judgement:
    if new is None or old is None:
        missing: Verdict = "not measured" if new is None else "not in the baseline"
        return Judgement(name, missing, old and old.median, new and new.median)
    change = math.log(new.median / old.median)
    worse_by = change if new.better == "lower" else -change
    tolerance = math.log1p(FLOOR) + SPREADS * math.hypot(uncertainty(old.rounds), uncertainty(new.rounds))
    verdict: Verdict = "same"
    if abs(worse_by) > tolerance:
        verdict = "worse" if worse_by > 0 else "better"
    elif tolerance > UNCLEAR:
        verdict = "unclear"
    return Judgement(name, verdict, old.median, new.median, worse_by, tolerance)


def judge_all(old: Mapping[Name, Figure], new: Mapping[Name, Figure]) -> list[Judgement]:
    return [judge(name, old.get(name), new.get(name)) for name in dict.fromkeys((*old, *new))]


def only_ratios(figures: Mapping[Name, Figure]) -> Figures:
    """Returns the ratios, which are all that a baseline keeps and that is judged."""
    return {name: figure for name, figure in figures.items() if name.who in RATIOS and name.metric in METRICS}


def joined(first: Mapping[Name, Figure], second: Mapping[Name, Figure]) -> Figures:
    """Returns the figures with the rounds of both."""
    return {
        **first,
        **{
            name: replace(figure, rounds=(*first[name].rounds, *figure.rounds)) if name in first else figure
            for name, figure in second.items()
        },
    }


def suspects(judgements: Sequence[Judgement]) -> set[str]:
    """Returns the scenarios to be measured again."""
    return {each.name.scenario for each in judgements if each.verdict in ("worse", "unclear")}


def status(judgements: Sequence[Judgement], failures: Sequence[str]) -> int:
    """Returns 0 if nothing is worse, 1 if something is or could not be measured, 2 if nothing could be judged."""
    if failures or any(each.verdict == "worse" for each in judgements):
        return 1
    return 0 if any(each.verdict in ("same", "better") for each in judgements) else 2


def make_plans(rounds: int, seconds: float) -> dict[str, Plan]:
    options = bench.parser().parse_args(["--rounds", str(rounds), "--seconds", str(seconds)])
    subjects = [subject for subject, each in MEASURED.items() if each.checked]
    return {subject: replace(bench.make_plan(options, subject), warmup=WARMUP) for subject in subjects}


def measure(names: Sequence[str], plans: Mapping[str, Plan], deadline: float) -> tuple[Figures, list[str]]:
    figures: Figures = {}
    failures: list[str] = []
    for name in names:
        subject, scenario = CHECKED[name]
        if time.monotonic() > deadline:
            plans[subject].say(f"{name}: no time left")
            continue
        try:
            figures |= only_ratios(scenario(plans[subject]))
        except (BrokerError, load.LoadError, OSError, subprocess.SubprocessError) as error:
            failures.append(f"{name}: {error}")
    return figures, failures


def line(judgement: Judgement) -> str:
    old = "-" if judgement.old is None else f"{judgement.old:.3g}"
    new = "-" if judgement.new is None else f"{judgement.new:.3g}"
    text = f"{judgement.verdict:<20}{judgement.name!s:<58}{old:>8} -> {new:<8}"
    if judgement.old is None or judgement.new is None:
        return text.rstrip()
    percent = math.expm1(abs(judgement.worse_by)) * 100
    word = "worse" if judgement.worse_by > 0 else "better"
    return f"{text} {percent:3.0f} % {word}, tolerance {math.expm1(judgement.tolerance) * 100:.0f} %"


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns status(), or 2 if there is no baseline. With --write, 0 if the baseline has been written."""
    options = _parser().parse_args(arguments)
    baseline = Report()
    if not options.write:
        try:
            baseline = Report.read(options.baseline)
        except (OSError, ValueError, KeyError) as error:
            print(f"no baseline: {error}", file=sys.stderr)
            return 2
    report = Report()
    names = options.only or list(CHECKED)
    bench.prepare()
    plans = make_plans(options.rounds, options.seconds)
    deadline = time.monotonic() + (math.inf if options.write else LIMIT_S)
    report.figures, report.failures = measure(names, plans, deadline)
    if options.write:
        return _write(report, plans, options.baseline)
    known = {name: figure for name, figure in baseline.figures.items() if name.scenario in names}
    if again := suspects(judge_all(known, report.figures)):
        print(f"once more: {', '.join(sorted(again))}", file=sys.stderr, flush=True)
        figures, failures = measure([name for name in names if name in again], plans, deadline)
        report.figures = joined(report.figures, figures)
        report.failures += failures
    judgements = judge_all(known, report.figures)
    for each in judgements:
        print(line(each))
    for failure in report.failures:
        print(f"failed: {failure}")
    worse = sum(each.verdict == "worse" for each in judgements)
    print(f"{len(judgements)} ratios, {worse} worse than those of {baseline.versions.get('commit', 'the baseline')}")
    return status(judgements, report.failures)


def _write(report: Report, plans: Mapping[str, Plan], path: Path) -> int:
    if report.failures:
        print("\n".join(("not written, for this failed:", *report.failures)), file=sys.stderr)
        return 1
    some = next(iter(plans.values()))
    report.machine = bench.machine(some.base)
    report.versions = bench.versions(plans)
    report.settings = {"rounds": str(some.rounds), "seconds": str(some.seconds)}
    report.write(path)
    print(f"written to {path}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m perf.check", description="has anything become worse?")
    parser.add_argument("--write", action="store_true", help="write the baseline instead: for a release")
    parser.add_argument("--baseline", type=Path, default=BASELINE, metavar="FILE", help="(default: %(default)s)")
    parser.add_argument("--only", action="append", choices=tuple(CHECKED), help="this scenario; may be repeated")
    parser.add_argument("--rounds", type=int, default=ROUNDS, metavar="N", help="(default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=SECONDS, metavar="S", help="of a round (default: %(default)s)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
