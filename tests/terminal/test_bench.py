"""mq-shards bench: what it measures, and that its topic does not stay, or is named."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator

import pytest

from tests.nsq.api import post, stats
from tests.nsq.servers import HOST, listening
from tests.reader.broker import Broker
from tests.reader.broker import started as broker_started
from tests.servers import wait_until
from tests.terminal.commands import objects, on_port, run, started

At = dict[str, str]
NOBODY = on_port(1)
TOPIC = r"bench\.[0-9.]+"


@pytest.fixture(scope="module")
def other() -> Iterator[Broker]:
    with broker_started(None) as other:
        yield other


def benches(broker: Broker) -> list[str]:
    """The topics of measurements that are there."""
    found = [str(topic["topic_name"]) for topic in stats(broker.server)["topics"]]
    return [name for name in found if name.startswith("bench.")]


@pytest.mark.parametrize("scheme", ["http", "beanstalk", "nsq-http"])
def test_nothing_stays_where_the_protocol_can_delete(broker: Broker, at: At, scheme: str) -> None:
    found = objects("bench", "--seconds", "0.02", at[scheme], mq=NOBODY)[0]
    assert found["published"] >= 100
    if scheme != "nsq-http":
        assert 100 <= found["consumed"] <= found["published"]
    assert benches(broker) == []


@pytest.mark.parametrize("scheme", ["nsq", "pulsar"])
def test_http_of_the_same_broker_deletes_the_topic(broker: Broker, at: At, scheme: str) -> None:
    objects("bench", "--seconds", "0.01", at[scheme], mq=on_port(broker.port))
    assert benches(broker) == []


@pytest.mark.parametrize("scheme", ["nsq", "pulsar"])
def test_a_topic_that_it_cannot_delete_is_named(broker: Broker, at: At, scheme: str, other: Broker) -> None:
    for mq, why in ((NOBODY, "cannot delete it"), (on_port(other.port), "is another broker")):
        result = run("bench", "--seconds", "0.01", at[scheme], mq=mq)
        left = re.fullmatch(rf"mq-shards: the topic ({TOPIC}) stays: .*{why}.*\n", result.stderr.decode())
        assert result.returncode == 0
        assert left is not None, result
        assert benches(broker) == [left[1]]
        post(broker.server, f"/topic/delete?topic={left[1]}")


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("scheme", ["http", "beanstalk", "nsq-http", "nsq"])
def test_nothing_stays_after_a_signal(broker: Broker, at: At, scheme: str, ending: signal.Signals) -> None:
    process = started("bench", "--seconds", "20", at[scheme], mq=on_port(broker.port))
    wait_until(lambda: bool(benches(broker)) or process.poll() is not None, "it publishes")
    process.send_signal(ending)
    out, error = process.communicate(timeout=20)
    assert (process.returncode, out, error) == (128 + ending, b"", b"")
    assert benches(broker) == []


def test_a_signal_ends_it_soon_though_the_broker_hangs() -> None:
    with broker_started(None, f"--listen=pulsar://{HOST}:0", f"--listen=nats://{HOST}:0") as hung:
        wait_until(lambda: {"pulsar", "nats"} < set(listening(hung.server)), "all are listened for")
        ports = listening(hung.server)
        processes = {
            scheme: started(
                "bench", "--seconds", "30", f"--at={scheme}://{HOST}:{ports[scheme]}", mq=on_port(hung.port)
            )
            for scheme in ("http", "beanstalk", "nsq", "nsq-http", "pulsar", "nats")
        }
        wait_until(lambda: len(benches(hung)) == 5, "all but NATS's are seen to publish")
        for pid in hung.server.pids():
            os.kill(pid, signal.SIGSTOP)
        for process in processes.values():
            process.send_signal(signal.SIGINT)
        for scheme, process in processes.items():
            out, error = process.communicate(timeout=10)
            assert (process.returncode, out) == (128 + signal.SIGINT, b""), scheme
            stays = rf"mq-shards: the topic {TOPIC} stays: .*no answer within 3 s.*\n"
            assert re.fullmatch(stays if scheme != "nats" else "", error.decode()), (scheme, error)


def test_it_ends_though_its_time_is_over_before_it_begins(broker: Broker, at: At) -> None:
    found = objects("bench", "--seconds", "0.000001", at["beanstalk"], mq=NOBODY)[0]
    assert 0 < found["consumed"] <= found["published"]


def test_it_consumes_no_longer_than_it_may(broker: Broker, at: At) -> None:
    """Over http:// thousands are published at once, and each is consumed by itself."""
    found = objects("bench", "--seconds", "0.05", at["http"], mq=NOBODY)[0]
    assert 100 <= found["consumed"] < found["published"]
