"""`python -m perf.compare OLD.json NEW.json`: what has become worse between two reports of perf.bench.

A figure has become worse if its median is worse by more than the threshold and all its rounds are worse than all the
old ones: with three rounds each, chance alone does that once in twenty times. A figure of a single round tells nothing
about noise, so it must be worse by twice the threshold.

Where both reports have a figure's ratio to the other product or to the bare server, the ratios are judged and the
figure itself is not: what the machine does to both products is no regression.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal, TypeAlias

from perf.figures import RATIOS, Figure, Name, Report

THRESHOLD_PERCENT: Final = 10.0

Verdict: TypeAlias = Literal["worse", "better", "within noise", "same", "not judged"]


@dataclass(frozen=True, slots=True)
class Change:
    name: Name
    old: Figure
    new: Figure
    worse_percent: float  # negative: better
    verdict: Verdict


def compare(old: Mapping[Name, Figure], new: Mapping[Name, Figure], threshold_percent: float) -> list[Change]:
    """Returns all figures that both have, in the order of the new ones."""
    both = [name for name in new if name in old and old[name].rounds and new[name].rounds]
    return [_change(name, old[name], new[name], threshold_percent, _judged(name, new[name], both)) for name in both]


def worse_percent(old: Figure, new: Figure) -> float:
    """Returns how much more, in percent, the same work takes. Symmetric: 8 to 4 and 4 to 8 differ only in sign."""
    before, after = (old.median, new.median) if new.better == "lower" else (new.median, old.median)
    if before <= 0 or after <= 0:  # a figure that is a difference may be negative
        return 0.0 if before == after else (100.0 if after > before else -100.0)
    return (after / before - 1) * 100 if after >= before else -(before / after - 1) * 100


def _judged(name: Name, figure: Figure, both: Sequence[Name]) -> bool:
    return figure.judged and (name.who in RATIOS or all(replace(name, who=who) not in both for who in RATIOS))


def _change(name: Name, old: Figure, new: Figure, threshold_percent: float, judged: bool) -> Change:
    percent = worse_percent(old, new)
    if min(len(old.rounds), len(new.rounds)) < 2:
        threshold_percent *= 2
    verdict: Verdict
    if not judged:
        verdict = "not judged"
    elif abs(percent) <= threshold_percent:
        verdict = "same"
    elif _overlap(old, new):
        verdict = "within noise"
    else:
        verdict = "worse" if percent > 0 else "better"
    return Change(name, old, new, percent, verdict)


def _overlap(old: Figure, new: Figure) -> bool:
    return min(old.rounds) <= max(new.rounds) and min(new.rounds) <= max(old.rounds)


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns 0 if nothing has become worse, 1 if something has, 2 if the reports cannot be compared."""
    options = _parser().parse_args(arguments)
    try:
        old, new = Report.read(options.old), Report.read(options.new)
    except (OSError, ValueError, KeyError) as error:
        print(f"cannot compare: {error}", file=sys.stderr)
        return 2
    changes = compare(old.figures, new.figures, options.threshold)
    if not changes:
        print("cannot compare: the reports have no figure in common", file=sys.stderr)
        return 2
    for key in ("cpu", "cores", "kernel"):
        if old.machine.get(key) != new.machine.get(key):
            print(f"note: another {key}: {old.machine.get(key)}, then {new.machine.get(key)}")
    for change in changes:
        if options.all or change.verdict in ("worse", "better", "within noise"):
            print(_line(change))
    # A figure that could be measured and now cannot is the worst of regressions.
    gone = [failure for failure in new.failures if failure not in old.failures]
    for failure in gone:
        print(f"failed        {failure}")
    worse = sum(change.verdict == "worse" for change in changes)
    print(f"{len(changes)} figures, {worse} worse by more than {options.threshold:g} % and beyond noise")
    return 1 if worse or gone else 0


def _line(change: Change) -> str:
    words = f"{abs(change.worse_percent):.0f} % {'worse' if change.worse_percent > 0 else 'better'}"
    return (
        f"{change.verdict:<13} {change.name!s:<48} {change.old.median:>12,.4g} -> {change.new.median:<12,.4g}"
        f" {change.new.unit:<7} {words}"
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m perf.compare", description="what has become worse")
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument(
        "--threshold", type=float, default=THRESHOLD_PERCENT, metavar="PERCENT", help="(default: %(default)g)"
    )
    parser.add_argument("--all", action="store_true", help="show unchanged figures too")
    return parser


if __name__ == "__main__":
    sys.exit(main())
