"""POST /v1/publish: messages for many topics in one request. Nothing is remembered of it: a repeated request publishes
them again.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import Executor
from typing import Final

from mq_shards.acceptor.access.rights import PUBLISH
from mq_shards.gateway.access import check
from mq_shards.gateway.broker import Broker, BrokerError, DiskError, DrainingError
from mq_shards.gateway.byte_window import ByteWindow
from mq_shards.gateway.http_answers import Answer, HttpError, json_answer
from mq_shards.gateway.http_bodies import Bodies
from mq_shards.gateway.http_handling import MAX_BODY_BYTES, Handler
from mq_shards.gateway.http_server import Request
from mq_shards.gateway.names import exact
from mq_shards.gateway.part import PrepareTopic
from mq_shards.gateway.pipeline import message_sections
from mq_shards.gateway.pipeline.message_sections import Section, SectionsError
from mq_shards.gateway.workers import WorkersError

MAX_TOPICS: Final = 1024  # in one body
WINDOW_BYTES: Final = 24 << 20  # of messages in flight to workers
AT_ONCE_BYTES: Final = 64 << 10  # the largest body that is checked in the event loop; larger ones in a thread


class HttpPublish:
    def __init__(
        self, broker: Broker, prepare_topic: PrepareTopic, max_message_bytes: int, bodies: Bodies, threads: Executor
    ) -> None:
        """`prepare_topic` is called before the first message for a topic whose name NSQ allows."""
        self._broker = broker
        self._prepare_topic = prepare_topic
        self._max_message_bytes = max_message_bytes
        self._bodies = bodies
        self._threads = threads
        self._window = ByteWindow(WINDOW_BYTES)
        self.routes: Final[dict[str, dict[str, Handler]]] = {"/v1/publish": {"POST": self._publish}}

    async def _publish(self, request: Request, fields: dict[str, str]) -> Answer:
        async with self._bodies.read_whole(request, MAX_BODY_BYTES) as body:
            loop = asyncio.get_running_loop()
            try:
                if len(body) <= AT_ONCE_BYTES:
                    topics = _by_topic(body, self._max_message_bytes)
                else:
                    topics = await loop.run_in_executor(self._threads, _by_topic, body, self._max_message_bytes)
            except SectionsError as error:
                raise HttpError(400, str(error)) from None
            for name in topics:
                check(request, PUBLISH, name)
            sent = (self._publish_to(name, body, sections) for name, sections in topics.items())
            done = await asyncio.gather(*sent)
        published = sum(count for count, _ in done)
        for _, refusal in done:
            if refusal is not None:
                raise HttpError(503, refusal, more={"published": published})
        return json_answer({"published": published})

    async def _publish_to(self, topic: str, body: bytes, sections: list[Section]) -> tuple[int, str | None]:
        """Publishes to one topic. Returns how many messages are in the log for certain, and what went wrong."""
        published = 0
        try:
            await self._prepare_topic(topic)
            for section in sections:
                size = section.end - section.data
                await self._window.take(size)
                try:
                    await self._broker.publish_many(
                        exact(topic), section.messages, body[section.data : section.end],
                        has_headers=section.has_headers, delay_ns=section.delay_ns, priority=section.priority,
                    )  # fmt: skip
                finally:
                    self._window.give(size)
                published += section.messages
        except DrainingError:
            return published, "the broker takes no new messages until it is started again"
        except DiskError as error:
            return published, str(error)
        except (BrokerError, WorkersError) as error:
            return published, f"topic {topic}: {error}"
        return published, None


def _by_topic(body: bytes, max_message_bytes: int) -> dict[str, list[Section]]:
    topics: dict[str, list[Section]] = {}
    for section in message_sections.check(body, max_message_bytes):
        topics.setdefault(section.topic, []).append(section)
        if len(topics) > MAX_TOPICS:
            raise SectionsError(f"more than {MAX_TOPICS} topics in one body")
    return topics
