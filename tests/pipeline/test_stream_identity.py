"""A stream goes on from its checkpoint with the brokers that it has now, whatever became of them: each message once, or
an error that says what to do."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from mq_shards.pipeline.batch import BatchReader
from mq_shards.pipeline.client import BrokerError
from mq_shards.pipeline.options import OptionError, ReadOptions
from mq_shards.pipeline.reading import DataLossError
from mq_shards.pipeline.source import SCHEMA

from tests.pipeline.serving import Gateway, Kept
from tests.pipeline.stream_driver import Checkpoint, Driver, Rows, run
from tests.servers import free_port


@pytest.fixture
def two() -> Iterator[tuple[Gateway, Gateway]]:
    with Gateway() as one, Gateway() as other:
        yield one, other


def fill(gateway: Gateway, topic: str, count: int) -> None:
    for _ in range(count):
        gateway.topic(topic).add(topic.encode())


def both(*gateways: Gateway) -> str:
    return ",".join(gateway.address for gateway in gateways)


def seqs(topic: str, *of: int) -> Rows:
    return [(topic, seq) for seq in of]


def test_a_rebuilt_broker_is_an_error_and_is_read_from_its_first_message_if_that_is_wanted(gateway: Gateway) -> None:
    checkpoint = Checkpoint()
    fill(gateway, "a", 100)
    assert len(run(checkpoint, brokers=gateway.address)) == 100
    gateway.broker, gateway.topics = "made anew", {}
    fill(gateway, "a", 400)
    with pytest.raises(DataLossError, match=r"made anew at .* of which it knows nothing.*failOnDataLoss=false reads"):
        run(checkpoint, brokers=gateway.address)
    assert run(checkpoint, brokers=gateway.address, failOnDataLoss=False) == seqs("a", *range(400))
    assert run(checkpoint, brokers=gateway.address) == []


def test_a_broker_that_answers_elsewhere_is_the_same(gateway: Gateway) -> None:
    checkpoint = Checkpoint()
    fill(gateway, "a", 3)
    assert run(checkpoint, brokers=gateway.address) == seqs("a", 0, 1, 2)
    fill(gateway, "a", 2)
    with Gateway(gateway.topics, gateway.broker) as moved:
        assert run(checkpoint, brokers=moved.address) == seqs("a", 3, 4)
        assert checkpoint.last["brokers"][gateway.broker]["at"] == moved.address


def test_where_nobody_answers_the_error_says_what_may_be_named_instead(gateway: Gateway) -> None:
    checkpoint = Checkpoint()
    fill(gateway, "a", 1)
    run(checkpoint, brokers=gateway.address)
    nobody = f"127.0.0.1:{free_port()}"
    with pytest.raises(BrokerError, match=rf"{nobody}: GET /v1/topics: .*another address.*place of one that is left"):
        run(checkpoint, brokers=f"{gateway.address},{nobody}", pollTimeoutMs=10)


def test_brokers_that_change_their_addresses_with_each_other_keep_their_places(two: tuple[Gateway, Gateway]) -> None:
    one, other = two
    checkpoint = Checkpoint()
    fill(one, "a", 5)
    fill(other, "a", 2)
    assert len(run(checkpoint, brokers=both(one, other))) == 7
    one.broker, other.broker = other.broker, one.broker
    one.topics, other.topics = other.topics, one.topics
    fill(one, "a", 1)
    assert run(checkpoint, brokers=both(one, other)) == seqs("a", 2)


def test_a_broker_that_is_left_out_keeps_its_place_and_the_others_theirs(two: tuple[Gateway, Gateway]) -> None:
    one, other = two
    checkpoint = Checkpoint()
    for gateway in two:
        fill(gateway, "a", 100)
    assert len(run(checkpoint, brokers=both(one, other))) == 200
    for gateway in two:
        fill(gateway, "a", 1)
    assert run(checkpoint, brokers=one.address) == seqs("a", 100)
    assert run(checkpoint, brokers=one.address) == []
    assert run(checkpoint, brokers=both(other, one)) == seqs("a", 100)


def test_a_broker_that_is_added_is_read_from_its_first_message(two: tuple[Gateway, Gateway]) -> None:
    one, other = two
    checkpoint = Checkpoint()
    fill(one, "a", 2)
    fill(other, "a", 3)
    assert run(checkpoint, brokers=one.address) == seqs("a", 0, 1)
    assert run(checkpoint, brokers=both(other, one)) == seqs("a", 0, 1, 2)


def test_one_that_is_left_out_while_another_is_added_is_asked_about_and_in_two_steps_it_is_not(
    two: tuple[Gateway, Gateway],
) -> None:
    one, other = two
    checkpoint = Checkpoint()
    with Gateway() as third:
        for gateway in (one, other, third):
            fill(gateway, "a", 2)
        assert len(run(checkpoint, brokers=both(one, other))) == 4
        with pytest.raises(DataLossError, match=rf"read from {other.broker} \(last at {other.address}\).*two steps"):
            run(checkpoint, brokers=both(one, third))
        assert run(checkpoint, brokers=one.address) == []
        assert run(checkpoint, brokers=both(one, third)) == seqs("a", 0, 1)


def test_two_brokers_of_one_data_directory_are_an_error(gateway: Gateway) -> None:
    fill(gateway, "a", 1)
    with Gateway(gateway.topics, gateway.broker) as copy:
        options = {"brokers": both(gateway, copy), "topicPattern": "a", "pollTimeoutMs": "2000"}
        with pytest.raises(OptionError, match="have the same data directory"):
            run(Checkpoint(), **options)
        with pytest.raises(OptionError, match="have the same data directory"):
            BatchReader(ReadOptions.parse(options, streaming=False), SCHEMA).partitions()


def test_a_log_that_was_begun_anew_is_an_error_and_is_read_from_its_first_message_if_that_is_wanted(
    gateway: Gateway,
) -> None:
    checkpoint = Checkpoint()
    for topic in ("a", "b"):
        fill(gateway, topic, 3)
    gateway.topic("b").shard = 1
    run(checkpoint, brokers=gateway.address)
    gateway.topics["a"] = Kept(0, incarnation="2")
    fill(gateway, "a", 5)
    fill(gateway, "b", 1)
    with pytest.raises(DataLossError, match=r"topic a of .*shard 0 was lost and has been begun anew.* from seq 3 on"):
        run(checkpoint, brokers=gateway.address)
    lenient = run(checkpoint, brokers=gateway.address, failOnDataLoss=False)
    assert lenient == seqs("a", 0, 1, 2, 3, 4) + seqs("b", 3)
    assert run(checkpoint, brokers=gateway.address) == []


def test_of_a_log_that_was_begun_far_behind_nothing_before_its_first_message_is_asked_for(
    gateway: Gateway, caplog: pytest.LogCaptureFixture
) -> None:
    """As in a directory that was restored from a backup in which this shard had nothing yet."""
    checkpoint = Checkpoint()
    fill(gateway, "a", 3)
    run(checkpoint, brokers=gateway.address)
    gateway.topics["a"] = Kept(0, next_seq=1 << 32, incarnation="2")
    fill(gateway, "a", 2)
    assert run(checkpoint, brokers=gateway.address, failOnDataLoss=False) == seqs("a", 1 << 32, (1 << 32) + 1)
    assert "are gone" not in caplog.text


def test_a_topic_that_comes_later_in_a_log_that_was_begun_anew_is_read_from_its_first_message_on(
    gateway: Gateway,
) -> None:
    checkpoint = Checkpoint()
    fill(gateway, "a", 3)
    fill(gateway, "b", 3)
    run(checkpoint, brokers=gateway.address)
    gateway.topics = {"a": Kept(0, incarnation="2")}
    fill(gateway, "a", 1)
    assert run(checkpoint, brokers=gateway.address, failOnDataLoss=False) == seqs("a", 0)
    gateway.topics["b"] = Kept(0, incarnation="2")
    fill(gateway, "b", 5)
    assert run(checkpoint, brokers=gateway.address) == seqs("b", 0, 1, 2, 3, 4)


def test_a_micro_batch_that_was_begun_waits_for_its_brokers(two: tuple[Gateway, Gateway]) -> None:
    one, other = two
    checkpoint = Checkpoint()
    for gateway in two:
        fill(gateway, "a", 2)
    begun = Driver(checkpoint, {"brokers": both(one, other)})
    assert begun.begin()
    with pytest.raises(DataLossError, match=f"begun reads from {other.broker}.*which is not there"):
        run(checkpoint, brokers=one.address)
    assert run(checkpoint, brokers=both(one, other)) == sorted(seqs("a", 0, 1) * 2)


def test_a_first_micro_batch_that_is_done_again_begins_where_it_began(gateway: Gateway) -> None:
    """Though it was to begin behind the last message, and there are others by now."""
    checkpoint = Checkpoint()
    fill(gateway, "a", 2)
    options = {"brokers": gateway.address, "startingOffsets": "latest"}
    driver = Driver(checkpoint, options)
    fill(gateway, "a", 3)
    assert driver.begin()
    fill(gateway, "a", 1)
    assert run(checkpoint, **options) == seqs("a", 2, 3, 4, 5)


def test_a_named_reader_stays_where_a_first_micro_batch_begins_that_is_done_again(gateway: Gateway) -> None:
    """Otherwise retention would take what that has not read yet."""
    checkpoint = Checkpoint()
    fill(gateway, "a", 2)
    options = {"brokers": gateway.address, "startingOffsets": "latest", "subscription": "archive"}
    driver = Driver(checkpoint, options)
    fill(gateway, "a", 3)
    assert driver.begin()
    for _ in range(2):
        fill(gateway, "a", 1)
        again = Driver(checkpoint, options)
        assert gateway.readers["archive"] == {"a": 2}
        assert again.tasks() == 1
        assert gateway.readers["archive"] == {"a": 2}
    assert run(checkpoint, **options) == seqs("a", 2, 3, 4, 5, 6)
    assert gateway.readers["archive"] == {"a": 7}


def test_a_named_reader_does_not_pass_a_first_micro_batch_of_an_older_release_that_is_done_again(
    gateway: Gateway,
) -> None:
    """Its end does not say where it begins."""
    checkpoint = Checkpoint()
    fill(gateway, "a", 2)
    options = {"brokers": gateway.address, "startingOffsets": "latest", "subscription": "archive"}
    driver = Driver(checkpoint, options)
    fill(gateway, "a", 3)
    assert driver.begin()
    end = json.loads(checkpoint.offsets[0])
    del end["begin"]
    checkpoint.offsets[0] = json.dumps(end)
    fill(gateway, "a", 1)
    fill(gateway, "b", 1)
    assert Driver(checkpoint, options).tasks() == 0
    assert gateway.readers["archive"] == {"a": 5}, "the next micro-batch reads the rest"
    assert run(checkpoint, **options) == seqs("a", 5) + seqs("b", 0)
    assert gateway.readers["archive"] == {"a": 6, "b": 1}


class TestVersion1:
    """Checkpoints that name no broker."""

    def test_of_one_broker_goes_on_wherever_that_is(self, gateway: Gateway) -> None:
        fill(gateway, "a", 5)
        checkpoint = Checkpoint(['{"a": [3, 4], "b@c": 0}'], done=1)
        assert run(checkpoint, brokers=gateway.address) == seqs("a", 3, 4)
        assert checkpoint.last["version"] == 2
        assert checkpoint.last["brokers"][gateway.broker]["topics"] == {"a": 5, "b@c": 0}

    def test_a_micro_batch_of_it_that_was_begun_is_done(self, gateway: Gateway) -> None:
        fill(gateway, "a", 5)
        checkpoint = Checkpoint(['{"a": 1}', '{"a": 3}'], done=1)
        assert run(checkpoint, brokers=gateway.address) == seqs("a", 1, 2, 3, 4)

    def test_of_several_goes_on_with_those(self, two: tuple[Gateway, Gateway]) -> None:
        one, other = two
        for gateway in two:
            fill(gateway, "a", 3)
        begun = json.dumps({f"a@{one.address}": 1, f"a@{other.address}": 2})
        checkpoint = Checkpoint([begun], done=1)
        with pytest.raises(OptionError, match=rf"checkpoint has topic a of {other.address}, which is not among them"):
            run(checkpoint, brokers=one.address)
        assert run(checkpoint, brokers=both(other, one)) == seqs("a", 1, 2, 2)
        fill(other, "a", 1)
        assert run(checkpoint, brokers=other.address) == seqs("a", 3)

    def test_of_one_does_not_go_on_with_several(self, two: tuple[Gateway, Gateway]) -> None:
        fill(two[0], "a", 3)
        checkpoint = Checkpoint(['{"a": 1}'], done=1)
        with pytest.raises(OptionError, match="is of one broker, and does not say which"):
            run(checkpoint, brokers=both(*two))


def test_offsets_of_a_later_version_are_refused(gateway: Gateway) -> None:
    checkpoint = Checkpoint(['{"version": 4, "brokers": {}}'], done=1)
    with pytest.raises(OptionError, match="offsets are of version 4; this reads 1 to 3"):
        run(checkpoint, brokers=gateway.address)


def test_two_streams_do_not_read_under_one_name(gateway: Gateway) -> None:
    fill(gateway, "a", 3)
    first, second = Checkpoint(), Checkpoint()
    options = {"brokers": gateway.address, "subscription": "archive"}
    assert len(run(first, **options)) == 3
    fill(gateway, "a", 1)
    assert len(run(first, **options)) == 1
    assert len(run(second, **options)) == 4
    fill(gateway, "a", 1)
    with pytest.raises(OptionError, match="subscription: another query reads as archive since this one began"):
        run(first, **options)
    assert len(run(second, **options)) == 1
    assert run(first, brokers=gateway.address, subscription="another") == seqs("a", 4)


def test_a_stream_that_died_before_its_first_offset_was_kept_begins_again(gateway: Gateway) -> None:
    fill(gateway, "a", 3)
    checkpoint = Checkpoint()
    options = {"brokers": gateway.address, "subscription": "archive"}
    Driver(checkpoint, options)
    assert len(run(checkpoint, **options)) == 3
    old = Checkpoint(['{"a": 2}'], done=1)
    Driver(old, options).begin()
    old.offsets.pop()
    assert run(old, **options) == seqs("a", 2)
    for done in (0, 1):  # its first micro-batch was begun, or done
        begun = Checkpoint()
        Driver(begun, options).begin()
        begun.done = done
        assert len(run(begun, **options)) == 3 * (1 - done)


def test_topics_may_be_assigned_to_brokers(two: tuple[Gateway, Gateway]) -> None:
    one, other = two
    for gateway in two:
        fill(gateway, "a", 2)
        fill(gateway, "b", 1)
    assign = json.dumps({"a": [one.address], "b": [one.address, other.broker]})
    assert run(Checkpoint(), brokers=both(*two), assign=assign) == seqs("a", 0, 1) + seqs("b", 0, 0)
