"""A stream's offsets: each message once, or an error, whatever is gone, comes back, or dies. Without Spark, whose part
stream_driver.py plays; test_spark_stream.py has Spark itself."""

from __future__ import annotations

import random

import pytest
from mq_shards.pipeline.offsets import GONE
from mq_shards.pipeline.reading import DataLossError

from tests.pipeline.serving import Gateway
from tests.pipeline.stream_driver import Checkpoint, Driver, Rows, run


def fill(gateway: Gateway, topic: str, count: int) -> None:
    for _ in range(count):
        gateway.topic(topic).add(topic.encode())


def seqs(topic: str, *of: int) -> Rows:
    return [(topic, seq) for seq in of]


@pytest.mark.parametrize("seed", range(6))
def test_a_query_that_dies_anywhere_reads_each_message_once(gateway: Gateway, seed: int) -> None:
    gateway.tells_changes = seed % 2 == 0
    chance, checkpoint = random.Random(seed), Checkpoint()
    rows: Rows = []
    options = {"brokers": gateway.address, "subscription": "s", "maxOffsetsPerTrigger": 7}
    for _ in range(30):
        fill(gateway, chance.choice("abc"), chance.randrange(12))
        driver = Driver(checkpoint, options)
        for _ in range(chance.randrange(4)):
            rows += driver.do_begun()
            if not driver.begin():
                break
        if chance.random() < 0.3:  # in the midst of a micro-batch, so that nobody sees what came of it
            done = checkpoint.done
            driver.do_begun()
            checkpoint.done = done
    rows += run(checkpoint, **options)
    assert sorted(rows) == sorted((t, s) for t, kept in gateway.topics.items() for s in range(kept.next_seq))
    assert gateway.readers["s"] == {topic: kept.next_seq for topic, kept in gateway.topics.items()}


def test_what_retention_took_is_an_error_or_left_out(gateway: Gateway) -> None:
    checkpoint = Checkpoint()
    fill(gateway, "a", 5)
    assert run(checkpoint, brokers=gateway.address) == seqs("a", *range(5))
    fill(gateway, "a", 10)
    gateway.topic("a").drop(0, 8)
    with pytest.raises(DataLossError, match="messages 5 to 7 are gone"):
        run(checkpoint, brokers=gateway.address)
    assert run(checkpoint, brokers=gateway.address, failOnDataLoss=False) == seqs("a", *range(8, 15))


def test_a_topic_that_was_forgotten_when_all_of_it_had_been_read_comes_back(gateway: Gateway) -> None:
    """Without a word of messages that never were. The query goes on meanwhile, and is started again."""
    checkpoint = Checkpoint()
    fill(gateway, "a", 5)
    fill(gateway, "b", 1)
    driver = Driver(checkpoint, {"brokers": gateway.address})
    assert driver.begin() and driver.do_begun() == seqs("a", *range(5)) + seqs("b", 0)
    kept = gateway.topics.pop("a")
    assert driver.begin()
    assert checkpoint.last["brokers"][gateway.broker]["topics"] == {"a": [5, GONE], "b": 1}
    kept.drop(0, 5)
    kept.next_seq = 90
    gateway.topics["a"] = kept
    fill(gateway, "a", 3)
    assert run(checkpoint, brokers=gateway.address) == seqs("a", 90, 91, 92)
    kept.drop(90, 93)
    fill(gateway, "a", 3)
    kept.drop(93, 95)
    with pytest.raises(DataLossError, match="messages 93 to 94 are gone"):
        run(checkpoint, brokers=gateway.address)


@pytest.mark.parametrize("dies", [False, True])
def test_where_forgotten_topics_count_on_only_a_query_that_saw_it_go_takes_a_higher_seq_for_no_gap(
    gateway: Gateway, dies: bool
) -> None:
    """Such a broker remembers many topics, but not all."""
    gateway.counts_on = True
    checkpoint = Checkpoint()
    fill(gateway, "a", 5)
    driver = Driver(checkpoint, {"brokers": gateway.address})
    assert driver.begin() and driver.do_begun() == seqs("a", *range(5))
    kept = gateway.topics.pop("a")
    kept.drop(0, 5)
    assert not driver.begin()  # the offset stays
    gateway.topics["a"] = kept
    fill(gateway, "a", 2)
    assert driver.begin() and driver.do_begun() == seqs("a", 5, 6)
    gateway.topics.pop("a")
    kept.drop(5, 7)
    assert not driver.begin()
    kept.next_seq = 90
    gateway.topics["a"] = kept
    fill(gateway, "a", 2)
    if dies:
        with pytest.raises(DataLossError, match="messages 7 to 89 are gone"):
            run(checkpoint, brokers=gateway.address)
        return
    assert driver.begin() and driver.do_begun() == []
    assert checkpoint.last["brokers"][gateway.broker]["topics"] == {"a": [7, GONE]}
    assert run(checkpoint, brokers=gateway.address) == seqs("a", 90, 91)


