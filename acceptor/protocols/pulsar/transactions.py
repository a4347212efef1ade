"""Commands about transactions: clients' requests to the coordinator, which is in the gateway
(gateway/pulsar/transactions.py), and acknowledgements in a transaction, which workers handle. SENDs in a transaction
are handled in C."""

from __future__ import annotations

import struct
from collections import deque
from typing import Any, Final, NamedTuple

from mq_shards.acceptor import engine
from mq_shards.acceptor.engine import Answer
from mq_shards.acceptor.protocols.pulsar.catalog import Catalog, Fields, GatewayDownError, Heard
from mq_shards.acceptor.protocols.pulsar.clients import (
    MAX_IDS,
    NOT_ALLOWED,
    SERVICE_NOT_READY,
    TOO_MUCH_AT_ONCE,
    Client,
    Consumer,
    Desk,
    PulsarError,
    Request,
)
from mq_shards.acceptor.protocols.pulsar.names import ASSIGN, COORDINATORS, MAX_PARTICIPANTS, TOO_MANY_PARTICIPANTS
from mq_shards.csrc._core import lib
from mq_shards.ringbuf.time_units import SECOND_NS

COORDINATOR_NOT_FOUND: Final = 20
TRANSACTION_CONFLICT: Final = 23
TRANSACTION_NOT_FOUND: Final = 24
COMMIT: Final = 0  # TxnAction
CUMULATIVE: Final = 1  # AckType
# A gateway that died is back soon, and it answers an end only when all workers have done it. Clients wait 30 s.
TIMEOUT_NS: Final = 20 * SECOND_NS
_CONFLICT: Final = "org.apache.pulsar.transaction.common.exception.TransactionConflictException"
MAX_UNENDED: Final = 1000  # transactions of a connection whose end was not answered


def _code(error: PulsarError) -> int:
    """The ServerError; if the gateway did not answer, one that makes clients ask again."""
    return COORDINATOR_NOT_FOUND if isinstance(error, GatewayDownError) else error.code


class _Wanted(NamedTuple):
    """A message to be acknowledged. `bits`: the parts of a batch that are left; `upto`: with all messages before."""

    seq: int
    bits: bytes = b""
    upto: bool = False


def _conflict(request: Request, consumer: Consumer, wanted: _Wanted, answer: Answer) -> str:
    """The words of a real broker."""
    where = f"[{consumer.topic}][{consumer.subscription}] Transaction:(0,{request.body.txnid_least_bits})"
    place = f"{consumer.ledger}:{wanted.seq}"
    if wanted.upto and answer.status == engine.NONE:
        now = f"{consumer.ledger}:{answer.seq}"
        why = f"try to cumulative ack position: {place} within range of cursor's markDeletePosition: {now}"
    elif wanted.upto and answer.status == engine.FULL:
        # One that is still under way has no position yet.
        now = f"{consumer.ledger}:{-1 if answer.seq == lib.NO_PLACE else answer.seq}"
        why = f"try to cumulative batch ack position: {place} within range of current currentPosition: {now}"
    else:
        state = "already acked before." if answer.status == engine.NONE else "in pending ack status."
        words = [word for (word,) in struct.iter_unpack("=q", wanted.bits)]
        why = f"try to ack message:{place} (ackSet is {words or 'null'}) {state}"
    return f"{_CONFLICT}: {where} {why}"


