"""csrc/build.py: two builds at once do not write over each other, and memory may be seen under several types."""

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


# In two files, as an arena and who sees its memory under another type are.
SEEN_AS = {
    "a.c": "extern int set(int *, float *);\nint main(void) { int n; return set(&n, (float *)(void *)&n); }\n",
    "b.c": "int set(int *n, float *same) { *n = 1; *same = 0; return *n; }\n",
}


def test_memory_may_be_seen_under_several_types(tmp_path: Path) -> None:
    for name, text in SEEN_AS.items():
        (tmp_path / name).write_text(text)
    command = ["cc", *build.RELEASE, *build.WHOLE, *SEEN_AS, "-o", "seen"]
    subprocess.run(command, cwd=tmp_path, check=True)
    assert subprocess.run([tmp_path / "seen"], check=False).returncode == 0
