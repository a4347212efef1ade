"""The mq-pipeline command: one job of Spark on the broker's topics for each of its words."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from pyspark.errors import PySparkException

from pipeline import archive, readers_command, replay, report
from pipeline import run as run_job
from pipeline.client import BrokerError
from pipeline.events import FieldError
from pipeline.options import OptionError
from pipeline.project import ProjectError


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="mq-pipeline", description="Spark jobs on the topics of mq-shards brokers.")
    parser.add_argument("--master", default="local[*]", help="where Spark runs (default: local[*])")
    parser.add_argument("--brokers", default="127.0.0.1:4180", metavar="HOST:PORT,...",
                        help="the brokers' http listeners (default: 127.0.0.1:4180)")  # fmt: skip
    jobs = parser.add_subparsers(dest="job", required=True, metavar="JOB")
    archive.add_arguments(jobs.add_parser("archive", help="topics to Parquet files, by topic and date"))
    replay.add_arguments(jobs.add_parser("replay", help="an archive back into topics, each message once"))
    run_job.add_arguments(jobs.add_parser("run", help="the declarative project: tables of messages, rates and delays"))
    report.add_arguments(jobs.add_parser("report", help="rates, sizes, delay and backlog of topics: tables and plots"))
    readers_command.add_arguments(jobs.add_parser("readers", help="for whom brokers keep messages; --drop ends that"))
    options = parser.parse_args(arguments)
    work = {
        "archive": archive.run, "replay": replay.run, "run": run_job.run, "report": report.run,
        "readers": readers_command.run,
    }[options.job]  # fmt: skip
    try:
        return work(options, options.master, options.brokers)
    except (PySparkException, ProjectError, BrokerError, OptionError, FieldError) as error:
        print(f"mq-pipeline: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
