"""What a broker has lost, or what is damaged in its log, is an error, or a warning without failOnDataLoss; and what is
damaged is not passed on."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from mq_shards.shards.paths import segment_name, shard_path
from pyspark.sql import DataFrame, SparkSession

from tests.nsq.wire import Wire
from tests.pipeline.broker import Broker, broker_in, flip
from tests.pipeline.query import start_query
from tests.reader.disk import messages_in
from tests.servers import wait_until

MIB = 1 << 20
BODY_AT, SEQ_AT, LENGTH_AT = 60, 16, 2  # in a record; 60 is behind the attributes
Said = Callable[[], str]


@pytest.fixture
def said(spark_said: Path, spark: SparkSession) -> Said:
    """What Spark has said on stderr since the test began."""
    start = spark_said.stat().st_size

    def since() -> str:
        with spark_said.open("rb") as file:
            file.seek(start)
            return file.read().decode(errors="replace")

    return since


def load(spark: SparkSession, broker: Broker, topic: str, fail_on_data_loss: bool, **options: object) -> DataFrame:
    given = {"brokers": broker.address, "topic": topic, "failOnDataLoss": str(fail_on_data_loss)}
    given |= {name: str(value) for name, value in options.items()}
    return spark.read.format("mqshards").options(**given).load()


def seqs(frame: DataFrame) -> list[int]:
    return sorted(row.seq for row in frame.select("seq", "body").collect())


class TestRetention:
    @pytest.fixture
    def broker(self, tmp_path: Path) -> Iterator[Broker]:
        options = ("--shards=1", "--set", "log.retention-bytes=1048576")
        with broker_in(tmp_path / "data", *options, workers=1) as broker:
            yield broker

    def drop(self, broker: Broker, *topics: str) -> None:
        """What has been published to them, with more than a segment behind it, is finished; and then it is gone."""
        topics = (*topics, "filling")
        gone = {topic: broker.topic(topic).get("latest", 0) for topic in topics}
        gone["filling"] += 1
        with Wire(broker.nsq_port) as wire:
            for _ in range(18):
                wire.publish_many("filling", [b"x" * (MIB - 64)] * 4)
        for topic in topics:
            broker.finish_all(topic)

        def is_gone() -> bool:
            return all(broker.topic(topic)["earliest"] >= until for topic, until in gone.items())

        wait_until(is_gone, "retention drops the segment", 30)

    def test_a_gap_before_what_a_stream_would_read_next(
        self, spark: SparkSession, broker: Broker, said: Said, tmp_path: Path
    ) -> None:
        options = {"brokers": broker.address, "topic": "t", "startingOffsets": "earliest"}

        def run() -> list[int]:
            start_query(spark, tmp_path, options, available_now=True).awaitTermination(60)
            return sorted(row.seq for row in spark.read.parquet(str(tmp_path / "out")).select("seq").collect())

        broker.publish("t", [b"%d" % n for n in range(3)])
        assert run() == [0, 1, 2]
        broker.publish("t", [b"%d" % n for n in range(3, 13)])
        self.drop(broker, "t")
        broker.publish("t", [b"%d" % n for n in range(13, 18)])
        with pytest.raises(Exception, match=r"topic t.*messages 3 to 12 are gone.*failOnDataLoss"):
            run()
        options["failOnDataLoss"] = "false"
        assert run() == [0, 1, 2, 13, 14, 15, 16, 17]
        assert "messages 3 to 12 are gone (past retention, or erased), or never were" in said()

    @pytest.mark.parametrize("deleted", [False, True])
    def test_a_topic_that_goes_while_it_is_read(
        self, spark: SparkSession, broker: Broker, said: Said, deleted: bool
    ) -> None:
        broker.publish("t", [b"x"] * 10)
        strict, lenient = (load(spark, broker, "t", must, minPartitions=2) for must in (True, False))
        for frame in (strict, lenient):
            assert frame.rdd.getNumPartitions() == 2  # what each task reads is settled now
        if deleted:
            broker.delete("t")
            broker.stop()
            broker.start(1)
            self.drop(broker)
        self.drop(broker, *([] if deleted else ["t"]))
        wait_until(lambda: bool(broker.topic("t")) != deleted, "what names a deleted topic is gone")
        with pytest.raises(Exception, match=r"topic t .*messages [05] to [49] are gone; failOnDataLoss is true"):
            strict.collect()
        assert lenient.collect() == []
        for lost in ("0 to 4", "5 to 9"):
            assert f"messages {lost} are gone; they are left out\n" in said()


class TestDamage:
    @pytest.fixture
    def broker(self, tmp_path: Path) -> Iterator[Broker]:
        with broker_in(tmp_path / "data", "--shards=4") as broker:
            broker.publish("t", [b"%016d" % n for n in range(10)])
            yield broker

    def spoil(self, broker: Broker, shard: int, seq: int, at: int) -> tuple[int, int]:
        """A bit of a record; in which segment it lies, and where."""
        segment, record = messages_in(broker.data_dir)["t"][seq]
        flip(shard_path(broker.data_dir, shard) / segment_name(segment), record.offset + at)
        return segment, record.offset

    @pytest.mark.parametrize("at", [BODY_AT, SEQ_AT, LENGTH_AT])
    def test_since_the_broker_looked(self, spark: SparkSession, broker: Broker, said: Said, at: int) -> None:
        """It sends the record, and who reads it sees what it is; or it sees that its index is wrong and looks again."""
        assert seqs(load(spark, broker, "t", True)) == [*range(10)]
        shard = broker.topic("t")["shard"]
        segment, offset = self.spoil(broker, shard, 6, at)
        here = rf"segment {segment}, behind seq 5: the record is corrupt"
        there = rf"messages 6 to 6 are gone, and the broker has damage at {shard}/{segment}/{offset}-"
        named = rf"topic t of {broker.address}, shard {shard}: ({here}|{there})"
        with pytest.raises(Exception, match=named):
            load(spark, broker, "t", True, pollTimeoutMs=3000).collect()
        assert seqs(load(spark, broker, "t", False, pollTimeoutMs=3000)) == [n for n in range(10) if n != 6]
        assert re.search(rf"{named}.* left out", said())

    def test_before_the_broker_looked(self, spark: SparkSession, broker: Broker, said: Said, tmp_path: Path) -> None:
        """It does not send the record, and says where the damage is."""
        shard = broker.topic("t")["shard"]
        broker.stop()
        segment, offset = self.spoil(broker, shard, 6, BODY_AT)
        broker.start()
        options = {"startingOffsets": '{"t": 0}', "endingOffsets": '{"t": 10}'}
        damage = f"damage at {shard}/{segment}/{offset}-"
        named = rf"topic t of .*, shard {shard}: messages 6 to 6 are gone, and the broker has {damage}"
        with pytest.raises(Exception, match=named):
            load(spark, broker, "t", True, **options).collect()
        assert seqs(load(spark, broker, "t", False, **options)) == [n for n in range(10) if n != 6]
        assert damage in said()
        with pytest.raises(Exception, match=named):
            load(spark, broker, "t", True).collect()
        stream = {"brokers": broker.address, "topic": "t", "startingOffsets": "earliest", "failOnDataLoss": "false"}
        start_query(spark, tmp_path, stream, available_now=True).awaitTermination(60)
        assert spark.read.parquet(str(tmp_path / "out")).count() == 9
        with pytest.raises(Exception, match=named):
            start_query(
                spark, tmp_path / "strict", stream | {"failOnDataLoss": "true"}, available_now=True
            ).awaitTermination(60)
