"""What jobs tell Prometheus and OpenLineage, as those would hear it; and that nobody who does not listen ends a job."""

from __future__ import annotations

import argparse
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from mq_shards.pipeline import telemetry
from mq_shards.pipeline.lag import Lag
from mq_shards.pipeline.topics import Key
from prometheus_client.parser import text_string_to_metric_families

from perf.ports import free_port

CONNECTION = {"brokers": "a:4180"}


@pytest.fixture
def listener() -> Iterator[tuple[str, list[tuple[str, dict[str, Any]]]]]:
    heard: list[tuple[str, dict[str, Any]]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            heard.append((self.path, json.loads(self.rfile.read(int(self.headers["Content-Length"])))))
            self.send_response(201)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", heard
    server.shutdown()
    thread.join()
    server.server_close()


def options(**said: object) -> argparse.Namespace:
    return argparse.Namespace(**({"job": "archive", "to": "/somewhere", "topics": "orders,mail"} | said))


def samples(text: str) -> dict[tuple[str, str], float]:
    return {
        (sample.name, sample.labels.get("topic", "")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_prometheus_hears_how_far_a_job_is_and_how_it_ended(tmp_path: Path) -> None:
    port, file = free_port(), tmp_path / "archive.prom"
    with telemetry.telling(options(metrics=str(port), metrics_file=file), CONNECTION) as told:
        told.progress(70, 1, Lag({Key("b", "orders"): 5, Key("b", "mail"): 0}))
        told.progress(30, 2, Lag({Key("b", "orders"): 2}))
        with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as reply:
            found = samples(reply.read().decode())
        assert found == samples(file.read_text())
        assert found["mq_pipeline_messages_total", ""] == 100 and found["mq_pipeline_batches_total", ""] == 3
        assert found["mq_pipeline_lag_messages", ""] == 2 == found["mq_pipeline_topic_lag_messages", "orders"]
        assert ("mq_pipeline_topic_lag_messages", "mail") not in found
        assert found["mq_pipeline_running", ""] == 1
        told.end(143)
    with pytest.raises(OSError):
        urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30)
    found = samples(file.read_text())
    assert (found["mq_pipeline_running", ""], found["mq_pipeline_exit_status", ""]) == (0, 143)


@pytest.mark.parametrize(("status", "kind"), [(0, "COMPLETE"), (1, "FAIL"), (143, "ABORT")])
def test_openlineage_hears_what_a_job_made_of_what(
    listener: tuple[str, list[tuple[str, dict[str, Any]]]], tmp_path: Path, status: int, kind: str
) -> None:
    url, heard = listener
    for to in (url, str(tmp_path / "events")):
        with telemetry.telling(options(lineage=to), CONNECTION) as told:
            told.progress(100)
            told.end(status)
    written = [json.loads(line) for line in (tmp_path / "events").read_text().splitlines()]
    assert {path for path, _ in heard} == {"/api/v1/lineage"}
    for events in ([event for _, event in heard], written):
        first, last = events
        assert (first["eventType"], last["eventType"]) == ("START", kind)
        assert first["run"] == last["run"] and first["job"] == {"namespace": "mq-shards", "name": "mq-pipeline.archive"}
        assert last["inputs"] == [{"namespace": "mqshards://a:4180", "name": topic} for topic in ("orders", "mail")]
        (made,) = last["outputs"]
        assert (made["namespace"], made["name"]) == ("file", "/somewhere")
        assert made["outputFacets"]["outputStatistics"]["rowCount"] == 100
        assert first["schemaURL"].endswith("#/$defs/RunEvent") and first["eventTime"].endswith("+00:00")


def test_who_does_not_listen_ends_no_job(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    said = options(lineage=f"http://127.0.0.1:{free_port()}", metrics_file=tmp_path / "gone" / "file")
    with telemetry.telling(said, CONNECTION) as told:
        told.progress(1)
        told.end(0)
    warned = [record.getMessage().partition(" ")[0] for record in caplog.records]
    assert sorted(warned) == ["lineage", "metrics"]


def test_an_address_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match=r"--metrics 70000: \[HOST:\]PORT"), telemetry.telling(
        options(metrics="70000"), CONNECTION
    ):
        pass
