"""`mq-pipeline offsets`: shows where a streaming query is, by its checkpoint, and moves it elsewhere.

Only a query that is stopped can be moved, and what it has written stays. Moved back, it reads messages again; moved
forward, it leaves some out. Its state (windows, what deduplication has seen) does not move with it.

To show where a query is takes no broker: of one that does not answer it is only unknown how far behind the query is. To
move it takes all of them, since the place to move to is theirs.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import orjson
from mq_shards.pipeline import identity
from mq_shards.pipeline.checkpoint import Checkpoint, Position
from mq_shards.pipeline.offsets import GONE, Offset
from mq_shards.pipeline.options import (
    EARLIEST,
    LATEST,
    AtSeq,
    AtTime,
    Bound,
    OptionError,
    ReadOptions,
    names_of,
    parse_bound,
)
from mq_shards.pipeline.tables import text_table
from mq_shards.pipeline.topics import Brokers, Key, Stream, places

TIMEOUT_MS = 10_000
_ENDS = (EARLIEST, LATEST)
_COLUMNS = ("source", "topic", "broker", "next seq", "latest", "behind")


def run(options: argparse.Namespace, master: str, connection: Mapping[str, str]) -> int:
    """Needs no Spark. Raises OptionError, BrokerError."""
    del master
    checkpoint = Checkpoint(Path(options.checkpoint))
    positions = checkpoint.positions()
    if not positions:
        raise OptionError(f"{options.checkpoint}: no micro-batch that reads from mq-shards is done yet")
    connected = Brokers(ReadOptions.parse(
        {**connection, "topicPattern": ".*", "pollTimeoutMs": str(TIMEOUT_MS)}, streaming=False
    ))  # fmt: skip
    try:
        bound = _bound(options)
        silent = connected.leave_out_silent() if bound is None else {}
        for error in silent.values():
            print(f"mq-pipeline: {error}", file=sys.stderr)
        streams = connected.streams()
        meant = positions if bound is None else [_chosen(positions, options.source)]
        names = _names(options, [Offset.decode(position.offset, connected.by_id) for position in meant])
        if bound is not None:
            (position,) = meant
            moved = _moved(position, bound, names, streams, connected)
            if options.dry_run:
                with checkpoint.movable():
                    pass
                print("this is where it would be; nothing is moved", file=sys.stderr)
                positions = [replace(position, offset=moved)]
            else:
                kept = checkpoint.move(position.source, moved)
                print(f"moved; what was there is kept in {kept}", file=sys.stderr)
                positions = checkpoint.positions()
        offsets = [(position.source, Offset.decode(position.offset, connected.by_id)) for position in positions]
        for _, offset in offsets:
            _tell_missing(offset, connected.by_id, {str(address) for address in silent})
        rows = [row for source, offset in offsets for row in _rows(source, offset, names, streams)]
    finally:
        connected.close()
    if options.json:
        print(orjson.dumps([dict(zip(_COLUMNS, row, strict=True)) for row in rows]).decode())
    else:
        print(text_table(_COLUMNS, rows))
    return 1 if silent else 0


def _names(options: argparse.Namespace, offsets: Sequence[Offset]) -> frozenset[str] | None:
    """Returns which topics are meant; None: all."""
    if options.topics is not None:
        return frozenset(names_of("--topics", options.topics))
    if options.topic_pattern is None:
        return None
    matches = re.compile(options.topic_pattern).fullmatch
    found = frozenset(key.topic for offset in offsets for key in offset.seqs if matches(key.topic))
    if not found:
        raise OptionError(f"--topic-pattern: the query has no topic that matches {options.topic_pattern}")
    return found


def _bound(options: argparse.Namespace) -> Bound | None:
    """Returns where to move to, None if nowhere. With JSON by topic the other topics stay where they are."""
    found: Bound | None = None
    if options.move_to_time is not None:
        found = parse_bound("--move-to-time", options.move_to_time, AtTime)
    elif options.move_to is not None:
        found = parse_bound("--move-to", options.move_to, AtSeq)
    elif options.dry_run:
        raise OptionError("--dry-run: of what? --move-to or --move-to-time says where the query is to go on")
    said = "--topics" if options.topics is not None else "--topic-pattern" if options.topic_pattern is not None else ""
    if found is not None and found.by_topic is not None and said:
        raise OptionError(f"{said}: the JSON says already which topics are meant")
    return found


def _chosen(positions: Sequence[Position], source: int | None) -> Position:
    found = [position for position in positions if source in (None, position.source)]
    if len(found) != 1:
        numbers = ", ".join(str(position.source) for position in positions)
        raise OptionError(f"--source: which of the query's sources is meant: {numbers}?")
    return found[0]


def _moved(
    position: Position, bound: Bound, names: frozenset[str] | None, streams: Mapping[Key, Stream], brokers: Brokers
) -> dict[str, object]:
    offset = Offset.decode(position.offset, brokers.by_id)
    names = names if bound.by_topic is None else frozenset(bound.by_topic)
    named = [key for key in offset.seqs if names is None or key.topic in names]
    meant = {key: streams[key] for key in named if key in streams}
    forgotten = {key for key in named if key not in streams and key.broker in brokers.by_id}
    unknown = (names or frozenset()) - {key.topic for key in (*meant, *forgotten)}
    for key in named:
        if key.topic in unknown:
            raise OptionError(
                f"--brokers: {key.topic} is of broker {offset.named(key.broker)}, which is not among them; name it to "
                "move the query there"
            )
    if unknown:
        raise OptionError(f"the query, or its brokers, have no {', '.join(sorted(unknown))}")
    for key in forgotten:
        if names is not None and not _is_from_the_first(bound, key.topic):
            raise OptionError(
                f"--move-to: {key.topic} has no messages, its broker has forgotten it; with earliest or latest it is "
                "read from its first message on when it comes back"
            )
    others = {key: stream for key, stream in streams.items() if key not in meant}
    if anew := identity.begun_anew(offset, others, lambda _: None):
        names_too = ", ".join(sorted(key.topic for key in anew))
        raise OptionError(f"--move-to: the logs of {names_too} have been begun anew, too: move these as well, or all")
    seqs = places("--move-to", bound, meant, brokers)
    for key, seq in seqs.items():
        topic = meant[key].topic
        if not topic.earliest <= seq <= topic.latest:
            raise OptionError(f"--move-to: {meant[key]} has messages {topic.earliest} to {topic.latest - 1}, not {seq}")
    # Messages that compaction has removed from what is read again are no loss: whoever moved the query knows.
    complete = {key: place for key, place in offset.complete.items() if key not in seqs}
    complete |= {key: meant[key].topic.complete for key in seqs if seqs[key] < meant[key].topic.complete}
    complete |= {key: GONE for key in forgotten if _is_from_the_first(bound, key.topic)}
    moved = replace(offset, seqs=dict(offset.seqs) | seqs, complete=complete, begin=None)
    return identity.of_now(moved, streams, {}).encode()


def _tell_missing(offset: Offset, answered: Collection[str], silent: Collection[str]) -> None:
    """`answered`: ids of brokers; `silent`: addresses."""
    for broker in sorted({key.broker for key in offset.seqs} - set(answered)):
        if offset.addresses.get(broker) not in silent:
            print(f"broker {offset.named(broker)} is not among --brokers: its place is kept", file=sys.stderr)


def _is_from_the_first(bound: Bound, topic: str) -> bool:
    """Whether the bound is earliest or latest: a topic without messages is then read from its first one on."""
    return isinstance(bound, AtSeq) and (bound.all if bound.by_topic is None else bound.by_topic[topic]) in _ENDS


def _rows(
    source: int, offset: Offset, names: frozenset[str] | None, streams: Mapping[Key, Stream]
) -> list[tuple[object, ...]]:
    found: list[tuple[object, ...]] = []
    for key in sorted(offset.seqs):
        if names is not None and key.topic not in names:
            continue
        at = offset.addresses.get(key.broker) or key.broker
        stream, seq = streams.get(key), offset.seqs[key]
        latest = stream.topic.latest if stream else None
        behind = stream.topic.messages(seq, stream.topic.latest) if stream else None
        found.append((source, key.topic, at, seq, latest, behind))
    return found
