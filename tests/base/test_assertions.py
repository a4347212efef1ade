"""What must hold is checked in production too."""

from __future__ import annotations

from pathlib import Path

from mq_shards.csrc import _core


def test_the_core_that_serves_has_its_assertions() -> None:
    assert b"__assert_fail" in Path(_core.__file__).read_bytes()
