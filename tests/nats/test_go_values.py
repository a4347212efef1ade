"""Parameters of the monitoring API."""

from __future__ import annotations

import pytest
from mq_shards.gateway.nats.go_values import ParameterError, boolean, integer


@pytest.mark.parametrize("read", [boolean, integer])
def test_what_cannot_be_read_is_quoted_as_go_quotes_it(read: object) -> None:
    assert callable(read)
    with pytest.raises(ParameterError) as raised:
        read({"subs": "a\x01\x7f\u00a0é"}, "subs")
    assert r'parsing "a\x01\x7f\u00a0é": invalid syntax' in str(raised.value)
