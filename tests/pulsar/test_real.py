"""A real broker that does not come up is said to be so: nothing is compared with it, or recorded from it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pulsar import real
from tests.servers import ROOT, wait_until


@pytest.mark.parametrize(("command", "why"), [("exit 3", "ended with 3"), ("sleep 600", "does not serve after 0.1 s")])
def test_one_that_does_not_come_up_is_an_error_and_is_ended(
    monkeypatch: pytest.MonkeyPatch, command: str, why: str
) -> None:
    started: list[subprocess.Popen[bytes]] = []

    def serve(*_: object) -> subprocess.Popen[bytes]:
        started.append(subprocess.Popen(["sh", "-c", f"exec {command}" if "sleep" in command else command]))
        return started[0]

    monkeypatch.setattr(real, "serve", serve)
    with pytest.raises(RuntimeError, match=why), real.broker(start_s=0.1 if "sleep" in command else 60):
        pytest.fail("it served")
    assert started[0].returncode is not None


def test_one_ends_with_the_command_that_serves_it(tmp_path: Path) -> None:
    java, pid = tmp_path / "java", tmp_path / "pid"
    java.write_text(f"#!/bin/sh\necho $$ > {pid}.new\nmv {pid}.new {pid}\nexec sleep 60\n")
    java.chmod(0o755)
    (tmp_path / "broker.classpath").write_text("none")
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "PULSAR_CLASSPATHS": str(tmp_path)}
    process = subprocess.Popen([sys.executable, "-m", "tests.pulsar.real", "serve"], cwd=ROOT, env=env)
    try:
        wait_until(pid.exists, "a Java", 10)
        process.terminate()
        process.wait(10)
        assert not Path(f"/proc/{int(pid.read_text())}").exists()
    finally:
        process.kill()
        process.wait()
        with contextlib.suppress(OSError):
            os.kill(int(pid.read_text()), signal.SIGKILL)
