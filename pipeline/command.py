"""The mq-pipeline command: each subcommand is one job on the brokers' topics, most of them run by Spark.

The exit status is for schedulers: 0, all was done; 1, the job failed; 2, the arguments are wrong; 128 plus a signal's
number, the job was stopped, and the next run goes on from there.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from mq_shards.pipeline import arguments
from mq_shards.pipeline.standing_back import NICENESS

JOBS: Final[Mapping[str, tuple[Callable[[argparse.ArgumentParser], None], str]]] = {
    "archive": (arguments.of_archive, "topics to Parquet files, by topic and date"),
    "replay": (arguments.of_replay, "an archive back into topics, each message once"),
    "init": (arguments.of_init, "a declarative project of your own, written once, for run and for spark-pipelines"),
    "run": (arguments.of_run, "the declarative project: tables of messages, rates and delays"),
    "report": (arguments.of_report, "rates, sizes, delay and backlog of topics: tables and plots"),
    "explain": (
        arguments.of_explain, "which messages of which topics a query would read, in how many tasks; nothing is read"
    ),
    "offsets": (arguments.of_offsets, "where a streaming query is, by its checkpoint; --move-to moves it"),
    "staged": (arguments.of_staged, "what tasks have staged and nobody has published; --drop removes it"),
    "writers": (
        arguments.of_writers, "whose batches brokers remember; --drop forgets one that will not come back"
    ),
    "readers": (arguments.of_readers, "for whom brokers keep messages; --drop ends that"),
}  # fmt: skip


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="mq-pipeline", description="Spark jobs on the topics of mq-shards brokers.")
    parser.set_defaults(master="local[*]", brokers="", nice=NICENESS)
    parser.set_defaults(ca="", cert="", key="", token_file="")
    jobs = parser.add_subparsers(dest="job", required=True, metavar="JOB")
    # Common arguments may stand before or after the job's name.
    arguments.add_common(parser)
    for name, (add_arguments, text) in JOBS.items():
        command = jobs.add_parser(name, help=text)
        arguments.add_common(command)
        add_arguments(command)
    options = parser.parse_args(given)

    from mq_shards.pipeline.running import run_job  # loads Spark, which help and wrong arguments do without

    return run_job(options)


if __name__ == "__main__":
    sys.exit(main())