def test_a_topic_that_came_back_while_the_query_was_stopped_is_an_error_that_says_how_to_go_on(
    gateway: Gateway,
) -> None:
    checkpoint = Checkpoint()
    fill(gateway, "a", 5)
    run(checkpoint, brokers=gateway.address)
    kept = gateway.topic("a")
    kept.drop(0, 5)
    kept.next_seq = 90
    fill(gateway, "a", 3)
    said = r"messages 5 to 89 are gone .*, or never were, if it was .*; mq-pipeline offsets .* --topics a goes on"
    with pytest.raises(DataLossError, match=said):
        run(checkpoint, brokers=gateway.address)


def test_a_gap_behind_a_message_nobody_finished_is_an_error(gateway: Gateway) -> None:
    checkpoint = Checkpoint()
    fill(gateway, "a", 5)
    gateway.topic("a").drop(2, 4)
    assert run(checkpoint, brokers=gateway.address) == seqs("a", 0, 1, 4)
    fill(gateway, "a", 5)
    gateway.topic("a").drop(6, 8)
    with pytest.raises(DataLossError, match="messages 6 to 7 are gone"):
        run(checkpoint, brokers=gateway.address)


def test_a_query_that_is_started_again_knows_which_gaps_it_began_with(gateway: Gateway) -> None:
    """Else it could never get over them."""
    checkpoint = Checkpoint()
    options = {"brokers": gateway.address, "maxOffsetsPerTrigger": 4}
    fill(gateway, "a", 2)
    rows = run(checkpoint, **options)
    for topic in ("a", "b"):
        fill(gateway, topic, 10)
    gateway.topic("b").drop(2, 5)
    gateway.spoil = lambda topic, start, reply: reply[:56] + b"?" + reply[57:] if topic == "b" else reply
    driver = Driver(checkpoint, options)
    driver.prepare()
    with pytest.raises(DataLossError, match=r"topic b .*corrupt"):
        while driver.begin():
            rows += driver.do_begun()
    gateway.spoil = lambda topic, start, reply: reply
    rows += run(checkpoint, **options)
    assert sorted(rows) == seqs("a", *range(12)) + seqs("b", 0, 1, 5, 6, 7, 8, 9)
    gateway.topic("a").drop(0, 12)
    fill(gateway, "b", 10)
    gateway.topic("b").drop(12, 15)
    with pytest.raises(DataLossError, match=r"messages 12 to 1[34] are gone"):
        run(checkpoint, **options)


def test_messages_that_a_broker_has_lost_are_an_error(gateway: Gateway) -> None:
    checkpoint = Checkpoint()
    fill(gateway, "a", 5)
    run(checkpoint, brokers=gateway.address)
    gateway.topics["a"].drop(3, 5)
    gateway.topics["a"].next_seq = 3
    told = r"has lost messages 3 to 4, which this query has read: .* --move-to latest --topics a goes on"
    with pytest.raises(DataLossError, match=told):
        run(checkpoint, brokers=gateway.address)
    assert run(checkpoint, brokers=gateway.address, failOnDataLoss=False) == []
    fill(gateway, "a", 4)
    assert run(checkpoint, brokers=gateway.address) == seqs("a", 3, 4, 5, 6)


def test_several_brokers_have_offsets_of_their_own(gateway: Gateway) -> None:
    with Gateway() as other:
        checkpoint = Checkpoint()
        options = {"brokers": f"{gateway.address},{other.address}", "subscription": "s"}
        fill(gateway, "a", 2)
        fill(other, "a", 3)
        assert run(checkpoint, **options) == seqs("a", 0, 0, 1, 1, 2)
        fill(other, "a", 1)
        assert run(checkpoint, **options) == seqs("a", 3)
        assert gateway.readers["s"] == {"a": 2}
        assert other.readers["s"]["a"] >= 3
