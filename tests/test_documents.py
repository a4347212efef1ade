"""What the documents tell somebody to type: what it is typed to takes it, and what can be run here is run."""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
from mq_shards.acceptor.access.hashes import password_hash, token_hash
from mq_shards.supervisor import command
from mq_shards.supervisor.options.sections import SECTIONS

from tests.nsq import certificates
from tests.nsq.servers import listening
from tests.reader.broker import Broker, started
from tests.servers import ROOT, wait_until

DOCUMENTS: Final = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted(ROOT.glob("deploy/*/README.md")))
# The first words of lines that are for a shell.
PROGRAMS: Final = (
    "mq-shards", "mq-pipeline", "make", "python", "python3", "curl", "systemctl", "printf", "apt", "cp", "export",
    "spark-pipelines", ".", "pip",
)  # fmt: skip
OF_THE_MACHINE: Final = {"systemctl", "apt", "cp", "export", "spark-pipelines", ".", "pip", "python3", "printf", "curl"}
SECTIONS_OF_TOML: Final = "users", "groups", *SECTIONS


class Line(NamedTuple):
    """Of a document, to be typed."""

    document: str
    text: str


class Parsed(Exception):  # noqa: N818 (it is none)
    """A command line was taken."""


def blocks(text: str) -> list[str]:
    """What is set apart by four spaces; a line that ends in a backslash goes on in the next."""
    found = re.findall(r"(?:^\n|\A)((?: {4}.*\n|\n(?= {4}))+)", text, re.MULTILINE)
    return [re.sub(r"^ {4}", "", block.replace("\\\n", ""), flags=re.MULTILINE) for block in found]


def lines() -> Iterator[Line]:
    """Of all documents: those of blocks, and commands of ours within the text."""
    for path in DOCUMENTS:
        text = path.read_text()
        for block in blocks(text):
            for line in block.splitlines():
                if line.split(" ")[0] in PROGRAMS:
                    yield Line(path.name, line.strip())
        for span in re.findall(r"`(mq-(?:shards|pipeline) [^`]+)`", re.sub(r"\s*\n\s*", " ", text)):
            # `mq-shards backup` alone only names it.
            if len(span.split()) > 2 and not re.search(r"\.\.\.|\w\|\w|--help", span):
                yield Line(path.name, span)


def words(line: str) -> list[str]:
    return shlex.split(line, comments=True)


ALL: Final = sorted(set(lines()))


def ours(program: str) -> list[Line]:
    """With each command of a pipe by itself."""
    parts = [Line(line.document, part) for line in ALL for part in re.split(r" (?:\||&&) ", line.text)]
    return [part for part in parts if part.text.split(" ")[0] == program]


@pytest.fixture
def only_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever parses a command line has done enough."""
    parse = argparse.ArgumentParser.parse_args
    real: Any = parse

    def parse_args(self: argparse.ArgumentParser, *given: Any) -> None:  # noqa: ANN401
        real(self, *given)
        raise Parsed

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parse_args)


@pytest.fixture(scope="module")
def etc(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that the documents name in /etc, and nats-server's, nsqd's and Pulsar's."""
    etc: Path = tmp_path_factory.mktemp("etc")
    own = etc / "mq-shards"
    own.mkdir()
    made = certificates.make(own)
    for name in ("cert.pem", "clients.pem"):
        shutil.copy(made.server.cert, own / name)
    shutil.copy(made.server.key, own / "key.pem")
    (etc / "mq-shards-users.toml").write_text(with_hashes(toml_of("security.md")[0]))
    (etc / "nsqd.cfg").write_text("max_rdy_count = 5\n")
    shutil.copy(ROOT / "deploy" / "debian" / "mq-shards.toml", etc)
    for name in ("nats.conf", "nats-server.conf"):
        (etc / name).write_text("port: 4222\n")
    (etc / "standalone.conf").write_text("webServicePort=8080\n")
    (etc / "nats.pid").write_text(f"{os.getpid()}\n")
    return etc


