"""mq-pipeline where Spark is not installed, as in the package: a broker needs none."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

COMMAND = "import sys; from mq_shards.pipeline.command import main; sys.exit(main())"


@pytest.mark.parametrize("missing", ["pyspark", "pyarrow"])
def test_the_command_says_in_one_line_what_is_missing(missing: str, tmp_path: Path) -> None:
    script = tmp_path / "mq-pipeline"
    script.write_text(f"import sys\nsys.modules[{missing!r}] = None\n{COMMAND}\n")
    done = subprocess.run([sys.executable, script, "readers"], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    lines = done.stderr.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("mq-pipeline: the pipeline needs Spark: pip install 'mq-shards[spark]'")
    assert missing in lines[0]


def test_a_program_that_imports_it_is_told_by_an_exception() -> None:
    code = "import sys; sys.modules['pyspark'] = None; import mq_shards.pipeline"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr.splitlines()[-1].startswith("ModuleNotFoundError: the pipeline needs Spark")


JOBS = ["archive", "replay", "init", "run", "report", "explain", "offsets", "staged", "writers", "readers"]
HELP = [["--help"], *([job, "--help"] for job in JOBS), ["run", "--hepl"], ["report", "--to", "d", "--top", "many"]]


@pytest.mark.parametrize("words", HELP, ids=" ".join)
def test_help_and_what_is_wrong_are_said_without_loading_spark(words: list[str]) -> None:
    pytest.importorskip("pyspark")
    heavy = {"pyspark", "pyarrow", "numpy", "matplotlib", "prometheus_client", "orjson", "ssl"}
    program = f"import atexit, sys; atexit.register(lambda: print({heavy} & set(sys.modules)))\n{COMMAND}"
    done = subprocess.run(
        [sys.executable, "-c", program, *words], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.stderr + done.stdout).startswith("usage: ") and done.returncode == (0 if words[-1] == "--help" else 2)
    assert done.stdout.splitlines()[-1] == "set()"


def test_what_draws_is_loaded_by_who_draws_only(tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    program = f"import atexit, sys; atexit.register(lambda: print('matplotlib' in sys.modules))\n{COMMAND}"
    words = ["offsets", "--checkpoint", str(tmp_path / "none")]
    done = subprocess.run(
        [sys.executable, "-c", program, *words], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1 and done.stdout.splitlines()[-1] == "False"


def test_a_process_of_sparks_that_reads_does_not_load_what_writes() -> None:
    pytest.importorskip("pyspark")
    program = "import sys; from mq_shards.pipeline import batch, source, stream; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    loaded = set(done.stdout.split())
    assert "mq_shards.pipeline.source" in loaded and not loaded & {"mq_shards.pipeline.write", "pyarrow.compute"}
