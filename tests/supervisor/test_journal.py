"""What is said on stderr: behind priorities where that is systemd's journal, and nowhere else."""

from __future__ import annotations

import io
import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

import pytest
from mq_shards.supervisor import journal


@pytest.fixture(autouse=True)
def kept_handlers() -> Iterator[None]:
    root = logging.getLogger()
    before, level, raises = root.handlers[:], root.level, logging.raiseExceptions
    yield
    root.handlers[:], logging.raiseExceptions = before, raises
    root.setLevel(level)


def named(stream: TextIO) -> str:
    found = os.fstat(stream.fileno())
    return f"{found.st_dev}:{found.st_ino}"


def said(tmp_path: Path, *, as_json: bool = False) -> list[str]:
    with (tmp_path / "said").open("w+") as stream:
        journal.configure("debug", as_json, "mq-worker-0", stream)
        log = logging.getLogger("tests")
        log.debug("a")
        log.info("b")
        log.warning("c")
        log.error("d")
        try:
            raise ValueError("e\nf")
        except ValueError:
            log.exception("g")
        stream.flush()
        return (tmp_path / "said").read_text().splitlines()


def test_a_child_renames_the_handler_that_it_has_of_its_supervisor() -> None:
    stream = io.StringIO()
    journal.configure("info", False, "mq-supervisor", stream)
    inherited = logging.getLogger().handlers[0]
    journal.configure("info", False, "mq-worker-0", stream)
    assert logging.getLogger().handlers == [inherited]
    logging.getLogger("tests").info("a")
    journal.configure("info", True, "mq-worker-1", stream)
    logging.getLogger("tests").info("b")
    text, structured = stream.getvalue().splitlines()
    assert text.endswith("info mq-worker-0: a")
    assert json.loads(structured)["process"] == "mq-worker-1"


def test_a_file_has_the_lines_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JOURNAL_STREAM", "1:2")  # of a service that has sent it elsewhere
    assert [line.split()[2] for line in said(tmp_path)[:4]] == ["debug", "info", "warning", "error"]


def test_the_journal_has_the_priority_of_each_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "said").touch()
    with (tmp_path / "said").open() as stream:
        monkeypatch.setenv("JOURNAL_STREAM", named(stream))
    lines = said(tmp_path)
    assert [line[:3] for line in lines[:4]] == ["<7>", "<6>", "<4>", "<3>"]
    assert len(lines) > 8 and {line[:3] for line in lines[4:]} == {"<3>"}, "all lines of a traceback"
    objects = said(tmp_path, as_json=True)
    assert [json.loads(line[3:])["level"] for line in objects] == ["debug", "info", "warning", "error", "error"]


def test_what_is_no_file_is_not_the_journal() -> None:
    assert not journal.is_systemds(io.StringIO(), {"JOURNAL_STREAM": "1:2"})


def test_who_has_closed_stderr_is_not_hurt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", None)  # as Python has it then
    monkeypatch.setenv("JOURNAL_STREAM", "1:2")
    journal.configure("info", False, "mq-worker-0")
    logging.getLogger("tests").error("to nobody")


def test_a_bad_option_is_an_error_there(tmp_path: Path) -> None:
    with (tmp_path / "said").open("w+") as stream:
        environment = {**os.environ, "JOURNAL_STREAM": named(stream)}
        command = [sys.executable, "-m", "mq_shards.supervisor.command", "--workers", "none"]
        done = subprocess.run(command, stderr=stream, env=environment, check=False, timeout=120)
        stream.seek(0)
        assert (done.returncode, stream.read()[:14]) == (2, "<3>mq-shards: ")
