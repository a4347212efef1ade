"""log_file of nats-server's configuration, -l of its command line, and SIGUSR1, which opens the file anew."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from mq_shards.acceptor.option_kinds import OptionsError
from mq_shards.acceptor.protocol import NO_LOG_FILE, LogFileTerms
from mq_shards.supervisor.command import main
from mq_shards.supervisor.log_file import LogFile
from mq_shards.supervisor.moving.table import translate
from mq_shards.supervisor.options.options import Options, parse

from tests.nats.servers import nats_server, running
from tests.servers import ROOT, children, comm_of, wait_until

KINDS = [
    pytest.param(0, id="nats-server", marks=pytest.mark.skipif(nats_server() is None, reason="no nats-server")),
    pytest.param(2, id="shards-2"),
]


def holds(path: Path, *texts: str) -> bool:
    said = path.read_text() if path.exists() else ""
    return all(text in said for text in texts)


def configured(tmp_path: Path, log_file: Path, more: str = "") -> list[str]:
    conf = tmp_path / "nats.conf"
    conf.write_text(f'log_file: "{log_file}"\n{more}\n')
    return ["-c", str(conf)]


@pytest.mark.parametrize("kind", KINDS)
def test_lines_go_to_the_end_of_the_file_and_sigusr1_opens_it_anew(tmp_path: Path, kind: int) -> None:
    log_file, old = tmp_path / "nats.log", tmp_path / "nats.log.1"
    log_file.write_text("a line of the last run\n")
    flag, conf = configured(tmp_path, log_file)
    with running(kind, arguments=["--nats-config" if kind else flag, conf]) as server:
        wait_until(lambda: holds(log_file, "a line of the last run\n", "Server is ready"), "it has said so")
        log_file.rename(old)
        before = old.read_text()
        server.process.send_signal(signal.SIGUSR1)
        wait_until(lambda: holds(log_file, "re-opened"), "the new file is used")
        assert log_file.stat().st_mode & 0o777 == 0o640
        assert server.stop() == 0 if kind else server.stop() in (0, 1)
        assert server.said() == "" and "drain" not in log_file.read_text()
        assert old.read_text() == before or not kind  # nats-server notes the signal there


def test_all_processes_write_to_the_new_file(tmp_path: Path) -> None:
    log_file = tmp_path / "nats.log"
    _, conf = configured(tmp_path, log_file, "http: 127.0.0.1:-1")
    with running(2, arguments=["--nats-config", conf, "--log-level", "debug"]) as server:

        def written_by_all() -> bool:
            """Whether stderr of each process is the file of that name."""
            pids = [server.process.pid, *children(server.process.pid)]
            return {Path(f"/proc/{pid}/fd/2").readlink() for pid in pids} == {log_file}

        wait_until(lambda: holds(log_file, "Server is ready"), "it serves")
        for number, is_asked in enumerate((False, True)):  # the gateway on standby, and when it has been loaded
            if is_asked:
                found = re.search(r"listening on (nats-http://\S+)", (tmp_path / "nats.log.0").read_text())
                assert found
                with urllib.request.urlopen(f"{found[1].replace('nats-', '')}/varz", timeout=10) as answer:
                    assert answer.status == 200
            log_file.rename(tmp_path / f"nats.log.{number}")
            server.process.send_signal(signal.SIGUSR1)
            wait_until(written_by_all, "all have the new file")
        worker = next(pid for pid in children(server.process.pid) if comm_of(pid) == "mq-worker-0")
        os.kill(worker, signal.SIGKILL)
        processes = ("mq-acceptor-0", "mq-acceptor-1", "mq-gateway")
        lines = [f"{process}: worker 0 is attached (epoch 2)" for process in processes]
        wait_until(lambda: holds(log_file, "mq-worker-0 is back", *lines), "the new file has their lines")
        assert written_by_all() and server.said() == ""


def test_the_old_file_is_kept_if_there_can_be_no_new_one(tmp_path: Path) -> None:
    there, away = tmp_path / "logs", tmp_path / "away"
    there.mkdir()
    with running(1, arguments=["--log-file", str(there / "mq.log")]) as server:
        there.rename(away)
        server.process.send_signal(signal.SIGUSR1)
        wait_until(lambda: holds(away / "mq.log", "cannot reopen the log file: "), "the old file has the error")
        away.rename(there)
        server.process.send_signal(signal.SIGUSR1)
        wait_until(lambda: holds(there / "mq.log", "log file re-opened"), "the next signal finds it")


def test_without_its_file_the_broker_does_not_start(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for path, why in (
        (tmp_path / "nowhere" / "log", "No such file or directory"), (tmp_path, "Is a directory"),
        (tmp_path / "fifo", "No such device or address"),  # nobody reads it
    ):  # fmt: skip
        done = subprocess.run(
            [sys.executable, "-m", "mq_shards.supervisor.command", "as", "nats-server", "-p", "-1", "-l", str(path)],
            cwd=ROOT, capture_output=True, text=True, timeout=30,
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (1, f"mq-shards: cannot open the log file {path}: {why}\n")


def test_a_start_that_fails_later_says_so_in_the_file(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        arguments = ["as", "nats-server", "-a", "127.0.0.1", "-p", str(taken.getsockname()[1]), "-l", f"{tmp_path}/log"]
        done = subprocess.run(
            [sys.executable, "-m", "mq_shards.supervisor.command", *arguments],
            cwd=ROOT,
            capture_output=True,
            timeout=30,
        )
    assert (done.returncode, done.stdout, done.stderr) == (1, b"", b"")
    assert re.fullmatch(r"20\S+ \S+ error mq-supervisor: cannot listen on .*in use\n", (tmp_path / "log").read_text())


def test_the_flag_wins_over_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = configured(tmp_path, Path("/filed.log"))

    def options_of(*arguments: str) -> Options:
        return parse(translate(["nats-server", *arguments]).arguments)

    assert options_of().log_file == NO_LOG_FILE
    assert options_of(*file).log_file == options_of(*file, "-l", "").log_file == LogFileTerms("/filed.log")
    assert options_of(*file, "-l", "/flagged.log").log_file == options_of("--log=/flagged.log").log_file
    limits = configured(tmp_path, Path("/filed.log"), "log_size_limit: 1MB\nlog_max_num: 3")
    assert options_of(*limits).log_file == LogFileTerms("/filed.log", 1 << 20, 3)
    assert options_of(*limits, "--log_size_limit", "5000").log_file == LogFileTerms("/filed.log", 5000, 3)
    assert options_of(*limits).warnings == ()
    file = configured(tmp_path, Path("/filed.log"))
    with pytest.raises(OptionsError, match="is not a path"):
        options_of(*configured(tmp_path, Path("a\0b")))
    assert main(["as", "nats-server", "-t", *file, "-l", "/nowhere/log"]) == 0
    said = capsys.readouterr().out
    assert "writes its journal to /nowhere/log" in said
    assert "warning: cannot open the log file /nowhere/log: there is no directory /nowhere" in said
    assert main(["check-config", "as", "nats-server", "-t", *file, "-l", "/nowhere/log"]) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_reload_may_name_another_file_or_none(tmp_path: Path, kind: int) -> None:
    first, second = tmp_path / "first.log", tmp_path / "second.log"
    flag, conf = configured(tmp_path, first)
    done = "read anew" if kind else "Reloaded server"
    with running(kind, arguments=["--nats-config" if kind else flag, conf]) as server:
        wait_until(lambda: holds(first, "Server is ready"), "it serves")
        configured(tmp_path, second)
        server.process.send_signal(signal.SIGHUP)
        wait_until(lambda: holds(second, done), "the new file is used")
        wait_until(lambda: holds(first, f" = {second}\n"), "the old one says where lines go")
        if kind:
            pids = [server.process.pid, *children(server.process.pid)]
            wait_until(lambda: {Path(f"/proc/{pid}/fd/2").readlink() for pid in pids} == {second}, "all use it")
        before = first.read_text()
        Path(conf).write_text("debug: false\n")
        server.process.send_signal(signal.SIGHUP)
        wait_until(lambda: done in server.said(), "lines go to stderr again")
        assert first.read_text() == before


def test_a_reload_with_a_file_that_cannot_be_opened_changes_nothing(tmp_path: Path) -> None:
    """A nats-server ends."""
    log_file = tmp_path / "nats.log"
    _, conf = configured(tmp_path, log_file)
    with running(1, arguments=["--nats-config", conf]) as server:
        wait_until(lambda: holds(log_file, "Server is ready"), "it serves")
        configured(tmp_path, tmp_path / "nowhere" / "log", "max_payload: 4096")
        server.process.send_signal(signal.SIGHUP)
        why = f"nothing is changed: cannot open the log file {tmp_path}/nowhere/log: No such file or directory\n"
        wait_until(lambda: holds(log_file, why), "the file in use says why")
        with socket.create_connection(("127.0.0.1", server.port), 10) as client:
            assert b'"max_payload":1048576' in client.recv(4096)


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_past_its_limit_is_rotated_and_old_ones_are_purged(tmp_path: Path, kind: int) -> None:
    log_file = tmp_path / "nats.log"
    log_file.write_text("x" * 5000 + "\n")
    others = ["nats.log.1", "nats.log.2020.01.01.00.00.00.000000000.gz", "other.2020.01.01.00.00.00.000000000"]
    old = [f"nats.log.2020.01.0{day}.00.00.00.000000000" for day in (1, 2, 3)]
    for name in (*others, *old):
        (tmp_path / name).touch()
    flag, conf = configured(tmp_path, log_file, "logfile_size_limit: 4k\nlogfile_max_num: 3")
    with running(kind, arguments=["--nats-config" if kind else flag, conf]) as server:
        wait_until(lambda: holds(log_file, "Rotated log, backup saved as"), "it is rotated")
        backup = next(path for path in tmp_path.iterdir() if re.fullmatch(r"nats\.log\.202[1-9]\..*\.\d{9}", path.name))
        assert backup.read_text().startswith("xxx") and f'"{backup}"' in log_file.read_text()
        if kind:  # a nats-server removes none when it rotates at its start
            wait_until(lambda: not any((tmp_path / name).exists() for name in old[:2]), "the oldest are removed")
            assert all((tmp_path / name).exists() for name in (*others, old[2]))
            pids = [server.process.pid, *children(server.process.pid)]
            wait_until(lambda: {Path(f"/proc/{pid}/fd/2").readlink() for pid in pids} == {log_file}, "all use it")


def test_a_rotation_that_fails_is_tried_again_at_twice_the_size(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    path = tmp_path / "logs" / "mq.log"
    path.parent.mkdir()
    file = LogFile()
    try:
        file.use(LogFileTerms(str(path), 100))
        os.write(2, b"x" * 101)
        with monkeypatch.context() as patch:
            patch.setattr(Path, "rename", refuse)
            file.rotate_if_long(())
        assert "trying again when it has 202 bytes" in caplog.text
        os.write(2, b"x" * 101)
        file.rotate_if_long(())
        assert sorted(path.parent.iterdir()) == [path]
        os.write(2, b"x")
        path.unlink()  # by somebody else
        file.rotate_if_long(())
        os.write(2, b"after\n")
        assert path.read_text() == "after\n"
        os.write(2, b"x" * 101)
        file.rotate_if_long(())
        assert path.read_text() == "" and len(list(path.parent.iterdir())) == 2, "the limit is the first one again"
    finally:
        file.use(NO_LOG_FILE)
    os.write(2, b"to the first stderr\n")
    assert capfd.readouterr().err == "to the first stderr\n"


def refuse(*_: object) -> None:
    raise PermissionError(13, "Permission denied")


def test_what_is_no_file_is_not_rotated(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = LogFile()
    try:
        file.use(LogFileTerms("/dev/null", 1))
        os.write(2, b"some bytes")
        file.rotate_if_long(())
    finally:
        file.use(NO_LOG_FILE)
    assert Path("/dev/null").is_char_device()
