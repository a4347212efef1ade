"""A job that would begin with Spark asks its brokers first, and ends at once where trying again would not help."""

from __future__ import annotations

import json
import socket
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NoReturn

import pytest

pytest.importorskip("pyspark")

from mq_shards.pipeline import archive, arguments, client, explain, replay, report, session, spark_pipelines
from mq_shards.pipeline.batch import PlainBatchReader
from mq_shards.pipeline.client import BrokerError, check_brokers
from mq_shards.pipeline.columns import SCHEMA
from mq_shards.pipeline.command import main
from mq_shards.pipeline.options import OptionError, ReadOptions, connection_of
from mq_shards.pipeline.session import open_session
from pyspark.sql import SparkSession

from tests.pipeline.serving import Gateway


class Refuses(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        said = b'{"error": "a token is wanted"}'
        self.send_response(401)
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[ThreadingHTTPServer]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Refuses) as found:
        threading.Thread(target=found.serve_forever, args=(0.05,), daemon=True).start()
        yield found
        found.shutdown()


class Began(BaseException):
    """Spark has begun."""


@pytest.fixture(autouse=True)
def spark(monkeypatch: pytest.MonkeyPatch) -> None:
    def begin(*_: object, **__: object) -> NoReturn:
        raise Began

    for module in (archive, explain, replay, report, spark_pipelines):
        monkeypatch.setattr(module, "open_session", begin)


def job(name: str, place: Path) -> list[str]:
    at = str(place)
    if name == "replay":
        (place / "_spark_metadata").mkdir(parents=True)
        said = {"path": f"file:{place}/part-0.parquet", "size": 1, "modificationTime": 1, "action": "add"}
        (place / "_spark_metadata" / "0").write_text(f"v1\n{json.dumps(said)}")
    return {
        "run": ["run", "--dir", at, "--topics", "t"],
        "archive": ["archive", "--to", at, "--topics", "t"],
        "replay": ["replay", "--from", at],
        "report": ["report", "--to", at],
        "explain": ["explain", "--topics", "t"],
    }[name]


