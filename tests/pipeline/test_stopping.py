"""A job that is stopped ends as stopped, whatever else the signal has ended."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from io import TextIOWrapper
from pathlib import Path
from typing import Any, cast

import pytest

pytest.importorskip("pyspark")

from mq_shards.pipeline import readers_command, session, standing_back
from mq_shards.pipeline.archive import _stop_on_signal
from mq_shards.pipeline.command import main
from mq_shards.pipeline.stopping import Stopped, handlers_restored, stopped_by_signals
from mq_shards.pipeline.telemetry import Metrics

from tests.pipeline.serving import Gateway
from tests.servers import wait_until


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    with handlers_restored():
        yield


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_what_is_raised_because_the_jvm_heard_the_signal_too_is_a_stop(number: signal.Signals) -> None:
    with pytest.raises(Stopped) as stopped, stopped_by_signals():
        with contextlib.suppress(Stopped):
            signal.raise_signal(number)
        raise ConnectionRefusedError("the JVM that is to be ended is gone")
    assert stopped.value.exit_code == 128 + number
    with pytest.raises(Stopped, match=number.name), _stop_on_signal() as heard:
        signal.raise_signal(number)
        assert heard == [number]
        raise ConnectionRefusedError("the query that is to be ended is gone")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_job_that_knows_nothing_of_signals_ends_as_stopped(
    number: signal.Signals, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(readers_command, "run", lambda *_: signal.raise_signal(number))
    metrics = tmp_path / "metrics"
    assert main(["readers", "--metrics-file", str(metrics)]) == 128 + number
    assert capsys.readouterr().err == f"mq-pipeline: stopped by {number.name}\n"
    assert f'mq_pipeline_exit_status{{job_name="mq-pipeline readers"}} {128 + number:.1f}' in metrics.read_text()


@pytest.mark.parametrize("status", [0, 143])
def test_a_signal_after_the_job_does_not_keep_its_end_from_being_told(
    status: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As the second one of `timeout`, which sends it to the job and then to all of its processes."""
    late: list[int] = []
    end = Metrics.end

    def end_late(self: Metrics, status: int) -> None:
        signal.raise_signal(signal.SIGTERM)
        end(self, status)

    def hear(number: int, frame: object) -> None:
        late.append(number)

    signal.signal(signal.SIGTERM, hear)
    monkeypatch.setattr(readers_command, "run", lambda *_: signal.raise_signal(signal.SIGTERM) if status else 0)
    monkeypatch.setattr(Metrics, "end", end_late)
    metrics = tmp_path / "metrics"
    assert main(["readers", "--metrics-file", str(metrics)]) == status
    assert late == [] and signal.getsignal(signal.SIGTERM) is hear
    assert 'mq_pipeline_running{job_name="mq-pipeline readers"} 0.0' in metrics.read_text()


def test_a_failure_without_a_signal_stays_one() -> None:
    with pytest.raises(ConnectionRefusedError), stopped_by_signals():
        raise ConnectionRefusedError
    with pytest.raises(ConnectionRefusedError), _stop_on_signal():
        raise ConnectionRefusedError


def _output(fd: int, buffering: int) -> TextIOWrapper:
    return TextIOWrapper(os.fdopen(fd, "wb", buffering), write_through=buffering == 0)


def _list(*_: object) -> int:
    print("a list")
    return 0


BUFFERING = (pytest.param(-1, id="buffered"), pytest.param(0, id="unbuffered"))