class Transactions:
    def __init__(self, desk: Desk, catalog: Catalog) -> None:
        self._desk = desk
        self._catalog = catalog

    # --- the coordinator --------------------------------------------------------------------------------------------

    def connect(self, request: Request) -> None:
        if request.body.tc_id < COORDINATORS:
            request.reply("tcClientConnectResponse")
        else:
            why = f"{ASSIGN}-partition-{request.body.tc_id} is not served by this broker"
            request.reply("tcClientConnectResponse", error=SERVICE_NOT_READY, message=why)

    def begin(self, request: Request) -> None:
        body = request.body

        def heard(found: Fields | PulsarError) -> None:
            if isinstance(found, PulsarError):
                request.reply("newTxnResponse", error=_code(found), message=str(found), txnid_most_bits=0)
            else:
                request.reply("newTxnResponse", txnid_least_bits=found["id"], txnid_most_bits=0)

        if body.tc_id >= COORDINATORS:
            why = f"Transaction coordinator with id {body.tc_id} not found!"
            request.reply("newTxnResponse", txnid_most_bits=body.tc_id, error=COORDINATOR_NOT_FOUND, message=why)
            return
        # txn_ttl_seconds is in milliseconds, despite its name.
        owner = request.client.role
        self._catalog.ask("txn-begin", heard, timeout_ns=TIMEOUT_NS, timeout_ms=body.txn_ttl_seconds, owner=owner)

    def add_partitions(self, request: Request) -> None:
        topics = request.body.partitions
        if not self._are_too_many(request, "addPartitionToTxnResponse", len(topics)):
            self._about(request, "addPartitionToTxnResponse", "txn-add", topics=list(topics))

    def add_subscriptions(self, request: Request) -> None:
        given = request.body.subscription
        if not self._are_too_many(request, "addSubscriptionToTxnResponse", len(given)):
            subscriptions = [[one.topic, one.subscription] for one in given]
            self._about(request, "addSubscriptionToTxnResponse", "txn-add", subscriptions=subscriptions)

    def _are_too_many(self, request: Request, answer: str, count: int) -> bool:
        """Refuses what the coordinator would: it would take long to bring there."""
        if count <= MAX_PARTICIPANTS:
            return False
        txn = {"txnid_least_bits": request.body.txnid_least_bits, "txnid_most_bits": request.body.txnid_most_bits}
        request.reply(answer, error=NOT_ALLOWED, message=TOO_MANY_PARTICIPANTS, **txn)
        return True

    def end(self, request: Request) -> None:
        """Ends a transaction. One that is over may be ended again by a client (`client`) that was not answered."""
        client, id = request.client, request.body.txnid_least_bits
        if not request.body.HasField("txn_action"):
            self._desk.hang_up(client)
            return
        times = client.unended.get(id, 0)

        def heard(found: Fields | PulsarError) -> None:
            if isinstance(found, GatewayDownError):
                if len(client.unended) >= MAX_UNENDED:
                    client.unended.clear()
                client.unended[id] = max(client.unended.get(id, 0), times + 1)

        asked_by = f"{client.conn}:{client.since_s}:{times}"
        commit = request.body.txn_action == COMMIT
        self._about(request, "endTxnResponse", "txn-end", heard, commit=commit, client=asked_by)

    def _about(
        self, request: Request, answer: str, what: str, then: Heard | None = None, /, **fields: Any,  # noqa: ANN401
    ) -> None:  # fmt: skip
        body = request.body
        txn = {"txnid_least_bits": body.txnid_least_bits, "txnid_most_bits": body.txnid_most_bits}

        def heard(found: Fields | PulsarError) -> None:
            if then is not None:
                then(found)
            if isinstance(found, PulsarError):
                request.reply(answer, error=_code(found), message=str(found), **txn)
            else:
                request.reply(answer, **txn)

        if body.txnid_most_bits:
            why = f"Transaction coordinator with id {body.txnid_most_bits} not found!"
            request.reply(answer, error=COORDINATOR_NOT_FOUND, message=why, **txn)
            return
        owner = request.client.role
        self._catalog.ask(what, heard, timeout_ns=TIMEOUT_NS, id=body.txnid_least_bits, owner=owner, **fields)

    # --- acknowledgements -------------------------------------------------------------------------------------------

    def acknowledge(self, request: Request) -> None:
        """Acknowledges one message after the other, up to the first that is refused: a client aborts then."""
        consumer = request.client.consumers.get(request.body.consumer_id)
        if consumer is None or not consumer.open:
            request.done()
            return
        ids = request.body.message_id
        if len(ids) > MAX_IDS or any(len(one.ack_set) > lib.PARTS_MAX_WORDS for one in ids):
            self._answer(request, NOT_ALLOWED, TOO_MUCH_AT_ONCE)
            return
        wanted: deque[_Wanted] = deque()
        for one in ids:
            if one.ledgerId != consumer.ledger:
                continue
            words = [word % (1 << 64) for word in one.ack_set]
            upto = request.body.ack_type == CUMULATIVE
            wanted.append(_Wanted(one.entryId, bits=struct.pack(f"={len(words)}Q", *words), upto=upto))
        self._next(request, request.client, consumer, wanted)

    def _next(self, request: Request, client: Client, consumer: Consumer, wanted: deque[_Wanted]) -> None:
        if not wanted:
            self._answer(request, None, "")
            return
        one = wanted.popleft()

        def heard(answer: Answer) -> None:
            if answer.status == engine.OK:
                self._next(request, client, consumer, wanted)
            elif answer.status in (engine.FULL, engine.NONE):
                self._answer(request, TRANSACTION_CONFLICT, _conflict(request, consumer, one, answer))
            elif answer.status == engine.NOT_FOUND:
                self._answer(request, NOT_ALLOWED, "A reader acknowledges nothing")
            else:
                self._answer(request, SERVICE_NOT_READY, "The acknowledgement could not be noted")

        asked = self._desk.ask(
            client, lib.MSG_TXN_ACK, consumer.topic, heard, topic=self._desk.engine.bind(consumer.topic.core.encode()),
            id=request.body.txnid_least_bits, pri=consumer.number, ttr_ns=one.seq, body=one.bits,
            flags=lib.MSG_UPTO if one.upto else 0,
        )  # fmt: skip
        if not asked:
            self._answer(request, SERVICE_NOT_READY, "Too many requests under way")

    @staticmethod
    def _answer(request: Request, code: int | None, text: str) -> None:
        body = request.body
        if not body.HasField("request_id"):
            request.done()
            return
        request.reply("ackResponse", consumer_id=body.consumer_id, error=code, message=text or None)