@pytest.mark.parametrize("name", ["run", "archive", "replay", "report", "explain"])
def test_a_job_that_is_refused_ends_before_spark_begins(
    name: str, server: ThreadingHTTPServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    at = f"127.0.0.1:{server.server_port}"
    assert main(["--brokers", at, *job(name, tmp_path / "of-the-job")]) == 1
    assert capsys.readouterr().err == f"mq-pipeline: broker {at}: GET /v1/broker: 401 a token is wanted\n"


@pytest.mark.parametrize("name", ["run", "archive", "replay", "explain"])
def test_a_job_whose_broker_is_about_to_come_back_begins(name: str, gateway: Gateway, tmp_path: Path) -> None:
    gateway.refuse = 1
    with pytest.raises(Began):
        main(["--brokers", gateway.address, *job(name, tmp_path / "of-the-job")])
    assert gateway.calls.count("GET /v1/broker") == 1, "it was asked once"


def test_a_run_that_only_looks_at_the_project_needs_no_broker(gateway: Gateway, tmp_path: Path) -> None:
    with pytest.raises(Began):
        main(["--brokers", gateway.address, *job("run", tmp_path / "project"), "--dry-run"])
    assert not gateway.calls


@pytest.mark.parametrize(("number", "lasts"), [(socket.EAI_NONAME, True), (socket.EAI_AGAIN, False)])
def test_a_name_that_nobody_knows_lasts(number: int, lasts: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object, **__: object) -> NoReturn:
        raise socket.gaierror(number, "not known")

    monkeypatch.setattr(client.socket, "getaddrinfo", unknown)
    if lasts:
        with pytest.raises(BrokerError, match="not known"):
            check_brokers(connection_of({"brokers": "nowhere:1"}))
    else:
        check_brokers(connection_of({"brokers": "nowhere:1"}))


def test_a_port_without_tls_lasts_and_one_that_is_closed_does_not(gateway: Gateway) -> None:
    with pytest.raises(BrokerError):
        check_brokers(connection_of({"brokers": f"https://{gateway.address}"}))
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    check_brokers(connection_of({"brokers": f"https://127.0.0.1:{port}"}))


def test_of_an_archive_that_has_nothing_yet_nothing_is_replayed(
    gateway: Gateway, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "_spark_metadata").mkdir()
    assert main(["--brokers", gateway.address, "replay", "--from", str(tmp_path)]) == 0
    assert capsys.readouterr().out == f"nothing is archived in {tmp_path} yet\n"


@pytest.mark.parametrize("name", ["run", "archive", "replay", "explain"])
def test_a_spark_that_is_too_old_is_named_before_it_begins(
    name: str, gateway: Gateway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    gateway.topic("t").add(b"x")
    for module in (archive, explain, replay, report, spark_pipelines):
        monkeypatch.setattr(module, "open_session", open_session)
    monkeypatch.setattr("pyspark.__version__", "4.1.4")
    assert main(["--brokers", gateway.address, *job(name, tmp_path / "of-the-job")]) == 1
    said = f"mq-pipeline: PySpark 4.2 or later is wanted: {sys.executable} has 4.1.4\n"
    assert capsys.readouterr().err.endswith(said)


def test_what_is_said_to_the_jvm_comes_after_what_we_say(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last one counts."""
    found: list[str] = []

    def begin(builder: SparkSession.Builder) -> NoReturn:
        found.append(builder._options[session.JAVA_OPTIONS])
        raise Began

    monkeypatch.setattr(session, "_begun", begin)
    with pytest.raises(Began):
        open_session("spark://a:7077", "test", {session.JAVA_OPTIONS: "-Darrow.enable_unsafe_memory_access=false"})
    ours, theirs = (f"-Darrow.enable_unsafe_memory_access={said}" for said in ("true", "false"))
    assert ours in found[0] and found[0].endswith(f" {theirs}")


@pytest.mark.parametrize("name", ["run", "archive"])
def test_a_topic_that_no_broker_has_is_named(
    name: str, gateway: Gateway, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for line in ("no broker has a topic t yet: it is read when it comes\n", ""):
        with pytest.raises(Began):
            main(["--brokers", gateway.address, *job(name, tmp_path / "of-the-job")])
        assert capsys.readouterr().err == line
        gateway.topic("t").add(b"x")


def test_of_who_logs_in_it_is_said_that_a_topic_may_be_hidden(
    gateway: Gateway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MQ_SHARDS_TOKEN", "t0")
    with pytest.raises(Began):
        main(["--brokers", gateway.address, *job("archive", tmp_path / "of-the-job")])
    said = "no broker has a topic t yet (or this user may not read it): it is read when it comes\n"
    assert capsys.readouterr().err == said
    options = ReadOptions.parse({"brokers": gateway.address, "topic": "t"}, streaming=False)
    with pytest.raises(OptionError, match=r"the brokers have no t \(or this user may not read it\)"):
        PlainBatchReader(options, SCHEMA).partitions()


def test_a_report_that_could_not_be_written_ends_before_spark_begins(
    gateway: Gateway, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gateway.topic("t").add(b"x")
    (tmp_path / "file").write_text("")
    for to in (tmp_path / "file", tmp_path / "file" / "report", Path("/proc/report")):
        assert main(["--brokers", gateway.address, *job("report", to)]) == 1
        assert str(to) in capsys.readouterr().err


@pytest.mark.parametrize(
    "master", ["local", "local[*]", "local[2]", "local[*, 3]", "local-cluster[2,1,1024]", "spark://a:7077,b:7077",
               "yarn", "k8s://https://a:6443"],
)  # fmt: skip
def test_masters_of_sparks_are_taken(master: str) -> None:
    assert arguments.master(master) == master


@pytest.mark.parametrize("brokers", ["http://", "ftp://a:1", "a:x", "a:99999", ",", ""])
def test_brokers_that_are_no_addresses_are_a_wrong_call(brokers: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["readers", "--brokers", brokers])
    assert ended.value.code == 2
    assert "argument --brokers: " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (["explain", "--topics", "t", "--option", "startingOffset=3"], "startingOffset"),
        (["replay", "--from", "{}/nothing"], "--from: there is no archive in "),
        (["archive", "--to", "{}/a", "--topics", "t", "--ca", "{}/ca"], "tlsCa: cannot read "),
        (["readers", "--cert", "{}/cert"], "tlsCert: cannot read "),
        (["run", "--dir", "{}/a", "--topics", "t", "--token-file", "{}/token"], "tokenFile: cannot read "),
    ],
)
def test_what_is_wrong_in_itself_is_said_before_spark_begins(
    gateway: Gateway, tmp_path: Path, capsys: pytest.CaptureFixture[str], wrong: list[str], said: str
) -> None:
    assert main(["--brokers", gateway.address, *(text.format(tmp_path) for text in wrong)]) == 1
    found = capsys.readouterr().err
    assert found.startswith("mq-pipeline: ") and said in found and len(found.splitlines()) == 1


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("archive --to a --topic-pattern (", "--topic-pattern: '(' is no regular expression: missing ), "),
        ("archive --to a --topics ,", "--topics: ',' names no topic"),
        ("archive --to a --topics [t", "--topics: '[t' is no list of names"),
        ("archive --to a --topics t --max-messages 0", "--max-messages: '0' is no positive number"),
        ("archive --to a --topics t --every nan", "--every: 'nan' is not above 0"),
        ("archive --to a --topics t --every 1e300", "--every: '1e300' is more than 1e+09"),
        ("archive --to a --topics t --max-messages 9223372036854775808", "--max-messages: '9223372036854775808' is"),
        ("archive --to a --topics t --subscription a/b", "--subscription: 'a/b': a reader's name has "),
        ("archive --to a --topics t --compact-below -1", "--compact-below: invalid mebibytes value: '-1'"),
        ("replay --from a --rate 0", "--rate: '0' is not above 0"),
        ("replay --from a --since 12h", "--since: '12h' is no time such as 2026-01-31T12:00:00"),
        ("replay --from a --until 9999999-01-01", "--until: '9999999-01-01' is no time such as "),
        ("run --dir a --topics t --format x=csv", "--format: x=csv: REGEX=FORMAT is wanted, with one of auto, "),
        ("run --dir a --topics t --format (=json", "--format: '(' is no regular expression: "),
        ("run --dir a --topics t --conf x=1", "--conf: x=1: spark.KEY=VALUE is wanted"),
        ("explain --topics t --option x", "--option: x: NAME=VALUE is wanted"),
        ("report --to a --top 0", "--top: '0' is no positive number"),
        ("report --to a --since 99999999999999d", "--since: invalid time value: '99999999999999d'"),
        # As a script's unset variables leave it.
        ("archive --to= --topics t", "--to: it is empty"),
        ("archive --to a --topics=", "--topics: it is empty"),
        ("replay --from a --topic-pattern=", "--topic-pattern: it is empty"),
        ("replay --from a --prefix=", "--prefix: it is empty"),
        ("replay --from a --to-topic=", "--to-topic: it is empty"),
        ("explain --topics t --where=", "--where: it is empty"),
        ("run --dir= --topics t", "--dir: it is empty"),
        ("offsets --checkpoint a --topics= --move-to latest", "--topics: it is empty"),
        ("archive --to a --topics t --ca=", "--ca: it is empty"),
        ("archive --to a --topics t --metrics-file=", "--metrics-file: it is empty"),
        ("archive --to a --topics t --master=", "--master: '' is none of local[N], spark://HOST:PORT, yarn and "),
        ("archive --to a --topics t --master nosuch", "--master: 'nosuch' is none of "),
        ("archive --to a --topics t --master local[0]", "--master: 'local[0]' is none of "),
        ("archive --to a --topics t --master spark://", "--master: 'spark://' is none of "),
    ],
)
def test_an_argument_that_means_nothing_is_a_wrong_call(
    wrong: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        main(wrong.split())
    assert ended.value.code == 2
    assert f"error: argument {said}" in capsys.readouterr().err
    assert not [*tmp_path.iterdir()]
