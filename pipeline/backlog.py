"""What waits in a broker, by its own account: messages that named readers have not read, those in channels, and in
tubes.

A message counts once for each consumer that is to get it, so backlogs of different consumers do not add up.
"""

from __future__ import annotations

import http.client
import re
import socket
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import orjson
from mq_shards.pipeline.client import Address, BrokerError, Client

TIMEOUT_S: Final = 10.0
REPLY_BYTES: Final = 64 << 20
# Names that beanstalkd's protocol allows for a tube. Others, from Pulsar or NATS, could be read as a second command.
_TUBE: Final = re.compile(r"[A-Za-z0-9+/;.$_()][A-Za-z0-9+/;.$_()-]*")


@dataclass(frozen=True)
class Backlog:
    """Says that `waiting` messages of a topic wait for a `kind` of consumer (reader, channel, tube) called `name`."""

    broker: str
    topic: str
    kind: str
    name: str
    waiting: int
    in_flight: int = 0
    deferred: int = 0
    buried: int = 0


def of_readers(broker: Address) -> Iterator[Backlog]:
    """Raises BrokerError, as of_channels and of_tubes do."""
    with Client(broker, TIMEOUT_S) as client:
        for reader in client.readers():
            for topic, unread in sorted(reader.unread.items()):
                yield Backlog(str(broker), topic, "reader", reader.name, unread)


def of_channels(nsq_http: Address) -> Iterator[Backlog]:
    for topic in _get(nsq_http, "/stats?format=json")["topics"]:
        for channel in topic["channels"]:
            yield Backlog(
                str(nsq_http), topic["topic_name"], "channel", channel["channel_name"],
                # The depth does not include messages that are in flight or deferred.
                channel["depth"], channel["in_flight_count"], channel["deferred_count"],
            )  # fmt: skip


def of_tubes(beanstalk: Address, topics: Iterable[str]) -> Iterator[Backlog]:
    """Yields the backlogs of those topics that are tubes."""
    try:
        with (
            socket.create_connection((beanstalk.host, beanstalk.port), timeout=TIMEOUT_S) as connection,
            connection.makefile("rwb") as stream,
        ):
            for topic in filter(_TUBE.fullmatch, topics):
                stream.write(f"stats-tube {topic}\r\n".encode())
                stream.flush()
                status, _, size = stream.readline().decode().strip().partition(" ")
                if status == "OK":
                    yield _tube(beanstalk, topic, stream.read(int(size) + 2).decode())
    except (OSError, ValueError, KeyError) as error:
        raise BrokerError(f"beanstalkd's protocol at {beanstalk}: {error}") from error


def _tube(beanstalk: Address, topic: str, stats: str) -> Backlog:
    told = dict(line.split(": ", 1) for line in stats.splitlines() if ": " in line)
    states = ("ready", "reserved", "delayed", "buried")
    return Backlog(str(beanstalk), topic, "tube", topic, *(int(told[f"current-jobs-{state}"]) for state in states))


def _get(broker: Address, path: str) -> Any:  # noqa: ANN401
    connection = http.client.HTTPConnection(broker.host, broker.port, timeout=TIMEOUT_S)
    try:
        connection.request("GET", path, headers={"Authorization": f"Bearer {broker.token}"} if broker.token else {})
        response = connection.getresponse()
        body = response.read(REPLY_BYTES)
        if response.status != 200:
            raise BrokerError(f"broker {broker}: GET {path}: {response.status} {body[:200]!r}")
        return orjson.loads(body)
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise BrokerError(f"broker {broker}: GET {path}: {error}") from error
    finally:
        connection.close()
