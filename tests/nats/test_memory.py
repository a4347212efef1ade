"""What clients that only listen cost: measured with many of them, with bounds that other machines keep too."""

from __future__ import annotations

import resource

import pytest

from perf import load
from perf.brokers import MEMORY, Broker, this_mq_shards

# What was measured is in docs/nats-internals.md; this is for what is forgotten to be given back, or grows with each.
MOST_OF_A_CONNECTION = 1400
MOST_OF_A_SUBSCRIPTION = 200


def held(connections: int, subscriptions: int) -> int:
    """How much more memory the broker holds with them than without."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with Broker(this_mq_shards(1, "nats"), MEMORY) as broker:
        before = broker.memory().held
        with load.IdleConnections(broker.port, connections, "nats", subscriptions):
            return broker.memory().held - before


@pytest.mark.long
def test_an_idle_connection_is_small() -> None:
    assert held(10_000, 0) / 10_000 < MOST_OF_A_CONNECTION


@pytest.mark.long
def test_a_million_subscriptions_are_small() -> None:
    assert held(4, 1_000_000) / 1_000_000 < MOST_OF_A_SUBSCRIPTION
