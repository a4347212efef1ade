"""What Spark is made to do while its classes are written down (`class_archive.py`), in one JVM. Without packages for
tests: `make spark-classes` needs none."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from mq_shards.pipeline.command import main
from mq_shards.pipeline.demo.__main__ import Ports, broker_in, free_ports, publish
from mq_shards.pipeline.demo.events import Batch
from mq_shards.pipeline.session import open_session
from pyspark.sql import functions as sf

EVENTS: Final = 200


def run_jobs(directory: Path) -> None:
    """A run of the declarative project, which needs Spark Connect and a catalog of Hive's, and a report."""
    ports = Ports(*free_ports(4))
    published: dict[str, list[Batch]] = {"orders": [], "readings": []}
    with broker_in(directory / "data", ports):
        publish(ports, 1, EVENTS, published)
        common = ["--master", "local[2]", "--nice", "0", "--brokers", f"127.0.0.1:{ports.http}"]
        run = ["run", "--dir", str(directory / "project"), "--topics", "orders,readings", "--show"]
        for job in (run, ["report", "--to", str(directory / "report")]):
            if (status := main([*common, *job])) != 0:
                raise SystemExit(status)


def run_queries(directory: Path) -> None:
    spark = open_session("local[2]", "classes", {"spark.sql.shuffle.partitions": "2"}, 0)
    rows = spark.range(1000).select("id", sf.current_timestamp().alias("at"), sf.rpad("id", 9, "x").alias("text"))
    rows.write.parquet(str(directory / "rows"))
    read = spark.read.parquet(str(directory / "rows"))
    read.groupBy((sf.col("id") % 3).alias("k")).agg(sf.count("*"), sf.sum("id"), sf.max("at")).orderBy("k").collect()
    read.select(sf.col("text").cast("binary")).limit(5).toArrow()
    stream = spark.readStream.schema(read.schema).parquet(str(directory / "rows"))
    query = (
        stream.writeStream.format("parquet")
        .option("checkpointLocation", str(directory / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(directory / "streamed"))
    )
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    run_jobs(Path(sys.argv[1]))
    run_queries(Path(sys.argv[1]))
