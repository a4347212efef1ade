"""`mq-shards top` in a real terminal: tmux's."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from mq_shards.supervisor.terminal.columns import columns

from tests.nsq.servers import HOST, SHARDS, running
from tests.reader.broker import Broker
from tests.servers import ROOT, free_port, wait_until
from tests.terminal.commands import MQ, done, objects, run

pytestmark = pytest.mark.skipif(shutil.which("tmux") is None, reason="there is no tmux")


COLOUR = re.compile(r"\x1b\[(?:\d+;)*[34][0-7](?:;\d+)*m")
LOOK_S: Final = 0.1  # each look is a process
TALL: Final = 300  # lines: other tests' topics are shown too
# pytest's readline sets two variables that curses would believe more than the terminal.
ENVIRONMENT: Final = {name: value for name, value in os.environ.items() if name not in ("LINES", "COLUMNS")}


class Terminal:
    def __init__(self, own: Path, command: str, *, height: int = 30) -> None:
        self._socket = str(own / "tmux")
        self._run("new-session", "-d", "-x", "110", "-y", str(height), f"{command}; echo ended $?; sleep 60")

    def _run(self, *arguments: str) -> str:
        command = ["tmux", "-S", self._socket, "-f", "/dev/null", *arguments]
        return subprocess.run(
            command, capture_output=True, text=True, check=True, cwd=ROOT, env=ENVIRONMENT, timeout=20
        ).stdout

    def press(self, *keys: str) -> None:
        self._run("send-keys", *keys)

    def size(self, width: int, height: int) -> None:
        self._run("resize-window", "-x", str(width), "-y", str(height))

    def text(self) -> str:
        return self._run("capture-pane", "-p")

    def coloured(self) -> str:
        return self._run("capture-pane", "-p", "-e")

    def sees(self, text: str) -> None:
        try:
            wait_until(lambda: text in self.text(), f"it shows {text}", pause=LOOK_S)
        except AssertionError as error:
            raise AssertionError(f"{error}; it shows\n{self.text()}") from None

    def close(self) -> None:
        subprocess.run(["tmux", "-S", self._socket, "kill-server"], capture_output=True, check=False, timeout=20)


@pytest.fixture
def terminal(broker: Broker, at: dict[str, str], tmp_path: Path) -> Iterator[Terminal]:
    broker.publish(*[("top.one", b"x")] * 30, *[("top.two", b"x")] * 50)
    command = shlex.join([*MQ, "top", "--interval", "0.3", at["http"]])
    terminal = Terminal(tmp_path, f"TERM=xterm-256color LANG=C.UTF-8 {command}")
    yield terminal
    terminal.close()


def row(terminal: Terminal, topic: str) -> list[str]:
    return next((line.split() for line in terminal.text().splitlines() if line.strip().startswith(topic)), [])


def test_it_is_live_and_obeys_keys(terminal: Terminal, broker: Broker) -> None:
    terminal.sees("top.two")
    terminal.sees("worker-1")
    terminal.sees(" OK")
    assert row(terminal, "top.one")[4] == "30"
    broker.publish(*[("top.one", b"x")] * 40, *[("top.two", b"x")] * 70)
    wait_until(lambda: row(terminal, "top.one")[4:5] == ["70"], "the backlog has grown", pause=LOOK_S)
    terminal.press("/", "t", "o", "p", ".", "Enter")  # other tests' topics are there too, more than it has lines
    terminal.sees("with “top.”")

    def in_order(key: str, first: str, second: str) -> bool:
        """Pressed until it counts: a terminal may lose one on a machine that is busy."""
        terminal.press(key)
        text = terminal.text()
        return 0 < text.find(first) < text.find(second)

    wait_until(lambda: in_order("b", "top.two", "top.one"), "120 before 70", pause=LOOK_S)
    wait_until(lambda: in_order("n", "top.one", "top.two"), "by name", pause=LOOK_S)
    terminal.press("b", "Escape")
    terminal.press("/")
    terminal.press("T", "W", "O", "Enter")
    terminal.sees("with “TWO”")
    wait_until(lambda: "top.one" not in terminal.text(), "only one is left", pause=LOOK_S)
    terminal.press("Escape")
    terminal.sees("top.one")
    terminal.size(60, 14)
    wait_until(
        lambda: "top." in terminal.text() and len(terminal.text().splitlines()[0]) <= 60, "it fits", pause=LOOK_S
    )
    terminal.size(5, 2)
    terminal.size(110, 30)
    terminal.sees("top.one")
    broker.server.replace("mq-gateway")
    broker.publish(*[("top.one", b"x")] * 5)
    wait_until(lambda: row(terminal, "top.one")[4:5] == ["75"], "it has come back", pause=LOOK_S)
    terminal.press("q")
    terminal.sees("ended 0")


def test_without_a_screen_it_writes_and_ends(broker: Broker, at: dict[str, str]) -> None:
    broker.publish(("top.one", b"x"))
    assert b"PUBLISHED" in done("top", "--count", "1", at["http"])
    found = objects("top", "--count", "2", "--interval", "0.1", at["http"])
    assert len(found) == 2
    assert {"rows", "workers", "rates", "history"} <= set(found[0])


@pytest.mark.parametrize("term", ["dumb", "not-a-terminal"])
def test_on_a_terminal_that_cannot_draw_it_writes_and_ends(
    broker: Broker, at: dict[str, str], tmp_path: Path, term: str
) -> None:
    broker.publish(("top.one", b"x"))
    terminal = Terminal(tmp_path, f"TERM={term} LANG=C.UTF-8 {shlex.join([*MQ, 'top', at['http']])}", height=TALL)
    try:
        terminal.sees("ended 0")
        assert "PUBLISHED" in terminal.text()
    finally:
        terminal.close()


def test_where_the_locale_is_ascii_only_it_draws_with_that(broker: Broker, at: dict[str, str], tmp_path: Path) -> None:
    broker.publish(*[("\u6ce8.ascii", b"x")] * 3)
    only = "LC_ALL=POSIX PYTHONUTF8=0 PYTHONCOERCECLOCALE=0"
    terminal = Terminal(tmp_path, f"{only} TERM=xterm-256color {shlex.join([*MQ, 'top', at['http']])}")
    try:
        terminal.sees("TOPIC")
        terminal.press("/")
        terminal.press(*".ascii", "Enter")
        terminal.sees("?.ascii")
        terminal.press("q")
        terminal.sees("ended 0")
    finally:
        terminal.close()


@pytest.mark.parametrize("plain", [False, True])
def test_colours_are_left_out_when_asked_for(broker: Broker, at: dict[str, str], tmp_path: Path, plain: bool) -> None:
    set_ = "NO_COLOR=1 " if plain else ""
    terminal = Terminal(tmp_path, f"{set_}TERM=xterm-256color LANG=C.UTF-8 {shlex.join([*MQ, 'top', at['http']])}")
    try:
        terminal.sees("worker-1")
        assert bool(COLOUR.search(terminal.coloured())) is not plain
    finally:
        terminal.close()


def test_wide_characters_and_marks_move_no_column(broker: Broker, at: dict[str, str], tmp_path: Path) -> None:
    names = ("plain.w", "\u6ce8\u6587.w", "e\u0301te\u0301.w", "\uff21" * 40 + ".w")
    broker.publish(*[(name, b"x") for name in names for _ in range(7)])
    wait_until(lambda: len(objects("topics", ".w", at["http"])) == len(names), "they are sampled", pause=LOOK_S)
    listed = done("topics", ".w", at["http"]).decode().splitlines()
    assert len({columns(line) for line in listed}) == 1, listed
    command = shlex.join([*MQ, "top", at["http"]])
    terminal = Terminal(tmp_path, f"TERM=xterm-256color LANG=C.UTF-8 {command}")
    try:
        terminal.sees("plain.w")
        terminal.press("/")
        terminal.press(".", "w", "Enter")
        wait_until(lambda: f"of {len(names)} " in terminal.text(), "only these are shown", pause=LOOK_S)
        before = [line.rpartition(" 7 ")[0] for line in terminal.text().splitlines() if " 7 " in line]
        assert len(before) == len(names), terminal.text()
        assert len({columns(text) for text in before}) == 1, before
    finally:
        terminal.close()


def test_it_says_while_the_broker_is_away_and_goes_on_when_it_is_back(tmp_path: Path) -> None:
    port = free_port()
    where, listen = f"--at=http://{HOST}:{port}", [f"--listen=http://{HOST}:{port}"]
    with contextlib.ExitStack() as stack:
        with running(SHARDS, arguments=listen) as server:
            wait_until(lambda: run("topics", where).returncode == 0, "it is served")
            terminal = Terminal(tmp_path, shlex.join([*MQ, "top", "--interval", "0.1", where]))
            stack.callback(terminal.close)
            terminal.sees(" OK")
            os.kill(gateway := server.pid_of("mq-gateway"), signal.SIGSTOP)
            terminal.sees("no answer for ")
            os.kill(gateway, signal.SIGCONT)
            os.kill(worker := server.pid_of("mq-worker-1"), signal.SIGSTOP)
            terminal.sees("NOK - mq-worker-1 does not answer")
            wait_until(
                lambda: re.search(r"worker-1 \[ *does not answer ", terminal.text()), "its bar says so", pause=LOOK_S
            )
            wait_until(lambda: run("topics", where).returncode == 1, "topics may be missing, and that is a failure")
            assert b"mq-worker-1: no answer" in run("topics", where).stderr
            wait_until(lambda: "mq-worker-1 (pid" in server.stderr.read_text(), "the supervisor has missed it too")
            os.kill(worker, signal.SIGCONT)
            terminal.sees(" OK")
            server.kill()
            terminal.sees("no broker at")
            assert " OK" not in terminal.text()
        with running(SHARDS, arguments=listen):
            terminal.sees(" OK")


def test_a_broker_that_is_away_is_said(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, shlex.join([*MQ, "top", "--at", "http://127.0.0.1:1"]))
    try:
        terminal.sees("no broker at http://127.0.0.1:1")
        terminal.sees("ended 1")
    finally:
        terminal.close()
