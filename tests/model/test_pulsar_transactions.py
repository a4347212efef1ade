"""Transactions, compaction, delays, seeks, acknowledgements and what other protocols publish against a model; and with
processes killed between."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.model.pulsar_transactions import Play
from tests.pulsar.test_campaign import EVERYTHING, Victim

numbers = st.integers(0, 40)
keys = st.sampled_from("abc")
steps = st.one_of(
    st.tuples(st.just("send"), keys),
    st.tuples(st.just("send"), keys),
    st.tuples(st.just("send_later"), keys, st.none() | numbers),
    st.tuples(st.just("publish"), st.booleans()),
    st.tuples(st.just("begin")),
    st.tuples(st.just("send_in"), numbers, keys),
    st.tuples(st.just("send_in"), numbers, keys),
    st.tuples(st.just("commit"), numbers),
    st.tuples(st.just("abort"), numbers),
    st.tuples(st.just("acknowledge"), numbers, st.none() | numbers),
    st.tuples(st.just("acknowledge"), numbers, numbers),
    st.tuples(st.just("seek"), numbers),
    st.tuples(st.just("compact")),
    st.tuples(st.just("look")),
)
deaths = st.tuples(st.just("kill"), st.sampled_from(["mq-worker-0", "mq-gateway", "mq-acceptor-0", EVERYTHING]))
begun = st.lists(st.tuples(st.just("send"), keys), max_size=5).map(lambda sent: [*sent, ("begin",)])


@pytest.fixture(scope="module")
def victim(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Victim]:
    victim = Victim(tmp_path_factory.mktemp("model") / "data", workers=(1,))
    yield victim
    victim.close()


def play(victim: Victim, script: list[tuple[Any, ...]]) -> None:
    one = Play(victim.server, victim.kill)
    for name, *arguments in [*script, ("look",), ("figures",)]:
        if name in ("commit", "abort"):
            one.end(*arguments, commit=name == "commit")
        elif name == "publish":
            one.publish(is_put=arguments[0])
        else:
            getattr(one, name)(*arguments)
    one.close()


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(script=st.builds(list.__add__, begun, st.lists(steps, min_size=4, max_size=30)))
def test_a_topic_with_transactions_shows_what_the_model_says(victim: Victim, script: list[Any]) -> None:
    play(victim, script)


@pytest.mark.long
@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(script=st.builds(list.__add__, begun, st.lists(st.one_of(steps, steps, steps, deaths), min_size=8, max_size=40)))
def test_and_whoever_is_killed_between(victim: Victim, script: list[Any]) -> None:
    play(victim, script)
