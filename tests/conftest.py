"""Fixtures for all tests: running brokers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.register_assert_rewrite("tests.beanstalk.replies", "tests.beanstalk.wire", "tests.model.scripts")

from tests.servers import SHAPES, Server, running, shapes  # noqa: E402


@pytest.fixture(scope="session", params=shapes(*SHAPES))
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A broker that keeps everything in memory, shared by all tests: use names of your own and clean up."""
    with running(request.param) as server:
        yield server
        assert server.process.poll() is None, f"the server died:\n{server.said()}"
