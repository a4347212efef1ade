"""Starts a broker in a directory that goes at the end, publishes events through beanstalkd's and NSQ's protocols, runs
the declarative project, publishes more while it goes on, shows its tables, checks the counts, and makes a report.

The events are made up. Nothing of it stays, but for the report if --keep names a directory for it.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet as pq
from mq_shards.pipeline.demo.events import Batch, orders, readings
from mq_shards.pipeline.demo.publishers import publish_messages, put_jobs
from mq_shards.pipeline.stopping import Stopped, signals_held, stopped_by_signals

SEED: Final = 20_000
START_S: Final = 30.0
STOP_S: Final = 20.0
CHANNEL: Final = "billing"
# The optimizing compiler is of no use to a JVM that lives for half a minute. With the usual sizes it would collect all
# garbage whenever some more classes are loaded, and clear out compiled code that is needed again.
JAVA_OPTIONS: Final = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:MetaspaceSize=400m -XX:ReservedCodeCacheSize=256m -Xmn300m "
    "-Xlog:disable -Xlog:all=error:stderr"
)
# Few rows repay neither planning twice nor compiling code for them.
SETTINGS: Final = {
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
}
# All runs are of one JVM, so the catalog need not persist: Hive's would take it seconds to make.
OF_RUN: Final = {
    "spark.sql.catalogImplementation": "in-memory",
    "spark.mqshards.catalog": "own",
}
RUNS: Final = 4


@dataclass(frozen=True)
class Ports:
    beanstalk: int
    nsq: int
    nsq_http: int
    http: int

    def listeners(self) -> list[str]:
        pairs = (
            ("beanstalk", self.beanstalk), ("nsq", self.nsq), ("nsq-http", self.nsq_http), ("http", self.http),
        )  # fmt: skip
        return [f"--listen={protocol}://127.0.0.1:{port}" for protocol, port in pairs]


def main() -> int:
    parser = argparse.ArgumentParser(prog="make pipeline-demo", description=__doc__)
    parser.add_argument("--master", default="local[*]", help="where Spark runs (default: local[*])")
    parser.add_argument("--events", metavar="N", type=int, default=5000, help="of each kind and run (default: 5000)")
    parser.add_argument("--keep", metavar="DIR", type=Path, help="keep the report there")
    options = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="pipeline-demo-") as name, stopped_by_signals():
        try:
            problems = _demo(Path(name), options)
        except Stopped as stopped:
            print(f"stopped by {stopped}", flush=True)
            return stopped.exit_code
    for problem in problems:
        print(f"pipeline-demo: {problem}", file=sys.stderr)
    _say(f"{'failed' if problems else 'done'} in {time.monotonic() - began:.0f} s; nothing is left running")
    return 1 if problems else 0


def _demo(directory: Path, options: argparse.Namespace) -> list[str]:
    ports = Ports(*free_ports(4))
    quality = directory / "project" / "warehouse" / "topic_quality"
    _say("starting a broker: beanstalkd's protocol, NSQ's, and HTTP for Spark")
    with broker_in(directory / "data", ports):
        _post(ports.nsq_http, "/topic/create?topic=orders")
        _post(ports.nsq_http, f"/channel/create?topic=orders&channel={CHANNEL}")
        published: dict[str, list[Batch]] = {"orders": [], "readings": []}
        publish(ports, SEED, options.events, published)
        _say("mq-pipeline run --continuous")
        run = ["run", "--dir", str(directory / "project"), "--topics", "orders,readings", "--continuous"]
        run += ["--every", "1", "--show", "--format", "orders|readings=json"]
        run += [word for pair in (SETTINGS | OF_RUN).items() for word in ("--conf", "=".join(pair))]
        report = ["report", "--to", str(directory / "report"), "--nsq-http", f"127.0.0.1:{ports.nsq_http}"]
        report += ["--beanstalk", f"127.0.0.1:{ports.beanstalk}"]
        with _jobs(ports, options.master, run, report) as jobs:
            _await_run(jobs)
            publish(ports, SEED + 1, options.events, published)
            _say("it takes up what is new")
            for _ in range(RUNS):  # a run may begin while messages are being published
                _await_run(jobs)
                if not (problems := differences(quality, published)):
                    break
            if problems:
                return problems
            jobs.send_signal(signal.SIGINT)
            _say("mq-pipeline report")
            assert jobs.stdout is not None
            for line in jobs.stdout:
                print(line, end="", flush=True)
            if jobs.wait() != 0:
                raise RuntimeError(f"mq-pipeline report ended with {jobs.returncode}")
        if options.keep is not None:
            shutil.copytree(directory / "report", options.keep, dirs_exist_ok=True)
            print(f"the report is in {options.keep}")
        return []


def publish(ports: Ports, seed: int, count: int, published: dict[str, list[Batch]]) -> None:
    shop, stores = orders(seed, count, time.time()), readings(seed + 1000, count, time.time())
    publish_messages(ports.nsq, "orders", shop.bodies)
    put_jobs(ports.beanstalk, "readings", stores.bodies)
    for topic, way, batch in (("orders", "NSQ's MPUB", shop), ("readings", "beanstalkd's put", stores)):
        published[topic].append(batch)
        print(f"{topic}: {len(batch.bodies)} messages through {way}: {batch.distinct} events, "
              f"{batch.duplicates} duplicates, {batch.bad} bad", flush=True)  # fmt: skip


def differences(table: Path, published: dict[str, list[Batch]]) -> list[str]:
    """Returns the differences between the tables and what was published."""
    found = {row["topic"]: row for row in pq.read_table(table).to_pylist()}
    problems = []
    for topic, batches in published.items():
        expected = {
            "topic": topic,
            "read": sum(len(batch.bodies) for batch in batches),
            "kept": sum(batch.distinct for batch in batches),
            "duplicates": sum(batch.duplicates for batch in batches),
            "bad": sum(batch.bad for batch in batches),
        }
        if found.get(topic) != expected:
            problems.append(f"{topic}: {found.get(topic)} instead of {expected}")
    return problems


@contextlib.contextmanager
def broker_in(data_dir: Path, ports: Ports) -> Iterator[None]:
    command = [sys.executable, "-m", "mq_shards.supervisor.command", "--workers", "1", "--data-dir", str(data_dir)]
    with _process([*command, *ports.listeners()], stderr=subprocess.DEVNULL) as broker:
        _wait(broker, ports)
        yield


def _wait(broker: subprocess.Popen[bytes], ports: Ports) -> None:
    give_up = time.monotonic() + START_S
    while broker.poll() is None and time.monotonic() < give_up:
        with contextlib.suppress(OSError, http.client.HTTPException):
            connection = http.client.HTTPConnection("127.0.0.1", ports.http, timeout=1)
            connection.request("GET", "/v1/topics")
            if connection.getresponse().status == 200:
                return
        time.sleep(0.05)
    raise RuntimeError("the broker does not start")


@contextlib.contextmanager
def _jobs(ports: Ports, master: str, *jobs: list[str]) -> Iterator[subprocess.Popen[Any]]:
    common = ["--master", master, "--nice", "0", "--brokers", f"127.0.0.1:{ports.http}"]
    command = [sys.executable, "-W", "ignore", "-m", "mq_shards.pipeline.demo.jobs"]
    command.append(json.dumps([[*common, *job] for job in jobs]))
    java = f"{JAVA_OPTIONS} {os.environ.get('SPARK_SUBMIT_OPTS', '')}"
    # For the report, too, which takes no settings.
    settings = " ".join(f"--conf {name}={value}" for name, value in SETTINGS.items())
    environment = {**os.environ, "SPARK_SUBMIT_OPTS": java, "PYSPARK_SUBMIT_ARGS": f"{settings} pyspark-shell"}
    with _process(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        yield process


def _await_run(job: subprocess.Popen[str]) -> None:
    """Prints what the job prints, until one of its runs is complete."""
    assert job.stdout is not None
    for line in job.stdout:
        print(line, end="", flush=True)
        if line.startswith("run complete"):
            return
    raise RuntimeError(f"mq-pipeline run ended with {job.wait()}")


@contextlib.contextmanager
def _process(command: list[str], **how: Any) -> Iterator[subprocess.Popen[bytes]]:  # noqa: ANN401
    """Runs a process in a session of its own: ^C reaches only the demo, which then ends the process. Signals are held
    while it starts, so that the demo always knows which process to end."""
    process = None
    try:
        with signals_held() as release:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True, preexec_fn=release,
                                       **how)  # fmt: skip
        yield process
    finally:
        if process is not None:
            _end(process)


def _end(process: subprocess.Popen[Any]) -> None:
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def _post(port: int, target: str) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=START_S)
    connection.request("POST", target)
    if (status := connection.getresponse().status) != 200:
        raise RuntimeError(f"POST {target}: {status}")
    connection.close()


def _say(text: str) -> None:
    print(f"\n=== {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
