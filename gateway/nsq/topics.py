"""Which topics NSQ's clients see."""

from __future__ import annotations

from mq_shards.gateway.broker import Broker
from mq_shards.gateway.catalog import DURABLE, Topic
from mq_shards.gateway.nsq.names import is_valid_name
from mq_shards.gateway.turns import in_pieces


def is_visible(topic: Topic) -> bool:
    """Whether NSQ's clients see it. They do not see a beanstalk tube that nothing was ever put into."""
    exists = topic.flags & DURABLE or topic.channels or topic.depth or topic.jobs
    return bool(exists) and is_valid_name(topic.name)


async def visible_topics(broker: Broker, consumers: bool = False) -> tuple[list[Topic], list[str]]:
    """The topics that NSQ's clients may see, sorted by name; and workers, by title, whose topics are missing."""
    topics, silent = await broker.topics(consumers)
    return [found async for piece in in_pieces(topics) for found in piece if is_visible(found)], silent
