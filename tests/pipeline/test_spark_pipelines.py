"""What is made of what spark-pipelines says; the rest of it is in test_spark_declarative.py."""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest
from mq_shards.pipeline import spark_pipelines
from mq_shards.pipeline.arguments import of_run
from mq_shards.pipeline.arrivals import Arrivals
from mq_shards.pipeline.command import main
from mq_shards.pipeline.project import emptied_with
from mq_shards.pipeline.spark_pipelines import Application, PipelineError, _Program, _reason

from tests.pipeline.serving import Gateway
from tests.servers import wait_until

STACK = "Traceback (most recent call last):"
OWN = '  File "/dir/transformations/x.py", line 3'
SPARKS = '  File "/site-packages/pyspark/pipelines/api.py", line 9, in table'


@pytest.mark.parametrize(
    ("said", "loading", "reason"),
    [
        (f"{STACK}\n  File x\npyspark.errors.exceptions.AnalysisException: [TABLE_NOT_FOUND] no t;\nline 2\n", "",
         "[TABLE_NOT_FOUND] no t;\nline 2"),
        ("Traceback ...\nKeyError: 'a'\nDuring handling ...\nTraceback ...\nValueError: worse\n", "", "worse"),
        ("some warning\n", "", "some warning"),
        ("", "", ""),
        (f"{STACK}\n{SPARKS}\n{OWN}\n    def\n       ^\nSyntaxError: invalid syntax\n", "/dir/transformations/x.py",
         "transformations/x.py, line 3: invalid syntax"),
        (f"{STACK}\n{OWN}, in <module>\n    t()\n{SPARKS}\nTypeError: no\n", "/dir/transformations/x.py",
         "transformations/x.py, line 3: no"),
        (f"{STACK}\n{OWN}\nKeyError: 'a'\n\nDuring ...\n\n{STACK}\n{SPARKS}\nValueError: worse\n", "/dir/sql/y.sql",
         "sql/y.sql: worse"),
    ],
)  # fmt: skip
def test_a_failure_is_told_without_its_stack_but_with_its_place(said: str, loading: str, reason: str) -> None:
    with tempfile.TemporaryFile() as errors:
        errors.write(said.encode())
        assert _reason(errors, Path("/dir"), loading) == reason


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["Registering SQL file /dir/sql/y.sql..."], "sql/y.sql: no"),
        (["Registering SQL file /dir/sql/y.sql...", "Starting run..."], "no"),
    ],
)
def test_what_fails_while_a_file_is_loaded_is_told_with_its_name(
    lines: list[str], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    printed = "\n".join(f"2026-11-27 12:00:00: {line}" for line in lines)
    program = f"import sys; print({printed!r}); print('of a transformation'); sys.exit('a.AnalysisException: no')"
    monkeypatch.setattr(spark_pipelines, "_BEGIN", program)
    with pytest.raises(PipelineError) as failed:
        list(Application(None, 1).run([], Path("/dir")))
    assert str(failed.value) == said


def test_of_flows_that_cannot_be_planned_the_errors_are_told_last(monkeypatch: pytest.MonkeyPatch) -> None:
    printed = "".join(
        f"2026-11-27 12:00:00: Failed to resolve flow: 'c.default.{name}'.\nError: [NO_COLUMN] {name}\n'Project\n"
        for name in ("one", "two")
    )
    program = f"import sys; print({printed!r}); sys.exit('a.AnalysisException: Failed to resolve flows; look above')"
    monkeypatch.setattr(spark_pipelines, "_BEGIN", program)
    with pytest.raises(PipelineError) as failed:
        list(Application(None, 1).run([], Path("/dir")))
    assert str(failed.value) == "one: [NO_COLUMN] one\ntwo: [NO_COLUMN] two"


def test_why_it_could_not_begin_is_kept_however_soon_it_was_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_pipelines, "_BEGIN", "import sys; sys.exit('no')")
    program = _Program(1)
    program._process.wait(60)
    assert list(program.run([])) == [] and program.status == 1
    program.errors.seek(0)
    assert program.errors.read() == b"no\n"
    program.end()


