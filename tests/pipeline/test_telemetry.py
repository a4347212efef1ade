"""What jobs tell Prometheus and OpenLineage, as those would hear it; and that nobody who does not listen ends a job."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from mq_shards.pipeline import archive, command, running, telemetry
from mq_shards.pipeline.lag import Lag
from mq_shards.pipeline.lineage import Dataset
from mq_shards.pipeline.project import Project
from mq_shards.pipeline.spark_pipelines import PipelineError
from mq_shards.pipeline.topics import Key
from prometheus_client.parser import text_string_to_metric_families
from pyspark.errors import PySparkRuntimeError

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
    (tmp_path / "there").mkdir()
    said = options(lineage=f"http://127.0.0.1:{free_port()}", metrics_file=tmp_path / "there" / "file")
    with telemetry.telling(said, CONNECTION) as told:
        shutil.rmtree(tmp_path / "there")
        told.progress(1)
        told.end(0)
    warned = [record.getMessage().partition(" ")[0] for record in caplog.records]
    assert sorted(warned) == ["lineage", "metrics"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--metrics 70000", "--metrics 70000: [HOST:]PORT is wanted"),
        ("--metrics {port}", "--metrics {port}: Address already in use"),
        ("--metrics-file {place}/gone/x", "--metrics-file {place}/gone/x: No such file or directory"),
        ("--metrics-file {place}", "--metrics-file {place}: Is a directory"),
        ("--lineage {place}/gone/x", "--lineage {place}/gone/x: No such file or directory"),
        ("--lineage {place}", "--lineage {place}: Is a directory"),
        ("--lineage ftp://h/", "--lineage: ftp://h: http:// or https:// is wanted"),
        ("--lineage http://", "--lineage: http://: this is no URL"),
    ],
)
def test_where_nothing_can_be_told_is_a_wrong_call(
    words: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    begun: list[object] = []
    monkeypatch.setattr(archive, "run", lambda *_: begun.append(1))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        of = {"place": tmp_path, "port": taken.getsockname()[1]}
        given = ["archive", "--to", "/a", "--topics", "x", *words.format(**of).split()]
        assert command.main(given) == 2
    assert capsys.readouterr().err == f"mq-pipeline: {said.format(**of)}\n"
    assert not begun and not [*tmp_path.iterdir()]


def test_a_server_of_something_else_ends_no_job(caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(30)

        def answer() -> None:
            for _ in range(2):
                with contextlib.suppress(OSError), server.accept()[0] as one:
                    one.settimeout(30)
                    one.recv(65536)
                    one.sendall(b"garbage\r\n\r\n")

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}/?api_key=secret"
        with telemetry.telling(options(lineage=url), CONNECTION) as told:
            told.end(0)
        thread.join(60)
        assert not thread.is_alive()
    (warned,) = (record.getMessage() for record in caplog.records)
    assert warned.startswith("lineage cannot be told: http://127.0.0.1: BadStatusLine") and "secret" not in warned


@pytest.mark.parametrize("url", ["http://user:secret@127.0.0.1:1/x?k=secret", "ftp://user:secret@h/", "http://[secret/",
                                 "http://127.0.0.1:secret/", "http://127.0.0.1:1/secret path"])  # fmt: skip
def test_what_is_secret_in_a_url_is_not_told(url: str) -> None:
    said = options(lineage=url)
    with pytest.raises(ValueError, match=r"^--lineage: ") as refused, telemetry.telling(said, CONNECTION):
        pass
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("to", "named"),
    [
        ("file:///r/x", Dataset("file", "/r/x")),
        ("hdfs://n:8020/a/b", Dataset("hdfs://n:8020", "/a/b")),
        ("s3a://bucket/a/b", Dataset("s3a://bucket", "a/b")),
    ],
)
def test_datasets_are_named_as_others_name_them_however_they_are_written(to: str, named: Dataset) -> None:
    said = argparse.Namespace(job="archive", to=to, topics="t")
    read, made = telemetry.datasets(said, {"brokers": "https://a:4181, b"})
    assert (read, made) == ([Dataset("mqshards://a:4181,b:4180", "t")], [named])


def test_inputs_and_outputs_are_what_the_job_reads_and_makes(tmp_path: Path) -> None:
    def of(**said: object) -> list[list[tuple[str, str]]]:
        both = telemetry.datasets(argparse.Namespace(**said), CONNECTION)
        return [[(one.namespace, one.name) for one in side] for side in both]

    assert of(job="report", to="/r", topics='["a,b"]')[0] == [("mqshards://a:4180", "a,b")]
    archived = Dataset("file", "/a")
    replayed = of(job="replay", archive="/a", topics="x, y", prefix="new.")
    assert replayed == [[(archived.namespace, "/a")], [("mqshards://a:4180", "new.x"), ("mqshards://a:4180", "new.y")]]
    assert of(job="archive", to="/a", topic_pattern="a{1,2}")[0] == [("mqshards://a:4180", "a{1,2}")]
    project = Project(tmp_path, {f"spark.mqshards.{name}": value for name, value in
                                 (("brokers", "b:1,c:1"), ("topics", "x,y"), ("topicPattern", ""))})  # fmt: skip
    project.write()
    known = {"job": "run", "dir": tmp_path}
    assert of(**known, brokers="")[0] == [("mqshards://b:1,c:1", "x"), ("mqshards://b:1,c:1", "y")]
    assert of(**known, brokers="a:4180", topic_pattern="z.*")[0] == [("mqshards://a:4180", "z.*")]
    # What a setting says counts most, as it does for the run; a project that is not there yet knows nothing.
    given = {"brokers": "d:1", "topics": "", "topicPattern": "q.*"}
    conf = [*((f"spark.mqshards.{name}", value) for name, value in given.items()), ("spark.x", "1")]
    assert of(**known, brokers="", conf=conf)[0] == [("mqshards://d:1", "q.*")]
    assert of(**known, brokers="a:4180", topics="x", conf=conf)[0] == [("mqshards://d:1", "q.*")]
    assert of(**known, brokers="", conf=[("spark.mqshards.topics", "z")])[0] == [("mqshards://b:1,c:1", "z")]
    new = {"job": "run", "dir": tmp_path / "new", "brokers": ""}
    assert of(**new, topics="x")[0] == [("mqshards://a:4180", "x")]
    assert of(**new, topics="x", conf=conf[:1])[0] == [("mqshards://d:1", "x")]


@pytest.mark.parametrize(
    ("words", "tries"),
    [
        (["archive", "--to", "/a", "--topics", "x"], 3),
        (["run", "--dir", "/a"], 3),
        (["run", "--dir", "/a", "--full-refresh-all"], 1),
        (["run", "--dir", "/a", "--full-refresh", "messages"], 1),
        (["run", "--dir", "/a", "--refresh", "messages"], 3),
        (["replay", "--from", "/a", "--again"], 3),
        (["report", "--to", "/a"], 3),
    ],
)
def test_a_job_is_tried_again_unless_it_empties_tables(
    words: list[str], tries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[str] = []

    def fail(*_: object) -> int:
        tried.append("")
        if words[0] == "run":
            raise PipelineError("the run failed", f"Flow 'messages' has FAILED\n{running.NOT_STARTED[1]}\n")
        raise PySparkRuntimeError(running.NOT_STARTED[0])

    monkeypatch.setattr(running.job_of(words[0]), "run", fail)
    assert command.main(words) == 1
    assert len(tried) == tries


def test_a_job_that_is_stopped_twice_is_told_as_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: object) -> None:
        with archive._stop_on_signal():
            for _ in range(2):
                os.kill(os.getpid(), signal.SIGTERM)

    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(archive, "run", stop)
    words = ["archive", "--to", "/a", "--topics", "x", "--lineage", str(tmp_path / "events")]
    assert command.main(words) == 143
    assert signal.getsignal(signal.SIGTERM) is before
    assert json.loads((tmp_path / "events").read_text().splitlines()[-1])["eventType"] == "ABORT"
