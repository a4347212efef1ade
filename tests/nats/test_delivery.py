"""Any script of subscriptions, groups, wildcards and messages ends as a naive model of one server says, with any number
of acceptors; and with a real nats-server, which so is asked whether the model is right."""

from __future__ import annotations

from itertools import count

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.nats.delivery_model import CLIENTS, Leave, Play, Pub, Step, Sub, Unsub, matches
from tests.nats.servers import NatsServer

NUMBERS = count()

client = st.integers(0, CLIENTS - 1)
sid = st.integers(1, 5)
token = st.sampled_from(["a", "b", "ab"])
subject = st.lists(token, min_size=1, max_size=3).map(".".join)
wild = st.lists(token | st.just("*"), min_size=1, max_size=3)
pattern = st.one_of(wild, wild.map(lambda tokens: [*tokens, ">"]), st.just([">"])).map(".".join)
queue = st.sampled_from(["", "", "q", "r"])
sizes = st.sampled_from([0, 0, 100, 5000, 20_000])
steps = st.one_of(
    st.builds(Sub, client, sid, pattern, queue),
    st.builds(Sub, client, sid, subject, queue),
    st.builds(Unsub, client, sid, st.sampled_from([0, 0, 1, 2, 5])),
    st.builds(Pub, client, subject, st.just("") | subject, st.booleans(), sizes, st.sampled_from([1, 1, 3, 20])),
    st.builds(Pub, client, subject),
    st.builds(Leave, client),
)
scripts = st.lists(steps, min_size=5, max_size=40)


def play(server: NatsServer, script: list[Step]) -> None:
    Play(server.port, f"p{next(NUMBERS)}.", in_order=server.acceptors < 2).run(script)


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(script=scripts)
def test_a_script_ends_as_the_model_says(server: NatsServer, script: list[Step]) -> None:
    play(server, script)


@pytest.mark.long
@settings(max_examples=800, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(script=scripts)
def test_many_scripts_end_as_the_model_says(server: NatsServer, script: list[Step]) -> None:
    play(server, script)


@pytest.mark.parametrize("publisher", [0, CLIENTS - 1], ids=["echo", "no-echo"])
def test_members_that_want_few_leave_the_rest_to_the_others(server: NatsServer, publisher: int) -> None:
    """Whoever has had enough is gone when the next message comes, wherever it is; no echo is what was wanted."""
    for _ in range(5):
        few = [Unsub(number, 1, 1) for number in range(CLIENTS - 1)]
        members = [Sub(number, 1, "a", "q") for number in range(CLIENTS)]
        play(server, [*members, *few, Pub(publisher, "a", times=30)])


@pytest.mark.parametrize(
    ("pattern", "subject", "so"),
    [
        ("a", "a", True), ("a", "b", False), ("*", "a", True), ("*", "a.b", False), (">", "a.b", True),
        ("a.>", "a", False), ("a.>", "a.b.c", True), ("*.b", "a.b", True), ("a.*.>", "a.b", False),
        ("a.*.>", "a.b.c", True),
    ],
)  # fmt: skip
def test_the_model_knows_wildcards(pattern: str, subject: str, so: bool) -> None:
    assert matches(pattern, subject) == so
