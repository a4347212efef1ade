"""Builds the fuzz targets with the sanitizers and assertions, and lets each draw scripts for a while."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests import sanitized

HERE = Path(__file__).resolve().parent
pytestmark = pytest.mark.timeout(600)  # it compiles the core with sanitizers
USUAL_SECONDS = 2.5
SECONDS = float(os.environ.get("FUZZ_SECONDS", USUAL_SECONDS))
SEED = os.environ.get("FUZZ_SEED", "1")


@dataclass(frozen=True)
class Compiled:
    objects: dict[str, Path]  # of each target, by its name
    library: Path  # all else: the core and what targets share; to link it takes longer than most scripts of a target


@pytest.fixture(scope="session")
def compiled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    is_lasting = SECONDS > USUAL_SECONDS or request.config.getoption("--long")
    how = sanitized.LASTING if is_lasting else sanitized.QUICK
    made = sanitized.objects([*HERE.glob("*.c"), *sanitized.core_sources()], how=how)
    targets = {of.stem: path for of, path in made.items() if of.stem.startswith("fuzz_")}
    library = tmp_path_factory.mktemp("fuzz") / "libcore.so"
    sanitized.link([path for of, path in made.items() if of.stem not in targets], library, "-shared")
    return Compiled(targets, library)


@pytest.mark.parametrize(
    ("target", "seconds"),
    [
        pytest.param("fuzz_beanstalk", SECONDS, id="beanstalk"),
        # The two together take as long as the one.
        pytest.param("fuzz_nsq", SECONDS * 0.6, id="nsq"),
        pytest.param("fuzz_nsq_http", SECONDS * 0.2, id="nsq-http"),
        pytest.param("fuzz_shard", SECONDS * 0.4, id="shard"),
        pytest.param("fuzz_damage", SECONDS * 0.6, id="damage"),
        pytest.param("fuzz_pulsar", SECONDS * 0.2, id="pulsar"),
        pytest.param("fuzz_nats", SECONDS * 0.6, id="nats"),
        pytest.param("fuzz_websocket", SECONDS * 0.2, id="websocket"),
        pytest.param("fuzz_s2", SECONDS * 0.1, id="s2"),
        pytest.param("fuzz_routes", SECONDS * 0.4, id="routes"),
        *(
            pytest.param(target, SECONDS * 24, id=f"{target[5:]}-by-the-minute", marks=pytest.mark.long)
            for target in ("fuzz_beanstalk", "fuzz_nsq", "fuzz_nsq_http", "fuzz_shard", "fuzz_nats", "fuzz_routes")
        ),
    ],
)
def test_no_script_breaks(compiled: Compiled, tmp_path: Path, target: str, seconds: float) -> None:
    """A failure names its seed; the script that broke it is shown, to be kept as a file and run again."""
    program, last = tmp_path / target, tmp_path / "last"
    sanitized.link([compiled.objects[target], compiled.library], program, f"-Wl,-rpath,{compiled.library.parent}")
    ran = subprocess.run(
        [program, str(seconds), SEED, last],
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        timeout=seconds * 5 + 120,
    )
    if ran.returncode:
        size = int.from_bytes(last.read_bytes()[:8], "little")
        script = last.read_bytes()[8 : 8 + size].hex()
        raise AssertionError(f"{target}, seed {SEED}:\n{ran.stderr[-6000:]}\nthe script:\n{script}")
    assert int(ran.stdout.split()[0]) > 20, "fewer find nothing"
    # The least number of scripts of this seed send all there is; of another seed it may take more.
    assert SEED != "1" or "never sent" not in ran.stdout, ran.stdout
