"""A real broker that does not come up is said to be so: nothing is compared with it, or recorded from it."""

from __future__ import annotations

import subprocess

import pytest

from tests.pulsar import real


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
