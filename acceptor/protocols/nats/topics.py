"""The options of section nats about subjects whose messages are stored in topics: see nats_topics.c."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from mq_shards.acceptor.engine import Engine
from mq_shards.acceptor.option_kinds import Kind, Text, TextList


def is_pattern(text: str) -> bool:
    """
    >>> [is_pattern(text) for text in ("events.>", "jobs.*", "a.b", "a..b", ">.a", "")]
    [True, True, True, False, False, False]
    """
    tokens = text.split(".")
    return all(tokens) and ">" not in tokens[:-1] and not any(c.isspace() for c in text)


OPTIONS: Final[Mapping[str, Kind]] = {
    "topics": TextList("subjects whose messages are kept in topics of the same names", "a subject", is_pattern),
    "topics-queue": Text(
        "", "of the servers of a cluster that say the same name one keeps each message", "without blanks",
        lambda text: not any(c.isspace() for c in text), "each keeps all",
    ),
}  # fmt: skip


def bind(engine: Engine, protocol: int, settings: Mapping[str, Any]) -> None:
    lines = [settings["topics-queue"], *settings["topics"]]
    engine.ask(protocol, "bind-topics", data="".join(f"{line}\n" for line in lines).encode())
