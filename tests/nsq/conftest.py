"""Fixtures of the NSQ tests: the same tests run on the real nsqd, where it is installed, and on mq-shards."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.register_assert_rewrite("tests.nsq.wire", "tests.nsq.frames", "tests.nsq.scenes")

from tests.nsq.certificates import Certificates, make  # noqa: E402
from tests.nsq.scenes import prepare  # noqa: E402
from tests.nsq.servers import SHAPES, NsqServer, running  # noqa: E402
from tests.nsq.wire import Wire, unique_topic  # noqa: E402
from tests.servers import Shape, shapes  # noqa: E402

# Small limits and short times, so that tests reach them quickly.
LIMITS = {
    "max-msg-size": "100", "max-body-size": "1000", "max-rdy-count": "50", "max-channel-consumers": "2",
    "msg-timeout": "300ms", "max-msg-timeout": "1s", "max-req-timeout": "600ms", "max-heartbeat-interval": "5s",
    "max-output-buffer-size": "1024", "max-output-buffer-timeout": "1s", "min-output-buffer-timeout": "10ms",
    "output-buffer-timeout": "50ms", "max-deflate-level": "3", "snappy": "false",
}  # fmt: skip
TIMED_SCENES = 24  # at least as many as test_timing.py has


@pytest.fixture(scope="session", params=shapes(*SHAPES))
def shape(request: pytest.FixtureRequest) -> Shape:
    found: Shape = request.param
    return found


@pytest.fixture(scope="session")
def server(shape: Shape) -> Iterator[NsqServer]:
    """A broker with nsqd's defaults, shared by all tests: use topics of your own."""
    with running(shape) as server:
        yield server


@pytest.fixture(scope="session")
def limited(shape: Shape) -> Iterator[NsqServer]:
    """A broker with LIMITS, shared by all tests."""
    with running(shape, LIMITS) as server:
        prepare(server, TIMED_SCENES)
        yield server


@pytest.fixture
def topic() -> str:
    return unique_topic()


@pytest.fixture
def wire(server: NsqServer) -> Iterator[Wire]:
    with Wire(server) as wire:
        yield wire


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="session")
def tls_options(certificates: Certificates) -> dict[str, str]:
    """A server certificate; nothing is demanded of clients."""
    return {
        "tls-cert": str(certificates.server.cert), "tls-key": str(certificates.server.key),
        "tls-root-ca-file": str(certificates.authority),
    }  # fmt: skip


@pytest.fixture(scope="session")
def tls_server(shape: Shape, tls_options: dict[str, str]) -> Iterator[NsqServer]:
    with running(shape, tls_options) as server:
        yield server
