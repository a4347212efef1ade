"""Publishes the rows that tasks have staged: the driver does so once all have, and each writer's batch once."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from mq_shards.pipeline.client import CONFLICT, FAILED, PUBLISHED, Address, BrokerError, Client, WriterState
from mq_shards.pipeline.staging import DROP_S, Staged, drop

PAUSE_S: Final = 0.1  # least pause between two requests

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Batch:
    """`once`: the writer has no other batch. `must_follow`: it is the writer's last batch, or comes after it."""

    writer: str
    number: int
    once: bool = False
    must_follow: bool = False


def publish(batch: Batch, brokers: Sequence[Address], staged: Sequence[Staged], timeout_s: float) -> None:
    """Publishes at each broker what is staged there, in this order. Raises BrokerError."""
    for broker in brokers:
        here = [part for part in staged if part.broker == broker]
        identities = {part.identity for part in here}
        if len(identities) > 1:
            raise BrokerError(f"broker {broker}: another took its place meanwhile; nothing is published there")
        with Client(broker, timeout_s, "".join(identities)) as client:
            _publish_at(client, batch, here, timeout_s)


def abandon(staged: Sequence[Staged]) -> None:
    for broker in {part.broker for part in staged}:
        drop(broker, [part.name for part in staged if part.broker == broker])


def _publish_at(client: Client, batch: Batch, staged: Sequence[Staged], timeout_s: float) -> None:
    before = None if batch.once else client.writer(batch.writer)
    if before is not None and before.state == FAILED and before.batch == batch.number:
        raise _failed(client, batch, before)
    if before is not None and before.batch >= batch.number:
        if batch.must_follow and before.batch > batch.number:
            raise BrokerError(
                f"broker {client.address}: writer {batch.writer} has published batch {before.batch} already, and this "
                f"is batch {batch.number}: another query writes under its name, or this one began anew; "
                "give it another name with the option writer"
            )
        log.warning(
            "broker %s: writer %s has published batch %d before: nothing of batch %d is published now",
            client.address, batch.writer, before.batch, batch.number,
        )  # fmt: skip
        before_this = True
    else:
        before_this = False
    state = _settle(client, batch, [(part.name, part.bytes) for part in staged], timeout_s)
    messages = sum(part.messages for part in staged)
    if not before_this and (state.batch, state.messages) != (batch.number, messages):
        raise BrokerError(
            f"broker {client.address}: writer {batch.writer} has published batch {state.batch} of {state.messages} "
            f"messages, not batch {batch.number} of {messages}: another job writes under its name"
        )
    if batch.once:
        _forget(client.address, batch.writer)


def _settle(client: Client, batch: Batch, staged: Sequence[tuple[str, int]], timeout_s: float) -> WriterState:
    """Waits until the batch is published; gives up when the broker has reported an error for `timeout_s`."""
    give_up = time.monotonic() + timeout_s
    while True:
        state = _asked(client, batch, staged)
        if state.batch > batch.number or (state.batch == batch.number and state.state == PUBLISHED):
            return state
        if not state.error:
            give_up = time.monotonic() + timeout_s
        elif time.monotonic() > give_up:
            raise BrokerError(
                f"broker {client.address}: batch {batch.number} of writer {batch.writer} does not get on, and may be "
                f"published later: {state.error}"
            )
        time.sleep(PAUSE_S)


def _asked(client: Client, batch: Batch, staged: Sequence[tuple[str, int]]) -> WriterState:
    try:
        return client.publish(batch.writer, batch.number, staged, once=batch.once)
    except BrokerError as error:
        state = client.writer(batch.writer) if error.status == CONFLICT else None
        if state is None or (state.batch, state.state) != (batch.number, FAILED):
            raise
        raise _failed(client, batch, state) from error


def _failed(client: Client, batch: Batch, state: WriterState) -> BrokerError:
    instead = (
        "run the job again"
        if batch.once
        else f"to publish it anew, all of it, end the writer (DELETE /v1/writers/{batch.writer}) or give another with "
        "the option writer"
    )
    return BrokerError(
        f"broker {client.address}: batch {batch.number} of writer {batch.writer} can never be published whole, some "
        f"of it may be there: {state.error}; {instead}",
        CONFLICT,
    )


def _forget(broker: Address, writer: str) -> None:
    """Deletes a writer: brokers forget it by themselves, but there may be many in an hour."""
    with contextlib.suppress(BrokerError), Client(broker, DROP_S) as client:
        client.delete_writer(writer)
