"""Runs Spark's command `spark-pipelines` as a program beside an application whose JVM serves Spark Connect to it.

The application outlives the command: its tables can be read afterwards, and a further run needs no further JVM. Only
what PySpark documents is used here: settings, that program, and a classic session.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import uuid
from collections import deque
from collections.abc import Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Final

from mq_shards.pipeline.failure import ERROR, TRACEBACK, told
from mq_shards.pipeline.session import open_session
from pyspark.sql import SparkSession

TRIES: Final = 3  # with other ports, if one was taken that was free a moment ago
ERROR_BYTES: Final = 64 << 10
LINES: Final = 200
_TOKEN: Final = "SPARK_CONNECT_AUTHENTICATE_TOKEN"
# Runs spark-pipelines for each line of words that it reads, in a fork of itself: to load PySpark and pandas takes it
# longer than a run. Both end when we are killed (PR_SET_PDEATHSIG): they would ask for our JVM for minutes.
_BEGIN: Final = """import ctypes, json, os, runpy, sys
def end_with(parent):
    getattr(ctypes.CDLL(None), "prctl", lambda *_: 0)(1, 9)
    if os.getppid() != parent:
        sys.exit("its parent is gone")
end_with(int(sys.argv[1]))
import pyspark.pipelines.cli
loaded = os.getpid()
for line in sys.stdin:
    run = os.fork()
    if not run:
        end_with(loaded)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        sys.argv[1:] = json.loads(line)
        runpy.run_module("pyspark.pipelines.cli", run_name="__main__", alter_sys=True)
        sys.exit()
    print('\\0ended', os.waitstatus_to_exitcode(os.waitpid(run, 0)[1]), flush=True)
"""
_ENDED: Final = "\0ended"  # and the exit status
# How spark-pipelines begins its own lines; others are printed by transformations.
_ITS_OWN: Final = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d: ")
# Says which file of transformations is loaded from here on, until another line of its own.
_LOADING: Final = re.compile(r"(?:Importing|Registering SQL file) (.+)\.\.\.$")
# A flow that cannot be planned; its error is the next line. What is raised in the end names the flow only.
_UNRESOLVED: Final = re.compile(r"Failed to resolve flow: '(?:\w+\.)*(\w+)'")
_PLACE: Final = re.compile(r'^\s+File "(.+)", line (\d+)', re.MULTILINE)
# An exception of Python; not one of the JVM, which has its stack after it.
_RAISED: Final = re.compile(r"(?<!JVM stacktrace:\n)^(?:\w+\.)*[A-Z]\w*(?:Error|Exception): ?", re.MULTILINE)


class PipelineError(Exception):
    """What spark-pipelines raised when it failed, and why; `said`: its last lines, and all that it raised."""

    def __init__(self, reason: str, said: str = "") -> None:
        super().__init__(reason)
        self.said = said


class Application:
    def __init__(self, session: SparkSession, port: int) -> None:
        self.session = session
        self._port = port
        self._program: _Program | None = None

    def run(self, words: Sequence[str], directory: Path) -> Generator[str, None, None]:
        """Yields what spark-pipelines prints in a run of the project in `directory`, line by line. Raises PipelineError
        at the end of a failed one."""
        program = self._program = self._program or _Program(self._port)
        last: deque[str] = deque(maxlen=LINES)
        loading = flow = ""
        unresolved: list[str] = []
        try:
            for line in program.run(words):
                last.append(line)
                if flow and line.startswith(ERROR):
                    unresolved.append(f"{flow}: {line.removeprefix('Error: ').rstrip()}")
                    flow = ""
                text = line.rstrip()
                if (found := _ITS_OWN.match(line)) is not None:
                    text = text[found.end() :]
                    file = _LOADING.match(text)
                    loading = file[1] if file else ""
                    flow = found[1] if (found := _UNRESOLVED.match(text)) else ""
                yield text
            if program.status != 0:
                reason = _reason(program.errors, directory, loading) or f"spark-pipelines ended with {program.status}"
                raise PipelineError("\n".join(unresolved) or told(reason), "".join((*last, reason)))
        finally:
            if program.status != 0:  # or broken off
                self.close()

    def close(self) -> None:
        if self._program is not None:
            self._program.end()
            self._program = None


class _Program:
    """spark-pipelines, loaded once for any number of runs, one after the other."""

    def __init__(self, port: int) -> None:
        self.status: int | None = None
        """The exit status of the last run; None: it has not ended."""
        self.errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  (until end)
        """What the last run wrote to stderr."""
        # In a session of its own: ^C reaches only us, and we end the program.
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-W", "ignore", "-c", _BEGIN, str(os.getpid())],
            env={**os.environ, "SPARK_REMOTE": f"sc://localhost:{port}"}, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=self.errors, text=True, errors="replace", start_new_session=True,
        )  # fmt: skip

    def run(self, words: Sequence[str]) -> Iterator[str]:
        """Yields the lines that it prints."""
        assert self._process.stdin is not None and self._process.stdout is not None
        if self.status is not None:  # else what is there already says why it could not begin
            self.errors.seek(0)  # of the program, too, which has the same file open
            self.errors.truncate()
        self.status = None
        with contextlib.suppress(BrokenPipeError):  # it says why in `errors`
            self._process.stdin.write(json.dumps(words) + "\n")
            self._process.stdin.flush()
        for line in self._process.stdout:
            text, ended, status = line.partition(_ENDED)
            if text:
                yield text
            if ended:
                self.status = int(status)
                return
        self.status = self._process.wait() or 1

    def end(self) -> None:
        """Kills it; a run of it that is under way ends with it."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdout.close()
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self.errors.close()


@contextlib.contextmanager
def application(master: str, name: str, settings: Mapping[str, str], nice: int) -> Iterator[Application]:
    """Serves Spark Connect on a port of 127.0.0.1, with a token that only we and the programs we start know."""
    os.environ[_TOKEN] = _token()
    try:
        session, port = _serving(master, name, settings, nice)
        served = Application(session, port)
        try:
            yield served
        finally:
            served.close()
            session.stop()
    finally:
        del os.environ[_TOKEN]


@functools.cache
def _token() -> str:
    """One for this process: it may have several applications in turn, all in the JVM that saw the first one's."""
    return str(uuid.uuid4())


def _serving(master: str, name: str, settings: Mapping[str, str], nice: int) -> tuple[SparkSession, int]:
    for left in reversed(range(TRIES)):
        port = _free_port()
        serve = {
            "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": str(port),
        }
        try:
            return open_session(master, name, {**settings, **serve}, nice), port
        except Exception as error:
            if not left or "in use" not in str(error):
                raise
    raise AssertionError("the last one returns or raises")


def _free_port() -> int:
    with socket.socket() as asked:
        asked.bind(("127.0.0.1", 0))
        port: int = asked.getsockname()[1]
    return port


def _reason(errors: IO[bytes], directory: Path, loading: str) -> str:
    """Returns the exception that was printed last, with the place in the project where it was raised, or the file that
    was being loaded."""
    size = errors.seek(0, os.SEEK_END)
    errors.seek(max(0, size - ERROR_BYTES))
    said = errors.read().decode(errors="replace").strip()
    raised = list(_RAISED.finditer(said))
    if not raised:
        return said
    stack = said[max(0, said.rfind(TRACEBACK, 0, raised[-1].start())) : raised[-1].start()]
    own = f"{directory}/"
    places = [f"{file}, line {line}" for file, line in _PLACE.findall(stack) if file.startswith(own)]
    place = (places[-1] if places else loading).removeprefix(own)
    reason = said[raised[-1].end() :]
    return f"{place}: {reason}" if place else reason
