"""The four types of subscription, permits, ack sets, redelivery and seek, against a model; and with a worker killed."""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.model.pulsar_subscription import EXCLUSIVE, FAILOVER, KEY_SHARED, SHARED, Subscription
from tests.pulsar.servers import PulsarServer, running
from tests.pulsar.wire import Wire

KINDS = [EXCLUSIVE, SHARED, FAILOVER, KEY_SHARED]
_names = itertools.count()

EVERYTHING = frozenset(range(70))
numbers = st.integers(0, 40)
sizes = st.sampled_from([0, 0, 1, 2, 3, 7, 70])
steps = st.one_of(
    st.tuples(st.just("send"), sizes, numbers),
    st.tuples(st.just("send"), sizes, numbers),
    st.tuples(st.just("flow"), numbers, st.integers(1, 6)),
    st.tuples(st.just("flow"), numbers, st.integers(1, 100)),
    st.tuples(st.just("ack"), numbers, numbers, st.sets(st.integers(0, 69), max_size=70)),
    st.tuples(st.just("ack"), numbers, numbers, st.just(EVERYTHING)),
    st.tuples(st.just("ack_upto"), numbers, numbers),
    st.tuples(st.just("ack_beyond"), numbers, st.integers(0, 2)),
    st.tuples(st.just("redeliver"), numbers, st.sets(st.integers(0, 3), max_size=3)),
    st.tuples(st.just("join")),
    st.tuples(st.just("leave"), numbers),
    st.tuples(st.just("seek"), numbers),
)
begun = st.lists(st.tuples(st.just("send"), sizes, numbers), max_size=6).map(lambda sent: [*sent, ("flow", 0, 8)])
scripts = st.builds(list.__add__, begun, st.lists(steps, min_size=4, max_size=30))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PulsarServer]:
    with running(data_dir=tmp_path_factory.mktemp("model") / "data") as server:
        yield server


def play(server: PulsarServer, kind: int, script: list[tuple[Any, ...]]) -> None:
    wires: list[Wire] = []

    def connect() -> Wire:
        wires.append(Wire(server.port))
        return wires[-1].connect()

    def kill() -> None:
        os.kill(server.pid_of("mq-worker-0"), signal.SIGKILL)
        wires[-1].expect("close_producer")  # as all its clients hear

    try:
        subscription = Subscription(connect, f"model-{next(_names)}", kind)
        subscription.join()
        for name, *arguments in script:
            if name == "restart":
                subscription.restart(kill)
            else:
                getattr(subscription, name)(*arguments)
        subscription.drain()
    finally:
        for wire in wires:
            wire.socket.close()


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(script=scripts)
def test_a_subscription_does_what_the_model_says(server: PulsarServer, kind: int, script: list[Any]) -> None:
    play(server, kind, script)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(script=scripts)
def test_a_subscription_does_what_the_model_says_for_long(server: PulsarServer, kind: int, script: list[Any]) -> None:
    play(server, kind, script)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck), phases=[Phase.generate])
@given(before=scripts, between=scripts, after=scripts)
def test_what_was_acknowledged_is_what_a_worker_that_is_killed_comes_back_to(
    tmp_path_factory: pytest.TempPathFactory, kind: int, before: list[Any], between: list[Any], after: list[Any]
) -> None:
    with running(data_dir=tmp_path_factory.mktemp("model") / "data") as server:  # few deaths in a row end one
        play(server, kind, [*before, ("restart",), *between, ("restart",), *after])
