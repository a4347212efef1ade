"""Says why the other tests of the pipeline are left out, where they are."""

from __future__ import annotations

import pytest

from tests.pipeline.conftest import MISSING


@pytest.mark.skipif(bool(MISSING), reason=f"mq-shards[spark] is not installed here: no {', '.join(MISSING)}")
def test_the_data_source_has_the_name_that_queries_use() -> None:
    from mq_shards.pipeline import MqShards

    assert MqShards.name() == "mqshards"