def placed(text: str, etc: Path) -> str:
    """As if `etc` were this machine's, and what is named without a directory were there."""
    text = text.replace("/etc/", f"{etc}/").replace("/var/run/nats/", f"{etc}/")
    text = re.sub(r"/var/lib/(nsq|beanstalkd)\b|(?<=-data-path )/d\b", str(etc), text)
    return re.sub(r"(?<![\w/])(nats(?:-server)?\.conf|standalone\.conf)\b", rf"{etc}/\1", text)


def with_hashes(toml: str) -> str:
    numbers = itertools.count()
    toml = toml.replace("$2b$12$...", password_hash("x"))
    return re.sub(r"sha256:\.\.\.", lambda _: token_hash(f"token {next(numbers)}"), toml)


def toml_of(document: str) -> list[str]:
    """Its blocks of options."""
    found = []
    for block in blocks((ROOT / "docs" / document).read_text()):
        with contextlib.suppress(tomllib.TOMLDecodeError):
            # A command may stand over it.
            lines = block.splitlines()
            kept = "\n".join(line for line in lines if line.split(" ")[0] not in PROGRAMS)
            if tomllib.loads(kept):
                found.append(kept)
    return found


def test_there_is_something_to_look_at() -> None:
    assert len(ours("mq-shards")) > 25 and len(ours("make")) > 10 and len(ours("mq-pipeline")) > 5
    assert {line.document for line in ALL} >= {"README.md", "operations.md", "moving.md", "security.md", "upgrading.md"}


def test_all_of_it_is_what_a_shell_takes() -> None:
    for line in ALL:
        if "[" not in line.text:
            said = subprocess.run(["sh", "-nc", line.text], capture_output=True, text=True, check=False)
            assert (said.returncode, said.stderr) == (0, ""), line


@pytest.mark.parametrize("line", ours("mq-shards"), ids=lambda line: f"{line.document}:{line.text[:60]}")
def test_our_commands_are_taken(line: Line, etc: Path, only_parsed: None, capsys: pytest.CaptureFixture[str]) -> None:
    given = words(placed(line.text, etc))[1:]
    if "[TEXT]" in given:
        given.remove("[TEXT]")
    if given[0].startswith("-") or given[0] in ("as", "check-config"):
        if given[0] != "check-config":
            given = ["check-config", *given]
        with pytest.MonkeyPatch.context() as undone:
            undone.setattr(argparse.ArgumentParser, "parse_args", REAL)
            assert command.main(given) == 0, capsys.readouterr().err
    else:
        with pytest.raises(Parsed):
            command.main(given)


REAL: Final = argparse.ArgumentParser.parse_args


@pytest.mark.parametrize("line", ours("mq-pipeline"), ids=lambda line: f"{line.document}:{line.text[:60]}")
def test_flags_of_jobs_are_there(line: Line) -> None:
    pytest.importorskip("pyspark")
    from mq_shards.pipeline import arguments
    from mq_shards.pipeline import command as jobs

    (job,) = set(re.findall(r"[a-z-]+", line.text.split("#")[0])) & jobs.JOBS.keys() or {""}
    parser = argparse.ArgumentParser()
    arguments.add_common(parser)
    if job:
        jobs.JOBS[job][0](parser)
    known = set(parser._option_string_actions)
    assert job or "JOB" in line.text
    assert set(re.findall(r"--[a-z-]+", line.text.split("#")[0])) <= known


@pytest.mark.parametrize("line", ours("make"), ids=lambda line: f"{line.document}:{line.text[:60]}")
def test_targets_of_make_are_there(line: Line, only_parsed: None) -> None:
    from perf import bench

    target, *more = words(line.text)[1:]
    makefile = (ROOT / "Makefile").read_text()
    assert re.search(rf"^{target}:", makefile, re.MULTILINE)
    for word in more:
        arguments = shlex.split(word.removeprefix("ARGS="))
        if target == "bench":
            with pytest.raises(Parsed):
                bench.parser().parse_args(arguments)


# Without a module it is for what stands in the block below it.
MODULES: Final = [line for line in ours("python") if words(line.text)[1:]]


