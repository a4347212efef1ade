"""Fixtures for all tests: running brokers."""

from __future__ import annotations

import ctypes
import gc
import os
import sys
from collections.abc import Iterator
from pathlib import Path

# Neither a broker, which is several Python processes, nor the next pytest is to compile all modules again. Before
# anything else is loaded: pytest reads hypothesis for its asserts, which takes it more than a second of processor.
BYTECODE = str(Path(__file__).resolve().parent.parent / "build" / "bytecode")
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
os.environ["PYTHONPYCACHEPREFIX"] = sys.pycache_prefix = BYTECODE
sys.dont_write_bytecode = False

import pytest  # noqa: E402
from hypothesis import HealthCheck, Phase, settings  # noqa: E402

# A run of all tests takes a known time and says the same each time, whatever else the machine does: an example may take
# long. For a search, with other examples each time and the failures made small: HYPOTHESIS_PROFILE=default
settings.register_profile(
    "bounded", max_examples=int(os.environ.get("EXAMPLES", "30")), derandomize=True, database=None, deadline=None,
    phases=[Phase.explicit, Phase.generate], suppress_health_check=[HealthCheck.too_slow],
)  # fmt: skip
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "bounded"))

gc.disable()  # until the tests are collected: see below

# Bodies of megabytes come and go. Memory that is freed stays: otherwise the kernel clears each page of the next one.
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
if (mallopt := getattr(ctypes.CDLL(None), "mallopt", None)) is not None:
    mallopt(M_TRIM_THRESHOLD, 1 << 30)
    mallopt(M_MMAP_THRESHOLD, 32 << 20)

pytest.register_assert_rewrite("tests.beanstalk.replies", "tests.beanstalk.wire", "tests.model.scripts")

from tests.servers import SHAPES, Server, Shape, running, shapes  # noqa: E402


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="the tests marked `long` too, which take minutes")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--long"):
        skip = pytest.mark.skip(reason="it takes long: --long, or make test-long")
        for item in items:
            if item.get_closest_marker("long") or (item.get_closest_marker("heavy") and _is_of_peer(item)):
                item.add_marker(skip)


def _is_of_peer(item: pytest.Item) -> bool:
    call = getattr(item, "callspec", None)
    return call is not None and any(isinstance(p, Shape) and not p.is_shards for p in call.params.values())


def pytest_collection_finish() -> None:
    """Thousands of tests are objects that stay: the collector need not look at them again and again. Nor often at those
    of a test: few are in circles. Syntax trees of all files (test_tidy.py) are parsed in a third of the time then."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
    gc.enable()


@pytest.fixture(scope="session", params=shapes(*SHAPES))
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A broker that keeps everything in memory, shared by all tests: use names of your own and clean up."""
    with running(request.param) as server:
        yield server
        assert server.process.poll() is None, f"the server died:\n{server.said()}"
