"""The bare server, which benchmarks take as their limit, does the whole of the work that it is measured with."""

from __future__ import annotations

import socket
import subprocess

import pytest

from perf import load
from perf.bare import PROGRAM, Bare
from perf.beanstalk import generator as beanstalk_generator
from perf.beanstalk.wire import WIRE as BEANSTALK
from perf.brokers import DISK, Broker
from perf.nats.wire import WIRE as NATS
from perf.nsq import generator as nsq_generator
from perf.nsq.wire import WIRE as NSQ


@pytest.mark.parametrize(
    "arguments",
    [
        ("--producers", "5", "--consumers", "4", "--depth", "32"),
        ("--producers", "1", "--consumers", "1", "--depth", "1", "--max-ready", "1"),
        ("--producers", "2", "--consumers", "3", "--body", "65535"),
    ],
    ids=" ".join,
)
def test_every_job_is_put_reserved_and_deleted_once(arguments: tuple[str, ...]) -> None:
    with Broker(Bare(BEANSTALK), DISK) as server:
        jobs = 2003 if {"65535", "1"} & {*arguments} else 20003  # those that wait for each other take longer
        result = beanstalk_generator.run(server.port, (*arguments, "--jobs", f"{jobs}"), server.pids())
        server.wait_until_served()
    assert (result.jobs, result.puts, result.reserves, result.deletes) == (jobs, jobs, jobs, jobs)
    assert result.server_cpu_us_per_job is not None and result.server_cpu_us_per_job > 0


@pytest.mark.parametrize(
    ("arguments", "channels"),
    [
        (("--producers", "5", "--consumers", "4", "--depth", "32"), 1),
        (("--producers", "1", "--consumers", "1", "--depth", "1", "--max-ready", "1", "--rdy", "1"), 1),
        (("--producers", "3", "--consumers", "8", "--channels", "4", "--batch", "7", "--max-ready", "100"), 4),
        (("--producers", "2", "--consumers", "2", "--body", "65535"), 1),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else str(value),
)
def test_every_message_is_published_and_delivered_to_each_channel_once(
    arguments: tuple[str, ...], channels: int
) -> None:
    with Broker(Bare(NSQ), DISK) as server:
        messages = 2100 if {"65535", "1"} & {*arguments} else 21000
        result = nsq_generator.run(server.port, (*arguments, "--messages", f"{messages}"), server.pids())
    assert (result.published, result.finished, result.redelivered) == (messages, messages * channels, 0)


def test_a_backlog_waits_for_its_channel() -> None:
    with Broker(Bare(NSQ), DISK) as server:
        fill = ("--mode", "publish", "--batch", "100", "--channels", "1")
        nsq_generator.run(server.port, (*fill, "--messages", "50000"))
        result = nsq_generator.run(server.port, ("--mode", "consume", "--consumers", "2", "--messages", "50000"))
    assert result.finished == 50000


def test_a_published_payload_comes_to_every_subscriber_of_its_subject() -> None:
    with Broker(Bare(NATS), DISK) as server:

        def client(greeting: bytes) -> socket.socket:
            connection = socket.create_connection(("127.0.0.1", server.port), timeout=60)
            with connection.makefile("rb") as stream:
                assert stream.readline().startswith(b"INFO {")
                connection.sendall(b"CONNECT {}\r\n" + greeting + b"PING\r\n")
                assert stream.readline() == b"PONG\r\n"
            return connection

        with client(b"SUB news 7\r\nSUB other 8\r\n") as one, client(b"SUB news 9\r\n") as two, client(b"") as sender:
            sender.sendall(b"PUB news 5\r\nhel")
            sender.sendall(b"lo\r\nPUB none 1\r\nx\r\nPUB other 0\r\n\r\n")
            expected_one = b"MSG news 7 5\r\nhello\r\nMSG other 8 0\r\n\r\n"
            assert one.recv(len(expected_one), socket.MSG_WAITALL) == expected_one
            expected_two = b"MSG news 9 5\r\nhello\r\n"
            assert two.recv(len(expected_two), socket.MSG_WAITALL) == expected_two
        two = client(b"")  # who left is forgotten
        two.sendall(b"PUB news 1\r\nx\r\nPING\r\n")
        assert two.recv(6, socket.MSG_WAITALL) == b"PONG\r\n"
        two.close()


def test_a_port_that_is_taken_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = subprocess.run([str(load.build(PROGRAM)), "nsq", str(port)], capture_output=True, text=True, timeout=10)
    assert done.returncode == 1 and str(port) in done.stderr
