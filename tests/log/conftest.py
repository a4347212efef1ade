"""A log in memory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.log.log import Log


@pytest.fixture
def log() -> Iterator[Log]:
    log = Log()
    yield log
    log.close()
