"""The regression run judges ratios: what is worse beyond floor and spread is, and another machine or noise is not."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from perf import check
from perf.figures import LIMIT_RATIO, RATIO, Better, Figure, Figures, Name, Report

RATE = Name("pipelined", "disk", RATIO, "rate")
CPU = Name("nsq-pub", "64 outstanding", LIMIT_RATIO, "cpu_us_per_message")


def figure(*rounds: float, better: Better = "higher") -> Figure:
    return Figure(rounds, "x", better)


@pytest.mark.parametrize(
    ("old", "new", "verdict"),
    [
        (figure(8, 8.1, 7.9), figure(6, 6.1, 5.9), "worse"),
        (figure(8, 8.1, 7.9), figure(10, 10.1, 9.9), "better"),
        (figure(8, 8.1, 7.9), figure(7.5, 7.4, 7.6), "same"),
        (figure(8, 8.1, 7.9, better="lower"), figure(6, 6.1, 5.9, better="lower"), "better"),
        (figure(8, 8.1, 7.9, better="lower"), figure(10, 10.1, 9.9, better="lower"), "worse"),
        (figure(8, 8, 8, 8, 8), figure(8, 8, 2, 8, 8), "same"),  # one round was disturbed
        (figure(8, 8, 8, 8, 8), figure(4, 4, 8, 4, 4), "worse"),
        (figure(8, 8.1, 7.9), figure(3, 8, 14), "unclear"),
        (figure(8), figure(6), "unclear"),  # a round each says little
        (figure(8), figure(2), "worse"),
    ],
)
def test_a_ratio_is_worse_when_it_is_beyond_floor_and_spread(old: Figure, new: Figure, verdict: str) -> None:
    assert check.judge(RATE, old, new).verdict == verdict


def test_noise_alone_is_rarely_called_worse_and_a_halved_rate_nearly_always_is() -> None:
    chance = random.Random(1)

    def measured(value: float) -> Figure:
        return figure(*(value * chance.gauss(1, 0.08) for _ in range(check.ROUNDS)))

    verdicts = [check.judge(RATE, measured(8), measured(8)).verdict for _ in range(1000)]
    assert verdicts.count("worse") < 10
    assert [check.judge(RATE, measured(8), measured(4)).verdict for _ in range(1000)].count("worse") > 980


def test_a_tolerance_grows_with_the_spread_of_either_side() -> None:
    quiet, loud = figure(8, 8.1, 7.9), figure(8, 9, 7)
    assert check.judge(RATE, quiet, quiet).tolerance < check.judge(RATE, quiet, loud).tolerance
    assert check.judge(RATE, quiet, loud).tolerance == pytest.approx(check.judge(RATE, loud, quiet).tolerance)


def test_what_only_one_side_has_is_said_and_not_judged() -> None:
    judgements = check.judge_all({RATE: figure(8)}, {CPU: figure(3, better="lower")})
    assert [(each.name, each.verdict) for each in judgements] == [(RATE, "not measured"), (CPU, "not in the baseline")]
    assert check.status(judgements, []) == 2


def test_the_exit_status_says_whether_something_is_worse_failed_or_unknown() -> None:
    def status(new: Figure, *failures: str) -> int:
        return check.status(check.judge_all({RATE: figure(8, 8.1, 7.9)}, {RATE: new}), failures)

    assert status(figure(8, 8.1, 7.9)) == 0
    assert status(figure(9, 9.1, 8.9)) == 0
    assert status(figure(4, 4.1, 3.9)) == 1
    assert status(figure(8, 8.1, 7.9), "pipelined: mq-shards ended with status 1") == 1
    assert status(figure(3, 8, 14)) == 2


def test_only_ratios_of_rates_and_processor_time_are_kept() -> None:
    own = Name("pipelined", "disk", "mq-shards", "rate")
    latency = Name("pipelined", "disk", RATIO, "put_p99")
    found = check.only_ratios({each: figure(1) for each in (RATE, CPU, own, latency)})
    assert set(found) == {RATE, CPU}


def run(monkeypatch: pytest.MonkeyPatch, baseline: Path, *found: Figures, options: tuple[str, ...] = ()) -> int:
    """perf.check where the first measurement finds the first figures, the second the second."""
    results = iter(found)
    monkeypatch.setattr(check, "measure", lambda *_: (next(results), []))
    monkeypatch.setattr(check.bench, "prepare", lambda: None)
    return check.main(["--baseline", str(baseline), *options])


def test_what_looks_worse_is_measured_again_and_all_rounds_count(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    baseline = tmp_path / "baseline.json"
    Report(figures={RATE: figure(8, 8.1, 7.9, 8, 8)}).write(baseline)
    bad, good = {RATE: figure(4, 4.1, 3.9, 4)}, {RATE: figure(8, 8.1, 7.9, 8, 8)}
    assert run(monkeypatch, baseline, good) == 0
    assert run(monkeypatch, baseline, bad, good) == 0
    assert run(monkeypatch, baseline, bad, bad) == 1
    shown = capsys.readouterr()
    assert "worse" in shown.out and "pipelined.disk.ratio.rate" in shown.out
    assert "once more: pipelined" in shown.err


def test_without_a_baseline_nothing_is_measured(tmp_path: Path) -> None:
    assert check.main(["--baseline", str(tmp_path / "none.json")]) == 2
    (tmp_path / "odd.json").write_text("[]")
    assert check.main(["--baseline", str(tmp_path / "odd.json")]) == 2


def test_a_baseline_that_was_written_is_the_one_that_is_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    baseline = tmp_path / "baseline.json"
    figures = {RATE: figure(8, 8.1, 7.9)}
    assert run(monkeypatch, baseline, figures, options=("--write",)) == 0
    assert Report.read(baseline).figures == figures


def test_the_baseline_in_the_repository_has_every_ratio_that_is_checked() -> None:
    figures = Report.read(check.BASELINE).figures
    assert {name.scenario for name in figures} == set(check.CHECKED)
    assert all(name.who in (RATIO, LIMIT_RATIO) and name.metric in check.METRICS for name in figures)
    limits = {name.scenario for name in figures if name.who == LIMIT_RATIO}
    assert limits == {name for name in check.CHECKED if not name.startswith("nsq-spread")}
