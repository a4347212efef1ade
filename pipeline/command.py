"""The mq-pipeline command: each subcommand is one job on the brokers' topics, most of them run by Spark.

The exit status is for schedulers: 0, all was done; 1, the job failed; 2, the arguments are wrong; 128 plus a signal's
number, the job was stopped, and the next run goes on from there.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Final, Protocol, cast

from mq_shards.pipeline import failure, telemetry
from mq_shards.pipeline.client import BrokerError
from mq_shards.pipeline.events import FieldError
from mq_shards.pipeline.options import TLS, TOKEN_IN_ENVIRONMENT, OptionError
from mq_shards.pipeline.project import ProjectError
from mq_shards.pipeline.session import NICENESS
from mq_shards.pipeline.spark_pipelines import PipelineError
from mq_shards.pipeline.stopping import Stopped, stopped_by_signals
from pyspark.errors import PySparkException


class Job(Protocol):
    """The interface of a job's module."""

    def add_arguments(self, command: argparse.ArgumentParser) -> None: ...
    def run(self, options: argparse.Namespace, master: str, connection: Mapping[str, str]) -> int:
        """`connection`: the options of source and sink that name the brokers and say how to speak to them."""


TRIES: Final = 3
# Spark's words for this error, which has no class of its own.
NOT_STARTED: Final = ("Python worker failed to connect back", "while waiting for the Python worker to connect back")
DEFAULT_BROKERS: Final = "127.0.0.1:4180"
# The module of each is loaded only when its job is named: some load all that draws plots.
JOBS: Final[Mapping[str, tuple[str, str]]] = {
    "archive": ("archive", "topics to Parquet files, by topic and date"),
    "replay": ("replay", "an archive back into topics, each message once"),
    "init": ("init", "a declarative project of your own, written once, for run and for spark-pipelines"),
    "run": ("run", "the declarative project: tables of messages, rates and delays"),
    "report": ("report", "rates, sizes, delay and backlog of topics: tables and plots"),
    "explain": ("explain", "which messages of which topics a query would read, in how many tasks; nothing is read"),
    "offsets": ("offsets_command", "where a streaming query is, by its checkpoint; --move-to moves it"),
    "staged": ("staged_command", "what tasks have staged and nobody has published; --drop removes it"),
    "writers": ("writers_command", "whose batches brokers remember; --drop forgets one that will not come back"),
    "readers": ("readers_command", "for whom brokers keep messages; --drop ends that"),
}


def job_of(name: str) -> Job:
    return cast(Job, import_module(f"mq_shards.pipeline.{JOBS[name][0]}"))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="mq-pipeline", description="Spark jobs on the topics of mq-shards brokers.")
    parser.set_defaults(master="local[*]", brokers="", nice=NICENESS)
    parser.set_defaults(ca="", cert="", key="", token_file="")
    jobs = parser.add_subparsers(dest="job", required=True, metavar="JOB")
    # Common arguments may stand before or after the job's name.
    _add_common_arguments(parser)
    given = sys.argv[1:] if arguments is None else arguments
    for name, (_, text) in JOBS.items():
        command = jobs.add_parser(name, help=text)
        if name in given:
            _add_common_arguments(command)
            job_of(name).add_arguments(command)
    options = parser.parse_args(given)
    connection = _connection(options)
    with contextlib.ExitStack() as told:
        try:
            options.telemetry = told.enter_context(telemetry.telling(options, connection))
        except (ValueError, OSError) as error:
            print(f"mq-pipeline: {error}", file=sys.stderr)
            return 2
        status = 1
        try:
            with stopped_by_signals():
                status = _run(options, connection)
        except Stopped as stopped:  # a job that has more to say about it does so itself
            print(f"mq-pipeline: stopped by {stopped}", file=sys.stderr)
            status = stopped.exit_code
        except SystemExit as ended:
            status = ended.code if isinstance(ended.code, int) else 1
            raise
        finally:
            options.telemetry.end(status)
        return status


def _run(options: argparse.Namespace, connection: Mapping[str, str]) -> int:
    """Runs the job, up to TRIES times if Spark could not start a Python worker in its 10 s because the machine is busy:
    it goes on from where it was. A job that empties tables runs once: what it had read may be gone."""
    empties = getattr(options, "full_refresh_all", False) or getattr(options, "full_refresh", [])
    for left in reversed(range(1 if empties else TRIES)):
        try:
            return job_of(options.job).run(options, options.master, connection)
        except (PySparkException, PipelineError, ProjectError, BrokerError, OptionError, FieldError) as error:
            told = f"{error}\n{error.said}" if isinstance(error, PipelineError) else str(error)
            if left and any(said in told for said in NOT_STARTED):
                print("mq-pipeline: Spark could not start a Python worker in 10 s; trying again", file=sys.stderr)
                continue
            said = failure.told(told) if isinstance(error, PySparkException) else str(error)
            print(f"mq-pipeline: {said}", file=sys.stderr)
            return 1
        except ConnectionError:  # of a JVM that has gone: no words of its own
            raise
        except OSError as error:  # a directory that cannot be written, a full disk
            print(f"mq-pipeline: {error}", file=sys.stderr)
            return 1
    raise AssertionError("the last one returns")


def _connection(options: argparse.Namespace) -> dict[str, str]:
    files = dict(zip((*TLS, "tokenFile"), (options.ca, options.cert, options.key, options.token_file), strict=True))
    return {"brokers": options.brokers or DEFAULT_BROKERS} | {name: path for name, path in files.items() if path}


def _niceness(text: str) -> int:
    if not text.isdecimal() or int(text) > 19:
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 0 to 19")
    return int(text)


def _add_common_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("--master", default=argparse.SUPPRESS, help="where Spark runs (default: local[*])")
    nice = f"with a local master: stand back behind other programs by so much, as nice(1) (default: {NICENESS})"
    command.add_argument("--nice", default=argparse.SUPPRESS, metavar="N", type=_niceness, help=nice)
    brokers = "the brokers' http listeners (default: 127.0.0.1:4180)"
    command.add_argument("--brokers", default=argparse.SUPPRESS, metavar="[https://]HOST:PORT,...", help=brokers)
    for name, what in (("ca", "authorities to believe (https)"), ("cert", "a certificate to show"), ("key", "its key")):
        command.add_argument(f"--{name}", default=argparse.SUPPRESS, metavar="FILE", help=what)
    telemetry.add_arguments(command)
    token = f"a file with our token (default: ${TOKEN_IN_ENVIRONMENT} is the token)"
    command.add_argument("--token-file", default=argparse.SUPPRESS, metavar="FILE", help=token)


if __name__ == "__main__":
    sys.exit(main())