@pytest.mark.parametrize("line", MODULES, ids=lambda line: f"{line.document}:{line.text[:60]}")
def test_modules_that_are_run_take_what_is_written(
    line: Line, only_parsed: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    dash, module, *arguments = [re.sub(r"[\[\]]", "", word) for word in words(line.text)[1:]]
    assert dash == "-m"
    monkeypatch.setattr(sys, "argv", [module, *(re.sub(r"^N$", "1", word) for word in arguments)])
    with pytest.raises(Parsed):
        runpy.run_module(module, run_name="__main__")


@pytest.mark.parametrize("document", ["operations.md", "listening.md", "nats.md"])
def test_files_of_options_are_taken(document: str, etc: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = toml_of(document)
    assert found
    for toml in found:
        (etc / "of-a-document.toml").write_text(placed(toml, etc))
        open_to_all = [f"--insecure={scheme}" for scheme in ("http", "https") if f"{scheme}://0.0.0.0" in toml]
        given = ["check-config", "--config", str(etc / "of-a-document.toml"), *open_to_all]
        assert command.main(given) == 0, capsys.readouterr().err


def test_options_that_are_named_are_there() -> None:
    """`log.retention-hours` in the text; names with a _ or of a file are something else."""
    sources = [path for folder in ("acceptor", "gateway") for path in (ROOT / folder).rglob("*.py")]
    calls = "\n".join(path.read_text() for path in sources)
    gone = []
    for path in DOCUMENTS:
        for section, name in re.findall(rf"`({'|'.join(SECTIONS)})\.([a-z][a-z0-9-]*)", path.read_text()):
            is_other = name in ("c", "h", "py", "md", "go") or f'"{section}.{name}"' in calls
            if name not in SECTIONS[section] and not is_other:
                gone.append(f"{path.name}: {section}.{name}")
    assert not gone


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    listen = [f"--listen={scheme}://127.0.0.1:0" for scheme in ("beanstalk", "nats")]
    with started(Path(tmp_path_factory.mktemp("documents")) / "data", *listen) as broker:
        wait_until(lambda: {"beanstalk", "nats", "http", "nsq-http"} <= set(listening(broker.server)), "it listens")
        yield broker


def shell(line: str, broker: Broker) -> str:
    """What it says with the broker's ports in the place of the usual ones."""
    ports = listening(broker.server)
    usual = {"beanstalk": 11300, "nsq": 4150, "nsq-http": 4151, "nats": 4222, "http": 4180}
    for scheme, port in usual.items():
        line = re.sub(rf"(127\.0\.0\.1[: ]){port}\b", rf"\g<1>{ports[scheme]}", line)
    environment = {
        **os.environ, "MQ_SHARDS_AT": f"http://127.0.0.1:{ports['http']}",
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "no_proxy": "*",
    }  # fmt: skip
    said = subprocess.run(
        ["sh", "-c", line], capture_output=True, text=True, timeout=60, env=environment, check=False,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert said.returncode == 0, (line, said)
    return said.stdout


@pytest.mark.parametrize(
    "line", [line for line in ALL if line.text.startswith(("printf", "curl"))],
    ids=lambda line: f"{line.document}:{line.text[:50]}",
)  # fmt: skip
def test_what_a_newcomer_tries_is_answered(line: Line, broker: Broker) -> None:
    program = line.text.split("|")[-1].split()[0]
    if shutil.which(program) is None:
        pytest.skip(f"there is no {program} here")
    # `nc -w 1` may give up before a machine that is busy has answered.
    wait_until(lambda: re.search(r"RESERVED|INSERTED|OK|MSG|\{", shell(line.text, broker)), f"{line} is answered")


def test_commands_for_a_terminal_do_what_their_page_says(broker: Broker) -> None:
    shown = blocks((ROOT / "docs" / "terminal.md").read_text())[0].splitlines()
    by_name = {line.split()[1]: line.partition("#")[0].strip() for line in shown}
    assert by_name.keys() == {"top", "topics", "peek", "tail", "publish", "consume", "bench"}
    assert shell(by_name["publish"].replace("--delay 5", ""), broker) == ""
    assert "orders" in shell(by_name["topics"].replace(" [TEXT]", " ord"), broker)
    assert '{"n": 1}' in shell(by_name["peek"], broker)
    assert '{"n": 1}' in shell(by_name["tail"].replace(" -f", " -n 20"), broker)
    assert '{"n": 1}' in shell(by_name["consume"].replace("-n 10", "-n 1"), broker)
    assert "orders" in shell(by_name["top"] + " --count 1", broker)
