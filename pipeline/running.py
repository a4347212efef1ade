"""Runs a job of mq-pipeline: tries, what is said of errors and signals, the exit status."""

from __future__ import annotations

import argparse
import contextlib
import os
import select
import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Final, Protocol, cast

from mq_shards.pipeline import failure, telemetry
from mq_shards.pipeline.client import BrokerError
from mq_shards.pipeline.fields import FieldError
from mq_shards.pipeline.options import TLS, OptionError
from mq_shards.pipeline.project import ProjectError
from mq_shards.pipeline.sink_log import local_path
from mq_shards.pipeline.spark_pipelines import PipelineError
from mq_shards.pipeline.stopping import Stopped, handlers_restored, ignore_signals, stopped_by_signals
from pyspark.errors import PySparkException

TRIES: Final = 3
# Spark's words for this error, which has no class of its own.
NOT_STARTED: Final = ("Python worker failed to connect back", "while waiting for the Python worker to connect back")
DEFAULT_BROKERS: Final = "127.0.0.1:4180"
# Jobs whose modules are called otherwise.
MODULES: Final = {name: f"{name}_command" for name in ("offsets", "staged", "writers", "readers")}
# Jobs that have done what they had to do when they print.
SHOWING: Final = frozenset({"explain", *MODULES})


class Job(Protocol):
    """The interface of a job's module."""

    def run(self, options: argparse.Namespace, master: str, connection: Mapping[str, str]) -> int:
        """`connection`: the options of source and sink that name the brokers and say how to speak to them."""


def job_of(name: str) -> Job:
    """Loads its module only now: some load all that draws plots."""
    return cast(Job, import_module(f"mq_shards.pipeline.{MODULES.get(name, name)}"))


def run_job(options: argparse.Namespace) -> int:
    """Runs the job that the options name, and tells of it what telemetry they ask for. Returns the exit status."""
    connection = _connection(options)
    with contextlib.ExitStack() as told:
        told.enter_context(handlers_restored())
        try:
            options.telemetry = told.enter_context(telemetry.telling(options, connection))
        except ValueError as error:
            print(f"mq-pipeline: {error}", file=sys.stderr)
            return 2
        status = 1
        try:
            with stopped_by_signals():
                try:
                    status = _run(options, connection)
                finally:
                    ignore_signals()
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
            status = job_of(options.job).run(options, options.master, connection)
            if sys.stdout is not None:
                sys.stdout.flush()
            return status
        except (PySparkException, PipelineError, ProjectError, BrokerError, OptionError, FieldError) as error:
            told = f"{error}\n{error.said}" if isinstance(error, PipelineError) else str(error)
            if left and any(said in told for said in NOT_STARTED):
                print("mq-pipeline: Spark could not start a Python worker in 10 s; trying again", file=sys.stderr)
                continue
            said = failure.told(told) if isinstance(error, PySparkException) else str(error)
            print(f"mq-pipeline: {said}", file=sys.stderr)
            if text := _full(options):
                print(f"mq-pipeline: {text}", file=sys.stderr)
            return 1
        except ConnectionError:
            if not _nobody_reads():  # of a JVM that has gone: no words of its own
                raise
            _write_no_more()
            if options.job in SHOWING:  # `... | head`
                return 0
            print("mq-pipeline: nobody reads what this job says any more: it has ended", file=sys.stderr)
            return 1
        except OSError as error:  # a directory that cannot be written, a full disk
            _write_no_more()
            print(f"mq-pipeline: {error}", file=sys.stderr)
            return 1
    raise AssertionError("the last one returns")


def _nobody_reads() -> bool:
    """Whether the output is a pipe or socket whose other end is closed."""
    asked = select.poll()
    asked.register(1 if sys.stdout is None else sys.stdout.fileno(), 0)
    return any(events & (select.POLLERR | select.POLLHUP) for _, events in asked.poll(0))


def _write_no_more() -> None:
    """Drops what the output does not take: Python would try it again at its end."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)


def _full(options: argparse.Namespace) -> str:
    """Says so if what the job writes to, on this machine, is full."""
    to = getattr(options, "to", None) or getattr(options, "dir", None)
    try:
        return failure.full(local_path(str(to))) if to else ""
    except (ValueError, OSError):
        return ""


def _connection(options: argparse.Namespace) -> dict[str, str]:
    files = dict(zip((*TLS, "tokenFile"), (options.ca, options.cert, options.key, options.token_file), strict=True))
    return {"brokers": options.brokers or DEFAULT_BROKERS} | {name: path for name, path in files.items() if path}
