"""The options with which Spark writes into topics. Those that Spark's Kafka sink has keep their names and meanings."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from mq_shards.pipeline.client import Address
from mq_shards.pipeline.options import (
    DEFAULT_TIMEOUT_MS,
    TLS,
    TOKEN,
    OptionError,
    check_known,
    parse_brokers,
    parse_positive,
)

MAX_BATCH: Final = (1 << 63) - 1
_WRITER: Final = re.compile(r"[A-Za-z0-9_:-][A-Za-z0-9._:-]{0,199}")


_OPTIONS: Final = ("brokers", "topic", "writer", "batch", "pollTimeoutMs", *TLS, *TOKEN)
# Options of a streaming query that are Spark's own, and that it passes on.
_OF_SPARK: Final = ("checkpointlocation", "queryname", "asyncprogresstrackingenabled",
                    "asyncprogresstrackingcheckpointintervalms", "outputmode")  # fmt: skip


@dataclass(frozen=True)
class WriteOptions:
    brokers: tuple[Address, ...]  # sorted: a topic's broker does not depend on the order in which they are given
    topic: str | None
    writer: str | None
    batch: int | None
    timeout_s: float

    @staticmethod
    def parse(options: Mapping[str, str], *, streaming: bool) -> WriteOptions:
        """Ignores the case of names. Raises OptionError."""
        given = {name.lower(): value for name, value in options.items()}
        check_known([name for name in options if name.lower() not in _OF_SPARK], _OPTIONS)
        writer = given.get("writer") or None
        if writer is not None and _WRITER.fullmatch(writer) is None:
            raise OptionError(f"writer: {writer!r} is not 1 to 200 letters, digits, _ - : and . (but no . first)")
        batch = _batch(given)
        if streaming and batch is not None:
            raise OptionError("batch: a stream numbers its micro-batches itself")
        if not streaming and (writer is None) != (batch is None):
            raise OptionError("writer and batch: both are wanted, or neither")
        return WriteOptions(
            brokers=tuple(sorted(parse_brokers(given))),
            topic=_topic(given),
            writer=writer,
            batch=batch,
            timeout_s=(parse_positive(given, "pollTimeoutMs") or DEFAULT_TIMEOUT_MS) / 1000,
        )


def _topic(given: Mapping[str, str]) -> str | None:
    if (text := given.get("topic")) is None:
        return None
    if not (topic := text.strip()):
        raise OptionError("topic: it is empty")
    return topic


def _batch(given: Mapping[str, str]) -> int | None:
    if (text := given.get("batch")) is None:
        return None
    if not text.strip().isdecimal() or int(text) > MAX_BATCH:
        raise OptionError(f"batch: {text!r} is no number from 0 to {MAX_BATCH}")
    return int(text)
