"""Figures of a topic's messages as a Pulsar broker counts them: of a batch each message, and of an entry all its bytes,
from its checksum on. What was read back at a worker's start is not counted in, as at a broker that loads a topic."""

from __future__ import annotations

from mq_shards.gateway.catalog import Topic


def messages_in(topic: Topic, *, persistent: bool = True) -> int:
    """Of a topic that is not persistent the worker counts the messages of a batch itself."""
    return topic.messages - topic.read_back + (topic.more_parts if persistent else 0)


def entries_in(topic: Topic, *, persistent: bool = True) -> int:
    return topic.messages - topic.read_back - (0 if persistent else topic.more_parts)


def bytes_in(topic: Topic) -> int:
    return topic.message_bytes - topic.read_back_bytes + topic.header_bytes


def entry_bytes(topic: Topic) -> float:
    """The mean size of an entry; 0: none is known. Of what was read back the headers have not been counted: they are
    taken to be as long as those since."""
    if not topic.messages:
        return 0.0
    since = topic.messages - topic.read_back
    return topic.message_bytes / topic.messages + (topic.header_bytes / since if since else 0.0)
