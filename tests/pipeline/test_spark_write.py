"""Real Spark writes to a real broker: every row once, in order, whatever is killed, repeated or refused."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from mq_shards.pipeline.client import Address
from mq_shards.pipeline.options import OptionError
from mq_shards.pipeline.publish import Batch, publish
from mq_shards.pipeline.source import MqShards
from mq_shards.pipeline.write import BatchWriter, broker_of
from mq_shards.pipeline.write_options import WriteOptions
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from tests.nsq import api
from tests.pipeline.broker import Broker, broker_in
from tests.pipeline.copying import ROW_BYTES, ROWS, SOURCE, TOPICS, WRITER, program, start_copy
from tests.servers import wait_until

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """Of all tests that kill none; each has topics of its own."""
    with broker_in(tmp_path_factory.mktemp("broker") / "data", "--shards=8") as broker:
        yield broker


def save(frame: DataFrame, *brokers: Broker, mode: str = "append", **options: str) -> None:
    save_at(frame, ",".join(broker.address for broker in brokers), mode=mode, **options)


def save_at(frame: DataFrame, addresses: str, *, mode: str = "append", **options: str) -> None:
    frame.write.format("mqshards").options(brokers=addresses, **options).mode(mode).save()


def bodies(broker: Broker, topic: str, spark: SparkSession) -> list[str]:
    """In the order of seqs."""
    if not broker.topic(topic):
        return []
    frame = spark.read.format("mqshards").options(brokers=broker.address, topic=topic).load()
    return [bytes(row.body).decode() for row in frame.orderBy("seq").collect()]


def numbers(spark: SparkSession, count: int, partitions: int = 2) -> DataFrame:
    return spark.range(count, numPartitions=partitions).select(sf.col("id").cast("string").alias("body"))


def staged(broker: Broker) -> list[str]:
    directory = broker.data_dir / "staged"
    return [path.name for path in directory.iterdir()] if directory.exists() else []


def test_rows_become_messages_in_their_order(spark: SparkSession, broker: Broker) -> None:
    topic = sf.concat(sf.lit("order-"), (sf.col("id") % 5).cast("string")).alias("topic")
    rows = spark.range(9000, numPartitions=3).select(topic, sf.col("id").cast("string").cast("binary").alias("body"))
    save(rows, broker)
    found = spark.read.format("mqshards").options(brokers=broker.address, topicPattern="order-.").load()
    by_topic: dict[str, list[str]] = {}
    for row in found.orderBy("topic", "seq").select("topic", sf.col("body").cast("string")).collect():
        by_topic.setdefault(row.topic, []).append(row.body)
    assert by_topic == {f"order-{n}": [str(i) for i in range(n, 9000, 5)] for n in range(5)}
    assert staged(broker) == []


def test_the_option_topic_wins_and_other_columns_are_no_matter(spark: SparkSession, broker: Broker) -> None:
    sent = [("elsewhere", "one", 7), ("elsewhere", "", 8)]
    rows = spark.createDataFrame(sent, "topic string, value string, number int")
    save(rows.coalesce(1), broker, topic=" chosen ")
    assert bodies(broker, "chosen", spark) == ["one", ""]
    assert not broker.topic("elsewhere")


def test_attributes_keys_delays_and_priorities_are_written_and_read_again(spark: SparkSession, broker: Broker) -> None:
    rows = spark.createDataFrame(
        [
            ("one", {"A": "1", "pri": "9", "ttr_ms": "7"}, None, None, None),
            ("two", {"key": "old", "any text": "\r\n"}, "k", None, 5),
            ("three", None, None, 0, None),
            ("four", {}, "", 60_000, 4_294_967_295),
        ],
        "body string, attributes map<string,string>, key string, delay_ms long, priority long",
    )
    save(rows.coalesce(1), broker, topic="attributed")
    found = spark.read.format("mqshards").options(brokers=broker.address, topic="attributed").load().orderBy("seq")
    assert [(bytes(row.body).decode(), {**row.attributes, "ttr_ms": ""}) for row in found.collect()] == [
        ("one", {"pri": "1024", "ttr_ms": "", "A": "1"}),
        ("two", {"pri": "5", "ttr_ms": "", "key": "k", "any text": "\r\n"}),
        ("three", {"pri": "1024", "ttr_ms": ""}),
        ("four", {"pri": "4294967295", "ttr_ms": "", "delay_ms": "60000", "key": ""}),
    ]
    as_kafka = ("array(struct('h', cast('v' as binary))) headers", "cast('k' as binary) key", "'x' value")
    save(spark.range(1).selectExpr(*as_kafka), broker, topic="as-kafka")
    (row,) = spark.read.format("mqshards").options(brokers=broker.address, topic="as-kafka").load().collect()
    assert (row.attributes["h"], row.attributes["key"], bytes(row.body)) == ("v", "k", b"x")


def test_what_was_read_can_be_written_as_it_is(spark: SparkSession, broker: Broker) -> None:
    broker.publish("read", [b"1", b"2", b"3"])
    save(spark.read.format("mqshards").options(brokers=broker.address, topic="read").load(), broker)
    assert bodies(broker, "read", spark) == ["1", "2", "3"] * 2


@pytest.mark.parametrize(
    ("schema", "options", "said"),
    [
        ("text string", {"topic": "t"}, "one column, body .or value., is wanted: there are text"),
        ("body string, value string", {"topic": "t"}, "there are body and value"),
        ("body int", {"topic": "t"}, "column body is of type int; binary or string is wanted"),
        ("body string", {}, "topic: there is neither a column nor an option"),
        ("body string, topic int", {}, "column topic is of type int"),
        ("body string, headers map<string,int>", {"topic": "t"}, "column headers is of type map<string,int>; map<str"),
        ("body string, headers map<string,string>, attributes map<string,string>", {"topic": "t"}, "there are attrib"),
        ("body string, key int", {"topic": "t"}, "column key is of type int; string or binary is wanted"),
        ("body string, delay_ms string", {"topic": "t"}, "column delay_ms is of type string; int or bigint"),
        ("body string", {"topic": " "}, "topic: it is empty"),
        ("body string", {"topic": "t", "writer": "w"}, "writer and batch: both are wanted"),
        ("body string", {"topic": "t", "writer": ".w", "batch": "1"}, "writer: '.w' is not"),
        ("body string", {"topic": "t", "writer": "w", "batch": "-1"}, "batch: '-1' is no number"),
        ("body string", {"topic": "t", "brokers": "here:there"}, "brokers: "),
        ("body string", {"topic": "t", "brokrs": "here:1"}, "brokrs: there is no such option; did you mean brokers"),
    ],
)
def test_what_cannot_be_written_is_refused_before_it_begins(
    spark: SparkSession, schema: str, options: dict[str, str], said: str
) -> None:
    rows = spark.createDataFrame([], schema)
    with pytest.raises(Exception, match=said):
        rows.write.format("mqshards").options(**options).mode("append").save()


def test_topics_are_only_appended_to(spark: SparkSession, broker: Broker) -> None:
    with pytest.raises(Exception, match="mode overwrite: what is in a topic stays"):
        save(numbers(spark, 1), broker, mode="overwrite", topic="overwritten")
    with pytest.raises(Exception, match="ErrorIfExists"):
        save(numbers(spark, 1), broker, mode="errorifexists", topic="overwritten")
    assert not broker.topic("overwritten")


@pytest.mark.parametrize(
    ("before", "topic", "body", "more", "said"),
    [
        (100, "'refused'", "null", [], "column body is null in"),
        (100, "null", "'x'", [], "column topic is null in"),
        (100, "'no\tname'", "'x'", [], "'no.*name' is not a topic's name"),
        (100, "'refused'", "repeat('x', 6 << 20)", [], "for 'refused' has more than 5242880 bytes"),
        (100, "'refused'", "repeat('x', 33 << 20)", [], "topic refused: a message of 34603008 bytes"),
        (100, "'refused'", "'x'", ["if(id = {row}, -1, 0) delay_ms"], "column delay_ms: -1 is not 0 to"),
        # Its task has sent 16 MB when it comes to that row.
        (20_000, "'refused'", "'x'", ["if(id = {row}, map('', 'v'), null) headers"], "row .*: a header has a name"),
    ],
)
def test_a_row_that_is_refused_is_named_and_nothing_is_published(
    spark: SparkSession, broker: Broker, before: int, topic: str, body: str, more: list[str], said: str
) -> None:
    columns = [
        f"if(id = {before}, {topic}, 'refused') topic", f"if(id = {before}, {body}, repeat('.', 800)) body",
        *(text.format(row=before) for text in more),
    ]  # fmt: skip
    with pytest.raises(Exception, match=said):
        save(spark.range(before + 1, numPartitions=1).selectExpr(*columns), broker)
    assert not broker.topic("refused")
    assert staged(broker) == []


def test_a_batch_of_a_writer_is_published_once(spark: SparkSession, broker: Broker, spark_said: Path) -> None:
    for batch in ("3", "3", "2", "4"):
        save(numbers(spark, 10), broker, topic="named", writer="w", batch=batch)
    assert bodies(broker, "named", spark) == [str(n) for n in range(10)] * 2
    assert broker.get("/v1/writers/w")["batch"] == 4
    assert "has published batch 3 before: nothing of batch 2 is published now" in spark_said.read_text()


def test_writers_of_one_batch_are_not_remembered(spark: SparkSession, broker: Broker) -> None:
    save(numbers(spark, 10), broker, topic="unnamed")
    save(numbers(spark, 0), broker, topic="unnamed")
    assert len(bodies(broker, "unnamed", spark)) == 10
    assert not [w for w in broker.get("/v1/writers")["writers"] if w["writer"].startswith("spark-")]


def test_what_a_second_attempt_of_a_task_staged_counts_once(broker: Broker) -> None:
    def attempt() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch([pa.array([b"x"] * 1000, pa.binary())], names=["body"])

    from pyspark.sql.types import BinaryType, StructField, StructType

    source = MqShards({"brokers": broker.address, "topic": "speculative"})
    writer = source.writer(StructType([StructField("body", BinaryType())]), overwrite=False)
    assert isinstance(writer, BatchWriter)
    writer.write(attempt())
    chosen = writer.write(attempt())
    writer.commit([chosen])
    assert broker.topic("speculative")["latest"] == 1000


def test_topics_are_spread_over_brokers_and_a_batch_that_only_one_has_is_finished(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    with broker_in(tmp_path / "other", "--shards=8") as other:
        by_identity = {b.get("/v1/broker")["broker"]: b for b in (broker, other)}
        first, second = by_identity
        some = [f"spread-{n}" for n in range(200)]
        of = {home: [name for name in some if broker_of(by_identity, name) == home][:5] for home in by_identity}
        names = [*of[first], *of[second]]
        messages = [(name, f"{name}/{n}") for n in range(20) for name in names]
        rows = spark.createDataFrame(messages, "topic string, body string")
        # As if a driver had died when the first had published; and then the second answers elsewhere.
        publish(Batch("spreader", 1), [Address.parse(broker.address)], [], 10)
        elsewhere = f"localhost:{other.http_port}"
        save_at(rows.coalesce(1), f"{elsewhere},{broker.address}", writer="spreader", batch="1")
        save(rows.coalesce(1), broker, other, writer="spreader", batch="2")
        for name in names:
            here = broker_of(by_identity, name)
            times = 1 if here == first else 2
            assert bodies(by_identity[here], name, spark) == [f"{name}/{n}" for n in range(20)] * times
            assert not by_identity[second if here == first else first].topic(name)
        with pytest.raises(Exception, match="have the same data directory"):
            save_at(rows, f"{elsewhere},{other.address}", topic="twice")


@pytest.mark.long
def test_tasks_that_fail_at_first_write_their_rows_once(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    with program(tmp_path, broker.address, "--failing") as process:
        # Not to be seen before all of it is there.
        wait_until(lambda: process.poll() is not None or staged(broker), "something is staged", 60)
        assert process.poll() is not None or not broker.topic("failing")
        assert process.wait(120) == 0, (tmp_path / "said").read_text()[-4000:]
    assert {path.name for path in tmp_path.glob("failed-*")} == {"failed-0", "failed-1"}
    assert bodies(broker, "failing", spark) == [f"{n}{'.' * ROW_BYTES}" for n in range(ROWS)]


def test_a_failed_job_publishes_nothing(spark: SparkSession, broker: Broker) -> None:
    rows = spark.range(2000, numPartitions=2).select(
        sf.when(sf.col("id") == 1999, sf.raise_error(sf.lit("no more"))).otherwise("x").alias("body")
    )
    with pytest.raises(Exception, match="no more"):
        save(rows, broker, topic="never")
    assert not broker.topic("never")


def test_a_query_is_a_writer_by_its_id_and_goes_on_with_its_batches(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    def run(checkpoint: str, **options: str) -> str:
        rows = spark.readStream.format("mqshards").options(brokers=broker.address, topic="stream-in",
                                                           startingOffsets="earliest").load()  # fmt: skip
        query = rows.writeStream.format("mqshards").options(brokers=broker.address, topic="stream-out", **options)
        started = query.option("checkpointLocation", str(tmp_path / checkpoint)).trigger(availableNow=True).start()
        started.awaitTermination(60)
        assert not started.isActive
        return str(started.id)

    broker.publish("stream-in", [b"1", b"2"])
    query = run("one")
    writer = broker.get(f"/v1/writers/spark-{query}")
    broker.publish("stream-in", [b"3"])
    assert run("one") == query
    assert bodies(broker, "stream-out", spark) == ["1", "2", "3"]
    again = broker.get(f"/v1/writers/spark-{query}")
    assert (again["state"], again["messages"]) == ("published", 1)
    assert again["batch"] > writer["batch"]
    # As if the driver had died when the broker had published, and before Spark's checkpoint says so.
    last = max((tmp_path / "one" / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    last.unlink()
    (last.parent / f".{last.name}.crc").unlink(missing_ok=True)
    assert run("one") == query
    assert bodies(broker, "stream-out", spark) == ["1", "2", "3"]
    # A name that another query has used: what it would write would be taken for written.
    assert api.call(broker.http_port, "PUT", "/v1/writers/taken", json.dumps({"batch": 9, "staged": []}).encode()
                    ).status == 200  # fmt: skip
    with pytest.raises(Exception, match="give it another name with the option writer"):
        run("two", writer="taken")
    with pytest.raises(OptionError, match="batch: a stream numbers its micro-batches itself"):
        WriteOptions.parse({"topic": "t", "batch": "1"}, streaming=True)


@pytest.mark.long
def test_a_stream_writes_once_though_the_broker_is_killed(spark: SparkSession, tmp_path: Path) -> None:
    count = 1500
    with broker_in(tmp_path / "data", "--shards=8") as broker:
        broker.publish(SOURCE, [b"%d" % n for n in range(count)])
        query = start_copy(spark, tmp_path, broker.address)
        try:
            wait_until(lambda: bool(broker.topic("out-0")), "some micro-batches are published", 60)
            broker.kill()
            broker.start()
            everywhere = range(TOPICS)
            wait_until(
                lambda: sum(broker.topic(f"out-{n}").get("latest", 0) for n in everywhere) >= count, "it goes on", 90
            )
        finally:
            query.stop()
        for n in range(TOPICS):
            assert Counter(bodies(broker, f"out-{n}", spark)) == Counter(str(i) for i in range(n, count, TOPICS))


@pytest.mark.long
def test_a_stream_writes_once_though_it_and_the_broker_are_killed(spark: SparkSession, tmp_path: Path) -> None:
    chance, count = random.Random(11), 6000
    with broker_in(tmp_path / "data", "--shards=8") as broker:
        broker.publish(SOURCE, [b"%d" % n for n in range(count)])

        def batch() -> int:
            reply = api.call(broker.http_port, "GET", f"/v1/writers/{WRITER}")
            return int(reply.json["batch"]) if reply.status == 200 else -1

        for kill_broker in (True, False):
            with program(tmp_path, broker.address) as process:
                until = batch() + chance.randrange(2, 5)

                def due(process: object = process, until: int = until) -> bool:
                    assert process.poll() is None, (tmp_path / "said").read_text()[-4000:]  # type: ignore[attr-defined]
                    return batch() >= until

                wait_until(due, "some micro-batches are published", 90)
                if kill_broker:
                    broker.kill()
                    broker.start()
                    until += chance.randrange(1, 4)
                    wait_until(lambda due=due, until=until: due(until=until), "it goes on", 60)
        query = start_copy(spark, tmp_path, broker.address, available_now=True)
        assert query.awaitTermination(120)
        for n in range(TOPICS):
            found = Counter(bodies(broker, f"out-{n}", spark))
            assert found == Counter(str(i) for i in range(n, count, TOPICS))
