"""A protocol is one pair of files and a line in the table: the toy of tests/toy is added to a copy of the broker.

Nothing else is touched in the copy, and it runs.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import socket
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.sanitized import COMPILER, link, loading, missing, objects
from tests.servers import ROOT, SINGLE, Server, free_port, running

TOY = ROOT / "tests" / "toy"
LINKED = ("gateway", "pipeline", "ringbuf", "shards", "supervisor")
MAX_LINES = 150


def add_line(table: Path) -> None:
    text, count = re.subn(r"(    CODEC\(nsq\))", r"    CODEC(echo) \\\n\1", table.read_text(), count=1)
    assert count == 1, f"{table.name} has not the form that docs/protocols.md says"
    table.write_text(text)


@dataclass(frozen=True)
class Added:
    """An mq_shards with one protocol more."""

    home: Path
    environment: dict[str, str]


@pytest.fixture(scope="module")
def with_echo() -> Added:
    return added()


def added() -> Added:
    """What was compiled the last time and is as it was is kept."""
    home = ROOT / "build" / "toy"
    package = home / "mq_shards"
    package.mkdir(parents=True, exist_ok=True)
    for name in LINKED:
        (package / name).unlink(missing_ok=True)
        (package / name).symlink_to(ROOT / name)
    for name in ("acceptor", "csrc"):
        shutil.rmtree(package / name, ignore_errors=True)
        shutil.copytree(ROOT / name, package / name, ignore=shutil.ignore_patterns("*.so", "_core.c", "__pycache__"))
    for half, file in ((package / "csrc" / "acceptor", "echo.c"), (package / "acceptor", "echo.py")):
        (half / "protocols" / "echo").mkdir()
        shutil.copy(TOY / file, half / "protocols" / "echo")
    add_line(package / "csrc/acceptor/protocols/table.c")
    environment = {"PYTHONPATH": str(home)}
    if missing():
        subprocess.run([sys.executable, package / "csrc/build.py", "--quick"], check=True, stdout=subprocess.DEVNULL)
    else:
        build_sanitized(package / "csrc")
        environment |= loading()
    return Added(home, environment)


def build_sanitized(core: Path) -> None:
    """Compiles what differs from our own core, and links that with what the fuzz programs are linked with."""
    spec = importlib.util.spec_from_file_location("toy_build", core / "build.py")
    assert spec is not None and spec.loader is not None
    build = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(build)
    build.generate(core / "_core.c")
    differ = {core / name for name in build.sources() if not is_ours(core, name)}
    assert {path.name for path in differ} == {"echo.c", "table.c"}
    same = objects(ROOT / "csrc" / name for name in build.sources() if core / name not in differ)
    wrapper = core.parent / "_core.o"
    flags = ["-fPIC", f"-I{core}", f"-I{sysconfig.get_paths()['include']}"]
    subprocess.run([COMPILER, *flags, "-c", str(core / "_core.c"), "-o", str(wrapper)], check=True)
    module = core / f"_core{sysconfig.get_config_var('EXT_SUFFIX')}"
    link([*same.values(), *objects(differ, core).values(), wrapper], module, "-shared")


def is_ours(core: Path, name: str) -> bool:
    ours = ROOT / "csrc" / name
    return ours.exists() and ours.read_bytes() == (core / name).read_bytes()


@pytest.fixture(scope="module")
def port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def server(with_echo: Added, port: int) -> Iterator[Server]:
    options = ["--listen", f"echo://127.0.0.1:{port}", "--set", "echo.channel=toy"]
    with running(SINGLE, options=options, env=with_echo.environment) as server:
        yield server


def lines(port: int, data: bytes, count: int) -> list[bytes]:
    with socket.create_connection(("127.0.0.1", port), timeout=60) as client:
        client.sendall(data)
        with client.makefile("rb") as stream:
            return [stream.readline() for _ in range(count)]


def test_a_pair_of_files_and_a_line_are_a_protocol() -> None:
    assert sum(len(path.read_text().splitlines()) for path in TOY.glob("echo.*")) + 1 < MAX_LINES


@pytest.mark.timeout(300)  # it compiles the core
def test_lines_go_into_a_topic_and_come_back(server: Server, port: int) -> None:
    assert lines(port, b"greetings\nhello\nworld\n", 2) == [b"hello\n", b"world\n"]


def test_what_is_in_the_topic_comes_to_whoever_names_it(server: Server, port: int) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as tubes:
        tubes.sendall(b"use from-a-tube\r\nput 0 0 60 2\r\nhi\r\n")
        assert tubes.recv(100).startswith(b"USING from-a-tube\r\n")
        assert lines(port, b"from-a-tube\n", 1) == [b"hi\n"]


def test_its_options_and_its_example_are_in_the_help(with_echo: Added) -> None:
    command = [sys.executable, "-m", "mq_shards.supervisor.command", "--help"]
    shown = subprocess.run(command, env=with_echo.environment, capture_output=True, text=True, check=True).stdout
    assert "[echo]" in shown and "echo://127.0.0.1:7007" in shown and "nc -w 1 127.0.0.1 7007" in shown
