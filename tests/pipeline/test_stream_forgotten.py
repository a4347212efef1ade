"""A stream has read all of a topic and is stopped. A real broker forgets the topic with its last message, is killed,
and the topic comes back: no gap, unless messages were lost. Without Spark, whose part stream_driver.py plays."""

from __future__ import annotations

from pathlib import Path

import pytest
from mq_shards.pipeline.reading import DataLossError

from tests.pipeline.stream_driver import Checkpoint, Rows, run
from tests.reader.broker import Broker, started
from tests.reader.test_forgotten import OPTIONS, drop_what_is_there, pass_through
from tests.servers import wait_until


def seqs(topic: str, *of: int) -> Rows:
    return [(topic, seq) for seq in of]


def read(broker: Broker, checkpoint: Checkpoint) -> Rows:
    return run(checkpoint, brokers=f"127.0.0.1:{broker.port}", topicPattern="mail|high")


def forget(broker: Broker, data: Path) -> None:
    drop_what_is_there(broker, data)
    wait_until(lambda: broker.topic("mail") == {}, "the broker has forgotten it")
    broker.server.kill()


def test_a_topic_that_was_forgotten_comes_back_without_a_gap_and_what_was_lost_of_it_is_one(tmp_path: Path) -> None:
    data, checkpoint = tmp_path / "data", Checkpoint()
    with started(data, *OPTIONS) as broker:
        pass_through(broker, "mail", 3)
        pass_through(broker, "high", 50)  # so high do topics begin of which nothing is known
        assert read(broker, checkpoint) == seqs("high", *range(50)) + seqs("mail", 0, 1, 2)
        forget(broker, data)
    with started(data, *OPTIONS) as broker:
        pass_through(broker, "mail", 2)
        assert read(broker, checkpoint) == seqs("mail", 3, 4)
        pass_through(broker, "mail", 2)  # which nobody reads
        forget(broker, data)
    with started(data, *OPTIONS) as broker:
        pass_through(broker, "mail")
        with pytest.raises(DataLossError, match="messages 5 to 6 are gone"):
            read(broker, checkpoint)


def test_what_was_deleted_unread_is_an_error_once_the_topic_is_there_again(tmp_path: Path) -> None:
    checkpoint = Checkpoint()
    with started(tmp_path / "data") as broker:
        pass_through(broker, "mail", 3)
        assert read(broker, checkpoint) == seqs("mail", 0, 1, 2)
        broker.json("/v1/topics/mail", "DELETE")
        pass_through(broker, "mail", 2)
        assert read(broker, checkpoint) == seqs("mail", 3, 4), "all that was deleted had been read"
        pass_through(broker, "mail", 2)
        broker.json("/v1/topics/mail", "DELETE")
        pass_through(broker, "mail", 1)
        with pytest.raises(DataLossError, match=r"messages 5 to 6 are gone .*erased.*--move-to earliest --topics mail"):
            read(broker, checkpoint)
        given = {"brokers": f"127.0.0.1:{broker.port}", "topicPattern": "mail|high", "failOnDataLoss": "false"}
        assert run(checkpoint, **given) == seqs("mail", 7)
