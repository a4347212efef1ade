"""Debian's Prometheus scrapes a broker, and finds that its rules hold together."""

from __future__ import annotations

import json
import shutil
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.nsq import api
from tests.nsq.wire import unique_topic
from tests.pipeline.broker import Broker
from tests.servers import ROOT, free_port, wait_until

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def programs() -> tuple[str, str]:
    """Prometheus and promtool."""
    if shutil.which("prometheus") is None:
        apt = "apt-get update -qq && apt-get install -qq -y --no-install-recommends prometheus"
        subprocess.run(["sh", "-c", apt], capture_output=True, check=False)
    found = shutil.which("prometheus"), shutil.which("promtool")
    if found[0] is None or found[1] is None:
        pytest.skip("there is no prometheus, and it cannot be installed")
    return found[0], found[1]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    one = Broker(tmp_path_factory.mktemp("scraped"))
    one.start()
    yield one
    one.stop()


def test_promtool_has_nothing_to_say(programs: tuple[str, str], broker: Broker) -> None:
    api.post(broker.nsq_http_port, f"/pub?topic={unique_topic()}", b"hello")
    text = api.call(broker.http_port, "GET", "/metrics").body.decode()
    checked = subprocess.run([programs[1], "check", "metrics"], input=text, capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")
    rules = str(ROOT / "deploy" / "alerts.yml")
    checked = subprocess.run([programs[1], "check", "rules", rules], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_prometheus_has_the_figures(programs: tuple[str, str], broker: Broker, tmp_path: Path) -> None:
    topic, port = unique_topic(), free_port()
    config = tmp_path / "prometheus.yml"
    config.write_text(
        "global: {scrape_interval: 1s, evaluation_interval: 1s}\n"
        f"rule_files: [{ROOT}/deploy/alerts.yml]\n"
        f"scrape_configs: [{{job_name: mq, static_configs: [{{targets: ['127.0.0.1:{broker.http_port}']}}]}}]\n"
    )
    command = [
        programs[0], f"--config.file={config}", f"--storage.tsdb.path={tmp_path}/tsdb",
        f"--web.listen-address=127.0.0.1:{port}",
    ]  # fmt: skip

    def asked(query: str, what: str = "data") -> Any:  # noqa: ANN401
        address = f"http://127.0.0.1:{port}/api/v1/query?{urllib.parse.urlencode({'query': query})}"
        try:
            with urllib.request.urlopen(address, timeout=60) as answer:
                return json.load(answer)[what]
        except OSError:
            return None  # it is not there yet

    def value(query: str) -> float:
        found = asked(query)
        return float(found["result"][0]["value"][1]) if found and found["result"] else -1

    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            for _ in range(5):
                api.post(broker.nsq_http_port, f"/pub?topic={topic}", b"hello")
            wait_until(lambda: value(f'mq_shards_topic_published_total{{topic="{topic}"}}') == 5, "it has the topic")
            quantile = "histogram_quantile(0.99, sum by (le) (mq_shards_publish_seconds_bucket))"
            wait_until(lambda: 0 < value(quantile) < 60, "it has quantiles")
            wait_until(lambda: value(f'mq_shards_topic_oldest_seconds{{topic="{topic}"}}') > 1, "it grows old")
            wait_until(lambda: value("sum(rate(mq_shards_loop_busy_seconds_total[10s]))") >= 0, "it has rates")
            assert value("up") == 1
            board = json.loads((ROOT / "deploy" / "grafana.json").read_text())
            for expression in (target["expr"] for panel in board["panels"] for target in panel["targets"]):
                assert asked(expression.replace("$instance", ".*"), "status") == "success", expression
            # A ratio whose sides do not match is empty, and no error.
            of_files = "mq_shards_process_open_files / on (instance, job) group_left mq_shards_process_max_files"
            assert 0 < value(of_files) < 1 and of_files in (ROOT / "deploy" / "alerts.yml").read_text()
            assert value("resets(mq_shards_process_cpu_seconds_total[15m])") == 0
        finally:
            process.terminate()
