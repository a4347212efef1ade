"""The command as a user meets it: help, version, complaints, and the lines it logs."""

from __future__ import annotations

import io
import json
import logging
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from mq_shards.acceptor.protocols.table import PROTOCOLS
from mq_shards.supervisor import VERSION, journal
from mq_shards.supervisor.command import main
from mq_shards.supervisor.options.sections import SECTIONS

from tests.servers import ROOT, wait_until


def test_an_interrupt_ends_a_command_that_runs_without_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(words: list[str]) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("mq_shards.supervisor.command._command", lambda words, hiding: interrupted)
    assert main(["import", "beanstalkd", "/nowhere"]) == 130


def test_help_shows_every_section_option_with_its_default_and_examples(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(["--help"])
    assert exit_.value.code == 0
    text = capsys.readouterr().out
    for section, table in SECTIONS.items():
        assert f"[{section}]" in text
        for name, kind in table.items():
            assert re.search(rf"{name} +\S.*\n +\({re.escape(kind.limits())}\)\n", text)
    for name, protocol in PROTOCOLS.items():
        assert f"{name}://{'127.0.0.1' if protocol.usual else '0.0.0.0'}:{protocol.port}" in text
    for word in ("--workers", "--data-dir", "--memory", "--config", "--set", "examples:", "SIGUSR1", "exit status"):
        assert word in text


def test_a_broker_that_is_started_without_streams_gives_their_numbers_to_nothing_else(tmp_path: Path) -> None:
    """What is written to stderr would go to a client, or into a log."""
    path = tmp_path / "jobs.sock"
    command = [sys.executable, "-m", "mq_shards.supervisor.command", "--memory", "--listen", f"beanstalk://unix:{path}"]
    process = subprocess.Popen(command, preexec_fn=lambda: os.closerange(0, 3))
    try:
        with socket.socket(socket.AF_UNIX) as client:
            wait_until(lambda: path.exists() and client.connect_ex(str(path)) == 0, "it listens")
            client.sendall(b"use x\r\n")
            assert client.recv(100) == b"USING x\r\n"
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        assert len(children) >= 2
        for pid in (process.pid, *children):
            assert {Path(f"/proc/{pid}/fd/{number}").readlink() for number in range(3)} == {Path(os.devnull)}
    finally:
        process.terminate()
        assert process.wait(60) == 0


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(["--version"])
    assert exit_.value.code == 0
    assert capsys.readouterr().out == f"mq-shards {VERSION}\n"


def test_the_version_is_that_of_the_package() -> None:
    assert f'version = "{VERSION}"' in (ROOT / "pyproject.toml").read_text()


@pytest.mark.parametrize(
    "arguments",
    [
        ["--workers", "0"], ["--listen", "kafka://127.0.0.1:6650"], ["--set", "beanstalk.x=1"], ["--nonsense"],
        ["--listen", "a\nb"], ["--config", "/nowhere\n/mq.toml"], ["positional"], ["--sync"],
    ],
)  # fmt: skip
def test_a_bad_option_is_one_line_and_status_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("mq-shards: ")
    assert captured.err.count("\n") == 1


def test_the_module_can_be_run() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mq_shards.supervisor.command", "--workers", "many"],
        cwd=ROOT, capture_output=True, text=True, timeout=30,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (2, 'mq-shards: --workers: "many" is not a whole number\n')


@pytest.fixture
def stream() -> io.StringIO:
    return io.StringIO()


@pytest.fixture(autouse=True)
def root_logger_as_before() -> object:
    root = logging.getLogger()
    before = root.handlers[:], root.level
    yield
    root.handlers[:], level = before
    root.setLevel(level)


def test_a_text_line_says_when_how_bad_who_and_what(stream: io.StringIO) -> None:
    journal.configure("info", False, "mq-worker-3", stream)
    logging.getLogger("anything").warning("disk is %s", "slow", extra={"fields": {"ms": 7}})
    logging.getLogger("anything").debug("not this")
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} warning mq-worker-3: disk is slow\n", stream.getvalue())


def test_a_json_line_has_the_fields_and_the_traceback(stream: io.StringIO) -> None:
    journal.configure("debug", True, "mq-worker-3", stream)
    try:
        raise KeyError("shard")
    except KeyError:
        logging.getLogger("anything").exception("odd", extra={"fields": {"path": Path("/d")}})
    line = stream.getvalue()
    assert line.count("\n") == 1
    entry = json.loads(line)
    assert (entry["level"], entry["process"], entry["message"], entry["path"]) == ("error", "mq-worker-3", "odd", "/d")
    assert "KeyError: 'shard'" in entry["exception"]
