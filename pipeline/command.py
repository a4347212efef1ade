"""The mq-pipeline command: one job of Spark on the broker's topics for each of its words."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from pyspark.errors import PySparkException

from pipeline import archive


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="mq-pipeline", description="Spark jobs on the topics of mq-shards brokers.")
    parser.add_argument("--master", default="local[*]", help="where Spark runs (default: local[*])")
    parser.add_argument("--brokers", default="127.0.0.1:4180", metavar="HOST:PORT,...",
                        help="the brokers' http listeners (default: 127.0.0.1:4180)")  # fmt: skip
    jobs = parser.add_subparsers(dest="job", required=True, metavar="JOB")
    archive.add_arguments(jobs.add_parser("archive", help="topics to Parquet files, by topic and date"))
    options = parser.parse_args(arguments)
    try:
        return archive.run(options, options.master, options.brokers)
    except PySparkException as error:
        print(f"mq-pipeline: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
