"""Measured figures, and the file that keeps those of one run."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

Better: TypeAlias = Literal["higher", "lower"]
RATIO: Final = "ratio"
LIMIT_RATIO: Final = "limit-ratio"
RATIOS: Final = (RATIO, LIMIT_RATIO)
FORMAT: Final = 1


@dataclass(frozen=True, slots=True)
class Name:
    """Says what a figure measures. `who` is a product, RATIO for the first product's figure over the peer's, or
    LIMIT_RATIO for the first product's over the bare server's."""

    scenario: str
    variant: str
    who: str
    metric: str

    def __str__(self) -> str:
        return f"{self.scenario}.{self.variant}.{self.who}.{self.metric}"

    @staticmethod
    def parse(text: str) -> Name:
        scenario, variant, who, metric = text.split(".")
        return Name(scenario, variant, who, metric)


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure, in every round in which it was measured. `target`: it should be there or better. `judged`: false for
    figures that are shown, but are too noisy, or not ours, to call a regression."""

    rounds: tuple[float, ...]
    unit: str
    better: Better
    target: float | None = None
    judged: bool = True

    @property
    def median(self) -> float:
        return statistics.median(self.rounds)

    @property
    def meets_target(self) -> bool:
        if self.target is None:
            return True
        return self.median >= self.target if self.better == "higher" else self.median <= self.target


Figures: TypeAlias = dict[Name, Figure]


@dataclass(slots=True)
class Report:
    """Everything known about one run. `failures` has a line for each measurement that could not be made."""

    machine: dict[str, str] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict)
    figures: Figures = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)

    def write(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        figures = {str(name): {"median": figure.median, **asdict(figure)} for name, figure in self.figures.items()}
        content = {
            "format": FORMAT, "machine": self.machine, "versions": self.versions, "settings": self.settings,
            "figures": figures, "failures": self.failures,
        }  # fmt: skip
        path.write_text(json.dumps(content, indent=2) + "\n")

    @staticmethod
    def read(path: Path) -> Report:
        """Raises OSError, or ValueError if the file is no report of this version."""
        content: dict[str, Any] = json.loads(path.read_text())
        if not isinstance(content, dict) or content.get("format") != FORMAT:
            raise ValueError(f"{path} is not a benchmark report of this version")
        figures = {Name.parse(name): _read_figure(fields) for name, fields in content["figures"].items()}
        return Report(content["machine"], content["versions"], content["settings"], figures, content["failures"])


def ratio(ours: Figure, theirs: Figure, target: float | None = None) -> Figure:
    """Divides round by round, so that what slowed the machine down during one round cancels out."""
    rounds = tuple(a / b for a, b in zip(ours.rounds, theirs.rounds, strict=True))
    return Figure(rounds, "x", ours.better, target, judged=ours.judged)


def blocks(figures: Mapping[Name, Figure]) -> dict[tuple[str, str], Figures]:
    """Returns the figures by scenario and variant, in the order in which they were measured."""
    found: dict[tuple[str, str], Figures] = {}
    for name, figure in figures.items():
        found.setdefault((name.scenario, name.variant), {})[name] = figure
    return found


def table(figures: Mapping[Name, Figure]) -> str:
    """Returns a table for people: the medians, a line for each metric, a column for each product."""
    lines: list[str] = []
    for (scenario, variant), block in blocks(figures).items():
        whos = list(dict.fromkeys(name.who for name in block if name.who not in RATIOS))
        lines.append(f"{f'{scenario}, {variant}':<34}" + "".join(f"{who:>14}" for who in whos))
        lines += [_line(scenario, variant, metric, whos, block) for metric in dict.fromkeys(n.metric for n in block)]
        lines.append("")
    return "\n".join(lines)


def _line(scenario: str, variant: str, metric: str, whos: Sequence[str], block: Mapping[Name, Figure]) -> str:
    cells = [block.get(Name(scenario, variant, who, metric)) for who in whos]
    unit = next((cell.unit for cell in cells if cell), "")
    line = f"  {f'{metric} ({unit})' if unit else metric:<32}" + "".join(f"{_shown(cell):>14}" for cell in cells)
    times = block.get(Name(scenario, variant, RATIO, metric))
    if times is not None and times.rounds:
        line += f"   x {times.median:<7.3g}"
        if times.target is not None:
            sign = ">=" if times.better == "higher" else "<="
            line += f"{sign} {times.target:<6.3g}{'ok' if times.meets_target else 'MISSED'}"
    limit = block.get(Name(scenario, variant, LIMIT_RATIO, metric))
    if limit is not None and limit.rounds:
        line += f"   x {limit.median:.3g} of bare"
    return line.rstrip()


def _shown(figure: Figure | None) -> str:
    if figure is None or not figure.rounds:
        return "-"
    return f"{figure.median:,.0f}" if abs(figure.median) >= 1000 else f"{figure.median:.3g}"


def _read_figure(fields: Mapping[str, Any]) -> Figure:
    return Figure(tuple(fields["rounds"]), fields["unit"], fields["better"], fields["target"], fields["judged"])