@pytest.mark.parametrize("buffering", BUFFERING)
def test_a_list_of_which_nobody_wants_more_is_no_failure(
    buffering: int, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(readers_command, "run", _list)
    reads, writes = os.pipe()
    os.close(reads)
    with _output(writes, buffering) as output:
        monkeypatch.setattr(sys, "stdout", output)
        assert main(["readers"]) == 0
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("buffering", BUFFERING)
def test_a_job_that_ends_because_nobody_reads_what_it_says_has_failed(
    buffering: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    reads, writes = os.pipe()
    os.close(reads)
    with _output(writes, buffering) as output:
        monkeypatch.setattr(sys, "stdout", output)
        assert main(["init", "--dir", str(tmp_path / "p"), "--topics", "t"]) == 1
    assert capfd.readouterr().err == "mq-pipeline: nobody reads what this job says any more: it has ended\n"


@pytest.mark.parametrize("buffering", BUFFERING)
def test_an_output_that_is_full_is_told_once(
    buffering: int, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(readers_command, "run", _list)
    with _output(os.open("/dev/full", os.O_WRONLY), buffering) as output:
        monkeypatch.setattr(sys, "stdout", output)
        assert main(["readers"]) == 1
    assert capfd.readouterr().err == "mq-pipeline: [Errno 28] No space left on device\n"


def _take_signal() -> None:
    """As PySpark does it, whose handler calls the JVM."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.default_int_handler)


class Begins:
    """As PySpark: takes SIGINT, and starts a program in a way that says what is to be done before it."""

    script = "kill -TERM $$; echo alive"

    def getOrCreate(self) -> bytes:  # noqa: N802
        _take_signal()
        return _told_to_end(self.script)


def _told_to_end(script: str = Begins.script) -> bytes:
    return subprocess.run(["sh", "-c", script], stdout=subprocess.PIPE, preexec_fn=bool, check=False).stdout


def test_a_jvm_leaves_signals_to_the_job_that_began_it() -> None:
    with stopped_by_signals():
        ours = signal.getsignal(signal.SIGINT)
        assert session._begun(cast(Any, Begins())) == b"alive\n"
        assert signal.getsignal(signal.SIGINT) is ours
        assert _told_to_end() == b"", "what is started later hears of it"


class Hangs:
    """As PySpark whose JVM takes its time, and that is told to stop when it has taken SIGINT."""

    def __init__(self, number: signal.Signals) -> None:
        self.number = number
        self.jvm: subprocess.Popen[bytes] | None = None

    def getOrCreate(self) -> None:  # noqa: N802
        self.jvm = subprocess.Popen(["sleep", "60"], preexec_fn=bool)
        _take_signal()
        os.kill(os.getpid(), self.number)
        self.jvm.wait()
        logging.error("as py4j says that the JVM is gone")
        raise ConnectionRefusedError


def test_a_directory_that_cannot_be_made_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(readers_command, "run", lambda *_: Path("/proc/none").mkdir())
    assert main(["readers"]) == 1
    assert capsys.readouterr().err == "mq-pipeline: [Errno 2] No such file or directory: '/proc/none'\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_jvm_that_is_stopped_as_it_begins_does_not_go_on_and_nobody_speaks_of_it(
    number: signal.Signals, caplog: pytest.LogCaptureFixture
) -> None:
    builder = Hangs(number)
    with pytest.raises(Stopped, match=number.name), stopped_by_signals():
        session._begun(cast(Any, builder))
    assert builder.jvm is not None
    assert builder.jvm.wait(10) == -signal.SIGKILL
    assert caplog.records == []
    assert logging.getLogger().isEnabledFor(logging.ERROR)


def test_a_jvm_that_is_forked_after_the_stop_does_not_go_on_either(monkeypatch: pytest.MonkeyPatch) -> None:
    stopped = threading.Event()
    end = session._Beginning.end

    def told(self: session._Beginning) -> None:
        end(self)
        stopped.set()

    class Late(Hangs):
        def getOrCreate(self) -> None:  # noqa: N802
            os.kill(os.getpid(), self.number)
            stopped.wait()
            self.jvm = subprocess.Popen(["sleep", "60"], preexec_fn=bool)
            self.jvm.wait()

    monkeypatch.setattr(session._Beginning, "end", told)
    builder = Late(signal.SIGTERM)
    with pytest.raises(Stopped), stopped_by_signals():
        session._begun(cast(Any, builder))
    assert builder.jvm is not None
    assert builder.jvm.wait(10) == -signal.SIGKILL


def test_an_archive_that_is_stopped_while_its_jvm_begins_does_not_wait_for_it(gateway: Gateway, tmp_path: Path) -> None:
    java, begun = tmp_path / "bin" / "java", tmp_path / "begun"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\necho $$ >{begun}.part\nmv {begun}.part {begun}\nexec sleep 600\n")
    java.chmod(0o755)
    command = [sys.executable, "-m", "mq_shards.pipeline.command", "--master", "local[1]", "--brokers", gateway.address]
    command += ["archive", "--to", str(tmp_path / "to"), "--topics", "a"]
    said = tmp_path / "said"
    with said.open("w") as sink:
        job = subprocess.Popen(command, stderr=sink, env=os.environ | {"JAVA_HOME": str(tmp_path)})
    try:
        wait_until(begun.exists, "its JVM is begun", 60)
        job.terminate()
        assert job.wait(60) == 128 + signal.SIGTERM
    finally:
        job.kill()
        os.kill(int(begun.read_text()), signal.SIGKILL)
    # Before that it may say that the machine is busy.
    assert said.read_text().endswith("mq-pipeline: stopped by SIGTERM\n") and "rror" not in said.read_text()


class Fails:
    def getOrCreate(self) -> None:  # noqa: N802
        raise ConnectionRefusedError("there is no master")


def test_a_session_that_cannot_begin_says_why() -> None:
    with pytest.raises(ConnectionRefusedError, match="there is no master"), stopped_by_signals():
        session._begun(cast(Any, Fails()))


def test_a_job_that_hardly_gets_on_says_why() -> None:
    assert "--nice 0" in standing_back.told_if_busy(10, 14.2, 2)
    assert not standing_back.told_if_busy(10, 3.9, 2)
    assert not standing_back.told_if_busy(0, 14.2, 2)


@pytest.mark.skipif(not standing_back.AUTOGROUP.exists(), reason="this kernel groups no processes by session")
def test_a_jvm_stands_back_behind_other_sessions_too(tmp_path: Path) -> None:
    """In a process of its own, which can be nice."""
    said = tmp_path / "said"
    script = f"cat /proc/self/autogroup >{said}; echo $$ >>{said}; cut -d ' ' -f 6 /proc/$$/stat >>{said}"
    builder = Begins()
    builder.script = script
    pid = os.fork()
    if pid == 0:
        try:
            standing_back.be_nice(7)
            standing_back.be_nice(7)
            session._begun(cast(Any, builder))
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    autogroup, process, its_session = said.read_text().splitlines()
    assert autogroup.endswith(f"nice {max(7, os.nice(0))}")
    assert process == its_session
