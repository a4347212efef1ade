"""A message that came through any protocol is not too large for who reads it and publishes it again."""

from __future__ import annotations

from pathlib import Path

import pytest
from mq_shards.acceptor.option_kinds import MAX_BODY
from mq_shards.gateway import services

from tests.nsq.servers import HOST
from tests.pulsar.wire import Wire
from tests.reader.broker import section, started
from tests.servers import free_port, wait_until


def test_what_pulsar_takes_can_be_staged_and_published_again(tmp_path: Path) -> None:
    port, body = free_port(), b"x" * (5 << 20)
    with started(tmp_path, f"--listen=pulsar://{HOST}:{port}") as broker, Wire(port) as wire:
        wire.connect().producer("large")
        wire.send(body)
        wire.expect("send_receipt")
        again = section("again", body)
        assert broker.stage("s", 0, again).json == {"bytes": len(again)}
        assert broker.decide("w", 0, {"s": len(again)}).status in (200, 202)
        wait_until(lambda: broker.state("w") == "published", "the batch is published")
        assert broker.publish(("again", body)).status == 200
        assert [sent.body for sent in broker.read_all("again")] == [body] * 2


@pytest.mark.parametrize(
    ("given", "most"),
    [
        ({}, 5 << 20),
        ({"nsq": {"max-msg-size": 7 << 20}}, 7 << 20),
        ({"beanstalk": {"max-job-size": 6 << 20}}, 6 << 20),
        ({"nats": {"max-payload": 8 << 20}}, 8 << 20),
        ({"nats": {"max-payload": -1}}, MAX_BODY),
        ({"pulsar": {"max-message-size": 1}}, 1 << 20),
    ],
)
def test_the_largest_message_is_that_of_the_protocol_with_the_largest(
    given: dict[str, dict[str, int]], most: int
) -> None:
    settings = {
        "beanstalk": {"max-job-size": 65535},
        "nats": {"max-payload": 1 << 20},
        "nsq": {"max-msg-size": 1 << 20, "max-body-size": 5 << 20, "msg-timeout": 1},
        "pulsar": {"max-message-size": 5 << 20},
    }
    assert services.terms(settings | given | {"nsq": settings["nsq"] | given.get("nsq", {})}).max_message_bytes == most
