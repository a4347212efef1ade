"""Debian's Prometheus scrapes a broker, and finds that its rules hold together."""

from __future__ import annotations

import json
import re
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


# What some series are, minute by minute, and the one alert that there is after two hours of it.
FIRING = {
    "MqShardsDown": {"up": "0x120"},
    "MqShardsWorkerDown": {"worker_up": "0x120"},
    "MqShardsWorkerRefuses": {"worker_refuses": "1x120"},
    "MqShardsProcessHangs": {"process_hangs_total": "0x116 1x4"},
    "MqShardsDiskNearlyFull": {"disk_bytes": "1x120", 'disk_bytes{which="all"}': "100x120"},
    "MqShardsMediumFails": {"messages_unreadable_total": "0x110 7x10"},
    "MqShardsProcessComesAndGoes": {"process_cpu_seconds_total": "9x110 1 9 1 9 1 9 1 9 1 9"},
    "MqShardsDraining": {"draining": "1x120"},
    "MqShardsBacklogGrows": {"channel_depth": "20000+10x120", "channel_consumers": "1x120"},
    "MqShardsNobodyConsumes": {"channel_depth": "5x120", "channel_consumers": "0x120"},
    "MqShardsTubeGrows": {"topic_jobs": "20000+10x120", "topic_jobs_reserved_total": "4x120"},
    "MqShardsTimeouts": {"channel_timed_out_total": "0+100x120"},
    "MqShardsJobsBuried": {"topic_jobs_buried": "0+1x120"},
    "MqShardsJobsTimeOut": {"topic_jobs_timed_out_total": "0+100x120"},
    "MqShardsCertificateExpires": {"certificate_expiry_timestamp_seconds": "90000x120"},
    "MqShardsTooManyFiles": {"process_open_files": "900x120", "process_max_files": "1000x120"},
    "MqShardsOldMessage": {"channel_oldest_seconds": "4000x120", "channel_paused": "0x120"},
    "MqShardsConsumersStuck": {
        "channel_in_flight": "3x120", "channel_finished_total": "5x120", "channel_delivered_total": "8x120",
    },
    "MqShardsSlowDisk": {
        'sync_seconds_bucket{le="0.536870912"}': "0x120", 'sync_seconds_bucket{le="1.07374182"}': "0+60x120",
        'sync_seconds_bucket{le="+Inf"}': "0+60x120",
    },
    "MqShardsRingBehind": {"ring_overflow_bytes": "4096x120"},
    "MqShardsWrongLogins": {"refused_logins_total": "0+100x120"},
}  # fmt: skip


def labels_of(text: str, name: str, given: str) -> str:
    """Those of a series as the broker shows it, with some replaced by what is given."""
    shown = re.search(rf"^mq_shards_{name}(?:{{(.*)}})? ", text, re.MULTILINE)
    found = dict(re.findall(r'(\w+)="([^"]*)"', (shown[1] if shown else None) or ""))
    found |= {"job": "mq-shards", "instance": "broker:4180", **dict(re.findall(r'(\w+)="([^"]*)"', given))}
    return ",".join(f'{label}="{value}"' for label, value in found.items())


def test_each_alert_is_given_for_what_the_broker_shows(
    programs: tuple[str, str], broker: Broker, tmp_path: Path
) -> None:
    topic = unique_topic()
    api.post(broker.nsq_http_port, f"/topic/create?topic={topic}")
    api.post(broker.nsq_http_port, f"/channel/create?topic={topic}&channel=c")
    api.post(broker.nsq_http_port, f"/pub?topic={topic}", b"hello")
    text = api.call(broker.http_port, "GET", "/metrics").body.decode()
    tests = []
    for alert, series in FIRING.items():
        inputs = []
        for one, values in series.items():
            name, _, given = one.partition("{")
            full = name if name == "up" else f"mq_shards_{name}"
            inputs.append({"series": f"{full}{{{labels_of(text, name, given)}}}", "values": values})
        firing = {"labels": f'{{alertname="{alert}"}}', "value": 1}
        expr = 'count by (alertname) (ALERTS{alertstate="firing"})'
        tests.append(
            {
                "name": alert, "interval": "1m", "input_series": inputs,
                "promql_expr_test": [{"expr": expr, "eval_time": "2h", "exp_samples": [firing]}],
            }
        )  # fmt: skip
    rules = ROOT / "deploy" / "alerts.yml"
    (tmp_path / "tests.yml").write_text(json.dumps({"rule_files": [str(rules)], "tests": tests}))
    checked = subprocess.run(
        [programs[1], "test", "rules", "tests.yml"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert set(re.findall(r"alert: (\w+)", rules.read_text())) == set(FIRING)


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
                # A panel without data says the same of a healthy broker as of a name that is no longer there.
                query = expression.replace("$instance", ".*")
                wait_until(lambda query=query: bool((asked(query) or {"result": []})["result"]), f"it has {query}")
            # A ratio whose sides do not match is empty, and no error.
            of_files = "mq_shards_process_open_files / on (instance, job) group_left mq_shards_process_max_files"
            assert 0 < value(of_files) < 1 and of_files in (ROOT / "deploy" / "alerts.yml").read_text()
            assert value("resets(mq_shards_process_cpu_seconds_total[15m])") == 0
        finally:
            process.terminate()
