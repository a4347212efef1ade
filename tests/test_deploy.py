"""deploy/: what Prometheus and Grafana are given speaks of figures that there are."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from mq_shards.gateway import metrics, metrics_topics
from mq_shards.supervisor.options.doors import is_local
from mq_shards.supervisor.options.options import parse

from tests.servers import ROOT

DEPLOY = ROOT / "deploy"
NAME = re.compile(r"\bmq_shards_\w+")


def names() -> set[str]:
    """As Prometheus has them: a counter ends in _total."""
    source = Path(metrics.__file__).read_text() + Path(metrics_topics.__file__).read_text()
    found = {(name, rises) for _, rises, name, _ in metrics._TOTALS}
    found |= {(name, rises) for _, rises, name, _ in (*metrics_topics._TOPIC, *metrics_topics._CHANNEL)}
    found |= {(name, True) for _, name, _ in metrics._COUNTED}
    found |= {(name, True) for _, name, _ in metrics._OF_PROTOCOLS}
    found |= {(f"{name}_bucket", False) for _, name, _ in metrics._DURATIONS}
    found |= {(name, True) for name in re.findall(r'\(\d, "(\w+)", "', source)}
    made = re.findall(r'(?:_metric|family)\(\s*(True|False), "(\w+)"', source)
    found |= {(name, rises == "True") for rises, name in made}
    return {f"mq_shards_{name}{'_total' if rises else ''}" for name, rises in found}


def test_every_rule_is_about_figures_that_there_are() -> None:
    yaml = pytest.importorskip("yaml")
    groups = yaml.safe_load((DEPLOY / "alerts.yml").read_text())["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    assert len({rule["alert"] for rule in rules}) == len(rules) > 5
    for rule in rules:
        assert rule["annotations"]["summary"] and rule["labels"]["severity"] in ("page", "warn")
        assert set(NAME.findall(rule["expr"])) <= names(), rule["alert"]


def test_every_panel_is_about_figures_that_there_are() -> None:
    board = json.loads((DEPLOY / "grafana.json").read_text())
    expressions = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    assert len(expressions) > 10
    for expression in expressions:
        assert NAME.search(expression) and set(NAME.findall(expression)) <= names(), expression


def test_the_unit_starts_what_is_installed() -> None:
    unit = (DEPLOY / "mq-shards.service").read_text()
    assert "Type=notify" in unit and "/bin/mq-shards" in unit
    (start,) = re.findall(r"^ExecStart=\S+ (.*)$", unit, re.MULTILINE)
    listens = parse(start.split()).listen
    assert listens and all(is_local(one) for one in listens), "as docs/security.md says: on loopback"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd here")
def test_systemd_takes_the_unit_and_calls_it_safe(tmp_path: Path) -> None:
    unit = tmp_path / "mq-shards.service"
    unit.write_text((DEPLOY / "mq-shards.service").read_text().replace("/opt/mq-shards/bin/mq-shards", "/bin/true"))
    verified = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True, timeout=60, check=False
    )
    # It looks at what the unit depends on, too.
    assert [line for line in verified.stderr.splitlines() if "mq-shards" in line] == []
    version = subprocess.check_output(["systemd-analyze", "--version"], text=True, timeout=60)
    if int(re.findall(r"\d+", version)[0]) < 250:
        return  # it judges running units only
    # Of 100, where a unit without restrictions has 96.
    judged = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--threshold=20", unit], capture_output=True, text=True,
        timeout=60, check=False,
    )  # fmt: skip
    assert judged.returncode == 0, judged.stdout[-200:]
