"""Topics whose messages have all gone: one that a reader names counts on from where it was, others are forgotten."""

from __future__ import annotations

import json
from pathlib import Path

from mq_shards.shards.paths import shard_path

from tests.beanstalk.wire import Wire
from tests.nsq.api import post
from tests.reader.broker import Broker, started
from tests.servers import wait_until

OPTIONS = ("--workers=1", "--shards=1", "--set", "log.retention-hours=0")


def pass_through(broker: Broker, tube: str, count: int = 1) -> list[int]:
    """Jobs that are put and deleted. Their seqs."""
    with Wire(broker.server.beanstalk_port) as wire:
        assert wire.ask(f"use {tube}") == f"USING {tube}".encode()
        for id in [wire.put() for _ in range(count)]:
            assert wire.ask(f"delete {id}") == b"DELETED"
    return [sent.seq for sent in broker.read_all(tube)][-count:]


def drop_what_is_there(broker: Broker, data: Path) -> None:
    """Retention drops every segment that is there now."""
    there = set(shard_path(data, 0).glob("*.log"))
    for _ in range(9):
        assert broker.publish(*[("filling", b"x" * (1 << 20))] * 10).status == 200
        post(broker.server, "/topic/empty?topic=filling")
    wait_until(lambda: not there & set(shard_path(data, 0).glob("*.log")), "retention has dropped them")


def say(broker: Broker, reader: str, *topics: str) -> None:
    """It has read all there is of these."""
    seqs = {topic: broker.topic(topic)["latest"] for topic in topics}
    assert broker.json(f"/v1/readers/{reader}", "PUT", json.dumps(seqs).encode())["topics"] == seqs


def test_a_topic_that_a_reader_names_counts_on_from_where_it_was(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with started(data, *OPTIONS) as broker:
        assert pass_through(broker, "read", 3) == [0, 1, 2]
        assert pass_through(broker, "unread", 50)[-1] == 49  # as high as others count on from when it is forgotten
        say(broker, "spark", "read")
        drop_what_is_there(broker, data)
        topic = broker.topic("read")
        assert (topic["earliest"], topic["complete"], topic["latest"], topic["records"]) == (3, 3, 3, 0)
        assert pass_through(broker, "read") == [3]
        assert broker.topic("read")["complete"] == 3  # no gap behind what was read
        say(broker, "spark", "read")
        drop_what_is_there(broker, data)
        broker.server.kill()
    with started(data, *OPTIONS) as broker:
        drop_what_is_there(broker, data)  # as recovery found it, it had nothing in the log
        assert pass_through(broker, "read") == [4]
        broker.json("/v1/readers/spark", "DELETE")
        drop_what_is_there(broker, data)
        drop_what_is_there(broker, data)  # where it was still named
        assert broker.topic("read") == {}
        assert pass_through(broker, "read")[0] >= 5  # from higher up if no acceptor has the name bound any more


def test_a_reader_that_names_it_anew_keeps_it(tmp_path: Path) -> None:
    """Readers change while the broker runs, and another one may name it as well."""
    data = tmp_path / "data"
    with started(data, *OPTIONS) as broker:
        pass_through(broker, "a", 2)
        pass_through(broker, "b", 3)
        pass_through(broker, "high", 50)
        say(broker, "one", "a", "b")
        say(broker, "two", "b")
        broker.json("/v1/readers/one", "DELETE")
        drop_what_is_there(broker, data)
        assert pass_through(broker, "b") == [3]
        assert pass_through(broker, "a")[0] >= 2
        say(broker, "one", "a", "b")
        broker.json("/v1/readers/two", "DELETE")
        last = broker.topic("a")["latest"]
        drop_what_is_there(broker, data)
        assert pass_through(broker, "b") == [4]
        assert pass_through(broker, "a") == [last]
