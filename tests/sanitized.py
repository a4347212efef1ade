"""The core's objects with sanitizers and assertions, compiled once for all tests that link them."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import pytest
from mq_shards.csrc.build import BUILD, alone, compile_one

from tests.servers import ROOT

CORE: Final = ROOT / "csrc"
COMPILER: Final = os.environ.get("CC", "cc")
# What is left out AddressSanitizer finds when it happens; to compile it takes a tenth of the time.
SANITIZERS: Final = ("-fsanitize=address,undefined", "-fno-sanitize=null,object-size", "-fno-sanitize-recover=all")
FLAGS: Final = ("-std=c11", "-g1", "-fno-omit-frame-pointer", "-fPIC", "-pthread", *SANITIZERS)
# What runs for seconds takes less to compile and to run so: what AddressSanitizer checks is called, not compiled in.
QUICK: Final = ("-O0", "--param", "asan-instrumentation-with-call-threshold=0")
# What runs for minutes does several times as much in them.
LASTING: Final = ("-Og",)
# Of the core's `make lint` says all, and to look for them takes a tenth of the time.
WARNINGS: Final = ("-Wall", "-Wextra")


@cache
def missing() -> str | None:
    """Why there are no such objects here, or None."""
    if not shutil.which(COMPILER):
        return "no C compiler"
    with TemporaryDirectory() as folder:
        probe = Path(folder) / "probe"
        probe.with_suffix(".c").write_text("int main(void) { return 0; }\n")
        made = subprocess.run([COMPILER, *SANITIZERS, f"{probe}.c", "-o", str(probe)], capture_output=True)
        if made.returncode or subprocess.run([probe], capture_output=True).returncode:
            return "the compiler has no sanitizers"
    return None


def objects(sources: Iterable[Path], include: Path = CORE, how: Sequence[str] = QUICK) -> dict[Path, Path]:
    """By their sources: two in different folders may have one name. `how`: QUICK or LASTING."""
    if reason := missing():
        pytest.skip(reason)
    kept = BUILD / "objects" / f"sanitized{how[0]}"
    kept.mkdir(parents=True, exist_ok=True)
    wanted = list(sources)
    command = [COMPILER, *FLAGS, *how, f"-I{include}"]

    def compiled(source: Path) -> Path:
        return compile_one(command if source.is_relative_to(include) else [*command, *WARNINGS], source, kept)

    with alone(BUILD), ThreadPoolExecutor(os.cpu_count()) as pool:
        made = list(pool.map(compiled, wanted))
    return dict(zip(wanted, made, strict=True))


def link(made: Iterable[Path], target: Path, *flags: str) -> None:
    subprocess.run([COMPILER, *SANITIZERS, "-pthread", *flags, *map(str, made), "-o", str(target)], check=True)


def core_sources() -> list[Path]:
    return sorted(CORE.glob("*/**/*.c"))


def loading() -> dict[str, str]:
    """What the environment has of a Python that loads a module that is linked so."""
    named = subprocess.run([COMPILER, "-print-file-name=libasan.so"], capture_output=True, text=True, check=True)
    return {"LD_PRELOAD": named.stdout.strip(), "ASAN_OPTIONS": "detect_leaks=0"}
