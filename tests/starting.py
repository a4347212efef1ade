"""Starts mq-shards for the tests: forked from a process that has loaded its modules (loaded.py), or as a program."""

from __future__ import annotations

import array
import atexit
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import BinaryIO, TypeAlias

from mq_shards.shards.paths import META

ROOT = Path(__file__).resolve().parent.parent
MODULE = "mq_shards.supervisor.command"
COMMAND = (sys.executable, "-m", MODULE)
NOTHING: Mapping[str, str] = {}
FEW_SHARDS = 4
# What the interpreter and the libraries look at when they start begins so.
EARLY = ("LD_", "LC_", "LANG", "PYTHON", "MALLOC_", "TZ")


class Forked:
    """A process that another one has forked for us, and is the parent of; like a subprocess.Popen."""

    def __init__(self, parent: Loaded, pid: int, arguments: Sequence[str]) -> None:
        self._parent = parent
        self.pid = pid
        self.args = list(arguments)
        self.returncode: int | None = None
        self._pidfd = os.pidfd_open(pid)
        self._asking = threading.Lock()  # its parent can say once how it ended

    def poll(self) -> int | None:
        with self._asking:
            if self.returncode is None:
                self.returncode = self._parent.status_of(self.pid)
                if self.returncode is not None:
                    os.close(self._pidfd)
            return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            ended = select.poll()
            ended.register(self._pidfd, select.POLLIN)
            ended.poll(None if timeout is None else timeout * 1000)
        code = self.poll()
        if code is None:
            assert timeout is not None
            raise subprocess.TimeoutExpired(f"the broker {self.pid}", timeout)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class Piped(Forked):
    """With what it writes to be read."""

    def __init__(self, parent: Loaded, pid: int, arguments: Sequence[str], stdout: BinaryIO, stderr: BinaryIO) -> None:
        super().__init__(parent, pid, arguments)
        self.stdout, self.stderr = stdout, stderr

    def communicate(self, timeout: float) -> tuple[bytes, bytes]:
        """What a pipe holds it may have written."""
        self.wait(timeout)
        return self.stdout.read(), self.stderr.read()


Process: TypeAlias = "subprocess.Popen[bytes] | Forked"


class Loaded:
    """The process that has loaded the modules. It ends with the tests."""

    def __init__(self) -> None:
        self.environment = inherited(os.environ)
        self._lock = threading.Lock()
        self._asked, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.loaded"], stdin=theirs, stdout=subprocess.DEVNULL, cwd=ROOT,
                env=self.environment,
            )  # fmt: skip

    def has_not(self, environment: Mapping[str, str]) -> dict[str, str] | None:
        """What this environment has that the process was not started with; None: a process has to start with it."""
        more = dict(environment.items() - self.environment.items())
        is_early = any(name.startswith(EARLY) for name in more)
        return None if is_early or self.environment.keys() - environment.keys() else more

    def fork(
        self, arguments: Sequence[str], streams: Sequence[int], module: str = MODULE, more: Mapping[str, str] = NOTHING
    ) -> Forked:
        """Runs `main` of the module. `more`: of its environment."""
        request = {"module": module, "arguments": [str(word) for word in arguments], "environment": dict(more)}
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", streams))]
        return Forked(self, int(self._answer(request, rights)), arguments)

    def fork_piped(self, arguments: Sequence[str], module: str, more: Mapping[str, str]) -> Piped:
        (out, its_out), (err, its_err) = os.pipe(), os.pipe()
        with Path(os.devnull).open("rb") as nothing, os.fdopen(its_out, "wb"), os.fdopen(its_err, "wb"):
            pid = self.fork(arguments, (nothing.fileno(), its_out, its_err), module, more).pid
        return Piped(self, pid, arguments, os.fdopen(out, "rb"), os.fdopen(err, "rb"))

    def status_of(self, pid: int) -> int | None:
        """None: it runs."""
        status = self._answer({"ended": pid})
        return None if status == "None" else int(status)

    def _answer(self, request: Mapping[str, object], rights: Sequence[tuple[int, int, array.array[int]]] = ()) -> str:
        with self._lock:
            self._asked.sendmsg([json.dumps(request).encode()], rights)
            answer = self._asked.recv(64)
        if not answer:
            raise RuntimeError("the process that brokers are forked from has ended")
        return answer.decode()

    def close(self) -> None:
        self._asked.close()
        self._process.wait()


def inherited(environment: Mapping[str, str]) -> dict[str, str]:
    """Without what is another for each test."""
    return {name: value for name, value in environment.items() if not name.startswith("PYTEST_")}


@cache
def _loaded() -> Loaded:
    loaded = Loaded()
    atexit.register(loaded.close)
    return loaded


def of_few_shards(arguments: Sequence[str]) -> list[str]:
    """With a number of shards for a new data directory, if the test names none: to make the usual 64, and to look
    through them, takes longer than all else in a start."""
    words = [str(word) for word in arguments]
    given = " ".join(words).replace("=", " ").split(" ")
    if "--data-dir" not in given or "--shards" in given:
        return words
    is_new = not (Path(given[given.index("--data-dir") + 1]) / META).exists()
    return [*words, "--shards", str(FEW_SHARDS)] if is_new else words


def begin(
    arguments: Sequence[str],
    said: BinaryIO,
    *,
    env: Mapping[str, str] = NOTHING,
    is_ours: bool = True,
    as_program: bool = False,
    module: str = MODULE,
) -> Process:
    """Starts `mq-shards` with these arguments, or another server if it is not ours. What it says goes to `said`. `env`:
    what its environment has besides ours."""
    if is_ours and module == MODULE and not as_program:
        arguments = of_few_shards(arguments)
    wanted = inherited({**os.environ, **env})
    more = _loaded().has_not(wanted) if is_ours and not as_program else None
    if more is not None:
        with Path(os.devnull).open("rb") as nothing:
            return _loaded().fork(arguments, (nothing.fileno(), said.fileno(), said.fileno()), module, more)
    return subprocess.Popen(
        [*((sys.executable, "-m", module) if is_ours else ()), *arguments], stdin=subprocess.DEVNULL, stdout=said,
        stderr=said, cwd=ROOT, env=wanted, start_new_session=True,
    )  # fmt: skip


def piped(arguments: Sequence[str], module: str = MODULE) -> Piped | subprocess.Popen[bytes]:
    """Starts `mq-shards` with these arguments as from a terminal: a shell that runs the tests in the background has
    SIGINT ignored, by its children too."""
    more = _loaded().has_not(inherited(os.environ))
    if more is not None:
        return _loaded().fork_piped(arguments, module, more)
    return subprocess.Popen(
        [sys.executable, "-m", module, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, cwd=ROOT, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip


def run(
    arguments: Sequence[str], stdin: bytes, seconds: float, module: str = MODULE
) -> subprocess.CompletedProcess[bytes]:
    """Runs `mq-shards` with these arguments to its end."""
    more = _loaded().has_not(inherited(os.environ))
    if more is None:
        return subprocess.run(
            [sys.executable, "-m", module, *arguments],
            input=stdin,
            capture_output=True,
            timeout=seconds,
            cwd=ROOT,
            check=False,
        )
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as said, tempfile.TemporaryFile() as complained:
        given.write(stdin)
        given.seek(0)
        process = _loaded().fork(arguments, (given.fileno(), said.fileno(), complained.fileno()), module, more)
        try:
            status = process.wait(seconds)
        finally:
            process.kill()
            process.wait()
        said.seek(0)
        complained.seek(0)
        return subprocess.CompletedProcess(list(arguments), status, said.read(), complained.read())
