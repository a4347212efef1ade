"""Tells the supervisor, before a start, whether NATS listeners authenticate clients, and whether NATS reaches topics
that other protocols share."""

from __future__ import annotations

import orjson
from mq_shards.acceptor.protocol import Protocol, Settings


class Guarding(Protocol):
    has_logins = True

    @classmethod
    def is_guarded(cls, settings: Settings, content: bytes) -> bool:
        found = orjson.loads(content) if content else {}
        return bool(settings["user"] or settings["token"] or found.get("who", {}).get("users") or found.get("operator"))

    @classmethod
    def leads_to_topics(cls, settings: Settings) -> bool:
        return bool(settings["topics"])
