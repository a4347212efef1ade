"""Decides whether a query can go on from its checkpoint with the brokers that there are now.

If it cannot, an error says what to do. With failOnDataLoss=false that is a warning, and the query goes on without what
is lost. No message is read twice or left out silently because another broker answers at an address.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace

from mq_shards.pipeline.client import Address
from mq_shards.pipeline.offsets import GONE, Offset
from mq_shards.pipeline.topics import Key, Stream

log = logging.getLogger(__name__)

Lost = Callable[[str], None]  # called with what is lost; raises if data loss is an error


def with_brokers(offset: Offset, brokers: Mapping[str, Address], lost: Lost) -> Offset:
    """Returns the offset for the query's present brokers. One that was left out keeps its place in it. If another came
    at the same time, the first may have lost its data directory: `lost` is called."""
    known = {key.broker for key in offset.seqs} | set(offset.addresses)
    gone = sorted(known - set(brokers) - offset.absent)
    new = sorted(set(brokers) - known)
    if gone and new:
        lost(_replaced(offset, gone, new, brokers))
        for broker in gone:
            offset = offset.without(broker)
    elif gone:
        for broker in gone:
            log.warning("broker %s is not one of the query's any more: its place is kept", offset.named(broker))
        offset = replace(offset, absent=offset.absent | set(gone))
    back = offset.absent & set(brokers)
    addresses = dict(offset.addresses) | {broker: str(address) for broker, address in brokers.items()}
    return replace(offset, absent=offset.absent - back, addresses=addresses)


def _replaced(offset: Offset, gone: list[str], new: list[str], brokers: Mapping[str, Address]) -> str:
    names = ", ".join(offset.named(broker) for broker in gone)
    instead = ", ".join(f"{broker} at {brokers[broker]}" for broker in new)
    return (
        f"brokers: the checkpoint has read from {names}, which is not there; {instead} is, of which it knows nothing. "
        "If a broker was made anew with another data directory, what had not been read of the old one is lost, and "
        "failOnDataLoss=false reads the new one from its first message on. If one was left out and another added, do "
        "it in two steps, with a micro-batch between them"
    )


def of_now(offset: Offset, streams: Mapping[Key, Stream], brokers: Mapping[str, Address]) -> Offset:
    """Returns the offset with the logs that gave out its seqs, and with its brokers' addresses. `streams`: all that
    its brokers list. A topic that they do not list may be of a shard whose log is another now, and its seq of the old
    one: it is read from its first message on when it comes."""
    logs = {
        (key.broker, stream.topic.shard): stream.topic.incarnation
        for key, stream in streams.items()
        if key in offset.seqs
    }
    anew = {place[0] for place, log in logs.items() if offset.logs.get(place, log) != log}
    unlisted = {key: GONE for key in offset.seqs if key.broker in anew and key not in streams}
    addresses = {broker: str(address) for broker, address in brokers.items()}
    return replace(
        offset,
        complete=dict(offset.complete) | unlisted,
        logs=dict(offset.logs) | logs,
        addresses=dict(offset.addresses) | addresses,
    )


def is_other_log(before: Offset, after: Offset, stream: Stream) -> bool:
    """Whether the topic's seqs in these two offsets are of different logs."""
    place = stream.key.broker, stream.topic.shard
    return before.logs.get(place, "") != after.logs.get(place, "") and place in before.logs


def begun_anew(offset: Offset, streams: Mapping[Key, Stream], lost: Lost) -> set[Key]:
    """Returns topics whose shard has another log than the offset's: their seqs were given out again."""
    found = set()
    for key, stream in streams.items():
        if key not in offset.seqs:
            continue
        before = offset.logs.get((key.broker, stream.topic.shard))
        if before is not None and before != stream.topic.incarnation:
            lost(
                f"{stream}: the log of its shard {stream.topic.shard} was lost and has been begun anew. What had not "
                f"been read before, from seq {offset.seqs[key]} on, is gone; failOnDataLoss=false reads what is there "
                "now from its first message on"
            )
            found.add(key)
    return found


def missing(offset: Offset, broker: str) -> str:
    """Says why a micro-batch that has been begun cannot be done."""
    return (
        f"brokers: a micro-batch that was begun reads from {offset.named(broker)}, which is not there. Name it until "
        "the micro-batch is done; failOnDataLoss=false does it without"
    )
