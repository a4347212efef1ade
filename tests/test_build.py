"""csrc/build.py: two builds at once in one tree do not write over each other."""

from __future__ import annotations

import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from mq_shards.csrc import build


def test_two_builds_at_once_wait_for_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    both_link = threading.Barrier(2)

    def link(command: list[str], check: bool) -> None:
        """Stands for the linker, and is slow only where another one could come in between."""
        Path(command[command.index("-o") + 1]).write_bytes(b"a module")
        try:
            both_link.wait(0.3)
        except threading.BrokenBarrierError:
            return

    monkeypatch.setattr(build, "BUILD", tmp_path / "build")
    monkeypatch.setattr(build, "generate", lambda target, module: None)
    monkeypatch.setattr(build, "compile_one", lambda command, source, objects: source)
    monkeypatch.setattr(subprocess, "run", link)
    with ThreadPoolExecutor(2) as pool:
        made = [pool.submit(build.compile_in, tmp_path, "module", [], []) for _ in range(2)]
        names = {future.result().read_bytes() for future in made}
    assert names == {b"a module"}
    assert not list(tmp_path.glob("*.linking"))
