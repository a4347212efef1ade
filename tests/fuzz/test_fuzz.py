"""Builds the fuzz target with the sanitizers and assertions, and lets it draw scripts for a while."""

from __future__ import annotations

import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
CORE = HERE.parent.parent / "csrc"
SECONDS = os.environ.get("FUZZ_SECONDS", "10")
SEED = os.environ.get("FUZZ_SEED", "1")
FLAGS = ["-std=c11", "-g", "-O1", "-fno-omit-frame-pointer", "-Wall", "-Wextra", "-pthread", f"-I{CORE}"]
SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]


def compiler() -> str:
    return os.environ.get("CC", "cc")


@pytest.fixture(scope="session")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not shutil.which(compiler()):
        pytest.skip("no C compiler")
    out = tmp_path_factory.mktemp("fuzz")
    probe = out / "probe.c"
    probe.write_text("int main(void) { return 0; }\n")
    probed = subprocess.run([compiler(), *SANITIZERS, str(probe), "-o", str(out / "probe")], capture_output=True)
    if probed.returncode or subprocess.run([out / "probe"], capture_output=True).returncode:
        pytest.skip("the compiler has no sanitizers")
    sources = [HERE / "fuzz_beanstalk.c", *(p for p in CORE.glob("*.c") if p.name != "_core.c")]

    def compile_one(source: Path) -> Path:
        into = out / f"{source.stem}.o"
        subprocess.run([compiler(), *FLAGS, *SANITIZERS, "-c", str(source), "-o", str(into)], check=True)
        return into

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        objects = list(pool.map(compile_one, sources))
    subprocess.run([compiler(), *SANITIZERS, "-pthread", *map(str, objects), "-o", str(out / "fuzz")], check=True)
    return out / "fuzz"


def test_no_script_breaks_the_message_path(target: Path, tmp_path: Path) -> None:
    """A failure names its seed; the script that broke it is shown, to be kept as a file and run again."""
    last = tmp_path / "last"
    ran = subprocess.run([target, SECONDS, SEED, last], capture_output=True, text=True, timeout=float(SECONDS) + 60)
    if ran.returncode:
        size = int.from_bytes(last.read_bytes()[:8], "little")
        script = last.read_bytes()[8 : 8 + size].hex()
        raise AssertionError(f"seed {SEED}:\n{ran.stderr[-6000:]}\nthe script:\n{script}")
    scripts = int(ran.stdout.split()[0])
    assert scripts > 20, "too slow to find anything"