def test_there_is_something_new_when_a_topic_has_more_or_comes(gateway: Gateway) -> None:
    gateway.topic("a", 0).add(b"1")
    arrivals = Arrivals({"brokers": gateway.address, "topicPattern": "a|b"}, 0.01)
    try:
        for change in ("a", "b"):
            came = threading.Event()

            def wait(came: threading.Event = came) -> None:
                arrivals.wait()
                came.set()

            waiting = threading.Thread(target=wait, daemon=True)
            waiting.start()
            with gateway.lock:
                gateway.topic("other", 3).add(b"no matter")
            assert not came.wait(0.1), "nothing of the project's has come"
            with gateway.lock:
                gateway.topic(change, 1).add(b"2")
            assert came.wait(60)
            waiting.join(60)
    finally:
        arrivals.close()


def test_what_is_made_of_a_table_is_emptied_with_it() -> None:
    there = {"raw_messages", "messages", "message_parts"}
    assert emptied_with(["messages", "own"], there) == ["messages", "own", "message_parts"]
    assert set(emptied_with(["raw_messages"], there)) == there
    assert emptied_with(["messages"], {"messages"}) == ["messages"], "a project of before there were parts"


def test_what_contradicts_itself_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["run", "--dir", str(tmp_path / "project"), "--topics", "t", "--full-refresh-all", "--refresh", "messages"]
    assert main(words) == 1 and "--full-refresh-all is for all tables" in capsys.readouterr().err
    parser = argparse.ArgumentParser()
    of_run(parser)
    for every in ("0", "inf", "soon"):
        with pytest.raises(SystemExit):
            parser.parse_args(["--dir", "d", "--continuous", "--every", every])


def test_the_program_is_loaded_once_for_several_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_pipelines, "_BEGIN", spark_pipelines._BEGIN.replace("pyspark.pipelines.cli", "json.tool"))
    good, bad = tmp_path / "good", tmp_path / "bad"
    good.write_text("[1]")
    bad.write_text("[1")
    application = Application(None, 1)  # type: ignore[arg-type]
    try:
        assert list(application.run([str(good)], tmp_path)) == ["[", "    1", "]"]
        loaded = application._program
        assert loaded is not None and list(application.run([str(good)], tmp_path)) == ["[", "    1", "]"]
        assert application._program is loaded
        with pytest.raises(PipelineError, match="Expecting"):
            list(application.run([str(bad)], tmp_path))
        assert "usage" in "".join(application.run(["-h"], tmp_path))
        broken_off = application.run([str(good)], tmp_path)
        assert next(broken_off) == "["
        broken_off.close()
        assert list(application.run([str(good)], tmp_path)) == ["[", "    1", "]"], "nothing of the one before"
    finally:
        application.close()


PARENT = """
import os, subprocess, sys
from mq_shards.pipeline.spark_pipelines import _BEGIN
begin = _BEGIN.replace("pyspark.pipelines.cli", "http.server")
command = [sys.executable, "-u", "-c", begin, str(os.getpid())]
child = subprocess.Popen(command, start_new_session=True, stdin=subprocess.PIPE)
child.stdin.write(b'["--bind", "127.0.0.1", "0"]\\n')
child.stdin.flush()
print(child.pid, flush=True)
child.wait()
"""


def test_the_program_and_its_run_end_with_the_job_that_is_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert b"Serving" in parent.stdout.readline(), "so both have said with whom they end"
        (run,) = Path(f"/proc/{child}/task/{child}/children").read_text().split()
        commands = [Path(f"/proc/{process}/stat") for process in (child, run)]
        parent.kill()
        parent.wait(60)
        wait_until(lambda: all(map(ended, commands)), "they have ended", 60)


def ended(stat: Path) -> bool:
    try:
        return ") Z " in stat.read_text()
    except OSError:
        return True
