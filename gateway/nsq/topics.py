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


async def visible_topics(broker: Broker, topic: str = "", consumers: bool = False) -> list[Topic]:
    """The topics that NSQ's clients may see, or only `topic`, sorted by name. Raises WorkersError."""
    topics = await broker.topics(topic, consumers)
    return [found async for piece in in_pieces(topics) for found in piece if is_visible(found)]
